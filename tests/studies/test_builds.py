"""Every cell of every study at scale paper builds: networks, objective, optimiser and step, for data of the published
size."""

import dataclasses

import pytest

from mvcl import data, studies, training
from mvcl.training import _cost, _program

PAPER = [file.stem for file in studies.study_files() if "paper" in studies.scales(file)]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_each_cell_at_scale_paper_builds(name):
    """Of cells that differ in the number of examples alone, one."""
    study, built = studies.without_data(studies.scales(studies.find(name))["paper"]), set()
    for cell in study.cells:
        if (given := getattr(cell.task, "config", None)) is None:
            continue
        config, outline, *_ = _cost.outlined(given)
        key = repr((training.tree(dataclasses.replace(config, data=data.Digits())), outline.spec))
        if key not in built:
            assert _program.build(config, outline).steps > 0
            built.add(key)
