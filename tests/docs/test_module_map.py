"""The map of modules in the docs is the one that the code gives."""

from docs.module_map import HEADING, PAGE, expected


def test_the_docs_describe_every_module_as_it_describes_itself():
    page = PAGE.read_text()
    assert page[page.index(HEADING) :] == expected(), "refresh it: python tests/docs/module_map.py"


def test_every_module_says_what_it_is():
    assert not [line for line in expected().splitlines() if line.endswith((":", "** "))]
