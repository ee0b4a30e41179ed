"""Losses of two views as sums of terms by instance, for one pair of views or for many at once."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses._views import Embedded, embedded

# `terms(embedded, pairs, **options)` of a pair loss, its `Takes.terms`: a loss is the sum over its `Terms` of the mean
# over what exists. The options are all that the pair loss has but normalize, mask, axis_name and block_size, which
# `Embedded` holds.
TermsOf = Callable[..., "tuple[Terms, ...]"]


class Terms(NamedTuple):
    """Numbers of which a loss takes the mean, for each pair of views by instance."""

    values: jax.Array  # (pairs, ..., n)
    # Of the same shape: True where the number exists, or of how many numbers it is the sum; None: all exist.
    counts: jax.Array | None = None


def reduce(terms: tuple[Terms, ...], axis_name: str | None, weights: jax.Array | None = None) -> jax.Array:
    """`(pairs,)`: the sum of the means, over the instances of all devices; (pairs, n) weights multiply the values.

    Weights do not change the number that a mean divides by, which is at least 1.
    """
    return sum((_mean(term, axis_name, weights) for term in terms[1:]), _mean(terms[0], axis_name, weights))


def _mean(term: Terms, axis_name: str | None, weights: jax.Array | None) -> jax.Array:
    values, counts = term
    axes = tuple(range(1, values.ndim))
    if weights is not None:
        shape = (len(values), *(1 for _ in axes[:-1]), values.shape[-1])
        factors = weights.reshape(shape).astype(values.dtype)
        if counts is not None:  # the weight of what does not exist is not read either
            values, factors = jnp.where(counts > 0, values, 0), jnp.where(counts > 0, factors, 0)
        values = values * factors
    if counts is None or counts.dtype == jnp.bool_:
        return _numerics.mean_where(values, counts, axis_name, axis=axes)
    sums = jnp.sum(jnp.where(counts > 0, values, 0), axis=axes), jnp.sum(counts, axis=axes)
    total, number = sums if axis_name is None else lax.psum(sums, axis_name)
    return total / jnp.maximum(number, 1)


def two(
    x: ArrayLike,
    y: ArrayLike,
    normalize: bool,
    mask: ArrayLike | None,
    axis_name: str | None,
    block_size: int | None = None,
) -> Embedded:
    """The two views of a pair loss, checked and prepared."""
    return embedded(_checks.pair(x, y, axis_name), normalize, mask, axis_name, block_size)


def loss(terms: TermsOf, e: Embedded, **options: object) -> jax.Array:
    """The loss of views 0 and 1."""
    return reduce(terms(e, ((0, 1),), **options), e.axis_name)[0]
