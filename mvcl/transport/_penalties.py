"""Marginals that need not be the weights: free, near them at a price, or below them.

A view has the terms `ρ KL(P_l + q | a) + λ sum(q)`, q >= 0 the weight that stays unmatched. Sinkhorn's step is that for
fixed marginals, and then `f <- min(f / (1 + ε/ρ), λ)` (Chizat 2018, Math. Comp. 87; ott's `tau`, without q).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks


class Penalty(NamedTuple):
    """Of one view: `slack` is 1/ρ, 0 for weights that must be met and inf for those that do not count, `price` λ."""

    slack: jax.Array
    price: jax.Array

    @property
    def fixed(self) -> jax.Array:
        """Whether the marginal must be the weights."""
        return (self.slack == 0) & (self.price == jnp.inf)

    def wanted(self, a: jax.Array, f: jax.Array) -> jax.Array:
        """The marginal (n,) that fits the potentials, `a exp(-f / ρ)`, but for unmatched weight."""
        return jnp.where(a > 0, a * jnp.exp(-jnp.where(a > 0, f, 0) * self._finite), 0)

    def step(self, f: jax.Array, epsilon: jax.Array) -> jax.Array:
        """The potentials from those of the step for fixed marginals."""
        return jnp.minimum(f / (1 + self.slack * epsilon), self.price)

    def held(self, f: jax.Array) -> jax.Array:
        """Where the potentials do not move: at the price, and in a view whose weights do not count."""
        return (f >= self.price) | jnp.isinf(self.slack)

    def away(self, marginal: jax.Array, a: jax.Array, f: jax.Array) -> jax.Array:
        """How much the marginal is off (n,): nothing below what is wanted where the rest is unmatched."""
        off = marginal - self.wanted(a, f)
        off = jnp.where(f >= self.price, jnp.maximum(off, 0), jnp.abs(off))
        return jnp.where(jnp.isinf(self.slack), 0, off)

    def value(self, a: jax.Array, f: jax.Array) -> jax.Array:
        """The term of the dual objective, `ρ <a, 1 - exp(-f / ρ)>`, its limits `<a, f>` and 0."""
        s, f = self._finite, jnp.where(a > 0, f, 0)
        some = jnp.where(s > 0, s, 1)
        each = jnp.where(s > 0, -jnp.expm1(-s * f) / some, f - s * f * f / 2)
        return jnp.where(jnp.isinf(self.slack), 0, jnp.sum(a * each))

    @property
    def _finite(self) -> jax.Array:
        return jnp.where(jnp.isinf(self.slack), 0, self.slack)


def checked_penalties(
    tau: Sequence[ArrayLike] | None, unmatched: Sequence[ArrayLike] | None, k: int, epsilon: jax.Array
) -> tuple[tuple[Penalty, ...] | None, list[bool]]:
    """Those of k views, from what `Problem` has, or None; and which marginals are known to have to be the weights."""
    fixed, numbers = [True] * k, {}
    if tau is None and unmatched is None:
        return None, fixed
    for name, values, least in (("tau", tau, 1.0), ("unmatched", unmatched, jnp.inf)):
        given = [least] * k if values is None else _checks.several(name, values)
        if len(given) != k:
            raise ValueError(f"{name} must hold a number for each of {k} views, got {len(given)}")
        for l, x in enumerate(given):
            number = None if isinstance(x, jax.core.Tracer) else float(x)  # type: ignore[arg-type]
            if number is not None and not 0 <= number <= least:
                raise ValueError(f"{name}[{l}] must be from 0 to {least:g}, got {x}")
            fixed[l] &= number == least
        numbers[name] = [jnp.asarray(x, epsilon.dtype) for x in given]
    some = [jnp.where(t > 0, t, 1) for t in numbers["tau"]]
    slack = [jnp.where(t > 0, (1 - s) / (s * epsilon), jnp.inf) for t, s in zip(numbers["tau"], some)]
    penalties = tuple(Penalty(s, lax.stop_gradient(price)) for s, price in zip(slack, numbers["unmatched"]))
    return penalties, fixed


def values(
    penalties: Sequence[Penalty] | None, weights: Sequence[jax.Array], potentials: Sequence[jax.Array]
) -> list[jax.Array]:
    """The views' terms of the dual objective."""
    if penalties is None:
        return [jnp.sum(jnp.where(a > 0, a * f, 0)) for a, f in zip(weights, potentials)]
    return [p.value(a, f) for p, a, f in zip(penalties, weights, potentials)]
