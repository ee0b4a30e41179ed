r"""An epsilon for which the plan gives the true tuples a wanted share of its mass.

That share, `mass = sum_i P[i, ..., i] / sum P`, says how sharp the matching is, in a unit that does not depend on n, k
or the scale of the cost. Of an epsilon that goes to infinity it is `chance`, the share under independent views
(n^(1-k) for uniform ones). In log-odds above chance,

    s(mass) = log(mass / (1 - mass)) - log(chance / (1 - chance)),

it starts as a straight line in 1 / epsilon whose slope is what the true tuples cost less than all others. There are
two cases. Where the true tuples are the best matching, s rises, ever more slowly, to infinity. Where they are not, it
rises up to a point, if at all, and falls: both a large and a small epsilon have little mass. So a mass that is too
small does not say in which direction to go, but two of them at different epsilons do.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from mvcl import _numerics
from mvcl.transport._output import SinkhornOutput

# Log-odds within which a mass is the target: 0.4875 to 0.5125 for 0.5.
_TOLERANCE = 0.05


def true_tuple_mass(
    out: SinkhornOutput, truth: ArrayLike | None = None, counted: ArrayLike | None = None
) -> jax.Array:
    """Share of the plan's mass on the true tuples, `sum_t P[t] / sum P`.

    Args:
      out: of `multimarginal_sinkhorn`.
      truth: (t, k) whole numbers, the true tuples, all different; None for the tuples (i, ..., i), which those of
        `m3g` with a mask are not: it logs their mass.
      counted: boolean (t,), False for tuples to leave out; None for none.

    Returns:
      Scalar in [0, 1]: n^(1-k) for n uniform points and a large epsilon, 1 for a plan of the true tuples only. No
      gradient flows through it.

    Raises:
      ValueError: truth of another shape.
    """
    return jnp.sum(_only(counted, out.entries(_tuples(truth, out.a_s)))) / out.transport_mass


def chance_mass(
    a_s: Sequence[jax.Array], truth: ArrayLike | None = None, counted: ArrayLike | None = None
) -> jax.Array:
    """`true_tuple_mass` of the plan for an epsilon that goes to infinity, in which the views are independent.

    Args:
      a_s: k weight vectors (n_l,), as `out.a_s`.
      truth: as in `true_tuple_mass`.
      counted: as in `true_tuple_mass`.

    Returns:
      Scalar, `sum_t prod_l a_l[t_l]` of weights of sum 1; n^(1-k) for uniform ones.
    """
    at = _tuples(truth, a_s)
    share = jnp.ones(at.shape[0], a_s[0].dtype)
    for l, a in enumerate(a_s):
        share = share * a[at[:, l]] / jnp.sum(a)
    return jnp.sum(_only(counted, share))


def _only(counted: ArrayLike | None, shares: jax.Array) -> jax.Array:
    return shares if counted is None else jnp.where(jnp.asarray(counted), shares, 0)


def _tuples(truth: ArrayLike | None, a_s: Sequence[jax.Array]) -> jax.Array:
    if truth is not None:
        return jnp.asarray(truth)
    return jnp.tile(jnp.arange(min(len(a) for a in a_s))[:, None], (1, len(a_s)))


class Measured(NamedTuple):
    """An epsilon and the true tuples' mass under it."""

    epsilon: jax.Array
    mass: jax.Array


def next_epsilon(
    now: Measured,
    before: Measured,
    target: ArrayLike,
    *,
    chance: ArrayLike,
    lowest: ArrayLike,
    highest: ArrayLike,
    step: float = 8.0,
) -> jax.Array:
    """The epsilon to try next, from the masses at two.

    The straight line through the two, of log-odds s over 1 / epsilon, meets the target there. Begin with
    `before = (inf, chance)`, which every problem has. Where s is concave in 1 / epsilon, the epsilons come down to the
    largest one with that mass and do not jump over it.

    It cannot run away: the result is in [lowest, highest] and within a factor `step` of `now`. Where a smaller epsilon
    had less mass the target is not reached by going on, and the result is the larger epsilon of the two.

    Args:
      now: the last epsilon and its mass.
      before: the one before, or (inf, chance).
      target: wanted mass in (0, 1).
      chance: mass for an infinite epsilon, see `chance_mass`.
      lowest: the smallest epsilon to return.
      highest: the largest.
      step: largest factor between two epsilons, > 1.

    Returns:
      Scalar; `now.epsilon` where its mass is the target, within 0.05 in log-odds, or nothing better is known.
    """
    inverse, inverse_before = 1 / jnp.asarray(now.epsilon), 1 / jnp.asarray(before.epsilon)
    s, s_before = log_odds(now.mass, chance), log_odds(before.mass, chance)
    wanted = log_odds(target, chance)
    rises = (s - s_before) * (inverse - inverse_before) > 0
    slope = (s - s_before) / jnp.where(rises, inverse - inverse_before, 1)
    proposed = inverse + (wanted - s) / jnp.where(rises, slope, 1)
    there = 1 / jnp.clip(proposed, inverse / step, inverse * step)
    back = jnp.clip(jnp.maximum(now.epsilon, before.epsilon), now.epsilon / step, now.epsilon * step)
    reached = jnp.abs(s - wanted) < _TOLERANCE
    epsilon = jnp.where(reached, now.epsilon, jnp.where(rises, there, back))
    return jnp.clip(epsilon, lowest, highest)


def log_odds(mass: ArrayLike, chance: ArrayLike) -> jax.Array:
    """`logit(mass) - logit(chance)`, finite for masses of 0 and 1."""
    m, c = jnp.asarray(mass), jnp.asarray(chance)
    bounds = jnp.finfo(m.dtype)
    m = jnp.clip(m, bounds.tiny, 1 - bounds.eps)
    return jnp.log(m) - jnp.log1p(-m) - jnp.log(c) + jnp.log1p(-c)


class Found(NamedTuple):
    """The epsilon that `epsilon_for_mass` found.

    Attributes:
      epsilon: scalar.
      mass: scalar, the true tuples' share under it.
      potentials: k vectors (n_l,), the solver's at that epsilon.
      n_iters: int32, sweeps of all solves.
      n_passes: int32, passes of all solves.
      n_solves: int32.
    """

    epsilon: jax.Array
    mass: jax.Array
    potentials: tuple[jax.Array, ...]
    n_iters: jax.Array
    n_passes: jax.Array
    n_solves: jax.Array


def epsilon_for_mass(
    solve: Callable[[jax.Array, Sequence[jax.Array]], SinkhornOutput],
    target: ArrayLike,
    *,
    init: Sequence[jax.Array],
    chance: ArrayLike,
    lowest: ArrayLike,
    highest: ArrayLike,
    truth: ArrayLike | None = None,
    counted: ArrayLike | None = None,
    max_solves: int = 6,
) -> Found:
    """Searches the epsilon for which the true tuples have `target` of the plan's mass.

    Starts at `highest` and goes on with `next_epsilon`, each solve from the potentials of the one before, until that is
    an epsilon that has been tried: the target is reached (within 0.05 in log-odds), a bound is, or the mass fell. The
    result is the epsilon, of those tried, whose mass is nearest to the target. So it is `highest` where that is sharp
    enough, and where the true tuples cost more than others; and `lowest` where even that is not sharp enough.

    Args:
      solve: the solver's output for an epsilon and k potentials to start from. Nothing of it is differentiated; close
        over costs without gradients.
      target: wanted mass, in (0, 1).
      init: k vectors (n_l,) that the first solve starts from, zeros for instance.
      chance: `chance_mass`.
      lowest: the smallest epsilon to try.
      highest: the largest.
      truth: as in `true_tuple_mass`.
      counted: as in `true_tuple_mass`.
      max_solves: solves at most.

    Returns:
      A `Found`.
    """
    axes = frozenset().union(*map(_numerics.varying, init))
    dtype = init[0].dtype

    def scalar(x: ArrayLike, kind: DTypeLike = dtype) -> jax.Array:
        return _numerics.vary(jnp.asarray(x, kind), axes)

    target, chance, lowest, highest = map(scalar, (target, chance, lowest, highest))
    start = _Search(
        epsilon=highest,
        before=Measured(scalar(jnp.inf), chance),
        potentials=tuple(init),
        best=Found(
            epsilon=highest,
            mass=chance,
            potentials=tuple(init),
            n_iters=scalar(0, jnp.int32),
            n_passes=scalar(0, jnp.int32),
            n_solves=scalar(0, jnp.int32),
        ),
        going=scalar(True, bool),
    )

    def body(search: _Search) -> _Search:
        out = solve(search.epsilon, search.potentials)
        now = Measured(search.epsilon, true_tuple_mass(out, truth, counted).astype(dtype))
        follows = next_epsilon(now, search.before, target, chance=chance, lowest=lowest, highest=highest)
        best, wanted = search.best, log_odds(target, chance)
        nearer = jnp.abs(log_odds(now.mass, chance) - wanted) < jnp.abs(log_odds(best.mass, chance) - wanted)
        nearer = nearer | (best.n_solves == 0)
        chosen = (now.epsilon, now.mass, out.potentials)
        epsilon, mass, potentials = jax.tree.map(
            lambda new, old: jnp.where(nearer, new, old), chosen, (best.epsilon, best.mass, best.potentials)
        )
        n_solves = best.n_solves + 1
        tried = jnp.stack([now.epsilon, search.before.epsilon])
        is_new = jnp.all(jnp.abs(jnp.log(follows / tried)) > 1e-3)
        after = _Search(
            epsilon=follows,
            before=now,
            potentials=out.potentials,
            best=Found(
                epsilon, mass, potentials, best.n_iters + out.n_iters, best.n_passes + out.n_passes, n_solves
            ),
            going=is_new & (n_solves < max_solves),
        )
        return jax.tree.map(lambda x: _numerics.vary(x, axes), after)

    return lax.while_loop(lambda search: search.going, body, start).best


class _Search(NamedTuple):
    epsilon: jax.Array  # to try
    before: Measured
    potentials: tuple[jax.Array, ...]
    best: Found
    going: jax.Array
