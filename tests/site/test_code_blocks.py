"""Every code block of the pages runs, and every command in them has options that exist.

By default the Python blocks run, and the commands are parsed by the real parser, without their work. `make test-docs`
also runs the commands: short trainings of small networks, in a folder with what a page assumes.
"""

import doctest
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import yaml
from PIL import Image

from docs.site import reference
from mvcl import cli, data, training
from tests.site.code_blocks import PAGES, ROOT, Command, blocks, commands

BLOCKS = [block for page in PAGES for block in blocks(page)]
SHELL = ("sh", "bash")
PARSERS = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
KINDS = {"python", "text", *SHELL, *PARSERS}
COMMANDS = [command for block in BLOCKS if block.language in SHELL for command in commands(block)]

# Commands that are not run: a pattern of what `Command.text` starts with, and why. All are parsed, but for programs
# that are not of this project.
NOT_RUN = {
    r"mvcl train (piran/images:domainnet|koromilas/sentiment:chsims) ": "trains on data that are downloaded",
    r"mvcl train koromilas/cifar\S* --dry-run": "compiles a step at full size; tests/recipes does it for every config",
    r"mvcl train xu/sem\S* --data\.path ": "reads tables of the reader or of the paper's authors",
    r"mvcl data prepare (cifar10|transfer|eeg|sentiment)\b": "reads data sets that are downloaded",
    r"mvcl finetune .*data:transfer": "trains on data sets that are downloaded",
    r"mvcl study \w+ (?!.*(--dry-run|--scale smoke))": "minutes to days; tests/studies runs each at the scale smoke",
    r"mvcl study temperatures\.py --seeds": "minutes of training; the page's --dry-run of the same file is run",
    r"mvcl report runs/studies/": "needs a study that takes minutes",
    r"\S*pip install": "installs packages",
    r"python3? -m venv": "makes an environment, for packages",
    r"make (test|test-slow|test-newest|smoke|docs|wheel)$": "builds environments; the tests, the configs, the site",
    r"git clone https:": "downloads the code of others",
    r"python -m benchmarks\.accelerator --data": "minutes of measurements on an accelerator",
    r"python -m benchmarks\.accelerator --write": "writes a page of what was measured on an accelerator",
    r"python -m benchmarks\.released --released": "minutes of measurements beside the code of others",
    r"python -m (docs|benchmarks)\.\w+( --only barlow_twins .*)?$": "writes pages of the checkout; their tests compare",
    r"(PROJECT=|.*launch/\S+ (up|status|stop|delete)$)(?!.*--dry-run)": "needs an account of a cloud",
}
# Options that shorten a training, of the first pattern that matches; later options count.
STEPS = "--train.steps 4 --train.batch-size 32 --train.log-every 2 --train.evaluate-every 0"
SHORTER = {
    r"mvcl train my_config\.py .*runs/mine": f"{STEPS} --train.batch-size 8 --views.policy.image-size 32",
    r"mvcl train my_config\.py .*objective\.": f"{STEPS} --encoder.widths 4 8 --head.out 8",
    r"mvcl train .*evaluation\.linear": f"{STEPS} --evaluation.linear.epochs 1 --encoder.widths 4 8 --head.out 8",
    r"mvcl finetune ": "--train.steps 2 --train.batch-size 32 --views.k 2 --seeds 1 --views.policy.rand-augment-ops 0",
    r"mvcl train ": f"{STEPS} --encoder.widths 4 8 --head.out 8 --evaluation.draws 2",
}


def images(folder: Path) -> None:
    """The folder `photos` of a page: two classes of small images, train and test."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cats", "dogs"):
            (folder / "photos" / split / name).mkdir(parents=True)
            for i in range(24):
                pixels = rng.integers(0, 256, (24, 24, 3), np.uint8)
                Image.fromarray(pixels).save(folder / "photos" / split / name / f"{i}.jpg")


def handwritten(folder: Path) -> None:
    """UCI's six files of 2,000 rows, narrower."""
    for name in ("pix", "fou", "fac", "zer", "kar", "mor"):
        np.savetxt(folder / f"mfeat-{name}", np.zeros((2000, 2)))


# Pages whose Python blocks take long: large problems, and a trained run.
SLOW = {"docs/design/losses.md", "docs/design/transport.md", "docs/how_to/evaluation.md"}
# What pages assume in the current folder: the name of a file, and what writes it.
ASSUMED = {"photos": images, "mfeat-": handwritten}


def of_kind(*languages: str) -> list[str]:
    return sorted({block.page for block in BLOCKS if block.language in languages})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of a page's blocks; the checkout's folders are in it, as for a reader with a clone."""
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "launch", "benchmarks"):
        if (ROOT / name).is_dir():
            (tmp_path / name).symlink_to(ROOT / name)
    matplotlib.use("Agg")
    return tmp_path


def assume(page: str, folder: Path) -> None:
    """Write the files that a page reads."""
    for name, write in ASSUMED.items():
        if any(name in block.text for block in blocks(page)):
            write(folder)


def in_order(page: str, folder: Path) -> Iterator[Command]:
    """The commands of a page; a block of Python that begins with `# NAME.py` is written to that file in its turn."""
    for block in blocks(page):
        named = re.match(r"# ([\w/]+\.py)\n", block.text)
        if block.language == "python" and named:
            (folder / named[1]).write_text(block.text, encoding="utf-8")
        if block.language in SHELL:
            yield from commands(block)


def same(printed: str, claimed: str) -> bool:
    """Whether two outputs have the same words, and the same numbers to 1 %."""
    pairs = list(zip(printed.split(), claimed.split()))
    return len(printed.split()) == len(claimed.split()) and all(map(_same_word, *zip(*pairs)))


def _same_word(printed: str, claimed: str) -> bool:
    numbers = [re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", word) for word in (printed, claimed)]
    rest = [re.sub(r"-?\d+\.?\d*(?:e[+-]?\d+)?", "#", word) for word in (printed, claimed)]
    return rest[0] == rest[1] and np.allclose(*(np.array(n, float) for n in numbers), rtol=0.01, atol=1e-3)


def test_every_block_has_a_kind():
    """Output and formulas are declared as text; no block is without a language or of one that nothing checks."""
    unknown = [
        f"{block}: {block.language or 'no language'}" for block in BLOCKS if block.language not in KINDS
    ]
    assert not unknown


def test_no_block_passes_unseen():
    """As many blocks of each language as lines that open a fence, counted without the parser."""
    opened: Counter[str] = Counter()
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name in re.findall(r"^[ >]*(?:`{3,}|~{3,})[ ]*(\S[^`\n]*)$", text, re.MULTILINE):
            directive = re.fullmatch(r"\{(?:code-block|code|sourcecode)\} *(\S*).*|\{.*", name)
            language = name.strip() if directive is None else directive[1]
            if language is not None:
                opened[language] += 1
    assert Counter(block.language for block in BLOCKS) == opened


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in of_kind("python")],
)
def test_python_blocks_run(page, folder, capsys, request):
    """In order, in one namespace for the page; a block prints the block of text that follows it, if one does."""
    assume(page, folder)
    names: dict[str, object] = {"__name__": "page"}
    found = blocks(page)
    for run in {
        name for b in found if b.language == "python" for name in re.findall(r'"(runs/\w+)"', b.text)
    }:
        shutil.copytree(request.getfixturevalue("trained"), folder / run)
    for block, after in zip(found, [*found[1:], None]):
        if block.language != "python":
            continue
        capsys.readouterr()
        exec(compile("\n" * block.line + block.text, page, "exec"), names)
        printed = capsys.readouterr().out
        if after is not None and after.follows and after.language == "text":
            assert same(printed, after.text), (
                f"{after} differs from what the block before it prints:\n{printed}"
            )


def test_data_blocks_can_be_read():
    for block in BLOCKS:
        if block.language in PARSERS:
            assert PARSERS[block.language](block.text), block


class Parsed(BaseException):
    """Raised in place of a command's work, so that `mvcl` does not handle it."""


@pytest.fixture
def no_work(monkeypatch):
    """Commands stop where their work would begin, once all options are parsed and the config is checked."""

    def train(config: training.Config, *_: object, **__: object) -> None:
        training.check(config)
        raise Parsed

    def work(*_: object, **__: object) -> None:
        raise Parsed

    for name in ("train", "train_seeds", "dry_run"):
        monkeypatch.setattr(training, name, train)
    for name in ("open_run", "finetune"):
        monkeypatch.setattr(training, name, work)
    for name in ("join", "compilation_cache", "profiler_server"):
        monkeypatch.setattr(training, name, lambda *_: None)
    for name in (
        "report.write_report",
        "studies.run_study",
        "studies.overview",
        "data.prepare",
    ):
        monkeypatch.setattr(f"mvcl.{name}", work)
    for preparer in data.PREPARERS.values():
        monkeypatch.setattr(preparer, "run", work)


@pytest.mark.parametrize("page", of_kind(*SHELL))
def test_commands_parse(page, folder, no_work, capsys):
    """Every option of every command exists, and every config, script, extra and make target."""
    assume(page, folder)
    for command in in_order(page, folder):
        for run in runs(command):
            if "studies" in run.parts:
                (run / "cells").mkdir(parents=True, exist_ok=True)
            elif not (run / "config.json").exists():
                run.mkdir(parents=True, exist_ok=True)
                (run / "config.json").write_text(training.to_json(training.load("digits")))
        problem = check(command.words, capsys)
        assert problem is None, f"{command.block}: {' '.join(command.words)}: {problem}"


def runs(command: Command) -> list[Path]:
    """The folders of runs that a command reads."""
    words = command.words
    if words[0] != "mvcl" or words[1] not in (
        "evaluate",
        "finetune",
        "embed",
        "geometry",
        "report",
        "export",
    ):
        return []
    after = [i for i, word in enumerate(words) if word.startswith("--")]
    given = words[2 : after[0] if after else None]
    return [Path(word) for word in (given if words[1] == "report" else given[:1])]


def check(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str | None:
    """What is wrong with a command; None if nothing is that can be known without its work."""
    program, rest = Path(words[0]).name, words[1:]
    if program == "mvcl":
        return parsed(rest, capsys)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        missing = [word for word in rest if re.fullmatch(r"[\w-]+", word) and word not in targets]
        return f"no target {', '.join(missing)}" if missing else None
    if program == "pip":
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        extras = [
            e
            for word in rest
            for found in re.findall(r"^(?:mvcl|\.)\S*\[(.*)\]", word)
            for e in found.split(",")
        ]
        missing = [extra for extra in extras if extra not in known]
        return f"no extra {', '.join(missing)}" if missing else None
    if program in ("python", "python3") and rest[:1] == ("-m",):
        return module_options(rest[1], rest[2:])
    if program in ("python", "python3", "bash", "sbatch"):
        return script(rest, capsys)
    if (ROOT / words[0]).is_file():
        return script(words, capsys)
    known = any(re.match(pattern, " ".join(words)) for pattern in NOT_RUN)
    return None if known else f"{program} is no program that this test knows; give a reason in NOT_RUN"


def parsed(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str | None:
    """The error of `mvcl`, with its work left out."""
    try:
        code = cli.main(list(arguments))
    except Parsed:
        return None
    except SystemExit as stop:  # tyro's help and errors
        code = stop.code
    return None if code == 0 else capsys.readouterr().err


def module_options(module: str, options: tuple[str, ...]) -> str | None:
    """Whether a module of the checkout or of Python exists; options are looked up in the text of the former."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return f"no module {module}"
    if ROOT not in Path(found.origin).parents or "site-packages" in found.origin:
        return None
    text = Path(found.origin).read_text(encoding="utf-8")
    missing = [option for option in options if option.startswith("--") and f'"{option}"' not in text]
    return f"no option {', '.join(missing)}" if missing else None


def script(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str | None:
    """Whether a script of the checkout exists and is well-formed, and the `mvcl` command after it, if any, parses."""
    place = next((i for i, word in enumerate(words) if not word.startswith("-")), 0)
    file = ROOT / words[place]
    if not file.is_file():
        return f"no file {words[place]}"
    if file.suffix != ".py":
        checked = subprocess.run(["bash", "-n", file], capture_output=True, text=True)
        if checked.returncode:
            return checked.stderr
    else:
        compile(file.read_text(encoding="utf-8"), words[place], "exec")
    if "--" in words and words[words.index("--") + 1] == "mvcl":
        return parsed(words[words.index("--") + 2 :], capsys)
    return parsed(("train", *words[place + 1 :]), capsys) if file.suffix == ".sbatch" else None


def test_exceptions_are_used():
    """A table of exceptions that nothing matches any more would let a new command pass unseen."""
    for pattern in NOT_RUN:
        assert any(re.match(pattern, command.text) for command in COMMANDS), pattern
    for pattern in SHORTER:
        assert any(re.match(pattern, c.text) for c in COMMANDS if not excepted(c)), pattern
    for name in ASSUMED:
        assert any(name in block.text for block in BLOCKS), name


def excepted(command: Command) -> bool:
    return any(re.match(pattern, command.text) for pattern in NOT_RUN)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that pages assume: the digits, a few steps."""
    run = tmp_path_factory.mktemp("trained") / "run"
    options = next(options for pattern, options in SHORTER.items() if re.match(pattern, "mvcl train digits"))
    assert (
        cli.main(["train", str(ROOT / "configs" / "digits.py"), "--workdir", str(run), *options.split()]) == 0
    )
    return run


@pytest.mark.slow
@pytest.mark.parametrize("page", of_kind(*SHELL))
def test_commands_run(page, folder, trained, capsys):
    """The commands that need nothing but this machine, in order, shortened; the folders of runs are made before."""
    assume(page, folder)
    for command in in_order(page, folder):
        if excepted(command):
            continue
        for run in runs(command):
            if not run.exists():
                shutil.copytree(trained, run)
        capsys.readouterr()
        code, printed = run_command(command, capsys)
        assert code == 0, f"{command.block}: {' '.join(command.words)}: {printed}"


def run_command(command: Command, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and output of a command, shortened if it trains."""
    shorter = next((options for pattern, options in SHORTER.items() if re.match(pattern, command.text)), "")
    shorter = "" if {"--help", "--dry-run"} & set(command.words) else shorter
    words = [*command.words, *shorter.split()]
    if words[0] == "mvcl":
        try:
            code = cli.main(words[1:])
        except SystemExit as stop:  # tyro's help and errors
            code = int(stop.code or 0)
        return code, "".join(capsys.readouterr())
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PATH": path, "PYTHONPATH": paths} | command.variables
    words[0] = sys.executable if words[0] == "python" else words[0]
    found = subprocess.run(words, env=environment, capture_output=True, text=True)
    return found.returncode, found.stdout + found.stderr


def test_examples_in_docstrings():
    """Docstrings of public names have no fenced blocks, and their interactive examples print what they say."""
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for package in reference.PACKAGES:
        for name in reference.public(package):
            value = getattr(importlib.import_module(f"mvcl.{package}"), name)
            assert "```" not in (value.__doc__ or ""), f"mvcl.{package}.{name}"
            for test in finder.find(value, f"mvcl.{package}.{name}") if callable(value) else ():
                runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0
