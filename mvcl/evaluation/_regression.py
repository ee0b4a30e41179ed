"""Regression of a score from features, the measures of multimodal sentiment analysis, and a network's predictions."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvcl import _checks, _files
from mvcl._progress import during
from mvcl.evaluation._evaluation import Arrays, Augmented, Evaluation, Result, Rows, Splits, averaged
from mvcl.evaluation._probe import descend

_ERRORS = ("MAE", "validation MAE")  # less is better


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaeProbe:
    """Linear layers on frozen features, trained by AdamW on the mean absolute error.

    Koromilas 2025, appendix E: 100 epochs, AdamW, three layers whose measures are averaged; it gives no learning rate,
    batch size or weight decay. Runs with the same evaluation.seed have the same initial weights and orders of the rows.
    """

    learning_rates: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    """Learning rates; the one with the least mean absolute error on the validation split is used."""
    layers: int = 3
    """Layers with initial weights and orders of the rows of their own; the mean of their measures is reported."""
    epochs: int = 100
    """Passes over the training rows."""
    batch_size: int = 256
    """Rows per step; at most all. The last step of an epoch has the rows that are left."""
    weight_decay: float = 0.01
    """Decoupled weight decay of AdamW."""
    decay: Literal["cosine", "constant"] = "cosine"
    """Learning rate over the steps: to zero by a cosine, or constant."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("layers", "epochs", "batch_size"), "[1, inf)")
        _checks.fields("probe", self, learning_rates="(0, inf)", weight_decay="[0, inf)", **counts)


def mae_probe(
    train: Rows,
    test: Rows,
    *,
    probe: MaeProbe,
    valid: Rows | None = None,
    groups: np.ndarray | None = None,
    seed: int = 0,
) -> list[Result]:
    """Linear layers trained on the mean absolute error of a score; the mean of their measures on the test split.

    The features are not scaled. Weights and bias start uniform in +-1 / sqrt(d). The learning rate has the least error,
    averaged over the layers, on the validation split or, without one, on a held-out fifth of the training split (of
    its groups, if given); the layers are then trained again on the training split.

    Args:
      train: (n, d) floating features and (n,) scores, whose sign is the sentiment; `test` and `valid` are the same.
      groups: (n,) speakers or subjects of the training rows; whole groups are held out.
      seed: of initial weights, orders, and held-out rows or groups.

    Returns:
      One result for each of `regression_measures`, mean and standard deviation over the layers; with a validation split
      "validation MAE" too, to choose options of the pre-training by.
    """
    splits, rates = _checked(train, test, valid), np.asarray(probe.learning_rates, np.float32)
    (x, y), (features, answer), held = splits["train"], splits["test"], splits.get("valid")
    where = "the only one"
    if len(rates) > 1:
        if held is not None:
            fitted, chosen_by, where = (x, y), held, f"the {len(held[0])} rows of the validation split"
        else:
            of_row = np.arange(len(x)) if groups is None else np.unique(groups, return_inverse=True)[1]
            if of_row.shape != (len(x),):
                raise ValueError(f"groups must be ({len(x)},), one per training row, got {of_row.shape}")
            if (count := int(of_row.max()) + 1) < 5:
                raise ValueError(f"5 groups or rows are needed to hold out a fifth, got {count}")
            out = np.isin(of_row, np.random.default_rng(seed).permutation(count)[: count // 5])
            fitted, chosen_by = (x[~out], y[~out]), (x[out], y[out])
            where = "a held-out fifth of it" + ("" if groups is None else ", by whole groups")
        weights, biases = jax.device_get(_layers(probe, *fitted, rates, seed))
        errors = np.abs(weights @ chosen_by[0].T + biases[..., None] - chosen_by[1]).mean((1, 2))
        rates, where = rates[[errors.argmin()]], f"chosen by MAE on {where}"
    found = []
    for w, b in zip(*(of[0].astype(np.float64) for of in jax.device_get(_layers(probe, x, y, rates, seed)))):
        found.append(regression_measures(features @ w + b, answer))
        if held is not None:
            found[-1]["validation MAE"] = float(np.abs(held[0] @ w + b - held[1]).mean())
    how = (
        f"mean of {probe.layers} linear layers on {len(y)} scores, AdamW on the mean absolute error, "
        f"{probe.epochs} epochs, learning rate {where}, {len(answer)} test rows"
    )
    return _results(found, how)


@partial(jax.jit, static_argnums=(0, 4))
def _layers(
    probe: MaeProbe, x: jax.Array, y: jax.Array, rates: jax.Array, seed: int
) -> tuple[jax.Array, jax.Array]:
    """(rates, layers, d) weights and (rates, layers) biases, of float32 rows, targets and rates."""
    x, y, rates = (jnp.asarray(a, jnp.float32) for a in (x, y, rates))
    size = min(probe.batch_size, len(x))
    steps = -(-len(x) // size)
    constant, total = probe.decay == "constant", probe.epochs * steps
    factor = optax.constant_schedule(1.0) if constant else optax.cosine_decay_schedule(1.0, total)
    # The last batch of an epoch may be smaller; it is filled up with rows that do not count.
    counts = (jnp.arange(steps * size) < len(x)).reshape(steps, size)

    def loss(layer: tuple[jax.Array, jax.Array], rows: jax.Array, count: jax.Array) -> jax.Array:
        weights, bias = layer
        return jnp.mean(jnp.abs(x[rows] @ weights + bias - y[rows]), where=count)

    def trained(key: jax.Array, rate: jax.Array) -> tuple[jax.Array, jax.Array]:
        start, order = jax.random.split(key)
        bound = x.shape[1] ** -0.5
        drawn = jax.random.uniform(start, (x.shape[1] + 1,), minval=-bound, maxval=bound)
        rule = optax.adamw(lambda count: rate * factor(count), weight_decay=probe.weight_decay)

        def epoch(state: Any, number: jax.Array) -> tuple[Any, None]:
            drawn = jax.random.permutation(jax.random.fold_in(order, number), len(x))
            return descend(rule, loss, state, (jnp.resize(drawn, (steps, size)), counts)), None

        layer = (drawn[:-1], drawn[-1])
        return jax.lax.scan(epoch, (layer, rule.init(layer)), jnp.arange(probe.epochs))[0][0]

    keys = jax.random.split(jax.random.key(seed), probe.layers)
    # Batches depend on the key alone, so those of all rates are gathered once.
    return jax.vmap(jax.vmap(trained, (0, None)), (None, 0))(keys, rates)


def _results(found: Sequence[Mapping[str, float]], how: str) -> list[Result]:
    """The mean of each of the `regression_measures` of several predictions, and its deviation."""
    return [
        averaged(name, [each[name] for each in found], how, "lower" if name in _ERRORS else "higher")
        for name in found[0]
    ]


def regression_measures(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """The measures of the sentiment literature, of (m,) predictions and (m,) signed targets.

    Returns:
      "MAE", "Pearson" (0 where either is constant), and binary accuracy and F1 under the conventions in use:
      "accuracy non-negative" and "F1 non-negative" of all rows, >= 0 against < 0; "accuracy positive" and "F1
      positive" of the rows whose target is not 0, > 0 against <= 0 for the prediction (MERBench's, for both data sets);
      "accuracy above zero" and "F1 above zero" of all rows, > 0 against <= 0 (MMSA's for CH-SIMS). F1 is the mean of
      the two classes' F1, weighted by their rows.
    """
    p, t = np.asarray(predictions, np.float64), np.asarray(targets, np.float64)
    if p.ndim != 1 or p.shape != t.shape or len(p) == 0:
        raise ValueError(f"predictions and targets must both be (m,), got {p.shape} and {t.shape}")
    if not (np.isfinite(p).all() and np.isfinite(t).all()):
        raise ValueError("predictions and targets must be finite, got NaN or infinity")
    from sklearn.metrics import f1_score  # its import takes a second

    spread = p.std() * t.std()
    found = {
        "MAE": float(np.abs(p - t).mean()),
        "Pearson": float(np.mean((p - p.mean()) * (t - t.mean())) / spread) if spread > 0 else 0.0,
    }
    signed = t != 0
    for name, predicted, true in (
        ("non-negative", p >= 0, t >= 0),
        ("positive", p[signed] > 0, t[signed] > 0),
        ("above zero", p > 0, t > 0),
    ):
        there, f1 = len(true) > 0, partial(f1_score, average="weighted")
        found[f"accuracy {name}"] = float(np.mean(predicted == true)) if there else math.nan
        found[f"F1 {name}"] = float(f1(true, predicted)) if there else math.nan
    return found


def _checked(train: Rows, test: Rows, valid: Rows | None) -> dict[str, Rows]:
    """Features and targets of each split in float64."""
    found = {}
    given = {"train": train, "test": test} | ({} if valid is None else {"valid": valid})
    for name, rows in given.items():
        x, y = (np.asarray(array, np.float64) for array in rows)
        if x.ndim != 2 or 0 in x.shape or y.shape != x.shape[:1]:
            raise ValueError(f"{name} must be (n, d) features and (n,) targets, got {x.shape} and {y.shape}")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError(f"{name} must have finite features and targets, got NaN or infinity")
        found[name] = x, y
    widths = {x.shape[1] for x, _ in found.values()}
    if len(widths) > 1:
        raise ValueError(f"features of all splits must have one width, got {sorted(widths)}")
    return found


class _Validated(Evaluation):
    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """`train`, `test` and, if there is one, the validation split."""
        return tuple(name for name in ("train", "valid", "test") if name in available)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression(_Validated):
    """Regression of a score, such as sentiment, from frozen features by a linear layer: MAE, correlation, binary
    accuracy and F1."""

    probe: MaeProbe = dataclasses.field(default_factory=MaeProbe)
    """The linear layer and its training."""

    def check(self, splits: Splits) -> None:
        if names := splits["train"].class_names:
            use = "use evaluation:classification"
            raise ValueError(f"evaluation:regression needs scores, got {len(names)} classes; {use}")

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        rows = {name: (features[name], splits[name].labels) for name in features}
        options: Any = {"valid": rows.get("valid"), "groups": splits["train"].groups, "seed": self.seed}
        with during("linear layers"):
            return mae_probe(rows["train"], rows["test"], probe=self.probe, **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predictions(_Validated):
    """Test accuracy of the predictions of `method:supervised`, over all examples and averaged over classes; for scores,
    such as sentiment, MAE, correlation, binary accuracy and F1, and with a validation split "validation MAE"."""

    features: Literal["encoder", "head"] = "head"
    """Output to evaluate: the predictions are the head's."""

    @property
    def compared(self) -> bool:
        return False  # untrained encoders and raw inputs have no predictions

    def check(self, splits: Splits) -> None:
        names = splits["train"].class_names
        if names != splits["test"].class_names:
            got = f"{len(names)} and {len(splits['test'].class_names)}"
            raise ValueError(f"evaluation:predictions needs the same classes in train and test, got {got}")

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Accuracy of the class with the largest of the (N, classes) outputs; without classes, the measures of the
        (N, 1) outputs as scores."""
        labels = splits["test"].labels
        if not splits["test"].class_names:
            how = f"the network's output on {len(labels)} test rows"
            measures = regression_measures(features["test"][:, 0], labels)
            if "valid" in features:
                errors = features["valid"][:, 0] - splits["valid"].labels
                measures["validation MAE"] = float(np.abs(errors).mean())
            return _results([measures], how)
        right = features["test"].argmax(1) == labels
        by_class = [right[labels == label].mean() for label in np.unique(labels)]
        how = f"share of {len(labels)} test rows whose class has the largest output"
        per_class = f"{how}, the mean over classes"
        return [
            Result("accuracy", float(right.mean()), None, how),
            Result("accuracy, mean per class", float(np.mean(by_class)), None, per_class),
        ]

    def measure_trained(
        self, features: Arrays, splits: Splits, augmented: Augmented, folder: Path | None
    ) -> list[Result]:
        """`measure`; with classes, writes correct.npz, in which (n,) bool says which test rows are right."""
        if folder is not None and splits["test"].class_names:
            right = features["test"].argmax(1) == splits["test"].labels
            _files.save_arrays(folder / "correct.npz", correct=right)
        return self.measure(features, splits)
