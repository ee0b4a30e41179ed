"""The few-label probe of multichannel signals: a linear combination of the channels and a classifier."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvcl import _checks
from mvcl._progress import track
from mvcl.evaluation._evaluation import Arrays, Evaluation, Result, Rows, Splits, averaged
from mvcl.evaluation._probe import checked_rows, descend, draw_labels


@dataclasses.dataclass(frozen=True)
class ChannelProbe:
    """How a combination of channels and a classifier are trained: AdamW at a constant rate, early stopping."""

    learning_rate: float = 1e-3
    """AdamW's learning rate."""
    weight_decay: float = 5e-4
    """AdamW's weight decay, of biases too."""
    batch_size: int = 128
    """Rows of a step; the last of an epoch may have fewer."""
    epochs: int = 40
    """Passes over the drawn rows at most."""
    patience: int = 7
    """Epochs without a lower validation loss after which it ends with the best weights, not the last."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("batch_size", "epochs", "patience"), "[1, inf)")
        _checks.fields("probe", self, learning_rate="(0, inf)", weight_decay="[0, inf)", **counts)


def channel_probe(
    train: Rows,
    valid: Rows,
    test: Rows,
    *,
    num_classes: int,
    options: ChannelProbe = ChannelProbe(),
    seed: int | tuple[int, ...] = 0,
) -> float:
    """Balanced test accuracy of a linear combination of channels and a linear classifier, trained together.

        logits = W^T (Σ_c a_c x_c + a_0) + b

    Cross-entropy; a, a_0, W, b start uniform in ±1/sqrt(inputs), as PyTorch's linear layers. Piran 2024, Section 4.3
    and Appendix B, after Brüsch 2023, whose code keeps the encoder's dropout; here features are fixed.

    Args:
      train: (n, c, d) features of c channels, and (n,) integer labels in [0, num_classes).
      valid, test: the same for early stopping and for the result, the mean over classes of the share that is right.
      seed: of the initial weights and the order of the rows.
    """
    arrays = []
    for name, (features, labels) in (("train", train), ("valid", valid), ("test", test)):
        shape = np.shape(features)
        if len(shape) != 3 or shape[1:] != np.shape(train[0])[1:]:
            wanted = f"(n, channels, d) as in training, {np.shape(train[0])}"
            raise ValueError(f"{name}_features must be {wanted}, got {shape}")
        flat, answers = checked_rows(name, np.reshape(features, (shape[0], -1)), labels, num_classes)
        arrays.append((jnp.asarray(flat.reshape(shape)), jnp.asarray(answers)))
    rng = np.random.default_rng(seed)
    _, channels, d = np.shape(train[0])

    def uniform(shape: tuple[int, ...], inputs: int) -> jax.Array:
        return jnp.asarray(rng.uniform(-1, 1, shape) / math.sqrt(inputs), jnp.float32)

    weights = {
        "combination": uniform((channels,), channels),
        "shift": uniform((), channels),
        "kernel": uniform((d, num_classes), d),
        "bias": uniform((num_classes,), d),
    }
    order = orders(len(arrays[0][1]), options, rng)
    trained = early_stopped(options, _losses, weights, *arrays[:2], order)
    found = np.argmax(np.asarray(_logits(trained, arrays[2][0])), axis=1)
    right, answers = found == test[1], np.asarray(test[1])
    return float(np.mean([right[answers == c].mean() for c in np.unique(answers)]))


def _logits(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    combined = jnp.einsum("ncd,c->nd", x, weights["combination"]) + weights["shift"]
    return combined @ weights["kernel"] + weights["bias"][None]


def _losses(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(_logits(weights, x), y)


def orders(rows: int, options: ChannelProbe, rng: np.random.Generator) -> jax.Array:
    """(epochs, steps, rows of a step) random orders of the rows, -1 for no row."""
    size = min(options.batch_size, rows)
    order = np.full((options.epochs, math.ceil(rows / size) * size), -1)
    for epoch in order:
        epoch[:rows] = rng.permutation(rows)
    return jnp.asarray(order.reshape(options.epochs, -1, size))


@partial(jax.jit, static_argnums=(0, 1))
def early_stopped(
    options: ChannelProbe,
    losses: Callable[[Any, jax.Array, jax.Array], jax.Array],
    weights: Any,
    train: tuple[jax.Array, jax.Array],
    valid: tuple[jax.Array, jax.Array],
    order: jax.Array,
) -> Any:
    """The weights after training on a loss of each row, in these `orders`."""
    rule = optax.adamw(options.learning_rate, weight_decay=options.weight_decay)

    def of_rows(weights: Any, rows: jax.Array) -> jax.Array:
        values, where = losses(weights, train[0][rows], train[1][rows]), rows >= 0
        return jnp.sum(values * where) / jnp.maximum(where.sum(), 1)

    def epoch(state: Any) -> Any:
        number, current, best, lowest, waited = state
        current = descend(rule, of_rows, current, (order[number],))
        value = jnp.mean(losses(current[0], *valid))
        new, old = (current[0], value, 0), (best, lowest, waited + 1)
        return number + 1, current, *jax.tree.map(partial(jnp.where, value <= lowest), new, old)

    start = (0, (weights, rule.init(weights)), weights, jnp.inf, 0)
    _, (last, _), best, _, waited = jax.lax.while_loop(
        lambda state: (state[0] < len(order)) & (state[-1] < options.patience), epoch, start
    )
    return jax.tree.map(lambda a, b: jnp.where(waited >= options.patience, a, b), best, last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channels(Evaluation):
    """Few-label probes of the views of a signal: a retrained linear combination of the channels and a classifier.

    Needs given views and a method with one encoder. Validation rows are of other subjects than the drawn rows, where
    subjects are known; as many of a class as are drawn, or all if there are fewer.
    """

    features: Literal["encoder", "head", "views", "head_views"] = "views"
    """The encoder's output of each view, side by side; the combination is trained on it."""
    labels_per_class: tuple[int, ...] = (10, 50, 100, 1000)
    """Labels per class, one result each."""
    draws: int = 5
    """Draws of labels to average over."""
    valid_fraction: float = 0.25
    """Share of the training subjects (without subjects, rows) for validation."""
    valid_seed: int | None = None
    """Seed of the draw of these subjects; None: `seed`, so that runs with other labels have other subjects too."""
    of: str = ""
    """Use the splits OF/train and OF/test, for example of a second data set; empty: train and test."""
    probe: ChannelProbe = dataclasses.field(default_factory=ChannelProbe)

    def check(self, splits: Splits) -> None:
        train, _ = self.splits(tuple(splits))
        if len(splits[train].spec.shapes) < 2 or self.features != "views":
            got = f"{len(splits[train].spec.shapes)} views and {self.features}"
            raise ValueError(f"evaluation:channels needs given views and features=views, got {got}")
        counts = dict.fromkeys(("labels_per_class", "draws"), "[1, inf)")
        _checks.fields("evaluation", self, valid_fraction="(0, 1)", **counts)

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Balanced test accuracies for each number of labels, mean and deviation over draws."""
        train, test = self.splits(tuple(splits))
        channels, classes = len(splits[train].spec.shapes), len(splits[train].class_names)
        if (got := features[train].shape[1]) % channels:
            what = f"evaluation:channels needs features of one length for each of {channels} views"
            raise ValueError(f"{what}, got {got} in all; use a method with one encoder")
        x, z = (features[name].reshape(len(features[name]), channels, -1) for name in (train, test))
        labels, answers, groups = splits[train].labels, splits[test].labels, splits[train].groups
        of_row = np.arange(len(labels)) if groups is None else groups
        valid_seed = self.seed if self.valid_seed is None else self.valid_seed
        subjects = np.random.default_rng((valid_seed, 0, 1)).permutation(np.unique(of_row))
        held = np.isin(of_row, subjects[: max(1, round(self.valid_fraction * len(subjects)))])
        pool, others = np.flatnonzero(~held), np.flatnonzero(held)
        least = int(np.bincount(labels[pool], minlength=classes).min())
        how = (
            f"balanced test accuracy of a linear combination of {channels} channels and a linear classifier, "
            f"trained by AdamW for at most {self.probe.epochs} epochs on labels of {classes} classes, stopped "
            f"early on as many of held-out subjects, mean and standard deviation of {self.draws} draws (seed "
            f"{self.seed}), {len(answers)} test rows"
        )
        results = []
        for count in self.labels_per_class:
            name = f"{count} labels/class"
            if least < count:
                why = f"not measured: a class has {least} of the {count} labels needed"
                results.append(Result(name, None, None, why))
                continue
            scores = []
            given: Any = {"num_classes": classes, "labels_per_class": count, "draws": self.draws}
            rows = draw_labels(labels[pool], seed=self.seed, **given)
            for draw, chosen in enumerate(track(rows, name, self.draws, "draws")):
                rng = np.random.default_rng((self.seed, draw, 2))
                of_class = [others[labels[others] == c] for c in np.unique(labels[others])]
                seen = np.concatenate([rng.permutation(rows)[:count] for rows in of_class])
                mine, seed = pool[chosen], (self.seed, draw)
                parts = (x[mine], labels[mine]), (x[seen], labels[seen]), (z, answers)
                scores.append(channel_probe(*parts, num_classes=classes, options=self.probe, seed=seed))
            results.append(averaged(name, scores, how))
        return results
