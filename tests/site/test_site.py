"""The site: every public name has a place, docstrings keep their formulas, pictures have their makers."""

import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from docs import modules, objectives, papers, printed, published, readme, reference, which
from docs import site as generator
from mvcl import losses, studies

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


# Pages that modules of docs/ write from data, signatures and docstrings, and the functions that make them.
OF_PACKAGES = [reference.FOLDER / f"{package}.md" for package in generator.PACKAGES]
WRITTEN = [
    (readme.PAGE, lambda: readme.written(readme.PAGE.read_text(), json.loads(readme.NUMBERS.read_text()))),
    (modules.PAGE, modules.page),
    (printed.PAGE, printed.page),
    (published.FOLDER / "README.md", published.page),
    (which.PAGE, lambda: which.page(which.published())),
    *((page, partial(objectives.pages().get, page)) for page in objectives.pages()),
    *((papers.FOLDER / f"{name}.md", partial(papers.page, name)) for name in papers.names()),
    *((page, partial(reference.page, page)) for page in OF_PACKAGES),
]


@pytest.mark.parametrize(("page", "make"), WRITTEN, ids=lambda value: getattr(value, "stem", ""))
def test_a_page_is_what_its_data_make_today(page, make):
    assert page.read_text() == make(), "run `make docs-data` or the module of docs/ that writes it"


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


PLACES = ("*.md", "docs/*.md", "docs/[!s]*/**/*.md", "docs/start/*.md", "docs/papers/*.toml")
PLACES += ("docs/**/*.ipynb", "configs/**/*.py", "mvcl/**/*.py")
MADE = {file.with_suffix(".md") for file in ROOT.glob("docs/papers/*.toml")}
TEXTS = sorted({file for at in PLACES for file in ROOT.glob(at)} - MADE - {ROOT / "CHANGELOG.md"})


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


def paragraphs(file: Path) -> Iterator[str]:
    """The entries of a paper's page, or the paragraphs of a text, each in one line."""
    if file.suffix == ".toml":
        for entry in tomllib.loads(file.read_text())["entry"]:
            yield str(entry)
    else:
        for part in file.read_text().split("\n\n"):
            yield " ".join(part.split())


def bare(text: str) -> list[str]:
    """What a text says of docs/studies without a page that is there."""
    found = []
    for of in re.finditer(r"(--write |such as )?docs/studies(/\w+\.\w+)?", text):
        if not of[1] and not (of[2] and (ROOT / of[0]).is_file()):
            found.append(text[max(of.start() - 60, 0) : of.end() + 30])
    return found


def test_a_page_of_a_study_is_named():
    found = {named(file): words for file in TEXTS for part in paragraphs(file) if (words := bare(part))}
    assert found == {}


def test_a_link_to_a_study_leads_to_a_file():
    lost = [
        (named(file), of[1])
        for file in TEXTS
        for of in re.finditer(r"(?:\]\(|href=\\?\")([^)\"\\#]*studies/[^)\"\\#]*)", file.read_text())
        if "://" not in of[1] and not (file.parent / of[1]).exists()
    ]
    assert lost == []


def test_a_study_that_is_named_exists_with_its_scale():
    known = {file.stem: file for file in studies.study_files()}
    command = re.compile(r"mvcl study ([a-z]\w*)(?![\w.])(?:(?! --scale)[^`#\"]*? --scale (\w+))?")
    lost, scales = [], {}
    for file in TEXTS:
        for name, scale in command.findall(" ".join(file.read_text().split())):
            if name not in known:
                lost.append((named(file), name))
            elif scale and scale not in scales.setdefault(name, {*studies.scales(known[name])}):
                lost.append((named(file), name, scale))
    assert lost == []
