"""Foreign CPU time is seen, and the measured processes' own is not mistaken for it."""

import subprocess
import sys
import time

import pytest

from ddtree.bench import neighbours

BUSY = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


@pytest.fixture
def busy():
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    time.sleep(0.3)
    yield process
    process.kill()
    process.wait()


def test_a_busy_process_of_somebody_else_is_foreign_and_disturbs(busy):
    watch = neighbours.CoreWatch([])
    time.sleep(1)
    foreign = watch.foreign_cores()
    assert foreign > 0.2
    assert neighbours.disturbed(foreign)


def test_what_the_server_uses_itself_is_not_foreign(busy):
    blind, knowing = neighbours.CoreWatch([]), neighbours.CoreWatch([busy.pid])
    time.sleep(1)
    assert blind.foreign_cores() - knowing.foreign_cores() > 0.2
