"""Docstrings and tables of the documentation name all objectives and arguments."""

import re

import pytest

from docs import data, objectives, readme
from mvcl import losses


@pytest.mark.parametrize("name", list(losses.objectives()))
def test_docstring(name):
    """It has a summary, a formula, a source, a cost, Args and Returns; Args name all but the shared arguments."""
    function = losses.objectives()[name]
    parts = objectives.parts(function)
    arguments = re.findall(r"^  (\w+): ", parts.sections["Args"], flags=re.MULTILINE)
    parameters = list(function.__annotations__)[:-1]
    explained = ("x", "y", "z", "temperature", *objectives.COMMON)
    assert arguments == [p for p in parameters if p in arguments or p not in explained]


def test_every_objective_has_one_line_in_the_table_of_the_docs():
    listed = " ".join(names for _, names, _ in readme.GROUPS).split()
    assert sorted(listed) == sorted(losses.objectives()), "GROUPS of docs/readme.py"


@pytest.mark.parametrize("lacking", [data.without_picture, data.without_agreement, data.without_scale])
def test_every_objective_has_its_picture_and_its_measured_rows(lacking):
    assert not lacking(), "run `make docs-data`"
