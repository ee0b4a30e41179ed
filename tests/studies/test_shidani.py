"""The studies of Shidani 2024: every scale, numbers typed from the paper, and what distinguishes the cells."""

import pytest

from mvcl import losses, metrics, studies
from mvcl.studies import select

NAMES = ("figure2", "figure3a", "figure3b", "figure5", "fixed_batch", "table3", "variance")
SCALES = [
    (f"shidani_{name}", scale) for name in NAMES for scale in studies.scales(studies.find(f"shidani_{name}"))
]


def opened(name, scale="paper", seeds=2):
    return studies.open_study(studies.find(f"shidani_{name}"), scale, seeds, {}).study


def test_every_scale_builds():
    small = {"shidani_figure2", "shidani_fixed_batch", "shidani_variance"}
    for name, scale in SCALES:
        assert studies.scales(studies.find(name))[scale]().cells
    assert {name for name, scale in SCALES if scale == "small"} == small
    assert {scale for _, scale in SCALES} == {"paper", "small", "smoke"}


def test_figure_2_has_the_papers_grid():
    study = opened("figure2", seeds=16)
    assert len(study.cells) == 4 * 4
    for cell in study.cells:
        config = cell.task.config
        m = cell.factors["M"]
        assert m in (2, 4, 8, 10)
        assert (config.views.k, config.examples, config.data.networks) == (m, 1024, 16)
        assert config.data.instances == 200 * 3 * 1024
        assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (5e-4, 5e-3)
        assert config.evaluation.information == metrics.gaussian_information(m, 4.0)


def test_a_fixed_batch_has_as_many_vectors_for_every_m():
    cells = opened("fixed_batch").cells
    assert {cell.task.config.views.k * cell.task.config.examples for cell in cells} == {64}
    # p = e^-loss of the loss at M = 2, which is between 0 and log(63): the claim's M is the nearest that is trained.
    for loss, equation in ((1.2, 154), (3.8, 154), (1.2, 155), (3.8, 155)):
        best = metrics.optimal_multiplicity(64, loss, equation)
        assert min((2, 4, 8, 16, 32), key=lambda m: abs(m - best)) == 8


def test_figure_3_has_the_papers_lines():
    study = opened("figure3a")
    assert len(study.cells) == 3 * 2 * 4 + 4 + 1
    (headline,) = select(study, {"batch": "256"})
    assert headline.task.config.examples == 256
    assert headline.task.config.train.epochs == 128
    for cell in study.cells:
        config = cell.task.config
        simclr = cell.factors["objective"] == "SimCLR"
        assert config.views.k == (2 if simclr else 8)
        assert config.examples == {"growing": 4096, "fixed": 1024, "256": 256}[cell.factors["batch"]]
        assert (losses.name(config.objective) == "nt_xent") == simclr
    at_equal_compute = [claim for claim in study.claims if "equal relative compute" in claim.text]
    assert {(claim.cells["epochs"], claim.than[0]["epochs"]) for claim in at_equal_compute} == {
        (128, 512),
        (256, 1024),
    }
    of_views = opened("figure3b")
    assert tuple(dict.fromkeys(c.factors["M"] for c in of_views.cells)) == (2, 3, 4, 6, 8, 12, 16)
    assert {cell.task.config.train.epochs for cell in of_views.cells} == {128}


def test_figure_5_changes_only_the_policy():
    for cell in opened("figure5").cells:
        policy, kind, strength = cell.task.config.views.policy, *list(cell.factors.values())[1:]
        assert policy.brightness == (0.8 * strength if kind == "colour" else 0.8)
        assert policy.crop_scale == ((0.08, 1.0) if kind == "colour" else (strength, 1.0))


def test_table_3_prints_the_papers_numbers():
    study = opened("table3")
    (simclr,) = select(study, {"model": "SimCLR", "epochs": 1024})
    assert simclr.printed["Caltech-101"] == 89.66
    assert simclr.task.config.views.k == 2
    (shrinking,) = select(study, {"model": "Geometric PVC (shrinking)", "epochs": 256})
    assert shrinking.printed["Food"] == 90.08
    assert shrinking.printed["Aircraft"] == 81.61
    assert shrinking.task.config.examples == 1024
    changes = {one.name: dict(one.changes) for one in shrinking.task.sets}
    assert len(changes) == 9
    assert {name: change for name, change in changes.items() if change} == {
        "Aircraft": {"train.epochs": 4000.0},
        "Caltech-101": {"optimizer.learning_rate": 1e-4},
    }


def test_variance_prints_equation_3():
    printed = {cell.factors["M"]: cell.printed["variance"] for cell in opened("variance").cells}
    assert printed == pytest.approx({2: 1.0, 3: 0.556, 4: 0.389, 8: 0.179}, abs=5e-4)
