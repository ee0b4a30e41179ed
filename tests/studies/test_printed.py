"""Numbers typed from the papers once more, and the settings that distinguish the cells of each study."""

import dataclasses
import math

import _bench
import _images
import numpy as np
import pytest
from scipy import stats

from docs import printed
from mvcl import data, losses, metrics, models, studies, training
from mvcl.methods import _sem
from mvcl.studies import select
from mvcl.training import _optimizers

K, J, P, S, X = "koromilas_", "jeon_", "piran_", "shidani_", "xu_"
SGD = "linear, SGD"


def opened(name, scale="paper"):
    return studies.without_data(studies.scales(studies.find(name))[scale])


def test_noise_is_that_of_configurations_that_are_printed_twice():
    """pwe and PVC of two views are one function; DSF at temperature 1 is in two tables."""

    def noise(pairs):
        return math.sqrt(np.mean([(a - b) ** 2 / 2 for a, b in pairs]))

    table = opened(K + "table2")
    of = {tuple(c.factors.values()): c.printed[SGD] for c in table.cells if SGD in c.printed}
    pairs = [(of[data, 2, "pwe"], of[data, 2, "PVC"]) for data in {data for data, *_ in of}]
    assert table.noise[SGD].deviation == pytest.approx(noise(pairs), abs=0.005)
    assert table.noise[SGD].degrees == len(pairs)
    (one,) = select(opened(J + "table1"), {"data": "CIFAR-10", "method": "DSF", "M": 8, "length": 250})
    other = next(cell for cell in opened(J + "table3").cells if cell.factors["temperature"] == 1)
    pairs = [(one.printed[name], other.printed[name]) for name in ("k-NN, head", SGD)]
    assert opened(J + "table3").noise["k-NN, head"].deviation == pytest.approx(noise(pairs), abs=0.005)
    # draws of 10,000 test images of which 98.2 % are right, the mean of Table 3's column of CIFAR-10
    share = np.random.default_rng(0).binomial(10_000, 0.982, 4000) / 100
    assert opened(S + "table3").noise["CIFAR10"].deviation == pytest.approx(share.std(), rel=0.05)


@pytest.mark.parametrize(("a", "b", "runs"), [((75.61, 0.12), (75.36, 0.1), 5), ((8.0, 4.0), (7.0, 0.5), 10)])
def test_an_interval_of_printed_deviations_is_welch_s(a, b, runs):
    test = stats.ttest_ind_from_stats(*a, runs, *b, runs, equal_var=False)
    low, high = printed.welch(a[0] - b[0], [a[1], b[1]], runs, 1 - test.pvalue)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-9)  # at the level of its p-value it ends at 0


def test_differences_that_the_papers_state_follow_from_the_printed_numbers():
    """Xu 2023: "about 25%, 13%, 4%, 7%, 12%"; Piran 2024, whose text says 3.1; Koromilas 2025, Table V."""
    xu = opened(X + "table2")
    values = {tuple(c.factors.values()): c.printed["ACC"] for c in xu.cells}
    sets = ("DHA", "CCV", "NUSWIDE", "Caltech", "YoutubeVideo")
    gains = [values["SEM+InfoNCE", name] - values["InfoNCE", name] for name in sets]
    np.testing.assert_allclose(gains, [26.0, 13.6, 4.1, 7.3, 11.7], atol=1e-9)
    # With the rows that are not run, SEM+PSCL is below two of them on DHA, against the text of the claim.
    every = dataclasses.replace(xu, cells=[*xu.cells, *xu.printed_only], printed_only=())
    below = {
        tuple(of.factors["method"] for of in pair) + (pair[0].factors["data"],)
        for claim in every.claims
        if claim.measure in ("ACC", "NMI")
        for [pair] in claim.about(every)
        if pair[0].printed[claim.measure] <= pair[1].printed[claim.measure]
    }
    assert below == {("SEM+PSCL", "DCP", "DHA"), ("SEM+PSCL", "MFLVC", "DHA")}
    domains = {tuple(c.factors.values()): c.printed["5 to 1"] for c in opened(P + "table2").cells}
    names = {domain for _, domain in domains}
    gain = np.mean([domains["M3G", name] - domains["InfoNCE ave", name] for name in names])
    assert gain == pytest.approx(2.67, abs=0.005)
    cells = select(opened(K + "figure4_top"), {"data": "CIFAR-100", "objective": "MV-DHEL"})
    assert np.ptp([cell.printed[SGD] for cell in cells]) == pytest.approx(0.35)


def of_domains(c):
    return c.data.held_out, c.views.k, c.train.group, c.examples


# What each column of a table is: study, scale -> (factor or value of the config, expected from the cell's factors).
SETTINGS = {
    (K + "table2", "paper"): lambda f, c: (
        (c.views.k, c.train.precision, c.evaluation.features, c.evaluation.knn_head)
        == (f["k"], "float32", "encoder", True)
        and (c.train.batch_size == 128) == ("128 images" in f["data"])
    ),
    (K + "table4", "paper"): lambda f, c: (
        (c.train.epochs, c.train.precision) == (100 if f["method"] == "Supervised" else 200, "float32")
    ),
    (K + "figure4_top", "paper"): lambda f, c: (c.views.k, c.examples) == (4, f["batch"]),
    # The batch of views is the same for every k, and so is the learning rate.
    (K + "figure4_bottom", "paper"): lambda f, c: (
        (c.examples, _optimizers.peak(c.optimizer, c.examples)) == (256 // f["k"], 1.0)
    ),
    (K + "figure4_bottom", "small"): lambda f, c: c.examples * c.views.k == 256,
    (K + "figure4_top", "small"): lambda f, c: (c.views.k, c.examples) == (4, f["batch"]),
    (J + "table1", "paper"): lambda f, c: (
        c.examples == (1024 if f["M"] == 2 else 256) // (2 if f["data"] == "ImageNet-100" else 1)
        and (c.views.k, c.train.epochs) == (f["M"], f["length"])
    ),
    (J + "table1", "small"): lambda f, c: (
        (c.examples, c.train.steps) == (128 if f["method"] == "MoCo" else 64, f["length"])
    ),
    (P + "table1", "paper"): lambda f, c: (c.views.k, c.train.group) == (f["k"], 64),
    (P + "table1", "small"): lambda f, c: (c.views.k, c.train.group) == (f["k"], 16),
    (P + "table2", "paper"): lambda f, c: of_domains(c) == (f["unseen"], 5, 16, 512),
    (P + "table2", "small"): lambda f, c: of_domains(c) == (f["unseen"], 5, 10, 80),
    (P + "figure4", "paper"): lambda f, c: (
        (c.views.k, c.examples, c.train.group, type(c.data)) == (f["k"], 64, 64, data.Synthetic)
    ),
    (S + "figure2", "paper"): lambda f, c: (
        (c.views.k, c.examples, c.data.networks, c.data.instances) == (f["M"], 1024, 16, 200 * 20 * 1024)
        and c.evaluation.information == metrics.gaussian_information(f["M"], 4.0)
    ),
    (S + "fixed_batch", "paper"): lambda f, c: c.views.k * c.examples == f["B"],
    (S + "figure3", "paper"): lambda f, c: (
        (c.views.k, c.train.epochs) == (f["M"], f["epochs"])
        and c.examples == {"growing": 4096, "fixed": 8192 // f["M"]}.get(f["batch"], 256)
        and (losses.name(c.objective) == "nt_xent") == (f["objective"] == "SimCLR")
    ),
    (S + "figure3", "small"): lambda f, c: (
        c.views.k == f["M"]
        and abs((c.train.steps or _images.STEPS) * c.examples / 10_000 - f["epochs"]) < 0.02 * f["epochs"]
    ),
    # Section 4.1: the rows without SEM have the pairs of different views.
    (X + "table2", "paper"): lambda f, c: (
        (c.method.weights, c.method.lam, losses.unwrap(c.objective)[1]["pairs"])
        == (("cmi", 1.0, "all") if f["method"].startswith(("SEM+", "K-M")) else ("none", 0.0, "ordered"))
    ),
    (X + "table3", "paper"): lambda f, c: (
        f["part"] != "weights"
        or c.method.weights == {"without": "none"}.get(f["setting"], f["setting"].lower())
    ),
}
BASELINES = {"raw input", "untrained encoder", "supervised"}


@pytest.mark.parametrize(("name", "scale"), SETTINGS)
def test_the_config_of_a_cell_is_that_of_its_factors(name, scale):
    for cell in opened(name, scale).cells:
        if not BASELINES & {*cell.factors.values()}:
            assert SETTINGS[name, scale](cell.factors, cell.task.config), cell.name


@pytest.mark.parametrize("name", ["table2", "figure4_top"])
def test_runs_of_koromilas_as_released(name):
    """Steps, rates and stems of the authors' configs and models/encoder.py, whatever the batch."""
    released = {  # iters, lr, batch_size
        "CIFAR-10": (39_062, 1.0, 256),
        "CIFAR-100": (39_062, 1.0, 256),
        "ImageNet-100": (101_562, 1.4, 256),
        "ImageNet-1K": (1_000_912, 0.3, 256),
    }
    study = studies.scales(studies.find(K + name))["paper"](released=True)
    assert "the authors' code" in study.about
    for cell in study.cells:
        config, on = cell.task.config, cell.factors.get("data", "ImageNet-100")
        steps, rate, batch = released[on]
        assert (config.train.steps, config.train.precision, config.head.init) == (steps, "float32", "torch")
        assert config.train.batch_size == cell.factors.get("batch", batch)
        assert isinstance(config.optimizer, training.Sgd)
        assert _optimizers.peak(config.optimizer, config.examples) == rate
        assert config.optimizer.warmup_share == (0.01 if on.startswith("CIFAR") else 0.1)
        stem = ("cifar", "torch") if on == "CIFAR-10" else ("imagenet", "same")
        assert (config.encoder.stem, config.encoder.stem_initial) == stem


def test_each_row_has_one_of_three_learning_rates():
    """Koromilas 2025, appendix E: of three trainings each; the supervised row has the same rates."""
    study = opened(K + "table4")
    assert {(c.task.rates, c.task.trainings) for c in study.cells} == {((1e-5, 5e-5, 1e-4), 3)}
    assert study.seeds == 1


def test_claims_of_the_small_tables_end_at_four_views():
    """As the tables do; Section V-C1 compares with aggregations of pairs only; no claim stands twice."""
    study, pairs = opened(K + "table2", "small"), {"pwe", "avg", "PVC"}
    decided = [str(dataclasses.replace(claim, text="", source="")) for claim in study.claims]
    assert len(set(decided)) == len(decided)
    for claim in study.claims:
        if claim.source.startswith("Table"):
            cells = [cell for group in claim.about(study) for compared in group for cell in compared]
            assert max(cell.factors["k"] for cell in cells) <= 4, claim.text
        if claim.source.startswith("Fig. 3a") and hasattr(claim, "than"):
            assert {factors["objective"] for factors in claim.than} == pairs, claim.text


def test_the_best_m_of_a_fixed_batch_follows_its_root():
    """p = e^-loss of the loss at M = 2, of which all is learned, 0.51 nats, or nothing: the claims' M are the nearest
    that are trained; those of the two equations differ, and double from one B to the next."""
    study = training.config_module(studies.find(S + "fixed_batch"))
    for name, best in study.BEST.items():
        for b, views in study.VIEWS.items():
            for learned in (0.0, 0.51):
                equation = int(name.removeprefix("Eq. "))
                found = metrics.optimal_multiplicity(b, np.log(b - 1) - learned, equation)
                assert min(views, key=lambda m, found=found: abs(m - found)) == best[b]
        assert list(best.values()) == [best[72], 2 * best[72], 4 * best[72]]
    assert study.BEST["Eq. 154"] != study.BEST["Eq. 155"]
    factors = [cell.factors for cell in opened(S + "fixed_batch", "small").cells]
    for b, views in study.VIEWS.items():
        trained = sorted({of["M"] for of in factors if of["B"] == b})
        largest = (metrics.best_gaussian_multiplicity(b, 4.0, of) for of in (views, trained))
        assert tuple(dict.fromkeys(largest)) == study.LARGEST_LIMIT[b]


SMALLER = ("data", "checkpoint", "evaluation", "train.epochs", "method.hidden", "method.features")
SMALLER += ("method.embedding", "method.update_epochs", "method.watch_epochs", "method.clusters")


@pytest.mark.parametrize("name", ["table2", "table3", "figure2"])
def test_the_small_scale_of_xu_trains_as_the_paper_scale(name):
    """With smaller networks, four times the learning rate for their width, and other data; the pair loss, weights and
    reconstruction follow from the factors."""
    rates = ("optimizer.learning_rate", "optimizer.end_learning_rate")
    training_of = {"paper": set(), "small": set()}
    for scale, found in training_of.items():
        for cell in opened(X + name, scale).cells:
            if str(cell.factors.get("setting")).endswith(("λ = 2", "different views")):  # rows of ours
                continue
            flat = training.flatten(training.tree(cell.task.config))
            kept = {key: value for key, value in flat.items() if not key.startswith(SMALLER)}
            kept |= {rate: kept[rate] / (4 if scale == "small" else 1) for rate in rates}
            found.add(str({**kept, "method.k_means_starts": None}))
    assert training_of["small"] <= training_of["paper"]
    # Of λ the small scale has the three values of the claims.
    assert len(training_of["paper"] - training_of["small"]) == (4 if name == "table3" else 0)


def trained(name):
    """The configs of the trained cells of a study, but for training on labels."""
    configs = {tuple(cell.factors.values()): cell.task.config for cell in opened(name, "small").cells}
    return {key: of for key, of in configs.items() if not BASELINES & {*key}}


def test_encoder_passes_are_equal_within_a_column():
    found = trained("control_encoder_passes")
    of = {key: c.views.k * c.train.batch_size * (c.train.steps or _images.STEPS) for key, c in found.items()}
    least = min(of.values())
    assert {key: passes / least for key, passes in of.items()} == {key: key[2] for key in of}


@pytest.mark.parametrize(
    ("name", "free"),
    [
        ("control_dsf_temperature", ("objective",)),
        ("control_energy_weight", ("objective", "views.k")),
        ("control_m3g", ("objective", "train.group")),
        ("control_poly_view_rho", ("objective",)),
        (K + "framework", ("objective",)),
        ("control_sem_training", tuple(f"method.{x}" for x in (*_sem._TRAINING, "paper", "as_released"))),
    ],
)
def test_configs_of_a_control_differ_in_what_is_compared_only(name, free):
    first, *others = [training.flatten(training.tree(config)) for config in trained(name).values()]
    for other in others:
        differing = {key for key in first.keys() | other.keys() if first.get(key) != other.get(key)}
        assert all(key.startswith(free) for key in differing), differing


def test_studies_of_the_bench_share_runs():
    """Pairs of NT-Xent of 4 views are one run, whatever a study calls them."""
    where = {
        K + "table2": {"objective": "pwe", "k": 4},
        K + "figure4_top": {"objective": "pwe", "k": 4, "batch": _bench.BATCH},
        K + "framework": {"alignment": "pair", "energy": "pair", "negatives": "all"},
        S + "figure3": {"objective": "Multi-Crop", "batch": "growing", "M": 4, "epochs": _bench.EPOCHS},
        "control_encoder_passes": {"objective": "pwe", "k": 4, "passes": 2},
        "pilot": {"objective": "all_pairs(nt_xent)", "k": 4},
    }
    tasks = [select(opened(name, "small"), factors)[0].task for name, factors in where.items()]
    assert len({str(training.tree(task)) for task in tasks}) == 1


@pytest.mark.parametrize("name", [J + "table1", J + "table3", "control_dsf_temperature"])
def test_small_scales_of_jeon_train_as_the_paper_does(name):
    """The key encoder keeps nothing of its start, the head is the paper's, keys are in another order than queries."""
    for config in trained(name).values():
        assert config.train.steps >= 1000
        assert config.method.end_momentum == config.method.momentum < 0.01 ** (1 / config.train.steps)
        assert config.head == models.moco_v2_head()
        assert (config.method.shuffle_keys, config.encoder.batch_groups) == (True, 8)


def test_released_rows_of_jeon_differ_in_what_the_paper_does_not_say():
    """In Table 1; ImageNet-100 has BYOL's two policies in all rows, without RandAugment."""
    studied = studies.scales(studies.find(J + "table1"))["paper"]
    for cell, plain in zip(studied().cells, studied(recipe="paper").cells, strict=True):
        old, new = (training.flatten(training.tree(c.task.config)) for c in (plain, cell))
        changed = {"head.init": "torch", "optimizer.decays": "all"}
        if cell.factors["data"] == "CIFAR-10":
            changed |= {"encoder.stem_initial": "torch"}
            if cell.factors["method"] == "DSF":
                changed |= {"objective.queue_concentration": "batch_mean"}
        else:
            changed |= {"method.predictor.init": "torch"}
            policies, half = cell.task.config.policies, cell.task.config.views.k // 2
            assert len(set(policies[:half])) == len(set(policies[half:])) == 1
            assert [p.blur_probability for p in policies[half - 1 : half + 1]] == [1.0, 0.1]
            assert [p.solarise_probability for p in policies[half - 1 : half + 1]] == [0.0, 0.2]
            assert not any(p.rand_augment_ops for p in policies)
        assert {name: value for name, value in new.items() if old.get(name) != value} == changed
        assert old.keys() <= new.keys()
    of_cifar = training.load("jeon/dsf:cifar10_moco").evaluation
    policy = of_cifar.linear.policy
    assert (of_cifar.knn_head, policy.brightness, policy.grayscale_probability) == (True, 0.4, 0.2)
