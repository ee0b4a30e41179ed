"""The studies of Piran 2024: every scale, numbers typed from the paper, and what distinguishes the cells."""

import json
from pathlib import Path

import numpy as np
import pytest

from mvcl import losses, studies, training
from mvcl.studies import select

steps = training.config_module(studies.find("piran_figure4"))

NAMES = ("table1", "table2", "table3", "table4", "figure3", "figure4")


def opened(name, scale="paper", seeds=2, **given):
    return studies.open_study(studies.find(f"piran_{name}"), scale, seeds, given).study


@pytest.mark.parametrize("name", NAMES)
def test_every_scale_builds(name):
    functions = studies.scales(studies.find(f"piran_{name}"))
    for function in functions.values():
        given = dict.fromkeys(studies.parameters(function), Path("DOMAINNET"))
        assert function(**given).cells
    assert set(functions) == {"paper", "smoke"} | ({"small"} if name not in ("table2", "table3") else set())


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_table_1(scale):
    study = opened("table1", scale)
    for cell in study.cells:
        config = cell.task.config
        assert config.views.k == cell.factors["k"]
        assert config.train.group == {"paper": 64, "small": 16}[scale]
    if scale == "paper":
        (cell,) = select(study, {"method": "InfoNCE pwe", "k": 4})
        assert cell.printed == {"linear, SGD": 75.26}
        (cell,) = select(study, {"method": "BYOL ave", "k": 2})
        assert cell.printed == {"linear, SGD": 74.62}
        assert losses.name(cell.task.config.objective) == "one_vs_rest(byol)"


def test_table_2_holds_each_domain_out_once_per_method():
    study = opened("table2", data=Path("DOMAINNET"))
    assert len(study.cells) == 6 * 5
    for cell in study.cells:
        config = cell.task.config
        assert (config.data.held_out, config.data.path) == (cell.factors["unseen"], "DOMAINNET")
        assert cell.task.seeded == ("train.seed", "data.draw_seed")
        assert (config.train.group, config.train.batch_size) == (16, 512)
    (cell,) = select(study, {"method": "M3G", "unseen": "real"})
    assert cell.printed == {"5 to 1": 46.3}
    printed = {cell.name: cell.printed["5 to 1"] for cell in study.cells}
    gain = [
        printed[f"method M3G, unseen {domain}"] - printed[f"method InfoNCE ave, unseen {domain}"]
        for domain in tuple(dict.fromkeys(c.factors["unseen"] for c in study.cells))
    ]
    assert np.mean(gain) == pytest.approx(2.67, abs=0.005)  # the text says 3.1


def test_results_of_single_domains_have_their_names(tmp_path):
    cell = opened("table2", "smoke").cells[0]
    results = {"5 to 1": 0.2, "1 to 1": 0.1, "real to sketch": 0.3, "clipart to sketch": 0.15}
    rows = [{"name": name, "value": value} for name, value in results.items()]
    table = {"trained encoder": rows, "raw input": rows[:1]}
    (tmp_path / "evaluation.json").write_text(json.dumps({"rows": table}))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "epoch": 1.0, "loss": 2.0}\n')
    assert cell.task.measure(tmp_path) == [
        {"5 to 1": 0.2, "1 to 1": 0.1, "real": 0.3, "clipart": 0.15, "raw input: 5 to 1": 0.2, "loss": 2.0}
    ]


def test_table_3_has_the_papers_batches_and_numbers():
    study = opened("table3")
    m3g, info_nce = (select(study, {"method": name})[0] for name in ("M3G", "InfoNCE pwe"))
    assert (m3g.task.config.examples, info_nce.task.config.examples) == (16, 64)
    assert m3g.printed["1000 labels/class"] == 64.6
    assert info_nce.printed["50 labels/class"] == 49.3
    assert m3g.task.seeded == ("train.seed", "evaluation.seed")


def test_table_4_changes_the_cost():
    study = opened("table4")
    (cell,) = select(study, {"cost": "circular standard deviation", "k": 2})
    assert cell.printed == {"linear, SGD": 73.81}
    assert cell.task.config.objective.keywords == {"epsilon": 0.2, "cost": "circular_standard_deviation"}


def test_figure_3_compares_with_an_epsilon_of_0_2():
    study = opened("figure3")
    assert all(claim.than == ({"epsilon": 0.2},) for claim in study.claims)
    assert tuple(dict.fromkeys(c.factors["k"] for c in study.cells)) == (2, 3, 4)


def test_figure_4_times_against_pairwise_info_nce():
    for cell in opened("figure4", "small").cells:
        task = cell.task
        assert losses.name(task.reference.objective) == "all_pairs(info_nce)"
        assert task.config.views.k == task.reference.views.k == cell.factors["k"]
        assert task.config.train.group is None
        assert task.config.train.batch_size == 64


class Counted:
    """A run whose steps take as many seconds as its name is long."""

    def __init__(self, name, order):
        self.name, self.order = name, order

    def step(self):
        self.order.append(self.name)
        return float(len(self.name)), {}


def test_steps_take_turns():
    order = []
    found = steps.turns({name: Counted(name, order) for name in ("a", "bb")}, 0.0)
    assert found == {"a": [1.0] * 5, "bb": [2.0] * 5}
    assert order[4:10] == ["a", "bb", "bb", "a", "a", "bb"]  # after two steps of each to warm up
