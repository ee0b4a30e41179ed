"""The studies of Koromilas 2025: numbers typed from the paper, what distinguishes the cells, and the claims."""

import dataclasses
import json

import _koromilas
import pytest

from mvcl import losses, studies, training
from mvcl.studies import Above, Gain, Trend, Within, select


def opened(name, scale="paper", seeds=2, **given):
    return studies.open_study(studies.find(f"koromilas_{name}"), scale, seeds, given).study


def cell(study, **factors):
    (found,) = select(study, factors)
    return found


def test_table_2():
    study = opened("table2")
    assert len(study.cells) == 4 * 3 * 5
    for data, k, objective, printed in [
        ("CIFAR-10", 2, "PVC", 85.8),
        ("CIFAR-10", 4, "MV-DHEL", 89.5),
        ("CIFAR-100", 3, "avg", 60.4),
        ("ImageNet-100", 4, "pwe", 73.9),
        ("ImageNet-1K", 4, "MV-InfoNCE", 61.2),
    ]:
        found = cell(study, data=data, k=k, objective=objective)
        assert found.printed == {"linear, SGD": printed}
        config = found.task.config
        assert config.views.k == k
        named = {"PVC": "poly_view", "MV-DHEL": "mv_dhel", "MV-InfoNCE": "mv_infonce"}
        named |= {"avg": "one_vs_rest(nt_xent)", "pwe": "all_pairs(nt_xent)"}
        assert losses.name(config.objective) == named[objective]
        temperature = 0.1 if data == "ImageNet-1K" else 0.5
        assert f"temperature={temperature}" in repr(config.objective) or temperature in _temperatures(config)
    assert cell(study, data="CIFAR-100", k=2, objective="pwe").task.config.data.name == "cifar100"


def _temperatures(config):
    return {value for name, value in training.flatten(training.tree(config)).items() if "temperature" in name}


def test_table_3_uses_the_runs_of_table_2():
    second, third = opened("table2"), opened("table3")
    assert cell(third, data="ImageNet-100", k=4, objective="PVC").printed == {"k-NN": 65.6}
    assert cell(third, data="CIFAR-100", k=3, objective="MV-DHEL").printed == {"k-NN": 49.9}
    for found in third.cells:
        same = cell(second, **found.factors)
        assert same.name == found.name
        assert training.tree(same.task) == training.tree(found.task)


def test_figure_3_measures_embeddings_of_the_head():
    study = opened("figure3")
    assert tuple(dict.fromkeys(c.factors["k"] for c in study.cells)) == tuple(range(2, 9))
    assert {found.task.config.train.batch_size for found in study.cells} == {128}
    assert not any(found.printed for found in study.cells)
    full = [claim for claim in study.claims if isinstance(claim, Within)]
    assert {(claim.cells["k"], claim.low) for claim in full} == {(k, 128) for k in (5, 6, 7, 8)}


def test_figure_3_small_has_the_claims_of_the_tables():
    study = opened("figure3", "small")
    sources = {claim.source for claim in study.claims}
    assert {"Table II, Section V-A1", "Table III, Section V-A2", "Fig. 3d, Section V-C3"} <= sources
    assert len({(claim.text, claim.measure, claim.source) for claim in study.claims}) == len(study.claims)


def test_embeddings_are_measured_of_a_run(tmp_path):
    study = opened("figure3", "smoke")
    task = study.cells[0].task
    [values] = task.run(tmp_path, 0)
    assert {measure.name for measure in study.measures} <= values.keys()
    assert 1 <= values["rank"] <= 128
    assert 0 <= values["alignment"] <= 4


def test_figure_4():
    top, bottom = opened("figure4_top"), opened("figure4_bottom", budget=128)
    assert {found.task.config.examples for found in top.cells} == {64, 128, 256}
    assert [
        cell(bottom, data="CIFAR-10", objective="pwe", k=k).task.config.examples for k in range(2, 9)
    ] == [*(64, 42, 32, 25, 21, 18, 16)]
    only = [claim for claim in bottom.claims if isinstance(claim, Gain)]
    assert all(claim.cells["objective"] == "MV-DHEL" and len(claim.than) == 4 for claim in only)


def test_table_5():
    study = opened("table5")
    assert cell(study, data="CIFAR-100", batch=64).printed == {"linear, SGD": 62.43}
    assert cell(study, data="ImageNet-100", batch=256).printed == {"linear, SGD": 77.23}
    assert {losses.name(found.task.config.objective) for found in study.cells} == {"mv_dhel"}
    printed = [found.printed["linear, SGD"] for found in study.cells if found.factors["data"] == "CIFAR-100"]
    assert max(printed) - min(printed) == pytest.approx(0.35)


def test_table_6_compares_the_same_negatives():
    study = opened("table6")
    assert cell(study, k=3, objective="MV-CL2").printed == {"linear, SGD": 76.7}
    assert cell(study, k=2, objective="MV-CL1").printed == {"linear, SGD": 72.2}
    assert cell(study, k=2, objective="MV-InfoNCE, Eq. 11").printed == {}
    negatives = {
        name: training.flatten(training.tree(cell(study, k=4, objective=name).task.config))
        for name in ("MV-InfoNCE", "MV-InfoNCE, Eq. 11")
    }
    assert {value for name, value in negatives["MV-InfoNCE"].items() if name.endswith("negatives")} == {"all"}
    assert {
        value for name, value in negatives["MV-InfoNCE, Eq. 11"].items() if name.endswith("negatives")
    } == {"cross_view"}


def test_tables_4_and_7():
    study = opened("table4")
    mine = cell(study, data="CH-SIMS", method="PVC")
    assert mine.printed == {"accuracy positive": 68.1, "MAE": 0.563}
    assert mine.task.rates == (1e-5, 5e-5, 1e-4)
    assert cell(study, data="CMU-MOSEI", method="Supervised").printed["MAE"] == 0.587
    seventh = opened("table7", accuracy="accuracy above zero")
    assert cell(seventh, objective="MV-CL2").printed == {"accuracy above zero": 79.08, "MAE": 0.394}
    worse = [claim for claim in study.claims if claim.measure == "MAE"]
    # A larger error is worse: the better method is what the claim compares with.
    assert all(claim.than != ({"method": claim.cells["method"]},) for claim in worse)
    assert any(claim.cells["method"] == "PWE" and claim.than == ({"method": "MV-DHEL"},) for claim in worse)


def test_a_tuned_rate_is_that_of_the_least_validation_error(tmp_path, monkeypatch):
    def train(config, folder):
        folder.mkdir(parents=True)
        rate = config.optimizer.learning_rate
        error = abs(rate - 0.02) + 0.5
        rows = {"trained encoder": [{"name": "validation MAE", "value": error}]}
        (folder / "evaluation.json").write_text(json.dumps({"rows": rows}))
        log = json.dumps({"step": 1, "epoch": 1.0, "loss": rate, "seed": config.train.seed})
        (folder / "metrics.jsonl").write_text(log + "\n")

    monkeypatch.setattr(training, "train", train)
    task = _koromilas.TunedRate(config=training.load("digits:smoke"), rates=(0.01, 0.02, 0.04))
    [values] = task.run(tmp_path, 3)
    assert values == {"validation MAE": 0.5, "learning rate": 0.02, "loss": 0.02}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.01", "0.02", "0.04"]


@pytest.mark.parametrize("name", ["table2", "table3", "figure3"])
def test_mv_info_nce_is_not_compared_at_two_views(name):
    """There it is NT-Xent but for the place of a sum, and the paper prints the same accuracies."""
    mine = [
        claim
        for claim in opened(name).claims
        if isinstance(claim, Above) and claim.cells.get("objective") == "MV-InfoNCE"
    ]
    assert mine
    assert all(claim.cells["k"] > 2 for claim in mine)


def test_claims_are_about_both_of_the_papers_objectives():
    study = opened("table2")
    rising = {claim.cells["objective"] for claim in study.claims if isinstance(claim, Trend)}
    assert rising == {"MV-InfoNCE", "MV-DHEL"}
    assert {field.name for field in dataclasses.fields(Gain)} >= {"cells", "than", "along"}
