"""Nested records as flat ones, whose keys are paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def flat(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """('server.budget', 7) for every leaf; the items of a list of mappings are numbered."""
    for key, value in tree.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            value = {str(i): item for i, item in enumerate(value)}
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
