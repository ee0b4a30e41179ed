"""Argument checks. Each raises a `ValueError` with the argument's name, its requirement and the value given."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

T = TypeVar("T")


def array(name: str, value: ArrayLike, axes: str = "", minimum: Sequence[int] = ()) -> jax.Array:
    """A floating array; of the named axes, for instance `axes="k n d"`, each at least `minimum` (1)."""
    out = _array_like(name, value)
    if names := axes.split():
        least = minimum or [1] * len(names)
        if out.ndim != len(names) or any(s < m for s, m in zip(out.shape, least)):
            bounds = " and ".join(f"{a} >= {m}" for a, m in zip(names, least) if m > 1)
            wanted = f"({', '.join(names)}{',' * (len(names) == 1)})" + (f" with {bounds}" if bounds else "")
            raise ValueError(f"{name} must have shape {wanted}, got {out.shape}")
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise ValueError(f"{name} must have a floating dtype, got {out.dtype}")
    return out


def views(z: ArrayLike, axis_name: str | None = None, name: str = "z") -> jax.Array:
    """`(k, n, d)` embeddings with k >= 2 and, over all devices of `axis_name`, n >= 2: a device may hold one."""
    rows = 2 if axis_name is None or jax.lax.axis_size(axis_name) < 2 else 1
    return array(name, z, "k n d", (2, rows, 1))


def pair(x: ArrayLike, y: ArrayLike, axis_name: str | None = None) -> jax.Array:
    """Two sets of `(n, d)` embeddings of one shape and dtype, stacked to `(2, n, d)`."""
    rows = 2 if axis_name is None or jax.lax.axis_size(axis_name) < 2 else 1
    a, b = array("x", x, "n d", (rows, 1)), array("y", y, "n d", (rows, 1))
    same_shape("x", a, "y", b)
    return jnp.stack([a, b])


def same_shape(name: str, value: jax.Array, other: str, reference: jax.Array) -> None:
    """Check that two arrays have the same shape and dtype."""
    if value.shape != reference.shape:
        raise ValueError(f"{other} must have the shape of {name}, {value.shape}, got {reference.shape}")
    if value.dtype != reference.dtype:
        raise ValueError(f"{other} must have the dtype of {name}, {value.dtype}, got {reference.dtype}")


def mask(value: ArrayLike | None, shape: tuple[int, ...], name: str = "mask") -> jax.Array | None:
    """A boolean array of exactly this shape, or None."""
    if value is None:
        return None
    out = _array_like(name, value)
    if out.dtype != jnp.bool_:
        raise ValueError(f"{name} must be boolean, got {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {out.shape}")
    return out


def scalar(name: str, value: ArrayLike, dtype: jnp.dtype, *, positive: bool = False) -> jax.Array:
    """A Python number or a scalar array, as `dtype`; sign and size are checked for Python numbers only."""
    if isinstance(value, Real):
        if positive and not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.asarray(float(value)).astype(dtype)
        if not np.isfinite(rounded):
            raise ValueError(f"{name} must be finite, got {value} in {dtype}")
        if positive and rounded < jnp.finfo(dtype).tiny:
            raise ValueError(f"{name} must be positive, got {value}, which is zero in {dtype}")
    out = numbers(name, value, dtype)
    if out.shape != ():
        raise ValueError(f"{name} must be a scalar, got shape {out.shape}")
    return out


def whole(name: str, value: int, least: int = 1) -> int:
    """A whole number that is at least `least`; 3.0 is accepted."""
    if not _is_number(value) or int(value) != value or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def real(name: str, value: Any, *, positive: bool = False) -> float:
    """A finite Python number."""
    kind = "positive" if positive else "a finite number"
    if not _is_number(value) or (positive and not value > 0):
        raise ValueError(f"{name} must be {kind}, got {value!r}")
    return float(value)


def fields(where: str, options: Any, **intervals: str) -> None:
    """Check that fields, unless they are None, are in intervals, such as "[0, 1)", or "[1, inf)" without an end; of a
    tuple all numbers, at least one."""
    for name, interval in intervals.items():
        value, (low, high) = getattr(options, name), map(float, interval[1:-1].split(","))
        at_end = {end for end, bracket in ((low, interval[0]), (high, interval[-1])) if bracket in "[]"}
        entries = value if isinstance(value, Sequence) else (value,)
        if value is not None and not (entries and all(low < x < high or x in at_end for x in entries)):
            least = "at least" if low in at_end else "more than"
            bound = f"in {interval}" if math.isfinite(high) else f"{least} {low:g}"
            kind = "numbers " if entries is value else ""
            raise ValueError(f"{where}.{name} must be {kind}{bound}, got {value}")


def several(name: str, value: Iterable[T]) -> list[T]:
    """The items of a sequence or of an array's first axis."""
    try:
        return list(value)
    except TypeError:
        raise ValueError(f"{name} must hold an array for each view, got {type(value).__name__}") from None


def key(name: str, value: jax.Array) -> jax.Array:
    """One key of `jax.random`, of either kind."""
    kind, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    typed = kind is not None and jnp.issubdtype(kind, jax.dtypes.prng_key) and shape == ()
    if typed or (kind == jnp.uint32 and shape == (2,)):
        return value
    got = type(value).__name__ if kind is None else f"{kind} of shape {shape}"
    raise ValueError(f"{name} must be one key, as jax.random.key(0) makes it, got {got}")


def numbers(name: str, value: ArrayLike, dtype: jnp.dtype) -> jax.Array:
    """Real numbers in an array of any shape, or in nested tuples, as `dtype`."""
    out = _array_like(name, value)
    if not (jnp.issubdtype(out.dtype, jnp.floating) or jnp.issubdtype(out.dtype, jnp.integer)):
        raise ValueError(f"{name} must be real numbers, got {out.dtype}")
    return out.astype(dtype)


def finite(name: str, value: jax.Array) -> jax.Array:
    """An array without NaN and infinity; not checked while tracing. For functions whose result would hide them."""
    if not isinstance(value, jax.core.Tracer) and not bool(jnp.isfinite(value).all()):
        bad = int((~jnp.isfinite(value)).sum())
        raise ValueError(f"{name} must be finite, got {bad} entries that are not")
    return value


def labels(name: str, value: Any, rows: int, num_classes: int) -> None:
    """Check that a NumPy or jax array has a class number for each row; numbers are not checked while tracing."""
    if value.shape != (rows,) or not jnp.issubdtype(value.dtype, jnp.integer):
        raise ValueError(f"{name} must be {rows} integers, one per row, got {value.dtype}{list(value.shape)}")
    traced = isinstance(value, jax.core.Tracer)
    if not traced and not 0 <= int(value.min()) <= int(value.max()) < num_classes:
        raise ValueError(f"{name} must be in [0, {num_classes}), got {value.min()} to {value.max()}")


def _is_number(value: Any) -> bool:
    """Whether a value is a finite Python number, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _array_like(name: str, value: ArrayLike) -> jax.Array:
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:
        stack = "; stack the views of a dict, jnp.stack(list(z.values()))" * isinstance(value, Mapping)
        got = f"{type(value).__name__}: {error}{stack}"
        raise ValueError(f"{name} must be an array of numbers, got {got}") from None


def option(name: str, value: str, options: Iterable[str]) -> str:
    """One of the listed strings."""
    listed = tuple(options)
    if value not in listed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, listed))}, got {value!r}")
    return value


AGGREGATIONS = {"geometric": 0.0, "arithmetic": 1.0, "harmonic": -1.0}


def aggregation(name: str, value: str | float) -> float:
    """The exponent rho of a mean that is given by name or as a finite number."""
    if isinstance(value, str) and value in AGGREGATIONS:
        return AGGREGATIONS[value]
    if not _is_number(value):
        known = ", ".join(map(repr, AGGREGATIONS))
        raise ValueError(f"{name} must be one of {known} or a number, got {value!r}")
    return float(value)


def block_size(value: int | None) -> int | None:
    """A whole number of rows, or None."""
    return None if value is None else whole("block_size", value)
