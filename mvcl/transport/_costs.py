"""Costs of a tuple of points, one from each of k views, as sums over the pairs of views where they are one.

Matrices of the k(k-1)/2 pairs are in the order (0,1), (0,2), ..., (k-2,k-1), which is also ott's.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.transport import _ott
from mvcl.transport._pair_forms import NAMED_COSTS, OfSum, PairForm, SumOverPairs, pairs

if TYPE_CHECKING:
    from ott.geometry.costs import CostFn

CostName = Literal["circular_variance", "circular_standard_deviation"]
"""Costs of Piran 2024 by name."""
TupleCost = Callable[[jax.Array], jax.Array]
Path = Literal["pairwise", "logsumexp", "resultant", "dense"]

PATHS: tuple[Path, ...] = ("pairwise", "logsumexp", "resultant", "dense")
_DENSE_LIMIT = 2**31


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TupleCosts:
    """Costs of all tuples of points, one from each of k views, in the form in which they are held.

    Attributes:
      arrays: k(k-1)/2 matrices (n_l, n_m) whose sum is the cost or, with `of_sum`, its argument; on the path
        `"dense"` one tensor (n_1, ..., n_k).
      counts: None for k, or k vectors (n_l,), 0 for a missing point: their sum over a tuple is the number of points
        that `of_sum` takes.
      path: how sums over the tuples are taken.
      of_sum: makes the cost from the sum over pairs; None where the sum, or the tensor, is the cost.
    """

    arrays: tuple[jax.Array, ...]
    counts: tuple[jax.Array, ...] | None = None
    path: Path = dataclasses.field(default="pairwise", metadata={"static": True})
    of_sum: OfSum | None = dataclasses.field(default=None, metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of points (n_1, ..., n_k)."""
        if self.path == "dense":
            return self.arrays[0].shape
        k = views_of_pairs(len(self.arrays))
        return (self.arrays[0].shape[0], *(matrix.shape[1] for matrix in self.arrays[: k - 1]))

    @property
    def dtype(self) -> jnp.dtype:
        """Of the costs."""
        return self.arrays[0].dtype

    @property
    def bilinear(self) -> bool:
        """Whether matrix products can sum over the tuples: a sum over pairs, and two views to sum over for a third."""
        return self.path == "pairwise" and self.of_sum is None and len(self.shape) > 2

    def matrix(self, l: int, m: int) -> jax.Array:
        """Matrix of views l and m, rows of l."""
        place = pairs(len(self.shape)).index((min(l, m), max(l, m)))
        return self.arrays[place] if l < m else self.arrays[place].T

    def entries(self, indices: ArrayLike) -> jax.Array:
        """Costs (t,) of t tuples, given as (t, k) whole numbers."""
        at = jnp.asarray(indices)
        if self.path == "dense":
            return self.arrays[0][tuple(at.T)]
        total = sum(
            (matrix[at[:, l], at[:, m]] for matrix, (l, m) in zip(self.arrays, pairs(at.shape[1]))),
            start=jnp.zeros(at.shape[0], self.dtype),
        )
        if self.of_sum is None:
            return total
        if self.counts is None:
            return self.of_sum(total, at.shape[1])
        count = jnp.sum(jnp.stack([c[at[:, l]] for l, c in enumerate(self.counts)]), axis=0)
        return self.of_sum(total, count)

    def diagonal(self) -> jax.Array:
        """Costs (n,) of the tuples (i, ..., i), for views of one size n; ValueError for others."""
        k, n = len(self.shape), self.shape[0]
        if len(set(self.shape)) > 1:
            raise ValueError(
                f"the views must be of one size to have tuples (i, ..., i), got sizes {self.shape}"
            )
        if self.path == "dense":  # the diagonal's entries are 1 + n + ... + n^(k-1) apart
            return self.arrays[0].reshape(-1)[:: max((n**k - 1) // max(n - 1, 1), 1)]
        # Masked, not gathered: the transpose of a gather is a scatter, which took longer than a pass at n = 64.
        total = jnp.sum(jnp.where(jnp.eye(n, dtype=bool)[None], jnp.stack(self.arrays), 0), axis=(0, 2))
        if self.of_sum is None:
            return total
        return self.of_sum(total, k if self.counts is None else jnp.sum(jnp.stack(self.counts), axis=0))

    def tensor(self) -> jax.Array:
        """All costs, (n_1, ..., n_k)."""
        if self.path == "dense":
            return self.arrays[0]
        k = len(self.shape)
        total = jnp.zeros(self.shape, self.dtype)
        for matrix, pair in zip(self.arrays, pairs(k)):
            total = total + place(matrix, pair, k)
        if self.of_sum is None:
            return total
        if self.counts is None:
            return self.of_sum(total, k)
        count = jnp.zeros(self.shape, self.dtype)
        for view, present in enumerate(self.counts):
            count = count + place(present, (view,), k)
        return self.of_sum(total, count)


def tuple_costs(
    z: ArrayLike | Sequence[ArrayLike],
    cost: "CostName | CostFn | Sequence[CostFn] | TupleCost" = "circular_variance",
    *,
    scale: float = 1.0,
    path: Path | Literal["auto"] = "auto",
    present: ArrayLike | None = None,
) -> TupleCosts:
    """The costs of all tuples of points, without forming the tensor where the cost allows it.

    Args:
      z: (k, n, d) points, or k arrays (n_l, d), k >= 2.
      cost: as in `multimarginal_sinkhorn`.
      scale: positive factor of the cost.
      path: as in `multimarginal_sinkhorn`.
      present: boolean (k, n), for views of one size; a point where it is False stands for a view that an instance
        lacks. The cost of a tuple is then over the points that it has: a sum over pairs leaves out the pairs of a
        missing point, `"circular_standard_deviation"` takes the mean of those present and is 0 for none, and
        `SphericalBarycenter` has `sum_l λ_l - ||sum_l λ_l x_l||` over those present.

    Returns:
      The `TupleCosts`, in float32 or wider.

    Raises:
      ValueError: for shapes and options other than these, and for a function of a (k, d) stack with `present`.
    """
    points = checked_points(z)
    shape = tuple(len(x) for x in points)
    _checks.option("path", path, ("auto", *PATHS))
    scale = _checks.real("cost_scale", scale, positive=True)
    there = _checked_present(present, shape)
    if there is not None:
        points = tuple(jnp.where(p[:, None], x, 0) for x, p in zip(points, there))
    form = _form(cost)
    if form is not None:
        return _of_form(form, points, there, scale, path)
    if not callable(cost):
        raise ValueError(
            "cost must be a name, a cost of mvcl.transport, a CostFn, several of them or a function of a (k, d) stack, "
            f"got {cost!r}"
        )
    if there is not None:
        raise ValueError(
            "present, the mask of m3g, must be None for a cost that is a function of a (k, d) stack, which has no "
            "value for fewer views; "
            "a sum over pairs has one"
        )
    chosen = choose_path(path, ("dense",), "a function of a (k, d) stack")
    check_dense(shape)
    return TupleCosts((scale * cost_tensor(points, cost),), path=chosen)  # type: ignore[arg-type]


def _form(cost: object) -> PairForm | None:
    """How the cost follows from a sum over pairs; None for other functions of a (k, d) stack."""
    if isinstance(cost, str):
        return NAMED_COSTS[_checks.option("cost", cost, NAMED_COSTS)]
    if isinstance(cost, PairForm):
        return cost
    if isinstance(cost, _ott.CostFn | Sequence):
        return SumOverPairs(cost)  # type: ignore[arg-type]
    return None


def _of_form(
    form: PairForm,
    points: tuple[jax.Array, ...],
    there: tuple[jax.Array, ...] | None,
    scale: float,
    path: Path | Literal["auto"],
) -> TupleCosts:
    """Costs that follow from a sum over pairs."""
    k, matrices = len(points), form.matrices(points)
    of_sum = form.of_sum(k)
    if of_sum is None:
        chosen = choose_path(path, ("pairwise", "logsumexp", "dense"), "a cost that is a sum over pairs")
        return _held(TupleCosts(tuple(scale * m for m in _without(matrices, there))), chosen)
    chosen = choose_path(path, ("resultant", "dense"), "a function of a sum over pairs")
    counts = (
        None if there is None else tuple(c * p.astype(points[0].dtype) for c, p in zip(form.counts(k), there))
    )
    scaled = dataclasses.replace(of_sum, scale=scale * of_sum.scale)
    return _held(TupleCosts(matrices, counts, "resultant", scaled), chosen)


def costs_of_pairs(matrices: ArrayLike | Sequence[ArrayLike], path: Path | Literal["auto"]) -> TupleCosts:
    """Costs that are the sum of given matrices of the pairs of views."""
    given = list(matrices) if isinstance(matrices, Sequence) else list(jnp.asarray(matrices))
    arrays = tuple(_checks.array(f"pair_costs[{i}]", m, "n_l n_m") for i, m in enumerate(given))
    k = views_of_pairs(len(arrays))
    shapes = [a.shape for a in arrays]
    if k < 2 or len(arrays) != k * (k - 1) // 2:
        raise ValueError(
            f"pair_costs must hold k(k-1)/2 matrices, one for each pair of views, got {len(arrays)}"
        )
    sizes = (shapes[0][0], *(s[1] for s in shapes[: k - 1]))
    wanted = [(sizes[l], sizes[m]) for l, m in pairs(k)]
    if shapes != wanted:
        raise ValueError(
            f"pair_costs must have the shapes (n_l, n_m) of the pairs l < m, {wanted} for views of "
            f"{sizes} points, got {shapes}"
        )
    chosen = choose_path(path, ("pairwise", "logsumexp", "dense"), "pair_costs")
    return _held(TupleCosts(tuple(_numerics.widen(a) for a in arrays)), chosen)


def costs_of_tensor(tensor: ArrayLike, path: Path | Literal["auto"]) -> TupleCosts:
    """Costs that are given as a tensor."""
    array = _checks.floating("cost_tensor", tensor)
    if array.ndim < 2 or 0 in array.shape:
        raise ValueError(
            f"cost_tensor must have shape (n_1, ..., n_k) with k >= 2 and points in every view, got {array.shape}"
        )
    chosen = choose_path(path, ("dense",), "a cost tensor")
    check_dense(array.shape)
    return TupleCosts((_numerics.widen(array),), path=chosen)


def checked_points(z: ArrayLike | Sequence[ArrayLike]) -> tuple[jax.Array, ...]:
    """k >= 2 arrays (n_l, d) of one dtype, float32 or wider."""
    if not isinstance(z, Sequence):
        return tuple(_numerics.widen(_checks.array("z", z, "k n d", (2, 1, 1))))
    if len(z) < 2:
        raise ValueError(f"z must hold the points of k >= 2 views, got {len(z)}")
    points = [_checks.array(f"z[{l}]", x, "n d") for l, x in enumerate(z)]
    for l, x in enumerate(points[1:], start=1):
        if x.shape[1] != points[0].shape[1] or x.dtype != points[0].dtype:
            raise ValueError(
                f"z[{l}] must have the dimension and dtype of z[0], {points[0].shape[1]} and {points[0].dtype}, got "
                f"{x.shape[1]} and {x.dtype}"
            )
    return tuple(_numerics.widen(x) for x in points)


def _checked_present(present: ArrayLike | None, shape: tuple[int, ...]) -> tuple[jax.Array, ...] | None:
    if present is None:
        return None
    if len(set(shape)) > 1:
        raise ValueError(f"present must be None for views of different sizes, got sizes {shape}")
    mask = _checks.mask(present, (len(shape), shape[0]), "present")
    return None if mask is None else tuple(mask)


def _held(costs: TupleCosts, path: Path) -> TupleCosts:
    """The costs as their path holds them."""
    if path != "dense":
        return dataclasses.replace(costs, path=path)
    check_dense(costs.shape)
    return TupleCosts((costs.tensor(),), path=path)


def _without(matrices: tuple[jax.Array, ...], there: tuple[jax.Array, ...] | None) -> tuple[jax.Array, ...]:
    """The matrices, 0 for the pairs of which a point is missing."""
    if there is None:
        return matrices
    return tuple(
        jnp.where(there[l][:, None] & there[m][None, :], matrix, 0)
        for matrix, (l, m) in zip(matrices, pairs(len(there)))
    )


def choose_path(path: str, possible: tuple[Path, ...], what: str) -> Path:
    """The path asked for, the first possible for `"auto"`."""
    _checks.option("path", path, ("auto", *PATHS))
    for other in possible:
        if path in ("auto", other):
            return other
    raise ValueError(
        f"path must be one of {', '.join(map(repr, ('auto', *possible)))} for {what}, got {path!r}"
    )


def check_operations(shape: Sequence[int], max_operations: float) -> None:
    """Refuses a problem of which a pass takes too long."""
    tuples, k = math.prod(shape), len(shape)
    if 2 * tuples <= max_operations:
        return
    most, n = max_operations / 2, max(shape)
    views = next((v for v in range(k, 1, -1) if n**v <= most), None)
    fits = f"n <= {_root(most, k)} with {k} views" + (f", or k <= {views} with {n} points" if views else "")
    raise ValueError(
        f"{_sizes(shape)} make {tuples:.3g} tuples, and a pass over them takes {2 * tuples:.3g} "
        f"operations, above max_operations={max_operations:.3g}; what fits: {fits}"
    )


def check_dense(shape: Sequence[int]) -> None:
    """Refuses a tensor that no memory holds."""
    tuples, k = math.prod(shape), len(shape)
    if tuples > _DENSE_LIMIT:
        raise ValueError(
            f"a tensor of {_sizes(shape)} has {tuples:.3g} entries (a pass takes {2 * tuples:.3g} "
            f"operations), above {_DENSE_LIMIT}; what fits: n <= {_root(_DENSE_LIMIT, k)} with {k} views, "
            "or a cost that is a sum over pairs of views, which needs no tensor"
        )


def _sizes(shape: Sequence[int]) -> str:
    same = len(set(shape)) == 1
    return f"{shape[0] if same else ', '.join(map(str, shape))} points in {len(shape)} views"


def _root(most: float, k: int) -> int:
    """Largest n with n^k <= most."""
    n = int(most ** (1 / k)) + 1
    while n**k > most:
        n -= 1
    return n


def views_of_pairs(count: int) -> int:
    """k of k(k-1)/2 pairs."""
    return (1 + math.isqrt(1 + 8 * count)) // 2


def place(x: jax.Array, axes: Sequence[int], rank: int) -> jax.Array:
    """x with its axes at `axes` of `rank`, ones elsewhere."""
    shape = [1] * rank
    for axis, size in zip(axes, x.shape):
        shape[axis] = size
    return x.reshape(shape)


def cost_tensor(points: Sequence[jax.Array], cost: TupleCost) -> jax.Array:
    """(n_1, ..., n_k) tensor of `cost` of every (k, d) stack; memory for the stacks of one point of view 0 at a
    time.
    """
    k = len(points)

    def of_points(*stack: jax.Array) -> jax.Array:
        return cost(jnp.stack(stack))

    slab = of_points
    for view in reversed(range(1, k)):
        slab = jax.vmap(slab, in_axes=(None,) * view + (0,) + (None,) * (k - 1 - view))
    tensor = lax.map(jax.checkpoint(lambda point: slab(point, *points[1:])), points[0])
    if tensor.ndim != k:
        raise ValueError(f"cost must return a scalar for a (k, d) stack, got shape {tensor.shape[k:]}")
    return tensor
