"""The pages of docs/papers: made from their data, whose values are those of the configs, and whose commands parse."""

import re
import shlex
from pathlib import Path

import pytest

from docs import papers
from mvcl import _configs, cli, studies, training
from tests.recipes.test_recipes import Nothing

ROOT = Path(__file__).parents[2]
NAMES = ("field", "jeon", "koromilas", "piran", "shidani", "xu")
ENTRIES = [(name, entry) for name in papers.names() for entry in papers.read(name).entries]


def real(paper):
    """The variants of a paper's configs that are not for smoke tests."""
    return [
        f"{name}:{variant}"
        for name, file in _configs.names().items()
        if name.startswith(f"{paper}/")
        for variant in _configs.variants(file)
        if not variant.startswith("smoke") and variant != "get_config"
    ] or [f"{name}:get_config" for name in _configs.names() if name.startswith(f"{paper}/")]


def test_each_paper_has_a_page():
    assert papers.names() == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_made_from_its_data(name):
    written = (papers.FOLDER / f"{name}.md").read_text()
    assert written == papers.page(papers.read(name)), "run python -m docs.papers"


@pytest.mark.parametrize("name", NAMES)
def test_stated_values_are_those_of_the_configs(name):
    options = {}
    for entry in papers.read(name).entries:
        for value in entry.values:
            for source in value.configs:
                if source not in options:
                    options[source] = papers.options(training.load(source))
                found = papers.matching(value.option, options[source])
                assert found, f"{entry.name}: {source} has no option {value.option}"
                for option in found:
                    assert options[source][option] == value.value, f"{entry.name}: {option} of {source}"


@pytest.mark.parametrize("name", NAMES)
def test_every_value_that_a_config_chooses_is_stated(name):
    stated = [value for entry in papers.read(name).entries for value in entry.values]
    missing = []
    for source in real(name):
        patterns = [value.option for value in stated if source in value.configs]
        missing += [
            f"{source} {option}"
            for option in papers.chosen(training.load(source))
            if not any(papers.matching(pattern, [option]) for pattern in patterns)
        ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=lambda x: x if isinstance(x, str) else x.name)
def test_commands_of_the_page_parse(name, entry):
    for command in entry.commands:
        words = shlex.split(command)
        if words[:2] == ["mvcl", "train"]:
            options = [word for word in words[3:] if word != "--dry-run"]
            for option in ("--workdir", "--seeds"):  # of the command, not of the config
                if option in options:
                    place = options.index(option)
                    del options[place : place + 2]
            training.check(cli._with_config(Nothing, training.load(words[2]), "train", options, "").config)
        elif words[:2] == ["mvcl", "study"]:
            scale = words[words.index("--scale") + 1] if "--scale" in words else "small"
            function = studies.scales(studies.find(words[2]))[scale]
            named = {option.removeprefix("--") for option in words[3::2]}
            known = studies.parameters(function)
            needed = {option for option, value in known.items() if value.default is value.empty}
            assert needed <= named <= {*known, "scale", "seeds", "workdir"}, command
        elif words[0] == "mvcl":
            assert re.search(rf"^  mvcl {words[1]} ", cli._OVERVIEW, re.MULTILINE), command
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
        else:
            assert words[:2] == ["python", "-m"], command
            assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file(), command


def test_files_that_are_wrong_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(papers, "FOLDER", tmp_path)
    entry = 'kind = "table"\nname = "T"\nsection = ""\npaper = ""\nreleased = ""\nours = ""\ncommand = ""\n'
    head = 'title = "T"\npaper = "P"\ncode = "C"\n[[entry]]\n'
    wrong = {
        "status": head + entry + 'status = "done"\n',
        "kind must be": head + entry.replace('"table"', '"page"') + 'status = "partly"\n',
        "command": head + entry.replace('command = ""\n', "") + 'status = "partly"\n',
        "source must be": head
        + entry
        + 'status = "partly"\n[[entry.value]]\nconfig = "c"\noption = "o"\nvalue = 1\nsource = "me"\n',
    }
    for message, text in wrong.items():
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(ValueError, match=message):
            papers.read("x")
