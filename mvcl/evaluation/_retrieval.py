"""Retrieval between views: of one view by another, and of one view by all others."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl import _numerics, data
from mvcl._progress import track
from mvcl.evaluation._evaluation import Arrays, Evaluation, Result, Splits
from mvcl.metrics import recall_at, volume_recall_at

_RANKINGS: dict[str, tuple[str, Callable[[np.ndarray, np.ndarray, Sequence[int]], ArrayLike]]] = {
    "pairs": ("cosine with the other view", lambda others, keys, ks: recall_at(others[0], keys, ks)),
    "sum": (
        "cosine with the sum of the other views' unit vectors",
        lambda others, keys, ks: recall_at(others.sum(0), keys, ks),
    ),
    "product": (
        "inner product with the elementwise product of the other views' unit vectors (Symile)",
        lambda others, keys, ks: recall_at(others.prod(0), keys, ks),
    ),
    "volume": (
        "volume of their unit vector and those of the other views (GRAM), smallest first",
        volume_recall_at,
    ),
}
"""Score -> the order of the candidates, and the recalls (len(ks),) of keys (n, d) by m other views (m, n, d), of one
other view for "pairs"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrieval(Evaluation):
    """Recall at k of each view by each other view, and of each view by all others together.

    Each example is a query that looks for its own other view among those of all examples. Needs given views and
    embeddings of all views in one space. Examples are left out where a view that they lack is needed.
    """

    scored: ClassVar[bool] = True
    features: Literal["encoder", "head", "views", "head_views"] = "head_views"
    """Output of each view to compare: `head_views`, the head's, which the objective compares; or `views`, the
    encoder's."""
    ks: tuple[int, ...] = (1, 5, 10)
    """A query is a hit at k if its own example is among the first k; pairs and single views have the first k only."""

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        return ("test",)

    def check(self, splits: Splits) -> None:
        spec = splits["test"].spec
        if not spec.given or len(spec.shapes) < 2:
            why = "The views of these images are drawn at random; use evaluation:classification"
            raise ValueError(f"evaluation:retrieval needs given views, such as those of tables. {why}")
        if self.features not in ("views", "head_views"):
            what = "evaluation.features must be head_views or views for evaluation:retrieval"
            raise ValueError(f"{what}, got {self.features}")
        if not self.ks or min(self.ks) < 1 or len(set(self.ks)) < len(self.ks):
            raise ValueError(f"evaluation.ks must be different numbers >= 1, at least one, got {self.ks}")

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Recalls: the means "pairs R@k" over ordered pairs of views, and for each score, such as "sum R@k", over
        retrieved views; then those of each pair, "a -> b R@k", and each view, "others -> b, sum R@k", for the first k.
        """
        split, k = splits["test"], range(len(splits["test"].spec.shapes))
        z = _by_view(features["test"], split)
        names = split.spec.view_names or tuple(f"view {v + 1}" for v in k)
        means, single = [], []
        for score in track(_RANKINGS, "retrieval", len(_RANKINGS), "scores"):
            queries = [(f"others -> {names[m]}, {score}", [l for l in k if l != m], m) for m in k]
            if score == "pairs":
                queries = [(f"{names[l]} -> {names[m]}", [l], m) for l, m in itertools.permutations(k, 2)]
            every, counts = [], []
            for name, others, target in queries:
                recalls, rows = _recall(score, others, target, z, split, self.ks)
                value = None if recalls is None else float(recalls[0])
                single.append(Result(f"{name} R@{self.ks[0]}", value, None, _how(score, [rows], len(split))))
                if recalls is not None:
                    every.append(recalls)
                    counts.append(rows)
            over = "ordered pairs of views" if score == "pairs" else "retrieved views"
            how = f"mean over {len(every)} {over} of the " if every else ""
            how += _how(score, counts or [0], len(split))
            mean = np.mean(every, axis=0).tolist() if every else [None] * len(self.ks)
            means += [Result(f"{score} R@{at}", value, None, how) for at, value in zip(self.ks, mean)]
        return means + single

    def measure_raw(self, features: Arrays, splits: Splits) -> list[Result]:
        shapes = splits["test"].spec.shapes
        if len(set(shapes)) == 1:
            return self.measure(features, splits)
        why = f"not measured: raw views of the shapes {', '.join(map(str, shapes))} have no common space"
        return [Result(f"{score} R@{k}", None, None, why) for score in _RANKINGS for k in self.ks]

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float] | None:
        """Mean recall at 1 over the ordered pairs of views."""
        split, k = splits["test"], len(splits["test"].spec.shapes)
        z = _by_view(features["test"], split)
        found = [_recall("pairs", [l], m, z, split, (1,))[0] for l, m in itertools.permutations(range(k), 2)]
        measured = [recalls for recalls in found if recalls is not None]
        return ("recall_at_1", float(np.mean(measured))) if measured else None


def _recall(
    score: str, others: list[int], target: int, z: np.ndarray, split: data.Split, ks: Sequence[int]
) -> tuple[np.ndarray | None, int]:
    """Recalls of a view by others among the rows that have all, None of fewer than two; and these rows' number."""
    if split.present is not None:
        z = z[:, split.present[:, [*others, target]].all(axis=1)]
    rows = z.shape[1]
    return (np.asarray(_RANKINGS[score][1](z[others], z[target], ks)) if rows > 1 else None), rows


def _by_view(features: np.ndarray, split: data.Split) -> np.ndarray:
    """(n, k d) features, side by side, as (k, n, d) unit vectors."""
    k = len(split.spec.shapes)
    if features.shape[1] % k:
        what = f"evaluation:retrieval needs features of one length for each of {k} views"
        use = "use evaluation.features=head_views, or encoders of one width"
        raise ValueError(f"{what}, got {features.shape[1]} in all; {use}")
    z = jnp.asarray(features).reshape(len(features), k, -1).swapaxes(0, 1)
    return np.asarray(_numerics.unit(z))


def _how(score: str, rows: list[int], total: int) -> str:
    """How recalls of queries with these numbers of rows are measured, or why they are not."""
    low, high = min(rows), max(rows)
    if high < 2:
        return f"not measured: fewer than 2 of {total} rows have the views that are needed"
    count = f"{low}" if low == high else f"{low} to {high}"
    which = "" if low == total else f" with the views that are needed, of {total},"
    return (
        f"share of {count} rows{which} whose own row is among the first k, ranked by {_RANKINGS[score][0]}; a tie is a "
        "miss, chance is k / rows"
    )
