"""The published pages are made from their numbers, by the studies of today."""

import csv
import json
from pathlib import Path

import pytest

from docs import published
from mvcl import studies
from mvcl.studies import _page
from tests.parametrize import some

PAGES = sorted(published.FOLDER.glob("*.json"))
STEMS = [file.stem for file in PAGES]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_a_page_is_made_from_its_numbers_by_the_claims_and_rules_of_today(file: Path):
    content = json.loads(file.read_text())
    assert content == published.judged(content), "run: python -m docs.published"
    assert file.stem == f"{content['name']}_{content['scale']}"
    assert file.with_suffix(".md").read_text() == studies.page(content, f"{file.stem}.svg")
    table = file.with_suffix(".csv").read_text()
    assert table == studies.rows(content)
    names = next(csv.reader(table.splitlines()))
    assert len(names) == len({*names})


@pytest.mark.parametrize("stem", some(STEMS, fast=STEMS[:2]))
def test_a_figure_is_drawn_from_its_numbers(stem: str, tmp_path: Path):
    _page.plot(json.loads((published.FOLDER / f"{stem}.json").read_text()), tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_bytes() == (published.FOLDER / f"{stem}.svg").read_bytes()


@pytest.mark.parametrize(
    "name", some([file.stem for file in studies.study_files()], fast=["xu_table2", "koromilas_table4"])
)
def test_every_scale_of_a_study_can_be_saved(name: str):
    """That all build is seen from their costs in the list."""
    functions = studies.scales(studies.find(name))
    assert "smoke" in functions
    for scale, function in functions.items():
        for place in studies.places(studies.without_data(function), Path(scale)):
            assert studies.look(place).state == "missing"


@pytest.mark.parametrize("file", studies.study_files(), ids=lambda file: file.stem)
def test_a_figure_is_along_numbers(file: Path):
    for function in studies.scales(file).values():
        study = studies.without_data(function)
        assert not any(isinstance(cell.factors[study.along], str) for cell in study.cells if study.along)
