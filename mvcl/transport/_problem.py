"""A problem of optimal transport: its geometry, the weights of the points and epsilon; their checks."""

import dataclasses
import enum
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, transport
from mvcl.transport._blocks import Tiles, cost_block, default_work, over_blocks
from mvcl.transport._contraction import groups
from mvcl.transport._costs import pairs
from mvcl.transport._geometry import Geometry


class Penalty(NamedTuple):
    """Of a view whose marginal need not be its weights: `ρ KL(P_l + q | a) + λ sum(q)`, q >= 0 the weight unmatched.

    `slack` is 1/ρ, 0 for weights that must be met and inf for those that do not count, `price` λ. Sinkhorn's step is
    that for fixed marginals, then `f <- min(f / (1 + ε/ρ), λ)` (Chizat 2018, Math. Comp. 87; ott's `tau`, without q).
    """

    slack: jax.Array
    price: jax.Array

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


# Relative difference of the sums of weights that is taken for rounding.
SUMS = 1e-5


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Problem:
    r"""Entropic optimal transport between k marginals; the solver checks it.

        min_{P, q >= 0} <P, C> + ε <P, log P - 1> + Σ_l ρ_l KL(P_l + q_l | a_l) + Σ_l λ_l sum(q_l)

    with P_l the marginals, `KL(p|a) = <p, log(p/a) - 1> + sum(a)` and `ρ_l = ε τ_l / (1 - τ_l)`. By default τ_l = 1 and
    λ_l is infinite: then P_l = a_l. For k = 2 and λ infinite its plan is that of ott's `tau_a` and `tau_b`.

    Attributes:
      geometry: the costs.
      a_s: weights of the points, k vectors (n_l,) in float32 or wider; None, for all or for one of them, is 1/n_l.
        Those that the marginals must have are all of one sum. A point of weight 0 is not there, though its costs must
        be finite. Bad values that are traced have the status `INFEASIBLE`.
      epsilon: positive regularisation in the unit of the costs, or an ott `Epsilon`, which starts larger and decays by
        the sweep; the result is always that of its target. None is ott's rule, 1/20 of the standard deviation of the
        costs of all tuples. With a number or None the solver chooses a start (`MMSinkhorn`).
      tau: None, or τ of each of the k views in [0, 1], without a unit: below 1 the marginal is near its weights, at 0
        it is free.
      unmatched: None, or λ of each of the k views: the price >= 0, in the unit of the costs, of a unit of weight that
        stays unmatched; `jnp.inf` where none may. The solution has no derivative by λ.
    """

    geometry: Geometry
    a_s: Sequence[ArrayLike | None] | None = None
    epsilon: "ArrayLike | transport.Epsilon | None" = None
    tau: Sequence[ArrayLike] | None = None
    unmatched: Sequence[ArrayLike] | None = None


class Status(enum.IntEnum):
    """Why the iteration stopped."""

    CONVERGED = 0
    ITERATION_LIMIT = 1
    # At the limit, with potentials so large for epsilon that rounding alone moves the marginals by the threshold.
    ROUNDING = 2
    NOT_FINITE = 3
    # Weights that were not known when they were checked are negative, all 0 or of different sums: no plan has them.
    INFEASIBLE = 4


class Given(NamedTuple):
    """The numbers of a checked problem at the potentials where its iteration starts, or where a derivative is taken.

    And such a derivative, or a direction.
    """

    costs: Geometry
    weights: tuple[jax.Array, ...]
    epsilon: jax.Array
    threshold: jax.Array
    potentials: tuple[jax.Array, ...]
    epsilon_init: jax.Array
    penalties: tuple[Penalty, ...] | None  # None if every marginal must be the weights


@jax.jit
def default_epsilon(costs: Geometry) -> jax.Array:
    """ott's rule, 1/20 of the standard deviation of the costs of all tuples; 1 where all are equal."""
    variance = _variance_of_pairs(costs) if costs.pairwise else _variance(costs)
    some = variance > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, variance, 1)) / 20, 1)


def _variance_of_pairs(costs: Geometry) -> jax.Array:
    """Variance of a sum over pairs, from its matrices: of what each point adds, and of the rest of each pair."""
    of_points = [jnp.zeros(n, costs.dtype) for n in costs.shape]
    of_rest = []
    for matrix, (l, m) in zip(costs.arrays, costs.pairs):
        centred = matrix - jnp.mean(matrix)
        rows, columns = jnp.mean(centred, axis=1), jnp.mean(centred, axis=0)
        of_points[l], of_points[m] = of_points[l] + rows, of_points[m] + columns
        of_rest.append(jnp.mean(jnp.square(centred - rows[:, None] - columns[None, :])))
    return sum([jnp.mean(jnp.square(x)) for x in of_points], start=sum(of_rest[1:], start=of_rest[0]))


def _variance(costs: Geometry) -> jax.Array:
    group, rest = groups(len(costs.shape))

    def moments(tiles: Tiles) -> jax.Array:
        block, axes = cost_block(costs, tiles), tuple(range(len(group), len(costs.shape)))
        return jnp.stack([jnp.mean(block, axes), jnp.var(block, axes)], axis=-1)

    mean, variance = jnp.moveaxis(over_blocks(default_work(), costs.shape, group, rest, moments), -1, 0)
    return jnp.var(mean) + jnp.mean(variance)


def checked_weights(
    a_s: Sequence[ArrayLike | None] | None, costs: Geometry, fixed: Sequence[bool]
) -> tuple[jax.Array, ...]:
    """The weights of all points, in the dtype of the costs; `fixed` are the views whose marginals they must be."""
    given = [None] * len(costs.shape) if a_s is None else _checks.several("a_s", a_s)
    if len(given) != len(costs.shape):
        raise ValueError(f"a_s must hold the weights of {len(costs.shape)} views, got {len(given)}")
    weights, sums = [], {}
    for l, (a, n) in enumerate(zip(given, costs.shape)):
        if a is None:
            # 1 / n as the division of two arrays has it, so that given and default weights are the same numbers.
            weights.append(jnp.full(n, 1, costs.dtype) / jnp.asarray(n, costs.dtype))
            sums[l] = 1.0
            continue
        weights.append(_checks.numbers(f"a_s[{l}]", a, costs.dtype))
        if weights[l].shape != (n,):
            what = f"a_s[{l}] must have shape ({n},), a weight for each point"
            raise ValueError(f"{what}, got {weights[l].shape}")
        if not isinstance(weights[l], jax.core.Tracer):
            exact = np.asarray(weights[l], np.float64)
            if not np.all(np.isfinite(exact)) or exact.min() < 0:
                what = f"a_s[{l}] must be finite and >= 0"
                raise ValueError(f"{what}, got values from {exact.min()} to {exact.max()}")
            sums[l] = float(exact.sum())
            if not sums[l] > 0:
                raise ValueError(f"a_s[{l}] must have a positive weight, got {n} zeros")
    sums = {l: total for l, total in sums.items() if fixed[l]}
    if sums and max(sums.values()) - min(sums.values()) > SUMS * max(sums.values()):
        found = ", ".join(f"{total:.6g} for view {l}" for l, total in sums.items())
        raise ValueError(f"a_s must have the same sum in every view, got {found}")
    return tuple(weights)


def first_potentials(init: Sequence[ArrayLike] | None, costs: Geometry) -> tuple[jax.Array, ...]:
    """Finite potentials to start from."""
    if init is None:
        return tuple(jnp.zeros(n, costs.dtype) for n in costs.shape)
    several = enumerate(_checks.several("init", init))
    vectors = [_checks.numbers(f"init[{l}]", f, costs.dtype) for l, f in several]
    if tuple(f.shape for f in vectors) != tuple((n,) for n in costs.shape):
        what = f"init must hold potentials of shapes {[(n,) for n in costs.shape]}"
        raise ValueError(f"{what}, got {[f.shape for f in vectors]}")
    return tuple(lax.stop_gradient(jnp.where(jnp.isfinite(f), f, 0)) for f in vectors)


def padded(problem: Given, axis_name: str | None) -> Given:
    """The problem with points of weight 0 for a first view of each group that the devices divide."""
    costs = problem.costs
    if axis_name is None or costs.edges:
        return problem
    devices, shape = lax.axis_size(axis_name), costs.shape
    first = [group[0] for group in groups(len(shape))]
    more = [-n % devices if view in first else 0 for view, n in enumerate(shape)]

    def pad(x: jax.Array, *views: int, mode: str = "constant") -> jax.Array:
        return jnp.pad(x, [(0, more[view]) for view in views], mode=mode)

    axes = [tuple(range(len(shape)))] if costs.dense else pairs(len(shape))
    return problem._replace(
        costs=dataclasses.replace(
            costs,
            # Copies of the last points, so that the spread of the costs stays what it is.
            arrays=tuple(pad(x, *views, mode="edge") for x, views in zip(costs.arrays, axes)),
            counts=costs.counts and tuple(pad(x, view) for view, x in enumerate(costs.counts)),
        ),
        weights=tuple(pad(a, view) for view, a in enumerate(problem.weights)),
        potentials=tuple(pad(f, view) for view, f in enumerate(problem.potentials)),
    )
