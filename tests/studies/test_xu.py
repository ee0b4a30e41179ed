"""The studies of Xu 2023 and of the handwritten numerals: numbers typed from the paper, what cells change, measures."""

import json
from pathlib import Path

import _sem
import numpy as np
import pytest

from mvcl import data, losses, methods, studies, training
from mvcl.evaluation import SingleViews
from mvcl.studies import select

DATA = {"data": Path("DIR")}


def opened(name, scale="paper", **given):
    return studies.open_study(studies.find(name), scale, 2, given).study


def test_table_2_has_the_printed_numbers():
    study = opened("xu_table2", **DATA)
    assert len(study.cells) == 8 * 5
    for method, sets, printed in (
        ("SEM+InfoNCE", "DHA", {"ACC": 80.9, "NMI": 84.1}),
        ("SEM+PSCL", "YoutubeVideo", {"ACC": 32.2, "NMI": 32.2}),
        ("CMC", "Caltech", {"ACC": 72.7, "NMI": 60.3}),
        ("K-Means-BSV", "NUSWIDE", {"ACC": 39.7, "NMI": 11.6}),
        ("RINCE", "CCV", {"ACC": 22.5, "NMI": 23.5}),
    ):
        (cell,) = select(study, {"method": method, "data": sets})
        assert cell.printed == printed
    gains = [
        cell.printed["ACC"]
        - select(study, {"method": "InfoNCE", "data": cell.factors["data"]})[0].printed["ACC"]
        for cell in select(study, {"method": "SEM+InfoNCE"})
    ]
    # The text: "about 25%, 13%, 4%, 7%, 12%".
    np.testing.assert_allclose(gains, [26.0, 13.6, 4.1, 7.3, 11.7], atol=1e-9)


def test_the_printed_numbers_of_table_2_agree_with_its_claims():
    study = opened("xu_table2", **DATA)
    wrong = []
    for claim in study.claims:
        for cell, other in claim.about(study):
            if not cell.printed[claim.measure] > other.printed[claim.measure]:
                wrong.append((cell.name, other.name))
    assert wrong == []


def test_rows_of_table_2_change_the_loss_and_what_sem_adds():
    study = opened("xu_table2", **DATA)
    configs = {cell.factors["method"]: cell.task.config for cell in select(study, {"data": "Caltech"})}
    pairs = {name: losses.unwrap(config.objective)[1] for name, config in configs.items()}
    for name, pair in (("InfoNCE", losses.nt_xent), ("PSCL", losses.spectral), ("RINCE", losses.rince)):
        for row in (name, f"SEM+{name}"):
            assert losses.unwrap(pairs[row]["pair"])[0] is pair
            assert pairs[row]["pairs"] == "all"
    assert pairs["CMC"]["pairs"] == "unordered"
    for name, config in configs.items():
        has_sem = name.startswith("SEM+") or name == "K-Means-BSV"
        assert (config.method.weights, config.method.lam) == (("cmi", 1.0) if has_sem else ("none", 0.0))
        assert config.data.path == "DIR/Caltech.mat"


def test_tables_3_and_4_have_the_printed_numbers_and_options():
    weights = opened("xu_table3", **DATA)
    found = {cell.name: (cell.printed["ACC"], cell.task.config.method.weights) for cell in weights.cells}
    assert found["weights without W, data DHA"] == (71.3, "none")
    assert found["weights MMD, data DHA"] == (84.4, "mmd")
    assert found["weights JSD, data CCV"] == (35.6, "jsd")
    terms = opened("xu_table4", **DATA)
    options = {
        cell.name: (cell.printed["ACC"], cell.task.config.method.reconstruction, cell.task.config.method.lam)
        for cell in terms.cells
    }
    assert options["reconstruction without R, data CCV"] == (28.7, "ae", 0.0)
    assert options["reconstruction MAE, data DHA"] == (83.0, "mae", 1.0)
    assert options["reconstruction DAE, data CCV"] == (38.4, "dae", 1.0)


def test_figure_2_compares_two_views_without_weights():
    (alone, contrast) = opened("xu_figure2", **DATA).cells
    assert contrast.task.config.data.views == ("1", "4")
    assert (contrast.task.config.method.weights, contrast.task.config.method.lam) == ("none", 0.0)
    assert contrast.printed == {"1-4 cosine after": 1.0}
    assert alone.task.config.train.epochs == alone.task.config.method.pretrain_epochs == 100


def test_figure_5_has_four_rounds_and_figure_6_the_papers_range():
    sem, _ = opened("xu_figure5", **DATA).cells
    assert sem.task.config.train.epochs == 100 + 4 * 100
    study = opened("xu_figure6", **DATA)
    lambdas = [cell.task.config.method.lam for cell in select(study, {"varied": "λ"})]
    assert lambdas == [1e-3, 1e-2, 1e-1, 1, 10, 100, 1000]
    clusters = [cell.task.config.method.clusters for cell in select(study, {"varied": "clusters / K"})]
    assert clusters == [3, 7, 14, 28]


def test_measures_over_time_by_hand(tmp_path):
    labels = np.array([0, 0, 1, 1])
    np.savez(tmp_path / "embeddings.npz", labels=labels)
    right, half = [1, 1, 0, 0], [0, 1, 0, 1]
    weights = [[1.0, 0.2, 0.7], [0.2, 1.0, 0.4], [0.7, 0.4, 1.0]]

    def line(clusters, losses, weights=None):
        matrix = np.zeros((3, 3))
        matrix[0, 1], matrix[0, 2], matrix[1, 2] = losses
        record = {"clusters": clusters, "cosines": (matrix / 10).tolist(), "losses": matrix.tolist()}
        return json.dumps(record | ({} if weights is None else {"weights": weights}))

    lines = [
        line([half, half, half], (9.0, 9.0, 9.0)),  # before the first weights: not counted
        line([right, half, right], (5.0, 4.0, 3.0), weights),
        line([right, half, right], (4.0, 2.0, 3.0)),
        line([half, right, right], (1.0, 2.0, 2.0), weights),
    ]
    (tmp_path / "refresh.jsonl").write_text("\n".join(lines) + "\n")
    (found,) = _sem.over_time(tmp_path, numbers=(1, 4, 5), compared=((1, 5), (1, 4)))
    assert (found["view 1 before"], found["view 1 after"], found["view 1 change"]) == (1.0, 0.5, -0.5)
    assert found["view 4 change"] == 0.5
    assert found["1-4 cosine after"] == pytest.approx(0.1)
    assert found["1-5 loss change"] == -2.0
    assert found["1-5 weight"] == 0.7
    assert found["weight gap"] == pytest.approx(0.5)
    assert found["1-4 loss left"] == pytest.approx((1 + 0.75 + 0) / 3)
    assert found["1-5 loss left"] == pytest.approx(1 / 3)
    assert found["lag"] == pytest.approx(0.75 / 3)


def test_only_sem_has_a_pre_training():
    with pytest.raises(ValueError, match="must be of method sem, got MultiEncoder"):
        _sem.of(training.load("field/modalities:symile_digits"))


def test_handwritten_has_every_objective_that_compares_six_views():
    study = opened("handwritten", "small", data=Path("handwritten.mat"))
    used = set()
    for cell in study.cells:
        function, options = losses.unwrap(cell.task.config.objective)
        used |= {losses.higher_order(function) or function}
        if "pair" in options:
            used.add(losses.unwrap(options["pair"])[0])
        methods.check(cell.task.config.objective, 6)
    left_out = {losses.byol, losses.triangle}
    assert set(losses.objectives().values()) - used == left_out


@pytest.mark.parametrize("single", [False, True])
def test_single_views_by_hand(single):
    spec = data.Synthetic(view_shapes=((2,), (2,)), classes=2).open()["train"].spec
    labels = np.arange(40) % 2

    class Rows:
        class_names, present, groups, ids = ("a", "b"), None, None, ()

        def __init__(self):
            self.labels, self.spec = labels, spec

        def __len__(self):
            return len(labels)

    sign = np.where(labels == 1, 1.0, -1.0)[:, None]
    tells = sign * np.array([[1.0, 0.5]])
    other = np.ones_like(tells) + 1e-3 * np.random.default_rng(0).normal(size=tells.shape)
    x = np.concatenate([tells, other if single else -tells], axis=1).astype(np.float32)
    protocol = SingleViews(labels_per_class=(1,), draws=1)
    results = protocol.measure({"train": x, "test": x}, {"train": Rows(), "test": Rows()})
    found = {result.name: result.value for result in results}
    assert found["all views k-NN"] == found["all views ACC"] == 1.0
    if single:  # one view tells all, the other nothing
        assert found["one view k-NN"] < 0.95
        assert found["one view ACC"] < 1.0
        assert found["one view 1 labels/class"] < 1.0
    else:  # the second is the negative of the first: each alone tells all, one of the other the opposite
        assert found["one view k-NN"] == found["one view NMI"] == found["one view 1 labels/class"] == 1.0
        assert found["across views k-NN"] == 0.0
