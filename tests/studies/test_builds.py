"""Every cell of every study at scale paper builds: networks, objective, optimiser and step, for data of the published
size."""

import dataclasses

import pytest

from mvcl import data, studies, training
from mvcl.training import _cost, _program

PAPER = [file.stem for file in studies.study_files() if "paper" in studies.scales(file)]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_each_cell_at_scale_paper_builds(name, monkeypatch):
    """On one device; of cells that differ in the number of examples alone, one. Tables are of other shapes."""

    def of_shapes(tables):
        return data.Synthetic(view_shapes=((20,),) * len(tables.views or range(5)), examples=2000).open()

    monkeypatch.setattr(data.Tables, "open", of_shapes)
    study, built = studies.without_data(studies.scales(studies.find(name))["paper"]), set()
    for cell in study.cells:
        if (given := getattr(cell.task, "config", None)) is None:
            continue
        one = dataclasses.replace(given, mesh=training.Mesh(data=1))
        config, outline, *_ = _cost.outlined(one)
        key = repr((training.tree(dataclasses.replace(config, data=data.Digits())), outline.spec))
        if key not in built:
            assert _program.build(config, outline).steps > 0
            built.add(key)
