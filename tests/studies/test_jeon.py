"""The studies of Jeon 2025: numbers typed from the paper, what distinguishes the cells, and the measures."""

import json
import math

import _jeon
import pytest

from mvcl import losses, studies
from mvcl.studies import Found, Within, select


def opened(name, scale="paper", seeds=2, **given):
    return studies.open_study(studies.find(f"jeon_{name}"), scale, seeds, given).study


def cell(study, **factors):
    (found,) = select(study, factors)
    return found


def test_table_1():
    study = opened("table1")
    for data, method, epochs, knn, linear in [
        ("ImageNet-100", "MoCo", 300, 74.08, 81.52),
        ("ImageNet-100", "fea_avg", 100, 76.94, 84.06),
        ("CIFAR-10", "MoCo", 800, 88.44, 88.10),
        ("CIFAR-10", "DSF", 250, 90.04, 91.21),
    ]:
        found = cell(study, data=data, method=method)
        assert found.printed == {"k-NN": knn, "linear, SGD": linear}
        assert found.task.config.train.epochs == epochs
        config = found.task.config
        assert config.examples * config.views.k == {"CIFAR-10": 2048, "ImageNet-100": 1024}[data]


def test_table_2_is_as_printed(tmp_path):
    study = opened("table2")
    values = [found.task.run(tmp_path, 0)[0] for found in study.cells]
    for found, value in zip(study.cells, values, strict=True):
        exact = math.log1p(found.factors["K"] * math.exp(-2 / found.factors["temperature"]))
        assert value["loss"] == pytest.approx(exact, rel=1e-4, abs=2e-6)
        assert value["formula"] == pytest.approx(exact, rel=1e-5, abs=1e-8)
    (claim,) = study.claims
    assert claim.judge(Found(study, tuple({0: value} for value in values))).answer == "holds"
    off = [{"loss": value["loss"] + 0.01} for value in values]
    assert claim.judge(Found(study, tuple({0: value} for value in off))).answer == "does not hold"
    assert claim.judge(Found(study, ({},) * len(values))).answer == "cannot tell"
    assert cell(study, temperature=0.5, K=65536).printed == {"loss": 7.091}


def test_table_3():
    study = opened("table3")
    assert cell(study, temperature=0.9).printed == {"k-NN": 91.3, "linear, SGD": 92.3}
    assert {claim.than[0]["temperature"] for claim in study.claims} == {0.8, 0.9, 1.1}


def test_figure_3():
    study = opened("figure3")
    assert cell(study, method="MoCo", epochs=8000).task.config.views.k == 2
    assert cell(study, method="DSF", epochs=400).task.config.train.epochs == 400
    assert not any(found.printed for found in study.cells)
    faster = [claim for claim in study.claims if isinstance(claim, Within)]
    assert {claim.cells["epochs"] for claim in faster} == {400}
    assert {factors["epochs"] for claim in faster for factors in claim.than} == {800, 8000}


def test_figure_3_small_has_equal_encoder_passes():
    passes = {
        (found.factors["method"], found.task.config.train.epochs * found.task.config.views.k)
        for found in opened("figure3", "small").cells
    }
    assert passes == {
        (method, views) for method in ("MoCo", "loss_avg", "fea_avg", "DSF") for views in (40, 80)
    }
    batches = {
        found.task.config.examples * found.task.config.views.k for found in opened("figure3", "small").cells
    }
    assert batches == {512}


def test_figure_4_keeps_the_images_of_a_batch():
    study = opened("figure4")
    assert {found.task.config.examples for found in study.cells} == {256}
    assert {found.task.config.views.k for found in study.cells} == {4, 8, 16}


def test_figure_6_leaves_out_one_scaling_at_a_time():
    study = opened("figure6")
    assert [losses.name(found.task.config.objective) for found in study.cells] == ["dsf"] * 3
    assert len({str(found.task.config.objective) for found in study.cells}) == 3


def test_similarities_are_of_the_first_and_last_tenth(tmp_path):
    rows = [
        {
            "step": step,
            "epoch": step / 10,
            "loss": 1.0,
            "positive_similarity": float(step),
            "negative_similarity": -1.0,
            "resultant": 0.5 + step / 200,
            "concentration": 2.0,
        }
        for step in range(5, 101, 5)
    ]
    log = "".join(json.dumps(row) + "\n" for row in [*rows, {"step": 100, "knn": 0.5}])
    (tmp_path / "metrics.jsonl").write_text(log)
    (tmp_path / "evaluation.json").write_text('{"rows": {}}')
    [found] = _jeon.results_and_similarities(tmp_path)
    # Steps 5 and 10; 95 and 100.
    assert found["margin, start"] == pytest.approx(8.5)
    assert found["margin, end"] == pytest.approx(98.5)
    assert found["margin, gain"] == pytest.approx(90)
    assert found["margin, largest"] == pytest.approx(101)
    assert found["R, gain"] == pytest.approx(0.45)
    assert found["kappa, gain"] == 0


def test_similarities_of_one_step(tmp_path):
    row = {"step": 7, "epoch": 1.0, "loss": 1.0, "positive_similarity": 2.0, "negative_similarity": 0.5}
    log = json.dumps(row | {"resultant": 0.5, "concentration": 2.0})
    (tmp_path / "metrics.jsonl").write_text(log + "\n")
    (tmp_path / "evaluation.json").write_text('{"rows": {}}')
    [found] = _jeon.results_and_similarities(tmp_path)
    assert (found["margin, start"], found["margin, end"], found["R, gain"]) == (1.5, 1.5, 0)
