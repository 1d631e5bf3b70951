"""The module map of docs/architecture.md, made from the modules' own docstrings; run it to refresh the page."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
HEADING = "## One sentence per module\n"


def sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def expected() -> str:
    package = ROOT / "src" / "ddtree"
    lines = [HEADING]
    folder = None
    for path in sorted(
        package.rglob("*.py"), key=lambda p: (p.parent != package, p.parent, p.name != "__init__.py", p)
    ):
        if path.parent != folder:
            folder = path.parent
            name = ".".join(("ddtree", *folder.relative_to(package).parts))
            lines.append(f"\n**`{name}`** {sentence(path)}\n\n")
        else:
            lines.append(f"- `{path.stem}`: {sentence(path)}\n")
    return "".join(lines)


def main() -> None:
    before = PAGE.read_text().partition(HEADING)[0]
    PAGE.write_text(before + expected())


if __name__ == "__main__":
    main()
