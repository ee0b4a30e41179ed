"""Objectives of views that a network fuses: each view alone, and all together, in two augmentations."""

import dataclasses
from typing import Literal, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _critics, _lse
from mvcl.losses import _embeddings as emb
from mvcl.losses._critics import Critic
from mvcl.losses._declaration import Operands, Shared, declare
from mvcl.losses._lse import Vectors, lse_union
from mvcl.losses._pair import anchors

__all__ = ["FactorCritics", "comm", "factor_cl", "inf_masking"]


@declare(operands=Operands.FUSED)
def comm(
    z: ArrayLike, temperature: ArrayLike = 0.1, weights: ArrayLike | None = None, **shared: Unpack[Shared]
) -> jax.Array:
    """CoMM: each view, fused alone, finds the fusion of all views in the other augmentation.

        mean_i w_i/2 [ nt(z'_i, z''_*) + nt(z''_i, z'_*) ],   i = 1, ..., m and *

    with nt = `nt_xent`, m views, * all of them together, and two augmentations, ' and ''. Dufumier and Castillo-Navarro
    2025 (ICLR, arXiv 2409.07402), from the released code. With one view it is the mean of two terms of SimCLR.

    Cost: (4m + 3) n² d multiply-adds in the forward pass.

    Args:
      z: (2 (m + 1), n, d), m >= 1: z'_1, ..., z'_m, z'_*, z''_1, ..., z''_m, z''_*; `method:fused` makes them.
      weights: (m + 1,) factors w of the terms, z_* last, None for ones; the mean divides by the number of terms.
      mask: each term is the mean over the anchors whose partner is there, the others stay negatives; the outer mean
        runs over the terms that some instance has.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(2n - 1), the chance level.
    """
    total, terms, _ = _with_all(_fused(z, temperature, shared), weights)
    return total / terms


@declare(operands=Operands.MASKED)
def inf_masking(
    z: ArrayLike,
    masked: ArrayLike,
    ratio: ArrayLike = 1.0,
    temperature: ArrayLike = 0.1,
    weights: ArrayLike | None = None,
    **shared: Unpack[Shared],
) -> jax.Array:
    """InfMasking: CoMM, and the fusion of all views finds fusions of which random tokens are masked.

        1/(m + 3) [ M' + M'' + Σ_i w_i/2 ( nt(z'_i, z''_*) + nt(z''_i, z'_*) ) ],   i = 1, ..., m and *
        M = mean_i [ r/(2t²) v_i - p_i + LSE( p_i, { <q_i, k_tj> / t, <q_i, q_j> / t : j != i, every masking } ) ]
        p_i = <q_i, mean k_i> / t + r/(2t²) v_i,   v_i = q_iᵀ Σ_i q_i

    with t the temperature, r the ratio, q = z_* of an augmentation, k_1i, ..., k_Ti its fusions of masked tokens and
    Σ_i their covariance, divided by T. v_i is the variance of <q_i, k_ti> over the T maskings: Σ is never formed. Wen
    2025 (NeurIPS), as released: the first term of v_i takes it out of -p_i. Ours: `weights` are of the terms of CoMM
    alone; the code's entropy penalty, off by default there, is left out.

    Cost: (4m + 3 + 2T) n² d multiply-adds in the forward pass.

    Args:
      z: (2 (m + 1), n, d), as for `comm`.
      masked: (2, T, n, d), T >= 1, of the dtype of z: fusions of masked tokens, of either augmentation.
      ratio: r; released: the epoch, from 1, over the number of epochs.
      weights: (m + 1,) factors of the terms of CoMM, as for `comm`.
      mask: (2 (m + 1), n), as for `comm`; an instance that has z_* has its maskings.

    Returns:
      Scalar, float32 or wider: ((m + 1) log(2n - 1) + 2 log(1 + (T + 1)(n - 1))) / (m + 3) where all vectors coincide.
    """
    s = _fused(z, temperature, shared)
    total, terms, within = _with_all(s, weights)
    whole = np.asarray([len(s.z) // 2 - 1, len(s.z) - 1])  # z_* of either augmentation
    q = dataclasses.replace(s, z=s.z[whole], keep=None if s.keep is None else s.keep[whole])
    given = _checks.array("masked", masked, "2 T n d")
    if given.shape != (2, given.shape[1], *s.z.shape[1:]):
        what = f"masked must have shape (2, T, {', '.join(map(str, s.z.shape[1:]))})"
        raise ValueError(f"{what}, got {given.shape}")
    count = given.shape[1]
    there = None if q.keep is None else jnp.repeat(q.keep, count, axis=0)
    flat = given.reshape(-1, *s.z.shape[1:])
    k = emb.scaled(emb.embedded(flat, s.projected, there, s.axis_name, s.block_size), temperature)
    r = _checks.scalar("ratio", ratio, s.z.dtype)
    near = _numerics.inner("and,atnd->atn", q.z, k.z.reshape(given.shape))
    positive = near.mean(1) + r / 2 * jnp.var(near, axis=1)  # the variance is v / t²
    pairs = tuple((a, a * count + i) for a in range(2) for i in range(count))
    others = _lse.across(q, k, pairs, diagonal=False, columns=False)[0].reshape(near.shape)
    energy = lse_union(positive, _numerics.logsumexp(others, axis=1), within[whole])
    each = emb.mean_where(energy - near.mean(1), q.keep, s.axis_name, axis=1)
    return (total + 2 * each.sum()) / (terms + 4)


class FactorCritics(NamedTuple):
    """Critics of `factor_cl`, functions of (m, d) and (n, d) vectors that return their (m, n) scores.

    `given` marks those of x x' and y y' side by side, of length 2d; `club` those that `turn="critics"` trains.
    """

    shared: Critic
    shared_club_given: Critic
    unique1: Critic
    unique2: Critic
    unique_given: Critic
    unique_club: Critic


@declare(operands=Operands.FACTORED)
def factor_cl(
    z: ArrayLike,
    critics: FactorCritics | None = None,
    temperature: ArrayLike = 0.1,
    turn: Literal["embeddings", "critics"] = "embeddings",
    twice: ArrayLike = 2.0,
    **shared: Unpack[Shared],
) -> jax.Array:
    """FactorCL: keep what two views share for their augmentations, and what each has alone.

        - I(s1; s2) + C(s1 s1'; s2 s2') - I(u1; u1') - I(u2; u2') + 2 C(u1; u2) - 2 I(u1 u1'; u2 u2')
        I(x; y) = log n + mean_i [ f(x_i, y_i) - LSE_j f(x_j, y_i) ]
        C(x; y) = mean_i f(x_i, y_i) - mean_ij f(x_i, y_j)

    over instances i and j, j may be i, each term with a critic f of its own; u1 u1' are both vectors side by side.
    Liang 2023 (NeurIPS, arXiv 2306.05268): I is a lower bound of the information; C (CLUB) an upper one where f
    maximises I, so that f is held constant here and trained by the other turn. Two views only. The released code has
    each of the six terms once, `twice=1`, and in two of its three files both sides of the second term are s1 s1; s2 s2.

    Cost: 6 n² scores.

    Args:
      z: (8, n, d): s1, s2, s1', s2', u1, u2, u1', u2', by a shared and a unique head of both views and augmentations.
      critics: None: <u, v> / temperature for all, by which C is no bound; derivatives pass to arrays that they close
        over, and those of C must be held constant (`jax.lax.stop_gradient`) by the caller in this turn.
      temperature: not for critics.
      turn: "critics": minus the two I of the critics of C, of constant embeddings.
      twice: factor of the last two terms, which u1 and u2 have both.
      mask: a term is of the instances that have all vectors that it needs.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is 0.
    """
    e = emb.embedded(z, **shared)
    if len(e.z) != 8:
        raise ValueError(f"z must have shape (8, n, d), got {e.z.shape}")
    if critics is None:
        t = _checks.scalar("temperature", temperature, e.z.dtype, positive=True)
        critics = FactorCritics(*[lambda x, y: _numerics.inner("md,nd->mn", x, y) / t] * 6)
    else:
        critics = FactorCritics(*(_critics.checked(f, temperature, factor_cl) for f in critics))
    if turn == "critics":
        e = dataclasses.replace(e, z=jax.lax.stop_gradient(e.z))
        own = _bound(e, critics.shared_club_given, (0, 2), (1, 3)), _bound(e, critics.unique_club, (4,), (5,))
        return -own[0] - own[1]
    joint = _bound(e, critics.shared, (0,), (1,))
    joint -= _bound(e, critics.shared_club_given, (0, 2), (1, 3), club=True)
    alone = _bound(e, critics.unique1, (4,), (6,)) + _bound(e, critics.unique2, (5,), (7,))
    common = _bound(e, critics.unique_club, (4,), (5,), club=True)
    given = _bound(e, critics.unique_given, (4, 6), (5, 7))
    return -joint - alone + _checks.scalar("twice", twice, e.z.dtype) * (common - given)


def _bound(
    e: Vectors, f: Critic, left: tuple[int, ...], right: tuple[int, ...], club: bool = False
) -> jax.Array:
    """I, or C, of the vectors of these views side by side."""
    x, y = (
        dataclasses.replace(
            e,
            z=jnp.concatenate([e.z[l] for l in side], axis=-1)[None],
            keep=None if e.keep is None else e.keep[np.asarray(side)].all(0)[None],
        )
        for side in (left, right)
    )
    both = None if x.keep is None or y.keep is None else x.keep & y.keep
    joint = _critics.same_instance(f, x.z, y.z)[0]  # (1, n)
    if not club:
        energy = lse_union(joint, _critics.against_views(lambda y, x: f(x, y).T, y, x)[:, 0])
        if both is not None:
            energy = jnp.where(both, energy, 0)
        number = jnp.maximum(emb.counts(x)[0], 1)
        return jnp.log(number) + emb.mean_where(joint - energy, both, e.axis_name)
    every = _critics.against_views(f, x, y, jnp.sum)[:, 0] + (
        joint if y.keep is None else jnp.where(y.keep, joint, 0)
    )
    total = jnp.sum(every if x.keep is None else jnp.where(x.keep, every, 0))
    pairs = jnp.maximum(emb.counts(x)[0] * emb.counts(y)[0], 1)
    return emb.mean_where(joint, both, e.axis_name) - _numerics.device_sum(total, e.axis_name) / pairs


def _fused(z: ArrayLike, temperature: ArrayLike, shared: Shared) -> Vectors:
    """Checked embeddings, whose inner products are similarities."""
    e = emb.embedded(z, **shared)
    if len(e.z) < 4 or len(e.z) % 2:
        what = "z must have shape (2 (m + 1), n, d), two augmentations of m >= 1 views and of all together"
        raise ValueError(f"{what}, as method:fused makes them, got {e.z.shape}")
    return emb.scaled(e, temperature)


def _with_all(s: Vectors, weights: ArrayLike | None) -> tuple[jax.Array, ArrayLike, jax.Array]:
    """The weighted sum of nt_xent over the 2 (m + 1) pairs of a fusion and z_* of the other augmentation, their number,
    and `(2 (m + 1), n)` log-sum-exps within the views."""
    half = len(s.z) // 2
    pairs = tuple((l, 2 * half - 1 if l < half else half - 1) for l in range(2 * half))
    positive, energy, exists, within = anchors(s, pairs, diagonal=True)
    values = emb.mean_terms(((energy - positive, exists),), s.axis_name)
    if weights is not None:
        factors = _checks.numbers("weights", weights, values.dtype)
        if factors.shape != (half,):
            raise ValueError(f"weights must have shape ({half},), got {factors.shape}")
        values = values * jnp.tile(factors, 2)
    if exists is None:
        return values.sum(), len(pairs), within
    some = _numerics.device_sum(exists.sum((1, 2)), s.axis_name) > 0
    return jnp.sum(jnp.where(some, values, 0)), jnp.maximum(some.sum(), 1).astype(values.dtype), within
