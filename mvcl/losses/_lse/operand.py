"""What the log-sum-exps are taken of, and the arithmetic that dense, tiled and sharded blocks share."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mvcl import _numerics

# exp(-2 * 33) = 2e-29 is a normal float32 with room for weights and sums; float64 reaches much further.
_FIXED_SHIFT_LIMIT = {np.dtype("float32"): 33.0, np.dtype("float64"): 300.0}
Result = TypeVar("Result")


class Vectors(NamedTuple):
    """Views scaled so that an inner product is a similarity: what every function here works on."""

    z: jax.Array  # (k, n, d), already divided by sqrt(temperature)
    keep: jax.Array | None  # (k, n) bool, None where all are there
    bound: float | jax.Array  # no inner product is larger; a Python number where it is known before tracing


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("x", "y", "keep_x", "keep_y", "bound", "first"),
    meta_fields=("pairs", "diagonal", "upper", "columns", "block", "fixed", "axis"),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Operand:
    """Two sets of vectors and the blocks of their inner products: a pytree, static in all but its arrays."""

    x: jax.Array  # (views, n, d): rows
    y: jax.Array  # (views, m, d): columns
    keep_x: jax.Array | None  # (views, n) bool, None where all are there
    keep_y: jax.Array | None
    bound: jax.Array  # scalar that no inner product exceeds; the results do not depend on it
    first: jax.Array | None = None  # position of x's first row among the rows of all devices, None for 0
    pairs: tuple[tuple[int, int], ...]  # blocks (view of x, view of y)
    diagonal: bool = True  # does j = i count?
    upper: bool = False  # only j > i: half of a symmetric block
    columns: bool = True  # are the columns' log-sum-exps asked for?
    block: int | None = None  # rows of a tile; None keeps whole blocks
    fixed: bool | None = None  # one shift for all? None: decided when the bound is known
    axis: str | None = None  # mesh axis over whose devices the rows of y are split


class Sums(NamedTuple):
    """Log-sum-exps of the blocks, or what belongs to each of them."""

    rows: jax.Array  # (pairs, n)
    columns: jax.Array  # (pairs, m); of the shape of `rows`, and zero, where they are not asked for


def fixed_shift(bound: float | jax.Array, dtype: jnp.dtype) -> bool | None:
    """Whether one shift serves for all exponentials; None where that is known only when the program runs."""
    return bound <= _FIXED_SHIFT_LIMIT[dtype] if isinstance(bound, float) else None


def bound_of(v: Vectors, reference: jax.Array) -> jax.Array:
    """The bound as an array; a constant to the derivative, on which the value does not depend."""
    return _numerics.vary_as(_numerics.constant(jnp.asarray(v.bound, reference.dtype)), reference)


def either(
    fixed: bool | None, bound: jax.Array, function: Callable[..., Result], *operands: object
) -> Result:
    """`function(fixed, *operands)`; where `fixed` is None, chosen by the bound when the program runs."""
    if fixed is None:
        limit = _FIXED_SHIFT_LIMIT[bound.dtype]
        return lax.cond(bound <= limit, partial(function, True), partial(function, False), *operands)
    return function(fixed, *operands)


def masked(similarity: jax.Array, here: jax.Array | None) -> jax.Array:
    """-inf where nothing is there."""
    return similarity if here is None else jnp.where(here, similarity, -jnp.inf)


def exponential(similarity: jax.Array, here: jax.Array | None, bound: jax.Array) -> jax.Array:
    """exp(similarity - bound), zero where nothing is there."""
    # Masked before, not after: the exponentials are then the one large array that is kept.
    return jnp.exp(masked(similarity, here) - bound)


def log_sum(total: jax.Array, shift: jax.Array) -> jax.Array:
    """log(total) + shift; -inf for an empty sum."""
    some = total != 0
    return jnp.where(some, jnp.log(jnp.where(some, total, 1)) + shift, -jnp.inf)


def level(rows: jax.Array) -> jax.Array:
    """A finite number to subtract where the sum is empty: exp(-inf - 0) = 0 there."""
    return jnp.where(rows == -jnp.inf, 0, rows)


def per_sum(cotangent: jax.Array, rows: jax.Array, bound: jax.Array) -> jax.Array:
    """cotangent / (sum of shifted exponentials); zero for an empty sum."""
    some = rows != -jnp.inf
    return jnp.where(some, cotangent * jnp.exp(bound - jnp.where(some, rows, bound)), 0)


def counted(
    o: Operand, i: jax.Array, j: jax.Array, keep_x: jax.Array | None, keep_y: jax.Array | None
) -> jax.Array | None:
    """Which entries count, broadcastable to (..., rows, columns); None: all. i, j: global positions."""
    here = None
    if o.upper:
        here = j[None, :] > i[:, None]
    elif not o.diagonal:
        here = j[None, :] != i[:, None]
    for keep in (
        None if keep_x is None else keep_x[..., :, None],
        None if keep_y is None else keep_y[..., None, :],
    ):
        if keep is None:
            continue
        if here is None:
            here = keep
        else:
            shape = jnp.broadcast_shapes(here.shape, keep.shape)
            here = jnp.broadcast_to(of_rank(here, len(shape)), shape) & of_rank(keep, len(shape))
    return here


def positions(o: Operand, rows: jax.Array) -> jax.Array:
    """Of these rows of x, among the rows of all devices."""
    return rows if o.first is None else rows + o.first


def instance(o: Operand, columns: jax.Array, n: int) -> jax.Array:
    """Whose vectors these rows of y are, n instances to a set."""
    return columns if o.axis is not None else columns % n


def of_rank(a: jax.Array, rank: int) -> jax.Array:
    """Ones in front of the shape."""
    return a.reshape((1,) * (rank - a.ndim) + a.shape)
