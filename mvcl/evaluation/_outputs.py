"""Probes whose outputs are probabilities of classes, or scores: a linear one, a network, or the better of both."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl.evaluation._channels import ChannelProbe, early_stopped, orders
from mvcl.evaluation._probe import PENALTIES, deviations, fit_logistic

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
        start = _first(rng, x.shape[1], width, classes or 1)
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


def _first(rng: np.random.Generator, fields: int, width: int, outputs: int) -> _Weights:
    """First weights of the network, whose outputs are 0."""
    deviation = {"first": math.sqrt(2 / fields), "second": math.sqrt(2 / _HIDDEN)}
    shapes = {"first": (width, _HIDDEN), "b1": (_HIDDEN,), "second": (_HIDDEN, _HIDDEN), "b2": (_HIDDEN,)}
    shapes |= {"last": (_HIDDEN, outputs), "skip": (width, outputs), "bias": (outputs,)}
    return {
        name: jnp.asarray(deviation.get(name, 0) * rng.normal(size=shape), jnp.float32)
        for name, shape in shapes.items()
    }


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
