"""Probes of frozen features: neighbours, and logistic regression with all labels or a few per class."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from threadpoolctl import ThreadpoolController  # comes with scikit-learn

from mvcl import _checks
from mvcl._progress import track
from mvcl.evaluation._evaluation import Rows

PENALTIES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
FEW_LABEL_PENALTY = 1e-4


def linear_probe(
    train: Rows, *tests: Rows, num_classes: int, seed: int = 0, penalties: Sequence[float] = PENALTIES
) -> tuple[list[float], float]:
    """Test accuracies of multinomial logistic regression on all training labels.

    Minimises  mean_i CE(x_i W + b, y_i) + penalty/2 ||W||^2  by L-BFGS. Every feature is centred and divided
    by its standard deviation over the training split. The penalty is the candidate with the highest accuracy on a
    held-out fifth of every class (the largest, if equal); the classifier is then refitted on the whole training split.
    The test splits are used once.

    Args:
      train: (n, d) floating features and (n,) integer labels in [0, num_classes); `tests` are the same.
      seed: of the held-out rows; nothing else is random.
      penalties: candidates, at least one, each >= 0.

    Returns:
      Accuracy on each test split in [0, 1], and the chosen penalty.
    """
    x, y = checked_rows("train", *train, num_classes)
    checked = [checked_rows("test", *test, num_classes, x.shape[1]) for test in tests]  # before the long fit
    mean, scale = x.mean(0), deviations(x)
    rows = jnp.asarray((x - mean) / scale)
    rng = np.random.default_rng((seed, 1 << 20))  # a random stream not used by the draws of labels
    out = held_out([np.flatnonzero(y == c) for c in np.unique(y)], rng)
    if not out.any():
        why, got = "so that a fifth can be held out", f"{len(y)} rows of {len(np.unique(y))} classes"
        raise ValueError(f"train_labels must have 5 rows of some class, {why}, got {got}")
    weights: np.ndarray | None = None
    scores = {}
    strongest_first = sorted(penalties, reverse=True)  # each fit starts from the previous penalty's
    for penalty in track(strongest_first, "linear probe, penalties", len(strongest_first), "fits"):
        weights = fit_logistic(rows[~out], y[~out], penalty, num_classes=num_classes, start=weights)
        scores[penalty] = _accuracy(weights, rows[out], y[out])
    best = float(max(scores, key=scores.__getitem__))  # the first of equals
    weights = fit_logistic(rows, y, best, num_classes=num_classes)
    return [_accuracy(weights, jnp.asarray((x - mean) / scale), y) for x, y in checked], best


def held_out(groups: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """(n,) bool: a fifth, rounded down, of each group of row numbers."""
    out = np.zeros(sum(map(len, groups)), bool)
    for rows in groups:
        out[rng.permutation(rows)[: len(rows) // 5]] = True
    return out


def deviations(x: np.ndarray) -> np.ndarray:
    """(d,) standard deviation of each feature; 1 for a constant one, whose own is a rounding error."""
    scale = x.std(0)
    return np.where(scale > 1e-6 * np.maximum(np.abs(x.mean(0)), scale.max()), scale, 1)


def few_label_probe(
    train: Rows, test: Rows, *, num_classes: int, labels_per_class: int, draws: int = 10, seed: int = 0
) -> np.ndarray:
    """(draws,) test accuracies of logistic regression on a few labels per class, one for every draw of labels.

    Minimises the loss of `linear_probe`. Features are centred and divided by one number, the root mean square length,
    both of the whole training split. The penalty is 1e-4: between 1e-3 and 1e-5 the accuracy changes by less than its
    deviation over draws.

    Train and test are as for `linear_probe`; `seed` and the labels of train determine the draws, see `draw_labels`.
    """
    x, y = checked_rows("train", *train, num_classes)
    features, answer = checked_rows("test", *test, num_classes, x.shape[1])
    rows = draw_labels(y, num_classes=num_classes, labels_per_class=labels_per_class, draws=draws, seed=seed)
    mean = x.mean(0)
    scale = float(np.sqrt(x.var(0, dtype=np.float64).sum())) or 1.0
    test_rows = jnp.asarray((features - mean) / scale)
    scores = []
    for drawn in track(rows, f"{labels_per_class} labels/class", draws, "draws"):
        chosen = jnp.asarray((x[drawn] - mean) / scale)
        weights = fit_logistic(chosen, y[drawn], FEW_LABEL_PENALTY, num_classes=num_classes)
        scores.append(_accuracy(weights, test_rows, answer))
    return np.array(scores)


def draw_labels(
    labels: np.ndarray, *, num_classes: int, labels_per_class: int, draws: int, seed: int
) -> np.ndarray:
    """Training rows of a few-label probe: (draws, num_classes * labels_per_class), ordered by class.

    A function of (seed, draw, labels) only, so all encoders use the same rows, fewer labels the first ones.
    """
    labels = np.asarray(labels)
    if labels_per_class < 1 or draws < 1:
        raise ValueError(f"labels_per_class and draws must be at least 1, got {labels_per_class} and {draws}")
    of_class = [np.flatnonzero(labels == c) for c in range(num_classes)]
    for c, rows in enumerate(of_class):
        if len(rows) < labels_per_class:
            what = f"train_labels must have {labels_per_class} rows of every class"
            raise ValueError(f"{what}, got {len(rows)} of class {c}")
    rngs = [np.random.default_rng((seed, draw)) for draw in range(draws)]
    drawn = [[rng.permutation(rows)[:labels_per_class] for rows in of_class] for rng in rngs]
    return np.reshape(drawn, (draws, -1))


def fit_logistic(
    features: jax.Array,
    labels: np.ndarray,
    penalty: float,
    *,
    num_classes: int,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """(d + 1, num_classes) float64 weights, the intercepts last and unpenalised.

    Minimises  mean_i CE(x_i W + b, y_i) + penalty/2 ||W||^2, scikit-learn's objective with C = 1/(n penalty):
    scipy's L-BFGS with a compiled float32 gradient, so features stay on the accelerator. It stops when the largest
    gradient entry is below 1e-5, or after 1,000 iterations.
    """
    from scipy.optimize import minimize  # its import takes half a second

    shape = (features.shape[1] + 1, num_classes)
    answer = jnp.asarray(labels)

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _objective(flat.astype(np.float32).reshape(shape), features, answer, penalty)
        return float(value), np.asarray(gradient, np.float64).ravel()

    first = np.zeros(shape) if start is None else start
    # L-BFGS's vectors are short: BLAS threads do not help, and on shared cores they wait for each other.
    ends = {"gtol": 1e-5, "ftol": 0.0, "maxiter": 1000, "maxfun": 2000}
    with _blas().limit(limits=1):
        found = minimize(value_and_gradient, first.ravel(), jac=True, method="L-BFGS-B", options=ends)
    return found.x.reshape(shape)


_blas = cache(ThreadpoolController)


def descend(
    rule: optax.GradientTransformation, loss: Callable[..., jax.Array], state: Any, batches: Any
) -> Any:
    """Weights and moments after a step of the rule on each batch, the arguments of `loss` after the weights."""

    def step(state: Any, batch: Any) -> tuple[Any, None]:
        weights, moments = state
        updates, moments = rule.update(jax.grad(loss)(weights, *batch), moments, weights)
        return (optax.apply_updates(weights, updates), moments), None

    return jax.lax.scan(step, state, batches)[0]


@jax.jit
@jax.value_and_grad
def _objective(weights: jax.Array, x: jax.Array, y: jax.Array, penalty: jax.Array) -> jax.Array:
    log_p = jax.nn.log_softmax(_logits(weights, x))
    fit = -jnp.mean(jnp.take_along_axis(log_p, y[:, None], axis=1))
    return fit + penalty / 2 * jnp.sum(weights[:-1] ** 2)


def _logits(weights: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.matmul(x, weights[:-1], precision=jax.lax.Precision.HIGHEST) + weights[-1:]


_predict = jax.jit(lambda weights, x: jnp.argmax(_logits(weights, x), axis=1))


def _accuracy(weights: np.ndarray, x: jax.Array, y: np.ndarray) -> float:
    return float(np.mean(np.asarray(_predict(weights.astype(np.float32), x)) == y))


def checked_rows(
    split: str, features: np.ndarray, labels: np.ndarray, num_classes: int, width: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """float32 features, `width` each, and int32 labels; raises `ValueError` if invalid."""
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or 0 in features.shape or not jnp.issubdtype(features.dtype, jnp.floating):
        got = f"{features.dtype}{list(features.shape)}"
        raise ValueError(f"{split}_features must be non-empty floating (n, d), got {got}")
    if width is not None and features.shape[1] != width:
        got = f"{features.shape[1]} for {split} and {width}"
        raise ValueError(f"train_features and test_features must be equally wide, got {got}")
    _checks.labels(f"{split}_labels", labels, len(features), num_classes)
    if not np.isfinite(features).all():
        raise ValueError(f"{split}_features must be finite: {np.sum(~np.isfinite(features))} are not")
    return features.astype(np.float32), labels.astype(np.int32)
