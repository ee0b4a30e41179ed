"""The data of docs/papers and the configs: their settings have origins, and the commands parse."""

import inspect
import re
import shlex
from pathlib import Path

import pytest
from parametrize import some

from docs import papers
from mvcl import cli, studies, training
from tests.recipes.test_recipes import parsed

ROOT = Path(__file__).parents[2]
NAMES = ("field", "jeon", "koromilas", "piran", "shidani", "xu")
COMMANDS = {
    name: list(dict.fromkeys(command for entry in papers.read(name).entries for command in entry.commands))
    for name in NAMES
}
# Parsing the options of a config takes a third of a second; the longest command of each paper is parsed every time.
TRAIN = [max((c for c in of if c.startswith("mvcl train")), key=len) for of in COMMANDS.values()]


CONFIGS = [file for name in NAMES for file in papers.configs(name)]


def test_each_paper_has_a_page_and_configs():
    assert papers.names() == list(NAMES)
    assert all(papers.configs(name) for name in NAMES)


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_each_setting_of_a_config_has_an_origin(file):
    lines = [line for lines in papers.settings(file).values() for line in lines]
    assert lines
    assert not [f"{line.where} {line.option} = {line.value}" for line in lines if not line.origin]


CONFIG = """
def real():
    return Config(
        objective=losses.all_pairs(  # paper, Eq. 1
            pairs="ordered",
        ),
        encoder=models.MLP(),  # a comment, but no origin
    )
"""


def test_a_setting_without_an_origin_is_seen(tmp_path):
    """The pages show that those with an origin are read."""
    file = tmp_path / "x.py"
    file.write_text(CONFIG)
    found = [(s.option, s.origin) for s in papers.settings(file)["real"]]
    assert ("objective", "paper, Eq. 1") in found
    assert ("objective.pairs", "") in found


EVERY = sorted({command for commands in COMMANDS.values() for command in commands})


@pytest.mark.parametrize("command", some([c for c in EVERY if c.startswith("mvcl train")], fast=TRAIN))
def test_commands_that_train_parse(command):
    words = shlex.split(command)
    options = [word for word in words[3:] if word != "--dry-run"]
    for option in ("--workdir", "--seeds"):  # of the command, not of the config
        if option in options:
            place = options.index(option)
            del options[place : place + 2]
    training.check(training.with_config(parsed, training.load(words[2]), "train", options))


@pytest.mark.parametrize("command", [command for command in EVERY if not command.startswith("mvcl train")])
def test_other_commands_parse(command):
    words = shlex.split(command)
    if words[:2] == ["mvcl", "study"]:
        scale = words[words.index("--scale") + 1] if "--scale" in words else "small"
        function = studies.scales(studies.find(words[2]))[scale]
        named = {option.removeprefix("--") for option in words[3::2]}
        known = dict(inspect.signature(function).parameters)
        needed = {option for option, value in known.items() if value.default is value.empty}
        assert needed <= named <= {*known, "scale", "seeds", "workdir", "only"}
    elif words[0] == "mvcl":
        assert re.search(rf"^  mvcl {words[1]} ", cli.overview(), re.MULTILINE)
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    else:
        assert words[:2] == ["python", "-m"]
        assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file()
