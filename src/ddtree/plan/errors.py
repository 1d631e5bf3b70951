"""Pydantic's errors as single lines: key, what was found, what is allowed, and a likely spelling."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pydantic_core import ErrorDetails

from ddtree.plan.schema import Plan

Json = dict[str, object]
Loc = tuple[str | int, ...]


def describe(error: ErrorDetails, written: Loc) -> str:
    """`error` without its file. `written` is the path of the key as it stands in the plan (server_defaults, say)."""
    kind, found, loc = error["type"], error["input"], error["loc"]
    key = dotted(written)
    if kind == "extra_forbidden":
        known = list(_properties(_schema_at(loc[:-1])))
        return f"{key}: unknown key{did_you_mean(str(loc[-1]), known)}; allowed: {', '.join(known)}"
    if kind == "missing":
        return f"{key}: missing; allowed: {allowed(_schema_at(loc))}"
    if kind == "value_error":
        return f"{key or 'plan'}: {error['msg'].removeprefix('Value error, ')}"
    if loc and loc[-1] == "[key]":
        key, found = dotted(loc[:-2]), loc[-2]
        return f"{key}: the name {found!r} is not allowed; allowed: {NAME}"
    return f"{key}: {_shown(found)} is not allowed; allowed: {allowed(_schema_at(loc))}"


NAME = "a name of small letters, digits, '.', '_' and '-', starting with a letter or digit, at most 60 characters"


def dotted(loc: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in loc)


def did_you_mean(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_SCHEMA: Json = Plan.model_json_schema()


def _resolve(node: object) -> Json:
    """Follow $ref and drop the null of an optional."""
    while isinstance(node, dict):
        if "$ref" in node:
            node = _SCHEMA["$defs"][str(node["$ref"]).rsplit("/", 1)[1]]  # type: ignore[index]
        elif "anyOf" in node:
            options = [option for option in node["anyOf"] if option.get("type") != "null"]
            node = options[0]
        else:
            return node
    return {}


def _properties(node: Json) -> Json:
    properties = node.get("properties", {})
    assert isinstance(properties, dict)
    return properties


def _schema_at(loc: Sequence[str | int]) -> Json:
    """JSON schema of the value at `loc`; {} where the schema says nothing."""
    node: Json = _SCHEMA
    for part in loc:
        node = _resolve(node)
        if part in _properties(node):
            node = _resolve(_properties(node)[str(part)])
        elif node.get("type") == "array":
            positions = node.get("prefixItems")
            node = _resolve(positions[int(part)] if isinstance(positions, list) else node.get("items"))
        else:
            names = node.get("patternProperties") or {"": node.get("additionalProperties")}
            assert isinstance(names, dict)
            node = _resolve(next(iter(names.values())))
    return _resolve(node)


def allowed(node: Json) -> str:
    """What a JSON schema node admits, in words."""
    node = _resolve(node)
    if isinstance(choices := node.get("enum"), list):
        return ", ".join(str(choice) for choice in choices)
    if "const" in node:
        return str(node["const"])
    kind = node.get("type")
    if kind in ("integer", "number"):
        return f"a {'whole ' if kind == 'integer' else ''}number{_range(node)}"
    if kind == "boolean":
        return "true, false"
    if kind == "string":
        return NAME if "pattern" in node else "text"
    if kind == "array":
        positions = node.get("prefixItems")
        if isinstance(positions, list):
            return f"a list of {len(positions)}: {allowed(positions[0])}"
        return f"a list, each {allowed(_resolve(node.get('items')))}"
    if "properties" in node:
        return "a mapping of " + ", ".join(_properties(node))
    return "a mapping of names"


def _range(node: Json) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", {low} or more"
    if "exclusiveMinimum" in node:
        top = f" up to {high}" if high is not None else ""
        return f" above {node['exclusiveMinimum']}{top}"
    return f", at most {high}" if high is not None else ""
