"""docs/mock-server.md: every lie has a row, and every test that it names exists."""

import re
from pathlib import Path

from ddtree.mock import LIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mock-server.md").read_text()


def test_every_lie_has_its_row_and_no_other() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(LIES)


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    source = Path(__file__).with_name("test_lies.py").read_text()
    assert named
    assert named <= set(re.findall(r"def (test_\w+)\(", source))
