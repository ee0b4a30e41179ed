"""Unit vectors, inner products, masked log-sum-exp, and collectives. No losses."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike


def widen(x: jax.Array) -> jax.Array:
    """x as float32 if its floating dtype is narrower; float32 and float64 are unchanged."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def unit(x: jax.Array, axis: int = -1, axis_name: str | None = None) -> jax.Array:
    """x / ||x|| along an axis, in float32 or wider; a zero vector stays zero and has gradient zero.

    With `axis_name` a vector goes on over its devices. Each vector is divided by its largest entry before it is
    squared, so that no length overflows or underflows.
    """
    x = widen(x)
    largest = lax.stop_gradient(jnp.max(jnp.abs(x), axis=axis, keepdims=True))
    largest = largest if axis_name is None else lax.pmax(largest, axis_name)
    x = x / jnp.where(largest > 0, largest, 1)  # a constant factor: the result does not depend on it
    square = device_sum(jnp.sum(x * x, axis=axis, keepdims=True), axis_name)
    nonzero = square > 0
    # Both branches of the inner `where` are finite, so that the gradient of the unselected branch is finite too.
    return x * jnp.where(nonzero, lax.rsqrt(jnp.where(nonzero, square, 1)), 0)


def inner(subscripts: str, *operands: jax.Array) -> jax.Array:
    """`einsum` that sums in float32 or wider, at full precision unless `jax.default_matmul_precision` is set.

    Otherwise a float32 product is rounded to bfloat16 on TPU and to TF32 on some GPUs: at temperature 0.1 that is an
    error of 0.02 in every exponent.
    """
    chosen = getattr(jax.config, "jax_default_matmul_precision", None)
    precision = lax.Precision.HIGHEST if chosen is None else None
    kind = jnp.promote_types(jnp.result_type(*operands), jnp.float32)
    return jnp.einsum(subscripts, *operands, precision=precision, preferred_element_type=kind)


def orthogonal_part(x: jax.Array, basis: Sequence[jax.Array]) -> jax.Array:
    """`(n, d)`: what orthonormal vectors, (n, d) each, leave of x; zeros in the basis change nothing.

    Taken away twice, since one pass leaves its rounding errors in their span.
    """
    for _ in range(2):
        for q in basis:
            x = x - inner("nd,nd->n", q, x)[:, None] * q
    return x


def products(x: jax.Array, y: jax.Array) -> jax.Array:
    """`(p, i, j)`: the inner products of x, (p, i, d), and y, (p, j, d).

    As `inner`, but the gradient with respect to y reads the large matrix in memory order: half the time on CPU.
    """
    return _products.bind(vary_as(x, y), vary_as(y, x))


def transposed_product(weight: jax.Array, x: jax.Array) -> jax.Array:
    """`(..., j, d)`: W^T x of a large W, (..., i, j), and x, (..., i, d).

    Computed as x^T W, then transposed, since the result is small; the barrier keeps XLA from undoing this.
    """
    return jnp.swapaxes(lax.optimization_barrier(inner("...id,...ij->...dj", x, weight)), -1, -2)


def _batched_products(
    operands: tuple[jax.Array, jax.Array], axes: tuple[int | None, int | None]
) -> tuple[jax.Array, int]:
    size = next(a.shape[axis] for a, axis in zip(operands, axes) if axis is not None)
    front = [batching.bdim_at_front(a, axis, size) for a, axis in zip(operands, axes)]
    out = _products.bind(*(a.reshape(-1, *a.shape[2:]) for a in front))
    return out.reshape(size, -1, *out.shape[1:]), 0


# JAX computes the transpose of a product as W^T x. A primitive is the only way to define another transpose that can
# also be batched.
_inner_products = functools.partial(inner, "pid,pjd->pij")
_products = Primitive("products")
_products.def_impl(jax.jit(_inner_products))
_products.def_abstract_eval(lambda x, y: x.update(shape=(*x.shape[:2], y.shape[1])))
mlir.register_lowering(_products, mlir.lower_fun(_inner_products, multiple_results=False))
ad.defbilinear(
    _products,
    lambda weight, x, y: inner("pij,pjd->pid", weight, y),
    lambda weight, x, y: transposed_product(weight, x),
)
batching.primitive_batchers[_products] = _batched_products


@jax.custom_jvp
def constant(x: jax.Array) -> jax.Array:
    """`lax.stop_gradient` under another name: chex's numerical check replaces that one by ones, which overflows."""
    return x


@constant.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return primals[0], jnp.zeros_like(tangents[0])


def logsumexp(a: jax.Array, axis: int | tuple[int, ...], where: jax.Array | None = None) -> jax.Array:
    """Log-sum-exp over the entries where `where` is True; -inf with gradient zero if there are none."""
    if where is not None:
        a = jnp.where(where, a, -jnp.inf)
    top = constant(jnp.max(a, axis=axis, keepdims=True))
    top = jnp.where(jnp.isfinite(top), top, 0)
    here = a != -jnp.inf  # NaN is kept, so that it propagates
    total = jnp.sum(jnp.where(here, jnp.exp(jnp.where(here, a, top) - top), 0), axis=axis)
    some = total != 0
    return jnp.where(some, jnp.log(jnp.where(some, total, 1)) + top.reshape(total.shape), -jnp.inf)


def log_power_mean(a: jax.Array, rho: float, axis: int, where: jax.Array | None = None) -> jax.Array:
    """(1/rho) log mean e^{rho a} over the entries where `where` is True; their mean at rho = 0; zero if there are none.

    a are logarithms: rho = 1 is the logarithm of their arithmetic mean, 0 of the geometric, -1 of the harmonic.
    """
    there = jnp.ones(a.shape, bool) if where is None else jnp.broadcast_to(where, a.shape)
    count = jnp.maximum(jnp.sum(there, axis=axis, dtype=a.dtype), 1)
    if abs(rho) < 1e-30:
        return jnp.sum(jnp.where(there, a, 0), axis=axis) / count
    # Differences from the entry that weighs most: expm1 and log1p keep their digits however small rho is.
    sign = 1 if rho > 0 else -1
    most = constant(jnp.max(jnp.where(there, sign * a, -jnp.inf), axis=axis, keepdims=True))
    most = sign * jnp.where(most == -jnp.inf, 0, most)
    below = jnp.sum(jnp.expm1(rho * (jnp.where(there, a, most) - most)), axis=axis)
    return most.reshape(below.shape) + jnp.log1p(below / count) / rho


def device_sum(x: jax.Array, axis_name: str | None) -> jax.Array:
    """The sum over the devices of `axis_name`."""
    return x if axis_name is None else lax.psum(x, axis_name)


def gather(x: jax.Array, axis_name: str | None, axis: int) -> jax.Array:
    """The rows of all devices, in order, along `axis`."""
    return x if axis_name is None else lax.all_gather(x, axis_name, axis=axis, tiled=True)


def vary_as(x: ArrayLike, reference: jax.Array) -> jax.Array:
    """x, marked inside `shard_map` as differing between devices wherever `reference` does.

    The transpose of the mark sums the devices' gradients, as a value shared by all devices needs.
    """
    return vary(jnp.asarray(x), varying(reference))


def vary(x: jax.Array, axes: Iterable[str]) -> jax.Array:
    """x, marked inside `shard_map` as differing between the devices of these mesh axes."""
    missing = frozenset(axes) - varying(x)
    return lax.pcast(x, tuple(sorted(missing)), to="varying") if missing else x


def varying(x: jax.Array) -> frozenset[str]:
    """Mesh axes along which x differs between devices, as `shard_map` tracks it."""
    return frozenset(jax.typeof(x).manual_axis_type.varying)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def reverse_only(x: jax.Array, message: str) -> jax.Array:
    """x; its forward-mode derivative raises `TypeError` with this message.

    Raised when the derivative is computed or compiled; without it, JAX's error is about `custom_vjp`.
    """
    return x


@reverse_only.defjvp
def _(message: str, primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return primals[0], _tangent.bind(tangents[0], message=message)


def _refuse(*_: Any, message: str, **__: Any) -> Any:
    raise TypeError(message)


# The identity on tangents. Reverse mode transposes it and never computes it; forward mode computes it.
_tangent = Primitive("tangent_in_reverse_mode_only")
_tangent.def_impl(_refuse)
_tangent.def_abstract_eval(lambda x, message: x)
mlir.register_lowering(_tangent, _refuse)
ad.deflinear2(_tangent, lambda cotangent, _, message: [cotangent])
batching.defvectorized(_tangent)
