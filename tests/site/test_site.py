"""The site: every public name has a place, docstrings keep their formulas, pictures have their makers."""

import inspect
from pathlib import Path

import pytest

from docs import reference
from docs import site as generator
from mvcl import losses

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", generator.PACKAGES)
def test_every_public_name_has_a_directive(package):
    text = generator.expanded((ROOT / "docs" / "reference" / f"{package}.md").read_text())
    for name, value in generator.public(package).items():
        if not generator.home(package, name, value).startswith("mvcl."):
            continue
        kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "data"
        assert text.count(f".. auto{kind}:: {name}\n") == 1, name
    assert "<!-- api" not in text


@pytest.mark.parametrize("package", generator.PACKAGES)
def test_a_page_has_the_signatures_and_docstrings_of_today(package):
    path = reference.FOLDER / f"{package}.md"
    assert reference.page(path) == path.read_text(encoding="utf-8"), "run `python -m docs.reference`"


def test_the_entry_of_a_function_is_its_call_and_its_docstring():
    entry = reference.entry("losses", "siglip", losses.siglip)
    assert entry.startswith("### siglip\n\n```text\nsiglip(\n    x: ArrayLike,\n    y: ArrayLike,\n")
    assert "    *,\n    mask: ArrayLike | None = None,\n" in entry
    assert "\n) -> Array\n```\n" in entry
    assert "\nArgs:\n\n- `scale`: " in entry


def test_docstrings_keep_formulas_as_code_and_text_without_markup():
    lines = "A *sum* of `a_b`s |x|.\n\n    y = 2 * x_i\n\nThen `a\nb`.\n\nArgs:\n    x: a * b.".splitlines()
    generator.docstring(None, "function", "mvcl.losses.f", None, None, lines)
    assert lines == [
        "A \\*sum\\* of \\ ``a_b``\\ s \\|x\\|.", "", ".. code-block:: text", "", "    y = 2 * x_i", "",
        "Then \\ ``a b``\\ .", "", "Args:", "    x: a \\* b.",
    ]  # fmt: skip


def test_the_page_of_the_site_names_every_picture():
    docs = ROOT / "docs"
    text = (docs / "how_to" / "site.md").read_text()
    pictures = [file.relative_to(docs) for kind in ("png", "svg", "gif") for file in docs.rglob(f"*.{kind}")]
    assert pictures
    for picture in pictures:
        names = (picture.as_posix(), f"{picture.parent.as_posix()}/*{picture.suffix}")
        named = "_static" in picture.parts or any(f"`{name}`" in text for name in names)
        assert named, f"docs/how_to/site.md does not say what makes {picture}"
