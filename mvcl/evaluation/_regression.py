"""Regression of a score from features, and the measures of multimodal sentiment analysis."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from mvcl.evaluation._protocols import Arrays, Evaluation, Splits
from mvcl.evaluation._table import Result

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


def ridge(
    features: np.ndarray, targets: np.ndarray, penalties: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """(p, d) weights and (p,) intercepts of ridge regression, for each of p penalties.

    Minimises  mean_i (x_i w + b - y_i)² + penalty ||W||², from one singular value decomposition.

    Args:
      features: (n, d) floating.
      targets: (n,) floating.
      penalties: each > 0.
    """
    x, y = np.asarray(features, np.float64), np.asarray(targets, np.float64)
    mean, centre = x.mean(0), y.mean()
    left, sizes, right = np.linalg.svd(x - mean, full_matrices=False)
    along = left.T @ (y - centre)
    shrunk = sizes / (sizes**2 + len(x) * np.asarray(penalties, np.float64)[:, None])  # (p, r)
    weights = (shrunk * along) @ right
    return weights, centre - weights @ mean


def regression_measures(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """The measures of the sentiment literature, of (m,) predictions and (m,) signed targets.

    Returns:
      "MAE", "Pearson" (0 where either is constant), and binary accuracy and F1 under both conventions in use:
      "accuracy non-negative" and "F1 non-negative" of all rows, >= 0 against < 0; "accuracy positive" and "F1
      positive" of the rows whose target is not 0, > 0 against <= 0 for the prediction. F1 is the mean of the two
      classes' F1, weighted by their rows.

    Raises:
      ValueError: shapes differ, or something is not finite.
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
    ):
        found[f"accuracy {name}"] = float(np.mean(predicted == true)) if len(true) else float("nan")
        found[f"F1 {name}"] = (
            float(f1_score(true, predicted, average="weighted")) if len(true) else float("nan")
        )
    return found


def sentiment_regression(
    train_features: np.ndarray,
    train_targets: np.ndarray,
    test_features: np.ndarray,
    test_targets: np.ndarray,
    *,
    valid_features: np.ndarray | None = None,
    valid_targets: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    seed: int = 0,
    penalties: Sequence[float] = PENALTIES,
) -> list[Result]:
    """Ridge regression of a score from frozen features; MAE, Pearson correlation, binary accuracy and F1.

    Features are standardised by the training split. The penalty has the least mean absolute error on the validation
    split or, without one, on a held-out fifth of the training split (of its groups, if given); the regression is then
    refitted on the training split.

    Args:
      train_features, test_features: (n, d) and (m, d) floating.
      train_targets, test_targets: (n,) and (m,) scores, whose sign is the sentiment (CMU-MOSEI [-3, 3],
        CH-SIMS [-1, 1]).
      valid_features, valid_targets: of a validation split, both or neither.
      groups: (n,) speakers or subjects of the training rows; whole groups are held out.
      seed: of the held-out rows or groups.
      penalties: candidates, each > 0.

    Returns:
      One result for each of `regression_measures`.

    Raises:
      ValueError: shapes do not fit, something is not finite, or there is nothing to hold out.
    """
    x, y = _rows("train", train_features, train_targets)
    test, answer = _rows("test", test_features, test_targets)
    if (valid_features is None) != (valid_targets is None):
        raise ValueError("valid_features and valid_targets must be given together, got one of them")
    if len(penalties) == 0 or min(penalties) <= 0:
        raise ValueError(f"penalties must be positive numbers, at least one, got {tuple(penalties)}")
    scale = x.std(0)
    scale = np.where(scale > 1e-6 * np.maximum(np.abs(x.mean(0)), scale.max()), scale, 1)
    valid = None
    if valid_features is not None and valid_targets is not None:
        valid = _rows("valid", valid_features, valid_targets)
    widths = {a.shape[1] for a in (x, test, *(() if valid is None else valid[:1]))}
    if len(widths) > 1:
        raise ValueError(f"features of all splits must have one width, got {sorted(widths)}")
    x, test = x / scale, test / scale
    if valid is not None:
        held, held_answer = valid
        held, fitted, fitted_to, where = held / scale, x, y, f"the {len(held)} rows of the validation split"
    else:
        out = _held_out(len(x), groups, seed)
        held, held_answer, fitted, fitted_to = x[out], y[out], x[~out], y[~out]
        where = "a held-out fifth of it" + ("" if groups is None else ", by whole groups")
    weights, intercepts = ridge(fitted, fitted_to, penalties)
    errors = np.abs(weights @ held.T + intercepts[:, None] - held_answer).mean(1)
    best = penalties[int(errors.argmin())]
    weights, intercepts = ridge(x, y, [best])
    measures = regression_measures(test @ weights[0] + intercepts[0], answer)
    how = (
        f"ridge regression on {len(x)} scores, features standardised by the training split, penalty chosen by MAE on "
        f"{where}, {len(test)} test rows"
    )
    return [Result(name, value, None, how) for name, value in measures.items()]


def _held_out(rows: int, groups: np.ndarray | None, seed: int) -> np.ndarray:
    """(rows,) bool: a fifth of the groups, or of the rows."""
    of_row = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    if of_row.shape != (rows,):
        raise ValueError(f"groups must be ({rows},), one per training row, got {of_row.shape}")
    count = int(of_row.max()) + 1
    if count < 5:
        raise ValueError(f"5 groups or rows are needed to hold out a fifth, got {count}")
    return np.isin(of_row, np.random.default_rng(seed).permutation(count)[: count // 5])


def _rows(split: str, features: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(features, np.float64), np.asarray(targets, np.float64)
    if x.ndim != 2 or 0 in x.shape or y.shape != x.shape[:1]:
        raise ValueError(
            f"{split}_features and {split}_targets must be (n, d) and (n,) with n >= 1, got {x.shape} and {y.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError(f"{split}_features and {split}_targets must be finite, got NaN or infinity")
    return x, y


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression(Evaluation):
    """Ridge regression of a score, such as sentiment, from frozen features: MAE, correlation, binary accuracy and
    F1."""

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """`train`, `test` and, if there is one, the validation split."""
        return tuple(name for name in ("train", "valid", "test") if name in available)

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """One result for each of `regression_measures`."""
        given = "valid" in features
        return sentiment_regression(
            features["train"],
            splits["train"].labels,
            features["test"],
            splits["test"].labels,
            valid_features=features["valid"] if given else None,
            valid_targets=splits["valid"].labels if given else None,
            groups=splits["train"].groups,
            seed=self.seed,
        )
