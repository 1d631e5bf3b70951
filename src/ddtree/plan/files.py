"""Reading plan files: strict YAML (no duplicate keys), several files merged key by key, errors as one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml


class PlanError(Exception):
    """What is wrong with a plan: `lines`, each naming file, key and what is allowed."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML allows a later key to replace an earlier one in silence; a plan does not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int, float)) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key} is given twice", key_node.start_mark)
            if isinstance(key, (str, int, float)):
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, object]:
    """The mapping in `path`. PlanError (one line, with the position) when it cannot be read as one."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except FileNotFoundError:
        raise PlanError(f"{path}: no such plan file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise PlanError(f"{path}: {where}{error.problem}") from None
    except yaml.YAMLError as error:
        raise PlanError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise PlanError(f"{path}: a plan is a mapping of keys, this file holds {_kind(data)}")
    return data


def _kind(value: object) -> str:
    return {dict: "a mapping", list: "a list", str: "text", type(None): "nothing"}.get(type(value), repr(value))


def merge(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """`over` on top of `base`, mapping by mapping (as Snakemake merges its configuration files)."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


class Origin:
    """Tells which file (or the command line) gave a key, so that an error names the right one."""

    def __init__(self, layers: Sequence[tuple[str, Mapping[str, object]]]) -> None:
        self._layers = layers

    def of(self, loc: Sequence[str | int]) -> str:
        """The label of the last layer that holds the longest part of `loc`."""
        best, depth = self._layers[0][0], 0
        for label, data in self._layers:
            found = _depth(data, loc)
            if found >= depth:
                best, depth = label, found
        return best


def _depth(data: object, loc: Sequence[str | int]) -> int:
    for depth, key in enumerate(loc):
        if not isinstance(data, Mapping) or key not in data:
            return depth
        data = data[key]
    return len(loc)
