"""How much of what is predictable is in each view alone, in several, and only in all together."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mvcl import metrics
from mvcl._progress import track
from mvcl.evaluation._channels import ChannelProbe, early_stopped, orders
from mvcl.evaluation._probe import PENALTIES, deviations, fit_logistic, held_out

Subset = tuple[str, ...]
_EVERY = 6  # views of which all subsets are probed
_LEAST = 30  # rows to test, and half of those to fit
_DRAWS = 50  # of the bootstrap, for the estimates of parts
_ENTRIES = 400_000  # of the tables of these draws
_CELLS = (3, 24)  # rows of a table, at least and at most


class Estimate(NamedTuple):
    """A number in bits with its 95 % interval; a part also with `least` and `most`, the bounds of every decomposition
    without negative parts, and the lower end of the interval of one and the upper of the other; else NaN."""

    value: float
    low: float
    high: float
    least: float = math.nan
    most: float = math.nan
    outer_low: float = math.nan
    outer_high: float = math.nan


@dataclasses.dataclass(frozen=True)
class Decomposition:
    """What views tell of labels or scores, in bits."""

    entropy: float | None
    """Of the labels of the test rows; None for scores."""
    informations: dict[Subset, Estimate]
    """Of the subsets of views."""
    parts: dict[str, Estimate]
    """`unique VIEW`, `shared` and `synergy`, which add up to the information of all views."""
    beyond_pairs: Estimate | None
    """Of three or more views, what no two of them tell: at most so much."""
    protocol: str
    """How it was measured."""

    def frame(self) -> pd.DataFrame:
        """The numbers of each subset, `a + b`, and part by name."""
        named = {" + ".join(subset): x for subset, x in self.informations.items()} | self.parts
        named |= {} if self.beyond_pairs is None else {"beyond pairs": self.beyond_pairs}
        return pd.DataFrame.from_dict(named, orient="index", columns=Estimate._fields)

    def table(self) -> str:
        """The numbers as text, and how they were measured; no final newline."""
        shown = {"bits": self.frame()["value"].map("{:.3f}".format)}
        for title, ends in {"95 %": 1, "bounds": 3, "bounds, 95 %": 5}.items():
            pairs = self.frame().iloc[:, ends : ends + 2].itertuples(index=False)
            shown[title] = ["" if low != low else f"{low:.3f} to {high:.3f}" for low, high in pairs]
        return f"{pd.DataFrame(shown).to_string()}\n\n{self.protocol}"


def subsets(names: Sequence[str]) -> list[Subset]:
    """The subsets of views that `decompose` probes: all of up to 6 views, else those of one, two, all but one, all."""
    sizes = range(1, len(names) + 1) if len(names) <= _EVERY else (1, 2, len(names) - 1, len(names))
    return [s for size in sizes for s in itertools.combinations(names, size)]


def decompose(
    train: Mapping[Any, ArrayLike],
    test: Mapping[Any, ArrayLike],
    labels: tuple[ArrayLike, ArrayLike],
    *,
    present: tuple[ArrayLike | None, ArrayLike | None] = (None, None),
    probe: Literal["best", "linear", "network"] = "best",
    draws: int = 200,
    seed: int = 0,
) -> Decomposition:
    """What each subset S of views tells of labels or scores, and its parts: unique, shared, synergy; in bits.

        labels   I(S) = H(labels) - cross-entropy of a probe of S     scores   I(S) = -1/2 log2(1 - R²)

    on test rows, at least 0 and at least that of a part of S. Of labels it is a lower bound of the mutual information,
    in expectation: what these probes read of these features. Of scores it is one if their law is normal. The parts are
    `metrics.information_parts` of these numbers: of labels BROJA, by the probabilities of the probes, of scores the
    minimum mutual information; `metrics.information_bounds` need neither. A probe that reads all views together better
    than each alone makes synergy: compare `linear` with `network`.

    A probe is the better, on a held-out fifth of the training rows, of a regularised linear one and a network of two
    layers. Intervals are those of bootstrap draws of the test rows, without the spread over training rows.

    Args:
      train, test: features (n, d) by the name of a view, two or more; and, by a tuple of names, of views that a network
        fuses. At least 60 rows to train and 30 to test that have the views.
      labels: (n,) of train and test, two values or more: floating numbers are scores, whole numbers and texts classes.
      present: (n, k) bool of train and test, False where a view is missing. A probe is fitted on the rows that have its
        views; all are tested on the rows that have every view.
      probe: `linear` or `network` to use this one only.
      draws: of the bootstrap.
      seed: of held-out rows, first weights, orders and draws.
    """
    train, test = ({k if isinstance(k, tuple) else (k,): x for k, x in of.items()} for of in (train, test))
    names = tuple(dict.fromkeys(itertools.chain(*train)))
    if len(names) < 2 or draws < 2:
        raise ValueError(f"decompose needs at least 2 views and 2 draws, got {len(names)} and {draws}")
    (y, answers), classes = _targets(labels)
    here, there = (
        np.ones((len(t), len(names)), bool) if of is None else np.asarray(of, bool)
        for of, t in zip(present, (y, answers))
    )
    if here.shape != (len(y), len(names)) or there.shape != (len(answers), len(names)):
        got = f"{here.shape} and {there.shape}"
        raise ValueError(f"present must be (n, {len(names)}) of {len(y)} and {len(answers)} rows, got {got}")
    whole = np.all(there, axis=1)
    chosen, rng = subsets(names), np.random.default_rng(seed)
    held = held_out([np.flatnonzero(y == c) for c in range(classes)] or [np.arange(len(y))], rng)
    x, z = (_features(of, chosen, len(t)) for of, t in zip((train, test), (y, answers)))
    width = max(of.shape[1] for of in x.values())
    found = {}
    for subset in track(chosen, "probes", len(chosen), "subsets of views"):
        rows = here[:, [names.index(name) for name in subset]].all(1)
        if rows.sum() < 2 * _LEAST or whole.sum() < _LEAST or not held[rows].any():
            few = f"{rows.sum()} that have {' + '.join(subset)} and {whole.sum()} that have all views"
            least = f"at least {2 * _LEAST} training and {_LEAST} test rows"
            raise ValueError(f"decompose needs {least}, got {few}; use more")
        given = x[subset][rows], y[rows], held[rows]
        found[subset] = outputs(given, z[subset][whole], classes=classes, width=width, probe=probe, seed=seed)
    kind = {"best": "linear or network, the better on a held-out fifth"}.get(probe, probe)
    part = "" if whole.all() else f" with all views, of {len(whole)}"
    measure = "labels: entropy minus cross-entropy" if classes else "scores: -1/2 log2(1 - R²)"
    named = "BROJA (Bertschinger 2014)" if classes else "the minimum mutual information (Barrett 2015)"
    how = (
        f"Bits of {measure} of probes ({kind}) of {len(y)} training rows on {whole.sum()} test rows{part}. Intervals: "
        f"{draws} bootstrap draws of test rows. Parts: {named}; bounds: of every decomposition without negative parts "
        "(Williams and Beer 2010)."
    )
    n = int(whole.sum())
    drawn = rng.multinomial(n, np.full(n, 1 / n), draws)
    weights = np.vstack([np.ones(n), drawn]) / n  # first the rows themselves
    return _decomposed(names, found, weights, answers[whole], classes, how)


def _targets(labels: tuple[ArrayLike, ArrayLike]) -> tuple[list[np.ndarray], int]:
    """Class numbers and how many classes; or scores of mean 0 and deviation 1 in training, and 0."""
    y, answers = (np.asarray(of) for of in labels)
    if y.ndim != 1 or answers.ndim != 1:
        raise ValueError(f"labels must be (n,) of train and test, got {y.shape} and {answers.shape}")
    known = np.unique(y)
    if (scores := y.dtype.kind == "f") and not np.isfinite([*y, *answers]).all():
        raise ValueError("scores must be finite, got NaN or infinity")
    if len(known) < 2 or len(np.unique(answers)) < 2:
        what = "decompose needs labels or scores of at least 2 values in train and in test"
        raise ValueError(f"{what}, got fewer")
    if scores:
        return [((of - y.mean()) / y.std()).astype(np.float32) for of in (y, answers)], 0
    if (new := np.setdiff1d(answers, known)).size:
        names = ", ".join(map(str, new[:5]))
        raise ValueError(f"labels of test must be classes of train, which has no {names}")
    return [np.searchsorted(known, of).astype(np.int32) for of in (y, answers)], len(known)


def _features(given: Mapping[Any, ArrayLike], chosen: Iterable[Subset], n: int) -> dict[Subset, np.ndarray]:
    """(n, d) features of each subset."""
    known = {key: np.asarray(x, np.float32) for key, x in given.items()}
    for key, x in known.items():
        if x.ndim != 2 or len(x) != n:
            raise ValueError(f"features of {' + '.join(key)} must be ({n}, d), got {x.shape}")
    found = {}
    for subset in chosen:
        if subset not in known and (lacks := [name for name in subset if (name,) not in known]):
            raise ValueError(f"there must be features of {lacks[0]} or of {' + '.join(subset)}, got neither")
        found[subset] = known[subset] if subset in known else np.hstack([known[name,] for name in subset])
    return found


def _decomposed(
    names: Subset,
    found: Mapping[Subset, np.ndarray],
    weights: np.ndarray,
    y: np.ndarray,
    classes: int,
    how: str,
) -> Decomposition:
    """Of the outputs of probes; row 0 of the weights of test rows are the rows themselves."""
    rests = [tuple(other for other in names if other != name) for name in names]
    values: dict[Subset, np.ndarray] = {}  # nats of each subset at each draw
    frequency = weights @ (y[:, None] == np.arange(classes))
    entropy = -np.sum(frequency * np.log(np.maximum(frequency, 1e-300)), axis=1)
    entropy[1:] += entropy[0] - entropy[1:].mean()  # a draw's is too low, as the rows' is
    variance = weights @ y.astype(float) ** 2 - (weights @ y) ** 2
    for subset, of in found.items():  # smaller ones first
        if classes:
            own = np.minimum(entropy + weights @ of[np.arange(len(y)), y], math.log(classes))
        else:
            own = -0.5 * np.log(np.maximum(weights @ (of - y) ** 2, 1e-12) / variance)
        inner = [values[s] for s in values if set(s) < set(subset)]
        values[subset] = np.max([np.zeros_like(own), own, *inner], axis=0)
    alone, without = (
        np.stack([values[s] for s in of], axis=-1) for of in ([(name,) for name in names], rests)
    )
    whole, tables = values[names], {}
    if classes:
        weights = weights[: 1 + _DRAWS]
        of_views = [_table(found[name,], weights, y, classes, len(names)) for name in names]
        others = of_views[::-1]  # of two views
        if len(names) > 2:
            others = [_table(found[rest], weights, y, classes, 2) for rest in rests]
        tables = {"tables": of_views, "others": others}
    low, high = metrics.information_bounds(alone, without, whole)
    estimated = metrics.information_parts(*(of[: len(weights)] for of in (alone, without, whole)), **tables)
    each = (estimated, low, high)
    parts = {f"unique {name}": _estimate(*(p.unique[:, i] for p in each)) for i, name in enumerate(names)}
    parts |= {name: _estimate(*(getattr(p, name) for p in each)) for name in ("shared", "synergy")}
    beyond = None
    if len(names) > 2:
        pairs = np.max([values[s] for s in itertools.combinations(names, 2)], axis=0)
        beyond = _estimate(np.maximum(whole - pairs, 0))
    bits = float(entropy[0]) / math.log(2) if classes else None
    return Decomposition(bits, {s: _estimate(x) for s, x in values.items()}, parts, beyond, how)


def _estimate(values: np.ndarray, *bounds: np.ndarray) -> Estimate:
    """Of nats of the rows themselves, the first, and of draws of them."""
    ends = [values[0], *np.quantile(values[1:], [0.025, 0.975]), *(of[0] for of in bounds)]
    ends += [np.quantile(of[1:], q) for of, q in zip(bounds, (0.025, 0.975))]
    return Estimate(*(float(x) / math.log(2) for x in ends))


def _table(found: np.ndarray, weights: np.ndarray, y: np.ndarray, classes: int, sources: int) -> np.ndarray:
    """(draws, cells, classes): joint probabilities of the classes and of cells of the probabilities of a probe."""
    most = int((_ENTRIES / (len(weights) * classes)) ** (1 / sources))
    cells = metrics.k_means(np.exp(found), min(max(most, _CELLS[0]), _CELLS[1]), starts=1)[0]
    joint = np.exp(found)[:, None] * (cells[:, None] == np.arange(cells.max() + 1))[..., None]
    table = np.einsum("bn,nmc->bmc", weights, joint, optimize=True)
    frequency = weights @ (y[:, None] == np.arange(classes))
    return table * (frequency / np.maximum(table.sum(1), 1e-300))[:, None]


_HIDDEN = 128  # of the two layers of the network
_NETWORK = ChannelProbe(learning_rate=2e-3, weight_decay=1e-2, batch_size=256, epochs=100, patience=8)
_RIDGE = (10.0, 1.0, *PENALTIES)
_Weights = Mapping[str, Any]


def outputs(
    train: tuple[np.ndarray, np.ndarray, np.ndarray],
    test: np.ndarray,
    *,
    classes: int,
    width: int,
    probe: str,
    seed: int,
) -> np.ndarray:
    """(m, classes) log-probabilities or, without classes, (m,) scores of test rows.

    The penalty of the linear probe has the least loss on the held-out rows, where the network is stopped early; of both
    the better there is used, the linear one fitted again on all. `train` are (n, d) float32 features, (n,) class
    numbers or scores, and (n,) bool, True for rows to hold out; features are filled up to `width` columns by zeros.
    """
    x, y, held = train
    mean, scale = x.mean(0), deviations(x)
    rows, tested = (
        jnp.asarray(np.pad((of - mean) / scale, [(0, 0), (0, width - x.shape[1])])) for of in (x, test)
    )
    fit, valid = (rows[~held], jnp.asarray(y[~held])), (rows[held], jnp.asarray(y[held]))
    weights: Any = None
    best, chosen = math.inf, 0.0
    for penalty in sorted(PENALTIES if classes else _RIDGE, reverse=True) if probe != "network" else ():
        weights = _linear(*fit, penalty, classes, weights)
        if (loss := float(jnp.mean(_losses(weights, *valid)))) < best:
            best, chosen = loss, penalty
    if probe != "linear":
        rng = np.random.default_rng((seed, 1))
        # The network's first outputs are 0.
        deviation = {"first": math.sqrt(2 / x.shape[1]), "second": math.sqrt(2 / _HIDDEN)}
        shapes = {"first": (width, _HIDDEN), "b1": (_HIDDEN,), "second": (_HIDDEN, _HIDDEN), "b2": (_HIDDEN,)}
        shapes |= {"last": (_HIDDEN, classes or 1), "skip": (width, classes or 1), "bias": (classes or 1,)}
        start = {
            name: jnp.asarray(deviation.get(name, 0) * rng.normal(size=shape), jnp.float32)
            for name, shape in shapes.items()
        }
        weights = early_stopped(_NETWORK, _losses, start, fit, valid, orders(len(fit[1]), _NETWORK, rng))
        best, chosen = min((best, chosen), (float(jnp.mean(_losses(weights, *valid))), 0.0))
    found = _outputs(weights if not chosen else _linear(rows, jnp.asarray(y), chosen, classes), tested)
    return np.asarray(jax.nn.log_softmax(found) if classes else found[:, 0], np.float64)


def _linear(x: jax.Array, y: jax.Array, penalty: float, classes: int, start: Any = None) -> _Weights:
    """Weights of logistic regression or, without classes, of ridge regression."""
    if classes:
        start = None if start is None else np.vstack([start["skip"], start["bias"]])
        found = fit_logistic(x, np.asarray(y), penalty, num_classes=classes, start=start)
    else:
        from sklearn.linear_model import Ridge  # its import takes a second

        of = Ridge(alpha=len(x) * penalty, solver="svd").fit(np.asarray(x, np.float64), np.asarray(y))
        found = np.append(of.coef_, of.intercept_)[:, None]
    return {"skip": jnp.asarray(found[:-1], jnp.float32), "bias": jnp.asarray(found[-1], jnp.float32)}


@jax.jit
def _outputs(weights: _Weights, x: jax.Array) -> jax.Array:
    """(n, outputs) of a linear probe, or of a network with a linear path beside it."""
    found = x @ weights["skip"] + weights["bias"][None]
    if "first" in weights:
        h = jax.nn.relu(x @ weights["first"] + weights["b1"][None])
        found = found + jax.nn.relu(h @ weights["second"] + weights["b2"][None]) @ weights["last"]
    return found


def _losses(weights: _Weights, x: jax.Array, y: jax.Array) -> jax.Array:
    """(n,) cross-entropies, or squared errors of scores."""
    found = _outputs(weights, x)
    if found.shape[1] == 1:
        return (found[:, 0] - y) ** 2
    return -jnp.take_along_axis(jax.nn.log_softmax(found), y[:, None], axis=1)[:, 0]
