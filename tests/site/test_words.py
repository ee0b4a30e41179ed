"""A sentence that says a result exists names its page, and a command that it names exists."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from mvcl import studies

ROOT = Path(__file__).parents[2]
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
