"""docs/security.md names tests; they exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/security.md").read_text()))
    sources = [*(ROOT / "tests/security").glob("test_*.py"), *(ROOT / "tests/quality").glob("test_*.py")]
    defined = {name for path in sources for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    assert len(named) > 30
    assert named - defined == set()


def test_every_file_of_security_tests_is_named_by_the_page():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/security.md").read_text()))
    for path in (ROOT / "tests/security").glob("test_*.py"):
        if path != Path(__file__):
            assert named & set(re.findall(r"^def (test_\w+)", path.read_text(), re.M)), path.name
