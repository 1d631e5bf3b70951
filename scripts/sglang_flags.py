"""Records the command-line flags of one SGLang release: `sglang_flags.py sglang-X.Y.Z-...whl` writes them to
src/ddtree/servers/data/sglang-X.Y.Z.json.

The wheel is read, never run: fields of ServerArgs become flags as SGLang's own `add_cli_args_from_dataclass` derives
them (annotated `A[type, help or Arg(...)]`, underscores to dashes, aliases added, `no_cli` left out), and explicit
`parser.add_argument` calls of server_args.py are taken as they stand.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "src" / "ddtree" / "servers" / "data"
# Where ServerArgs declares its fields: one class up to 0.5.16, one file per group of fields later.
SOURCES = re.compile(r"sglang/srt/(server_args|arg_groups/fields/\w+)\.py")


def flags(source: str) -> Iterator[str]:
    """Flags that one source file declares."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield from _of_field(field.target.id, field.annotation)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant) and str(a.value)[:2] == "--")


def _of_field(name: str, annotation: ast.expr) -> Iterator[str]:
    if not (isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") == "A"):
        return
    inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    calls = [part for part in inner[1:] if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "Arg"]
    keywords = {k.arg: k.value for call in calls for k in call.keywords}
    if "no_cli" in keywords and ast.literal_eval(keywords["no_cli"]):
        return
    given = keywords.get("cli_name")
    primary = str(ast.literal_eval(given)) if given else "--" + name.replace("_", "-")
    aliases = ast.literal_eval(keywords["aliases"]) if "aliases" in keywords else []
    yield from (primary, *aliases)
    if "BooleanOptionalAction" in ast.unparse(annotation):
        yield "--no-" + primary.removeprefix("--")


def main(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if SOURCES.fullmatch(name)]
        found = {flag for name in names for flag in flags(archive.read(name).decode())}
    release = wheel.name.split("-")[1]
    path = FOLDER / f"sglang-{release}.json"
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps({"release": release, "flags": sorted(found)}, indent=0) + "\n")
    print(f"{path.name}: {len(found)} flags")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: sglang_flags.py WHEEL")
    main(Path(sys.argv[1]))
