"""What the pages of the site are written from, without building it."""

import re
from pathlib import Path

import pytest

from docs.site import reference

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_every_public_name_is_named_once(package):
    text = (DOCS / "reference" / f"{package}.md").read_text()
    blocks = re.findall(r"^```\{api\} \S+\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    named = [name for block in blocks for name in block.replace(",", " ").split()]
    named += re.findall(r"^\.\. py:class:: (\w+)", text, flags=re.MULTILINE)
    assert sorted(named) == reference.public(package)


def test_options_are_read_from_help():
    text = """usage: mvcl embed [-h] [OPTIONS] PATH

Write the features.

╭─ positional arguments ─────╮
│ PATH         Folder. (required)  │
╰────────────────────────────╯
╭─ options ──────────────────╮
│ -h, --help   show this     │
│ --split STR  `train` or    │
│              `test`.       │
│ --output {config,encoder}  │
│              Output to write. (default: config) │
╰────────────────────────────╯
╭─ views options ────────────╮
│ How many views there are,  │
│ and which.                 │
│ ────────────────────────── │
│ --views.k INT  At least 2. │
╰────────────────────────────╯
"""
    found = reference.parsed(text)
    assert (found.usage, found.head) == ("mvcl embed [-h] [OPTIONS] PATH", "Write the features.")
    assert found.sections == {
        "positional arguments": {"PATH": "Folder. (required)"},
        "options": {
            "--split STR": "`train` or `test`.",
            "--output {config,encoder}": "Output to write. (default: config)",
        },
        "views": {"--views.k INT": "At least 2."},
    }
    assert found.notes == {"views": "How many views there are, and which."}


def test_the_page_of_the_site_names_every_picture():
    text = (DOCS / "how_to" / "site.md").read_text()
    pictures = [
        f for kind in ("png", "svg", "gif") for f in DOCS.rglob(f"*.{kind}") if "_static" not in f.parts
    ]
    assert pictures
    for picture in pictures:
        name = picture.relative_to(DOCS).as_posix()
        folder = f"{picture.parent.relative_to(DOCS).as_posix()}/*{picture.suffix}"
        assert f"`{name}`" in text or f"`{folder}`" in text, (
            f"docs/how_to/site.md does not say what makes {name}"
        )
