"""Writes the list of modules into CONTRIBUTING.md: `python -m docs.modules`."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- modules -->\n", "<!-- end of modules -->\n"


def listing() -> str:
    """Each package with its modules, and the first line of each docstring."""
    lines = []
    for file in sorted((ROOT / "mvcl").rglob("*.py"), key=lambda file: (len(file.parents), file)):
        name = file.relative_to(ROOT).as_posix().removesuffix("__init__.py")
        summary = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
        if summary:
            lines.append(f"- `{name}`: {' '.join(summary.split())}")
    return "\n".join(sorted(lines)) + "\n"


def page() -> str:
    """CONTRIBUTING.md with the present list."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{listing()}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
