"""Every test that docs/statistics.md names exists."""

import re

from docs.module_map import ROOT


def test_every_rule_of_the_statistics_page_has_its_test() -> None:
    named = re.findall(r"`(test_\w*)`", (ROOT / "docs" / "statistics.md").read_text())
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 20
    assert [name for name in named if not re.search(rf"def {name}\(", sources)] == []
