"""The pages of objectives follow from docstrings and declarations, and are up to date."""

import re
from pathlib import Path

import pytest

from benchmarks import agreement
from docs import objectives
from mvcl import losses


@pytest.mark.parametrize("name", list(losses.objectives()))
def test_docstring(name):
    """It has a summary, a formula, a source, a cost, Args and Returns; Args name all but the shared arguments."""
    function = losses.objectives()[name]
    parts = objectives.parts(function)
    arguments = re.findall(r"^  (\w+): ", parts.sections["Args"], flags=re.MULTILINE)
    parameters = list(function.__annotations__)[:-1]
    assert arguments == [p for p in parameters if p in arguments or p not in objectives.COMMON]


def test_a_docstring_without_its_parts():
    def f(x):
        """A sentence.

        Args:
          x: an array.
        """

    with pytest.raises(ValueError, match=r"docstring of f must have a formula.*a source.*cost.*Returns:"):
        objectives.parts(f)


def test_every_objective_is_described_once():
    described = [name for functions in objectives.kinds().values() for name in functions]
    assert sorted(described) == sorted(losses.objectives())


def test_page_is_up_to_date():
    text = objectives.PAGE.read_text(encoding="utf-8")
    assert objectives.page(text) == text, "run python -m docs.objectives"


def test_table_of_agreement_has_every_objective():
    text = (Path(objectives.FOLDER) / "design" / "agreement.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(.*?)` \|", text, flags=re.MULTILINE) == list(agreement.OBJECTIVES)
