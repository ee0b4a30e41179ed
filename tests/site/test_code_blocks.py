"""Every code block of the pages runs, and every command in them has options that exist.

The Python blocks run, those that take minutes by `make test-docs`; the commands are parsed by the real parser, without
their work, in a folder with what a page assumes.
"""

import doctest
import importlib.util
import itertools
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pytest
from markdown_it import MarkdownIt
from PIL import Image

from docs import site
from mvcl import cli, data, training

ROOT = Path(__file__).parents[2]
FILES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in FILES)

# Commands of other programs, which are not parsed here.
OTHERS = r"\S*pip install|python3? -m venv|\S+/python -m pytest|git clone https:|PROJECT=|.*launch/\S+ "
OF_RUNS = ("evaluate", "finetune", "embed", "neighbours", "geometry", "decompose", "report", "export")
# Options that shorten a training.
SHORT = "--train.steps 4 --train.batch-size 32 --train.log-every 2 --train.evaluate-every 0"
SHORT += " --encoder.widths 4 8 --head.out 8 --evaluation.draws 2"
# Pages whose Python blocks take long: large problems, and a trained run.
SLOW = {"docs/design/losses.md", "docs/design/transport.md", "docs/how_to/evaluation.md"}
# Pages whose Python blocks compile many objectives, and pages with commands that import studies and data sets.
SECONDS = {"README.md", "docs/how_to/arrays.md", "docs/how_to/beyond.md", "docs/how_to/ott.md"}
SECONDS |= {"docs/how_to/studies.md", "docs/reference/objectives.md"}
SECONDS |= {f"docs/how_to/{name}.md" for name in ("compare", "metrics", "modalities", "photos", "tables")}
STUDIES = {"docs/how_to/studies.md", "docs/studies/README.md", "docs/how_to/data.md"}


class Block(NamedTuple):
    """A fenced block of a page; `line` counts from 1; `follows`: only blank lines part it from the block before."""

    page: str
    line: int
    language: str
    text: str
    follows: bool


def blocks(page: str) -> Iterator[Block]:
    tokens = MarkdownIt().parse((ROOT / page).read_text(encoding="utf-8"))
    for before, token in itertools.pairwise([None, *tokens]):
        if token.type in ("fence", "code_block"):
            follows = before is not None and before.type == "fence"
            yield Block(page, token.map[0] + 1, token.info, token.content, follows)


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a shell block; variables are replaced by what the block sets."""
    variables: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", " ", block.text).replace(" && ", "\n").splitlines():
        for name, value in variables.items():
            line = line.replace(f"${name}", value)
        words, own = shlex.split(line.removeprefix("export "), comments=True), {}
        while words and (given := re.fullmatch(r"(\w+)=(.*)", words[0])):
            own[given[1]], words = given[2], words[1:]
        if words:
            yield words
        else:
            variables |= own


def marked(language: str, **pages: set[str]) -> list[Any]:
    """The pages with such blocks; those in a set have its name as their mark."""
    marks = {page: getattr(pytest.mark, mark) for mark, of in pages.items() for page in of}
    found = [page for page in PAGES if f"```{language}\n" in (ROOT / page).read_text(encoding="utf-8")]
    return [pytest.param(page, marks=marks.get(page, ())) for page in found]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of a page's blocks; the checkout's folders are in it, as for a reader with a clone."""
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "launch", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    matplotlib.use("Agg")
    return tmp_path


def assume(page: str, folder: Path) -> None:
    """Write the files that a page reads: two classes of small images, and UCI's six files, narrower."""
    text = (ROOT / page).read_text(encoding="utf-8")
    rng = np.random.default_rng(0)
    for split in ("train", "test") if "photos" in text else ():
        for name in ("cats", "dogs"):
            (folder / "photos" / split / name).mkdir(parents=True)
            for i in range(24):
                pixels = rng.integers(0, 256, (24, 24, 3), np.uint8)
                Image.fromarray(pixels).save(folder / "photos" / split / name / f"{i}.jpg")
    for name in ("pix", "fou", "fac", "zer", "kar", "mor") if "mfeat-" in text else ():
        np.savetxt(folder / f"mfeat-{name}", np.zeros((2000, 2)))


def same(printed: str, claimed: str) -> bool:
    """Whether two outputs have the same words, and the same numbers to 1 %."""
    number = r"-?\d+\.?\d*(?:e[+-]?\d+)?"
    numbers = [np.array(re.findall(number, text), float) for text in (printed, claimed)]
    rest = [re.sub(number, "#", text).split() for text in (printed, claimed)]
    return rest[0] == rest[1] and np.allclose(*numbers, rtol=0.01, atol=1e-3)


def test_blocks_are_python_shell_or_text():
    """No block is without a language, or of one that nothing checks; those in braces are directives of the site."""
    languages = {block.language for page in PAGES for block in blocks(page)}
    assert {language for language in languages if language[:1] != "{"} == {"python", "sh", "text"}


@pytest.mark.parametrize("page", marked("python", slow=SLOW, exhaustive=SECONDS))
def test_python_blocks_run(page, folder, capsys, request):
    """In order, in one namespace for the page; a block prints the block of text that follows it, if one does."""
    assume(page, folder)
    names: dict[str, object] = {"__name__": "page"}
    found = list(blocks(page))
    texts = "".join(block.text for block in found if block.language == "python")
    for run in set(re.findall(r'"(runs/\w+)"', texts)):
        shutil.copytree(request.getfixturevalue("trained"), folder / run)
    for block, after in zip(found, [*found[1:], None]):
        if block.language != "python":
            continue
        capsys.readouterr()
        exec(compile("\n" * block.line + block.text, page, "exec"), names)
        printed = capsys.readouterr().out
        if after is not None and after.follows and after.language == "text":
            assert same(printed, after.text), f"{page}:{after.line} differs from what is printed:\n{printed}"


class Parsed(BaseException):
    """Raised in place of a command's work, so that `mvcl` does not handle it."""


@pytest.fixture
def no_work(monkeypatch):
    """Commands stop where their work would begin, once all options are parsed and the config is checked."""

    def work(config: object = None, *_: object, **__: object) -> None:
        if isinstance(config, training.Config):
            training.check(config)
        raise Parsed

    for name in ("train", "train_seeds", "dry_run", "open_run", "open_weights"):
        monkeypatch.setattr(training, name, work)
    for name in ("report.write_report", "studies.run_study", "studies.overview", "data._tfds._check_known"):
        monkeypatch.setattr(f"mvcl.{name}", work)
    for name in ("join", "compilation_cache"):
        monkeypatch.setattr(training, name, lambda *_: None)
    monkeypatch.setattr("jax.profiler.start_server", lambda _: None)
    for preparer in (named() for named in data.PREPARERS.values()):
        monkeypatch.setattr(preparer, "run", work)


def runs(words: list[str]) -> list[Path]:
    """The folders of runs that a command reads."""
    if words[0] != "mvcl" or words[1] not in OF_RUNS or "--weights" in words:
        return []
    given = " ".join(words[2:]).split(" --")[0].split()
    return [Path(word) for word in (given if words[1] == "report" else given[:1])]


@pytest.mark.parametrize("page", marked("sh", exhaustive=STUDIES))
def test_commands_are_parsed(page, folder, no_work, capsys):
    """In order; a block of Python that begins with `# NAME.py` is written to that file in its turn."""
    assume(page, folder)
    for block in blocks(page):
        if block.language == "python" and (named := re.match(r"# ([\w/]+\.py)\n", block.text)):
            (folder / named[1]).write_text(block.text, encoding="utf-8")
        for words in commands(block) if block.language == "sh" else ():
            for run in runs(words):
                run.mkdir(parents=True, exist_ok=True)
                (run / "config.json").write_text(training.to_json(training.load("digits")))
            assert not (problem := check(words, capsys)), f"{page}:{block.line}: {' '.join(words)}: {problem}"


def check(words: list[str], capsys: pytest.CaptureFixture[str]) -> object:
    """What is wrong with a command that can be known without its work."""
    if "--" in words:  # of launch/
        words = words[words.index("--") + 1 :]
    script = next((word for word in words if word.startswith(("launch/", "benchmarks/"))), "")
    if script and not (ROOT / script).is_file():
        return f"no file {script}"
    if script.endswith(".sbatch"):
        words = ["mvcl", "train", *words[words.index(script) + 1 :]]
    if words[0] == "mvcl":
        capsys.readouterr()
        try:
            code = cli.main(words[1:])
        except Parsed:
            code = 0
        except SystemExit as stop:  # tyro's help and errors
            code = int(stop.code or 0)
        return "".join(capsys.readouterr()) if code else None
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return [word for word in words[1:] if word.isidentifier() and word not in targets]
    if words[0] in ("python", ".venv/bin/python") and words[1] == "-m":
        found = importlib.util.find_spec(words[2])
        text = "" if found is None or found.origin is None else Path(found.origin).read_text(encoding="utf-8")
        return [word for word in words[2:] if word.startswith("--") and f'"{word}"' not in text] or not text
    known = script or re.match(OTHERS, " ".join(words))
    return None if known else f"{words[0]} is no program that this test knows; name it in OTHERS"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that pages assume: the digits, a few steps."""
    run = tmp_path_factory.mktemp("trained") / "run"
    assert cli.main(["train", "digits", "--workdir", str(run), *SHORT.split()]) == 0
    return run


@pytest.mark.exhaustive
def test_examples_in_docstrings():
    """Docstrings of public names have no fenced blocks, and their interactive examples print what they say."""
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for package in site.PACKAGES:
        for name, value in site.public(package).items():
            assert "```" not in (value.__doc__ or ""), f"mvcl.{package}.{name}"
            for test in finder.find(value, f"mvcl.{package}.{name}") if callable(value) else ():
                runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0
