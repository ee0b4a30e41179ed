"""Retrieval between views: of one view by another, and of one view by all others."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl import _numerics
from mvcl.evaluation._protocols import Arrays, Evaluation, LabelledSplit, Splits
from mvcl.evaluation._table import Result
from mvcl.metrics import recall_at, volume_recall_at


@dataclasses.dataclass(frozen=True)
class _Ranking:
    """How queries rank their candidates.

    Attributes:
      recall: (others (m, n, d), keys (n, d), ks) -> (len(ks),), the recall of the keys by m other views.
      how: the order of the candidates.
    """

    recall: Callable[[np.ndarray, np.ndarray, Sequence[int]], ArrayLike]
    how: str


_PAIRS = _Ranking(lambda others, keys, ks: recall_at(others[0], keys, ks), "cosine with the other view")
_RANKINGS = {
    "sum": _Ranking(
        lambda others, keys, ks: recall_at(others.sum(0), keys, ks),
        "cosine with the sum of the other views' unit vectors",
    ),
    "product": _Ranking(
        lambda others, keys, ks: recall_at(others.prod(0), keys, ks),
        "inner product with the elementwise product of the other views' unit vectors (Symile)",
    ),
    "volume": _Ranking(
        volume_recall_at, "volume of its unit vector and those of the other views (GRAM), smallest first"
    ),
}


@dataclasses.dataclass(frozen=True)
class _Query:
    """One view retrieved by others: the column's name, the ranking's name, the views' numbers and the ranking."""

    name: str
    group: str
    others: tuple[int, ...]
    target: int
    ranking: _Ranking


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrieval(Evaluation):
    """Recall at k of each view by each other view, and of each view by all others together.

    Each example is a query that looks for its own other view among those of all examples. Needs given views and
    embeddings of all views in one space, by default the head's. Examples that lack a view are left out where that view
    is needed, as queries and as candidates.
    """

    scored: ClassVar[bool] = True
    features: Literal["encoder", "head", "views", "head_views"] = "head_views"
    """Output of each view to compare: `head_views`, the head's, which the objective compares; or `views`, the
    encoder's."""
    ks: tuple[int, ...] = (1, 5, 10)
    """A query is a hit at k if its own example is among the first k; one result for each k."""
    single: tuple[int, ...] = (1,)
    """Those of `ks` that are shown for each pair of views and each retrieved view, too; the others as means only."""
    scores: tuple[Literal["sum", "product", "volume"], ...] = ("sum", "product", "volume")
    """How all other views together rank their candidates: by the cosine with their sum, by Symile's product of all
    views, by GRAM's volume of all views. Of two views, the first two are the retrieval by the one other view."""
    split: str = "test"
    """Split whose examples are queries and candidates."""

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """The split.

        Raises:
          ValueError: it is not available.
        """
        if self.split not in available:
            raise ValueError(f"evaluation.split must be one of {', '.join(available)}, got {self.split!r}")
        return (self.split,)

    def check(self, splits: Splits) -> None:
        """Raise `ValueError` for options that are invalid, or for examples without given views."""
        (name,) = self.splits(tuple(splits))
        spec = splits[name].spec
        if not spec.given or len(spec.shapes) < 2:
            raise ValueError(
                "evaluation:retrieval needs given views, such as those of tables: it retrieves a view of an example by "
                "its other views. The views of these images are drawn at random; use evaluation:classification"
            )
        if self.features not in ("views", "head_views"):
            raise ValueError(
                "evaluation.features must be head_views or views for evaluation:retrieval, which compares the outputs "
                f"of single views, got {self.features}"
            )
        if not self.ks or min(self.ks) < 1 or len(set(self.ks)) < len(self.ks):
            raise ValueError(f"evaluation.ks must be different numbers >= 1, at least one, got {self.ks}")
        if not set(self.single) <= set(self.ks):
            raise ValueError(f"evaluation.single must be among evaluation.ks = {self.ks}, got {self.single}")
        if unknown := sorted(set(self.scores) - set(_RANKINGS)):
            raise ValueError(f"evaluation.scores must be among {', '.join(_RANKINGS)}, got {unknown[0]!r}")

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Recalls: the means "pairs R@k" over ordered pairs of views, and for each of `scores`, such as "sum R@k", over
        retrieved views; then those of each pair, "a -> b R@k", and each view, "others -> b, sum R@k", for `single`.

        Raises:
          ValueError: the features of the views do not have one length.
        """
        split = splits[self.split]
        z, queries = _by_view(features[self.split], split), self._queries(split)
        return self._results(queries, [_recall(query, z, split, self.ks) for query in queries])

    def measure_raw(self, features: Arrays, splits: Splits) -> list[Result]:
        """The same of the raw views, if they have one shape."""
        split = splits[self.split]
        if len(set(split.spec.shapes)) == 1:
            return self.measure(features, splits)
        shapes = ", ".join(map(str, split.spec.shapes))
        why = f"not measured: the raw views have no common space, their shapes are {shapes}"
        queries = self._queries(split)
        return self._results(queries, [(None, why)] * len(queries))

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float] | None:
        """Mean recall at 1 over the ordered pairs of views."""
        split = splits[self.split]
        z, queries = _by_view(features[self.split], split), _pairs(_names(split))
        found = [
            values[0] for values, _ in (_recall(q, z, split, (1,)) for q in queries) if values is not None
        ]
        return ("recall_at_1", float(np.mean(found))) if found else None

    def _queries(self, split: LabelledSplit) -> list[_Query]:
        names = _names(split)
        k = len(names)
        together = [
            _Query(
                f"others -> {name}, {score}", score, tuple(l for l in range(k) if l != m), m, _RANKINGS[score]
            )
            for score in self.scores
            for m, name in enumerate(names)
        ]
        return _pairs(names) + together

    def _results(self, queries: list[_Query], found: list[tuple[np.ndarray | None, str]]) -> list[Result]:
        """Means over the queries of each group, then the single queries."""
        means, single = [], []
        for group in dict.fromkeys(query.group for query in queries):
            mine = [f for query, f in zip(queries, found) if query.group == group]
            measured = [values for values, _ in mine if values is not None]
            over = (
                f"mean over {len(measured)} {'ordered pairs of' if group == 'pairs' else 'retrieved'} views"
            )
            hows = list(dict.fromkeys(how for values, how in mine if values is not None or not measured))
            values = np.mean(measured, axis=0) if measured else None
            means += _columns(
                group, values, f"{over}: {'; '.join(hows)}" if measured else hows[0], self.ks, self.ks
            )
        for query, (values, how) in zip(queries, found):
            single += _columns(query.name, values, how, self.ks, self.single)
        return means + single


def _pairs(names: Sequence[str]) -> list[_Query]:
    return [
        _Query(f"{a} -> {b}", "pairs", (l,), m, _PAIRS)
        for l, a in enumerate(names)
        for m, b in enumerate(names)
        if l != m
    ]


def _names(split: LabelledSplit) -> tuple[str, ...]:
    return split.spec.view_names or tuple(f"view {v + 1}" for v in range(len(split.spec.shapes)))


def _by_view(features: np.ndarray, split: LabelledSplit) -> np.ndarray:
    """(n, k d) features, side by side, as (k, n, d) unit vectors."""
    k = len(split.spec.shapes)
    if features.shape[1] % k:
        raise ValueError(
            f"evaluation:retrieval needs features of one length for each of {k} views, got {features.shape[1]} in all; "
            "use evaluation.features=head_views, or encoders of one width"
        )
    z = jnp.asarray(features).reshape(len(features), k, -1).swapaxes(0, 1)
    return np.asarray(_numerics.unit(z))


def _recall(
    query: _Query, z: np.ndarray, split: LabelledSplit, ks: Sequence[int]
) -> tuple[np.ndarray | None, str]:
    """(len(ks),) recalls, and how they were measured; None with the reason for fewer than two examples."""
    needed = [*query.others, query.target]
    total = z.shape[1]
    if split.present is not None:
        z = z[:, split.present[:, needed].all(axis=1)]
    n = z.shape[1]
    if n < 2:
        return None, f"not measured: {n} of {total} rows have all the views that are needed"
    which = "" if n == total else f" with all the views that are needed, of {total},"
    how = (
        f"share of {n} test rows{which} whose own row is among the first k of them by {query.ranking.how}; a tie is a "
        f"miss, chance is k / {n}"
    )
    return np.asarray(query.ranking.recall(z[list(query.others)], z[query.target], ks)), how


def _columns(
    name: str, values: np.ndarray | None, how: str, ks: Sequence[int], shown: Sequence[int]
) -> list[Result]:
    return [
        Result(f"{name} R@{k}", None if values is None else float(values[i]), None, how)
        for i, k in enumerate(ks)
        if k in shown
    ]
