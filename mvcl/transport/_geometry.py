"""Geometry of a problem: the costs of all tuples of points, from points, from matrices of pairs, or from a tensor."""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics, transport  # ott is imported on first use, being slow to import
from mvcl.transport import _costs
from mvcl.transport._costs import Barycenter, CostName, OfSum, PairForm, SumOverPairs, pairs

TupleCost = Callable[[jax.Array], jax.Array]

_DENSE_LIMIT = 2**31
_FITS = 30  # steps to the weights of landmarks; ours


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Geometry:
    """Costs of all tuples of points, one from each of k views, in the form in which they are held.

    Attributes:
      arrays: k(k-1)/2 matrices (n_l, n_m) whose sum is the cost or, with `of_sum`, its argument; or one tensor.
      counts: None for k, or k vectors (n_l,), 0 for a missing point: their sum over a tuple is the number of points
        that `of_sum` takes.
      of_sum: makes the cost from the sum over pairs; None where the sum, or the tensor, is the cost.
      x_s: k arrays (n_l, d), the points, if it was made from them.
      cost_fns: the ott `CostFn`, or k(k-1)/2 of them, if it was made with them.
      dense: whether the costs are held as a tensor (n_1, ..., n_k).
      edges: the k-1 pairs (l, m) of views, l < m, that have matrices, where they are a tree; else None.
      pair_spread: a bound on max - min of the costs of any pair of views, as 4/k² is for the circular variance of unit
        vectors. With it, or costs that are not traced, one way of summing is compiled; else all, and the costs decide.
    """

    arrays: tuple[jax.Array, ...]
    counts: tuple[jax.Array, ...] | None = None
    of_sum: OfSum | None = dataclasses.field(default=None, metadata={"static": True})
    x_s: tuple[jax.Array, ...] | None = None
    cost_fns: "transport.CostFn | Sequence[transport.CostFn] | None" = None
    dense: bool = dataclasses.field(default=False, metadata={"static": True})
    edges: tuple[tuple[int, int], ...] | None = dataclasses.field(default=None, metadata={"static": True})
    pair_spread: float | None = dataclasses.field(default=None, metadata={"static": True})

    @classmethod
    def from_points(
        cls,
        x_s: ArrayLike | Sequence[ArrayLike],
        cost: "CostName | PairForm | transport.CostFn | Sequence[transport.CostFn] | TupleCost" = "circular_variance",
        *,
        scale: float = 1.0,
        present: ArrayLike | None = None,
    ) -> "Geometry":
        """The costs of all tuples of points, in float32 or wider, without the tensor where the cost allows it.

        Args:
          x_s: (k, n, d) points, k >= 2, used as they are, or k arrays (n_l, d) of different sizes.
          cost: `"circular_variance"`, `1 - ||mean_l z_l||²`; `"circular_standard_deviation"`, `-log ||mean_l z_l||²`; a
            `SumOverPairs`, `Barycenter` or `SphericalBarycenter`; an ott `CostFn`, summed over the pairs of views, or
            k(k-1)/2 of them in the order (0,1), (0,2), ...; or any function of a (k, d) stack, which makes the tensor.
          scale: positive factor of the cost.
          present: boolean (k, n), for views of one size, False where an instance lacks a view. The cost of a tuple is
            then over the points that it has.

        Raises:
          ValueError: for shapes and options other than these, and for a function of a (k, d) stack with `present`.
        """
        points = checked_points(x_s)
        shape = tuple(len(x) for x in points)
        scale = _checks.real("cost_scale", scale, positive=True)
        if present is not None and len(set(shape)) > 1:
            raise ValueError(f"present must be None for views of different sizes, got sizes {shape}")
        there = _checks.mask(present, (len(shape), shape[0]), "present")
        if there is not None:
            points = tuple(jnp.where(p[:, None], x, 0) for x, p in zip(points, there))
        cost_fns: Any = None
        if isinstance(cost, str):
            cost = _costs.NAMED_COSTS[_checks.option("cost", cost, _costs.NAMED_COSTS)]
        elif not isinstance(cost, PairForm) and isinstance(cost, transport.CostFn | Sequence):
            several = cost if isinstance(cost, Sequence) else [cost]
            cost_fns = cost if all(isinstance(f, transport.CostFn) for f in several) else None
            cost = SumOverPairs(cost)  # type: ignore[arg-type]
        if isinstance(cost, PairForm):
            made = _of_pair_form(points, cost, scale, there)
            return dataclasses.replace(made, x_s=points, cost_fns=cost_fns)
        if hasattr(cost, "shape"):
            raise ValueError(
                f"cost must make costs of points, got an array {cost.shape}; of a tensor of costs: "
                "transport.MMSinkhorn().solve(transport.Problem(transport.Geometry.from_tensor(costs)))"
            )
        if not callable(cost):
            what = "cost must be a name, a cost of mvcl.transport, a CostFn"
            raise ValueError(f"{what}, several of them or a function of a (k, d) stack, got {cost!r}")
        if there is not None:
            what = "present, the mask of m3g, must be None for a cost that is a function of a (k, d) stack"
            raise ValueError(f"{what}, which has no value for fewer views; a sum over pairs has one")
        return cls((scale * _cost_tensor(points, cost),), x_s=points, dense=True)

    @classmethod
    def from_pairs(
        cls, matrices: ArrayLike | Sequence[ArrayLike], edges: Sequence[tuple[int, int]] | None = None
    ) -> "Geometry":
        """Costs that are the sum of (k(k-1)/2, n, n) matrices, or as many (n_l, n_m), in the order (0,1), (0,2), ...

        With `edges`, k-1 pairs (l, m), l < m, that are a tree, they are the matrices of these pairs, in their order.
        """
        given = list(matrices) if isinstance(matrices, Sequence) else list(jnp.asarray(matrices))
        arrays = tuple(_checks.array(f"matrices[{i}]", m, "n_l n_m") for i, m in enumerate(given))
        count, k = len(arrays), _costs.views_of_pairs(len(arrays))
        _check_tree(edges, count + 1)
        if edges is None and (k < 2 or count != k * (k - 1) // 2):
            raise ValueError(f"matrices must be k(k-1)/2, one for each pair of views, got {count}")
        geometry = cls(tuple(map(_numerics.widen, arrays)), edges=None if edges is None else tuple(edges))
        shapes, sizes = [a.shape for a in arrays], geometry.shape
        wanted = [(sizes[l], sizes[m]) for l, m in geometry.pairs]
        if shapes != wanted:
            what = "matrices must have the shapes (n_l, n_m) of the pairs l < m"
            raise ValueError(f"{what}, {wanted} for views of {sizes} points, got {shapes}")
        return geometry

    @classmethod
    def from_landmarks(
        cls,
        x_s: ArrayLike | Sequence[ArrayLike],
        landmarks: ArrayLike,
        epsilon: ArrayLike,
        cost: Barycenter = Barycenter(),  # noqa: B008
        edges: Sequence[tuple[int, int]] | None = None,
        *,
        scale: float = 1.0,
    ) -> "Geometry":
        """Squared distances through r landmarks b: a low-rank kernel, with time and memory k n r in place of n^k.

            exp(-C / ε) ≈ sum_b w_b prod_l exp(-scale λ_l ||x_l - b||² / ε)

        That is a star whose centre, the landmarks, is one more view, the last, of a free marginal: take it in a
        `Problem` with this epsilon and `tau=(1, ..., 1, 0)`. The weights w make `sum_b w_b exp(-scale ||b - c||² / ε)`
        about 1 at the landmarks c. The error is small where landmarks are closer together than `sqrt(ε / scale)` around
        the means of tuples, which takes few dimensions or a large epsilon.

        Args:
          x_s: as in `from_points`; k views.
          landmarks: (r, d), as the centres of K-means of all points.
          epsilon: positive, the problem's.
          cost: λ; the sum over pairs of squared distances is `Barycenter()` with `scale=k**2`.
          edges: k-1 pairs (l, m), l < m, that are a tree: the cost is then `scale` times the sum of their squared
            distances, and each edge has landmarks of its own, k-1 more views.
          scale: positive factor of the cost.

        Raises:
          ValueError: for another cost, of which no factors are known.
        """
        if not isinstance(cost, Barycenter):
            what = "cost must be a Barycenter (from_pairs takes other costs as a tree)"
            raise ValueError(f"{what}, got {cost!r}")
        points, scale = checked_points(x_s), _checks.real("scale", scale, positive=True)
        k, b = len(points), checked_points([jnp.asarray(landmarks, points[0].dtype), points[0]])[0]
        origin = jnp.mean(b, axis=0)[None]  # near it the squares are rounded less
        near = b - origin
        _check_tree(edges, k)
        # An edge is a barycentre of two views, of which the cost is a fourth of the squared distance.
        stars = [(tuple(range(k)), scale, cost)]
        if edges is not None:
            stars = [(e, 4 * scale, Barycenter()) for e in edges]
        arrays, joined = [], []
        for centre, (views, factor, star) in enumerate(stars, start=k):
            kernel = lax.stop_gradient(jnp.exp(-factor * _costs.squared_distances(near, near) / epsilon))
            ones = jnp.ones(len(b), b.dtype)
            # Least squares with positive weights (Lee, Seung 2000, NIPS).
            fit = lambda _, w, kernel=kernel: w * jnp.sum(kernel, axis=0) / (kernel @ (kernel @ w))  # noqa: E731
            log_w = jnp.log(jnp.maximum(lax.fori_loop(0, _FITS, fit, ones), jnp.finfo(b.dtype).tiny))
            for view, share in zip(views, star.of_views(len(views))):
                more = epsilon * log_w[None] if view == views[0] else 0
                arrays.append(factor * share * _costs.squared_distances(points[view] - origin, near) - more)
                joined.append((view, centre))
        return cls(tuple(arrays), x_s=points + (b,) * len(stars), edges=tuple(joined))

    @classmethod
    def from_tensor(cls, tensor: ArrayLike) -> "Geometry":
        """Costs that are given as a tensor (n_1, ..., n_k)."""
        array = _checks.array("tensor", tensor)
        if array.ndim < 2 or 0 in array.shape:
            what = "tensor must have shape (n_1, ..., n_k) with k >= 2 and points in every view"
            raise ValueError(f"{what}, got {array.shape}")
        return cls((_numerics.widen(array),), dense=True)

    @property
    def bare(self) -> "Geometry":
        """The costs alone, without the points and cost functions that they were made of."""
        return dataclasses.replace(self, x_s=None, cost_fns=None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of points (n_1, ..., n_k)."""
        if self.dense:
            return self.arrays[0].shape
        if self.edges is not None:
            sizes = {view: n for edge, a in zip(self.edges, self.arrays) for view, n in zip(edge, a.shape)}
            return tuple(sizes[view] for view in sorted(sizes))
        k = _costs.views_of_pairs(len(self.arrays))
        return (self.arrays[0].shape[0], *(matrix.shape[1] for matrix in self.arrays[: k - 1]))

    @property
    def pairs(self) -> Sequence[tuple[int, int]]:
        """The pairs of views of the matrices."""
        return pairs(_costs.views_of_pairs(len(self.arrays))) if self.edges is None else self.edges

    @property
    def dtype(self) -> jnp.dtype:
        """Of the costs."""
        return self.arrays[0].dtype

    @property
    def pairwise(self) -> bool:
        """Whether the cost is a sum over pairs; with more than two views, matrix products then sum over the tuples."""
        return self.of_sum is None and not self.dense

    def matrix(self, l: int, m: int) -> jax.Array:
        """Matrix of views l and m, rows of l."""
        place = self.pairs.index((min(l, m), max(l, m)))
        return self.arrays[place] if l < m else self.arrays[place].T

    def entries(self, indices: ArrayLike) -> jax.Array:
        """Costs (t,) of t tuples, given as (t, k) whole numbers."""
        at = jnp.asarray(indices)
        if self.dense:
            return self.arrays[0][tuple(at.T)]
        terms = [matrix[at[:, l], at[:, m]] for matrix, (l, m) in zip(self.arrays, self.pairs)]
        return self.of(terms, [c[at[:, l]] for l, c in enumerate(self.counts or ())])

    def diagonal(self) -> jax.Array:
        """Costs (n,) of the tuples (i, ..., i); ValueError for views of different sizes."""
        k, n = len(self.shape), self.shape[0]
        if len(set(self.shape)) > 1:
            what = "the views must be of one size to have tuples (i, ..., i)"
            raise ValueError(f"{what}, got sizes {self.shape}")
        if self.dense:  # the diagonal's entries are 1 + n + ... + n^(k-1) apart
            return self.arrays[0].reshape(-1)[:: max((n**k - 1) // max(n - 1, 1), 1)]
        # Masked, not gathered: the transpose of a gather is a scatter, which took longer than a pass at n = 64.
        total = jnp.sum(jnp.where(jnp.eye(n, dtype=bool)[None], jnp.stack(self.arrays), 0), axis=(0, 2))
        return self.of([total], self.counts)

    def tensor(self) -> jax.Array:
        """All costs, (n_1, ..., n_k)."""
        if self.dense:
            return self.arrays[0]
        k = len(self.shape)
        terms = [_costs.place(matrix, pair, k) for matrix, pair in zip(self.arrays, self.pairs)]
        return self.of(terms, [_costs.place(c, (l,), k) for l, c in enumerate(self.counts or ())])

    def of(self, terms: Sequence[jax.Array], counts: Sequence[jax.Array] | None) -> jax.Array:
        """Costs from terms of the sum over pairs and, if points may be missing, of their number."""
        total = reduce(operator.add, terms)
        if self.of_sum is None:
            return total
        return self.of_sum(total, reduce(operator.add, counts) if counts else len(self.shape))


def _of_pair_form(
    points: tuple[jax.Array, ...], cost: PairForm, scale: float, there: jax.Array | None
) -> Geometry:
    k, matrices, counts = len(points), cost.matrices(points), None
    of_sum = cost.of_sum(k)
    if of_sum is not None:
        if there is not None:
            counts = tuple(c * p for c, p in zip(cost.counts(k), there.astype(points[0].dtype)))
        return Geometry(matrices, counts, dataclasses.replace(of_sum, scale=scale * of_sum.scale))
    if there is not None:  # 0 for the pairs of which a point is missing
        both = [there[l][:, None] & there[m][None, :] for l, m in pairs(k)]
        matrices = tuple(jnp.where(pair, matrix, 0) for pair, matrix in zip(both, matrices))
    arrays = tuple(scale * m for m in matrices)
    if k > 2 and isinstance(cost, SumOverPairs) and cost.weights is not None:
        edges = tuple(pair for pair in pairs(k) if cost.weights[pair[0]][pair[1]])
        if _is_tree(edges, k):
            return Geometry(tuple(m for m, pair in zip(arrays, pairs(k)) if pair in edges), edges=edges)
    return Geometry(arrays)


def _is_tree(edges: Sequence[tuple[int, int]], k: int) -> bool:
    ordered = all(0 <= l < m < k for l, m in edges)
    return ordered and len(edges) == k - 1 and len(towards(edges, 0)) == k - 1


def _check_tree(edges: Sequence[tuple[int, int]] | None, k: int) -> None:
    if edges is not None and not _is_tree(edges, k):
        raise ValueError(f"edges must be {k - 1} pairs (l, m), l < m, that make a tree, got {edges}")


def towards(edges: Sequence[tuple[int, int]], root: int) -> list[tuple[int, int]]:
    """The edges of a tree as (parent, child), parents first."""
    found, reached = [], [root]
    for parent in reached:  # which grows
        for edge in edges:
            child = sum(edge) - parent
            if parent in edge and child not in reached:
                reached.append(child)
                found.append((parent, child))
    return found


def checked_points(x_s: ArrayLike | Sequence[ArrayLike]) -> tuple[jax.Array, ...]:
    """k >= 2 arrays (n_l, d) of one dtype, float32 or wider."""
    if not isinstance(x_s, Sequence):
        return tuple(_numerics.widen(_checks.array("x_s", x_s, "k n d", (2, 1, 1))))
    if len(x_s) < 2:
        raise ValueError(f"x_s must hold the points of k >= 2 views, got {len(x_s)}")
    points = [_checks.array(f"x_s[{l}]", x, "n d") for l, x in enumerate(x_s)]
    for l, x in enumerate(points[1:], start=1):
        if x.shape[1] != points[0].shape[1] or x.dtype != points[0].dtype:
            raise ValueError(
                f"x_s[{l}] must have the dimension and dtype of x_s[0], {points[0].shape[1]} and {points[0].dtype}, "
                f"got {x.shape[1]} and {x.dtype}"
            )
    return tuple(_numerics.widen(x) for x in points)


def check_operations(costs: Geometry, max_operations: float) -> None:
    """Refuses a problem of which a pass takes too long."""
    shape = costs.shape
    tuples, k = math.prod(shape), len(shape)
    if 2 * (sum(a.size for a in costs.arrays) if costs.edges else tuples) <= max_operations:
        return
    most, n = max_operations / 2, max(shape)
    views = next((v for v in range(k, 1, -1) if n**v <= most), None)
    fits = f"n <= {_root(most, k)} with {k} views" + (f", or k <= {views} with {n} points" if views else "")
    what = f"{_sizes(shape)} make {tuples:.3g} tuples, and a pass over them takes {2 * tuples:.3g} operations"
    raise ValueError(f"{what}, above max_operations={max_operations:.3g}; what fits: {fits}")


def _sizes(shape: Sequence[int]) -> str:
    same = len(set(shape)) == 1
    return f"{shape[0] if same else ', '.join(map(str, shape))} points in {len(shape)} views"


def _root(most: float, k: int) -> int:
    """Largest n with n^k <= most."""
    return next(n for n in range(int(most ** (1 / k)) + 1, -1, -1) if n**k <= most)


def _cost_tensor(points: Sequence[jax.Array], cost: TupleCost) -> jax.Array:
    """(n_1, ..., n_k) tensor of `cost` of every (k, d) stack, made for one point of view 0 after the other."""
    k, shape = len(points), [len(x) for x in points]
    if math.prod(shape) > _DENSE_LIMIT:
        raise ValueError(
            f"a tensor of {_sizes(shape)} has {math.prod(shape):.3g} entries, above {_DENSE_LIMIT}; what fits: "
            f"n <= {_root(_DENSE_LIMIT, k)} with {k} views, or a cost that is a sum over pairs of views"
        )

    def of_points(*stack: jax.Array) -> jax.Array:
        return cost(jnp.stack(stack))

    slab = of_points
    for view in reversed(range(1, k)):
        slab = jax.vmap(slab, in_axes=(None,) * view + (0,) + (None,) * (k - 1 - view))
    tensor = lax.map(jax.checkpoint(lambda point: slab(point, *points[1:])), points[0])
    if tensor.ndim != k:
        raise ValueError(f"cost must return a scalar for a (k, d) stack, got shape {tensor.shape[k:]}")
    return tensor
