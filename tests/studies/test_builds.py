"""Every cell of every study at scale paper builds: its networks, objective, optimiser and step, for data of the
published size."""

import pytest

from mvcl import studies, training
from mvcl.training import _cost, _program

PAPER = [file.stem for file in studies.study_files() if "paper" in studies.scales(file)]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_each_cell_at_scale_paper_builds(name, tmp_path):
    study = studies.without_data(studies.scales(studies.find(name))["paper"])
    configs = {}
    for cell in study.cells:
        if (config := getattr(cell.task, "config", None)) is not None:
            configs.setdefault(repr(training.tree(config)), config)
    for config in configs.values():
        config, outline, *_ = _cost.outlined(config)
        assert _program.build(config, outline).steps > 0
