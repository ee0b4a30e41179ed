"""The published pages are made from their numbers, by the studies of today."""

import json
from pathlib import Path

import pytest

from docs import published
from mvcl import studies
from mvcl.studies import _write

PAGES = sorted(published.FOLDER.glob("*.json"))
FILES = studies.study_files()


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_a_page_is_made_from_its_numbers(file: Path):
    content = json.loads(file.read_text())
    assert file.stem == f"{content['name']}_{content['scale']}"
    assert file.with_suffix(".md").read_text() == _write.page(content, f"{file.stem}.svg")
    assert file.with_suffix(".csv").read_text() == _write.rows(content)
    assert file.with_suffix(".svg").is_file()


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.stem)
def test_a_page_has_the_cells_and_claims_of_its_study(file: Path):
    content = json.loads(file.read_text())
    function = studies.scales(studies.find(content["name"]))[content["scale"]]
    given = {name: Path(name) for name, p in studies.parameters(function).items() if p.default is p.empty}
    study = function(seeds=content["seeds"], **given)
    assert [cell["name"] for cell in content["cells"]] == [cell.name for cell in study.cells]
    assert [claim["text"] for claim in content["claims"]] == [claim.text for claim in study.claims]


def test_the_list_is_up_to_date():
    assert (published.FOLDER / "README.md").read_text() == published.page(), "run: python -m docs.published"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_scale_of_a_study_builds(file: Path):
    """The configs of all cells are valid, and can be saved."""
    for cost in studies.costs(file).values():
        assert cost
    for scale, function in studies.scales(file).items():
        given = {name: Path(name) for name, p in studies.parameters(function).items() if p.default is p.empty}
        study = function(**given)
        assert "smoke" in studies.scales(file), f"{file.stem} has no smoke scale"
        for place in studies.places(study, Path(scale)):
            assert studies.look(place).state == "missing"
        for cell in study.cells:
            studies.code_of(cell.task)
