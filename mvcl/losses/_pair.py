"""Losses of two views that are log-sum-exps of similarities."""

from functools import partial
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.losses import _embeddings as emb
from mvcl.losses import _lse
from mvcl.losses._declaration import Operands, Queued, declare
from mvcl.losses._lse import Pairs, Vectors, lse_union

__all__ = ["dcl", "dhel", "info_nce", "info_nce_minimum", "nt_xent", "rince"]


def _info_nce_terms(
    e: Vectors, pairs: Pairs, *, temperature: ArrayLike, symmetric: bool, in_batch_negatives: bool
) -> emb.Terms:
    s = emb.scaled(e, temperature)
    (left, right), extra = emb.sides(pairs), emb.queue_energies(s)
    positive, exists = emb.positives(s, pairs)
    if not (in_batch_negatives or extra):
        raise ValueError("extra_negatives must be given with in_batch_negatives=False, got None")
    forward = backward = positive
    if in_batch_negatives:
        forward, backward = emb.pair_energies(s, pairs, backward=symmetric)
    forward, backward = (
        lse_union(own, *(a[side] for a in extra)) for own, side in ((forward, left), (backward, right))
    )
    negative = (forward + backward) / 2 if symmetric else forward
    return ((negative - positive, exists),)


@declare(operands=Operands.PAIR, terms=_info_nce_terms)
def info_nce(
    x: ArrayLike,
    y: ArrayLike,
    temperature: ArrayLike = 0.1,
    symmetric: bool = False,
    *,
    in_batch_negatives: bool = True,
    **shared: Unpack[Queued],
) -> jax.Array:
    """InfoNCE: each x_i finds its y_i among all y_j.

        mean_i [ -s(x_i, y_i) + LSE_j s(x_i, y_j) ],   s(u, v) = <u, v> / temperature

    Piran 2024 (ICML), Eq. 1; van den Oord 2018. j runs over all instances, i too.

    Cost: n² d multiply-adds in the forward pass.

    Args:
      x: (n, d): the anchors.
      y: (n, d), of the same dtype: instance i of y is the positive of instance i of x.
      symmetric: average with the loss whose anchors are y.
      in_batch_negatives: False leaves each instance's own y and the `extra_negatives`, as MoCo v2 does.
      mask: the mean runs over the instances that have both; the others stay negatives.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.

    Example:
      >>> import jax.numpy as jnp
      >>> from mvcl import losses
      >>> x = jnp.ones((4, 8))  # all vectors coincide: log 4
      >>> print(f"{losses.info_nce(x, x):.3f}")
      1.386
    """
    return emb.loss_of_pair(_info_nce_terms, **locals())  # every argument, by name


def info_nce_minimum(negatives: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """The least InfoNCE with so many negatives: every positive at cosine 1, every negative at -1.

        log(1 + K exp(-2 / temperature))

    Jeon 2025 (arXiv 2507.06560), Proposition 1 and Table 2, which cuts the values off after three digits.

    Args:
      negatives: K > 0, the negatives of an anchor, an array of any shape.
      temperature: positive divisor of the cosines, an array of any shape that broadcasts.

    Returns:
      The loss, of the common shape, float32 or wider.
    """
    for name, value in (("negatives", negatives), ("temperature", temperature)):
        if not np.all(np.asarray(value) > 0):
            raise ValueError(f"{name} must be positive, got {value}")
    kind = jnp.promote_types(jnp.result_type(temperature, float), jnp.float32)
    k, t = jnp.broadcast_arrays(jnp.asarray(negatives, kind), jnp.asarray(temperature, kind))
    return jax.nn.softplus(jnp.log(k) - 2 / t)


def anchors(
    s: Vectors, pairs: Pairs, *, diagonal: bool
) -> tuple[jax.Array, jax.Array, jax.Array | None, jax.Array]:
    """Positives (pairs, 1, n), the anchors' log-sum-exps (pairs, 2, n), whether both views are there, and the part of
    those log-sum-exps that is within the view, (k, n)."""
    same_view = emb.with_queue(s, _lse.within(s))
    forward, backward = emb.pair_energies(s, pairs, diagonal=diagonal)
    (left, right), (positive, exists) = emb.sides(pairs), emb.positives(s, pairs)
    energies = jnp.stack([lse_union(same_view[left], forward), lse_union(same_view[right], backward)], axis=1)
    exists = None if exists is None else jnp.broadcast_to(exists[:, None], energies.shape)
    return positive[:, None], energies, exists, same_view


def _nt_xent_terms(e: Vectors, pairs: Pairs, *, temperature: ArrayLike, diagonal: bool = True) -> emb.Terms:
    s = emb.scaled(e, temperature)
    positive, energy, exists, _ = anchors(s, pairs, diagonal=diagonal)
    if exists is not None and not diagonal:
        exists &= energy != -jnp.inf
    return ((energy - positive, exists),)


_dcl_terms = partial(_nt_xent_terms, diagonal=False)


@declare(operands=Operands.PAIR, terms=_nt_xent_terms)
def nt_xent(x: ArrayLike, y: ArrayLike, temperature: ArrayLike = 0.5, **shared: Unpack[Queued]) -> jax.Array:
    """NT-Xent, SimCLR's loss: each of the 2n vectors finds its partner among the 2n - 1 others.

        mean over the 2n anchors a of [ -s(a, a+) + LSE_{b != a} s(a, b) ],   s(u, v) = <u, v> / temperature

    Chen 2020 (SimCLR), Eq. 1. The released baselines of Koromilas 2025 use it; that paper prints other sums.

    Cost: 3 n² d multiply-adds in the forward pass.

    Args:
      mask: the mean runs over the anchors whose partner is there; the others stay negatives.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(2n - 1), the chance level.
    """
    return emb.loss_of_pair(_nt_xent_terms, **locals())  # every argument, by name


@declare(operands=Operands.PAIR, terms=_dcl_terms)
def dcl(x: ArrayLike, y: ArrayLike, temperature: ArrayLike = 0.1, **shared: Unpack[Queued]) -> jax.Array:
    """Decoupled contrastive loss: NT-Xent with the positive left out of the denominator.

        mean over the 2n anchors a of [ -s(a, a+) + LSE_{b not a, a+} s(a, b) ],   s(u, v) = <u, v> / temperature

    with 2n - 2 negatives. Yeh 2022 (ECCV), Eq. 4.

    Cost: 3 n² d multiply-adds in the forward pass.

    Args:
      mask: the mean runs over the anchors whose partner is there; the others stay negatives.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(2n - 2).
    """
    return emb.loss_of_pair(_dcl_terms, **locals())  # every argument, by name


def _rince_terms(
    e: Vectors, pairs: Pairs, *, temperature: ArrayLike, q: ArrayLike, lam: ArrayLike
) -> emb.Terms:
    s = emb.scaled(e, temperature)
    positive, energy, exists, _ = anchors(s, pairs, diagonal=True)
    power = _checks.scalar("q", q, energy.dtype, positive=True)
    weight = _checks.scalar("lam", lam, energy.dtype, positive=True)
    values = (jnp.exp(power * (jnp.log(weight) + energy)) - jnp.exp(power * positive)) / power
    return ((values, exists),)


@declare(operands=Operands.PAIR, terms=_rince_terms)
def rince(
    x: ArrayLike,
    y: ArrayLike,
    temperature: ArrayLike = 0.5,
    q: ArrayLike = 0.5,
    lam: ArrayLike = 0.001,
    **shared: Unpack[Queued],
) -> jax.Array:
    """Robust InfoNCE: a loss between NT-Xent (q -> 0) and a symmetric one (q = 1) that forgives false positives.

        mean over the 2n anchors of [ -e^{q s+} / q + (lam (e^{s+} + Σ e^{s-}))^q / q ],  s(u, v) = <u, v> / temperature

    with 2n - 2 negatives s-. Xu 2023 (SEM), footnote 2; Chuang 2022. Its size is e^{q / temperature}, by
    definition: float32 holds it down to a temperature of q / 88.

    Cost: 3 n² d multiply-adds in the forward pass.

    Args:
      q: positive exponent.
      lam: positive weight of the denominator.
      mask: the mean runs over the anchors whose partner is there; the others stay negatives.

    Returns:
      Scalar, float32 or wider: e^{q / temperature} ((lam (2n-1))^q - 1) / q where all unit vectors coincide.
    """
    return emb.loss_of_pair(_rince_terms, **locals())  # every argument, by name


def _dhel_terms(e: Vectors, pairs: Pairs, *, temperature: ArrayLike, symmetric: bool) -> emb.Terms:
    s = emb.scaled(e, temperature)
    energy = emb.with_queue(s, _lse.within(s))  # (k, n)
    positive, exists = emb.positives(s, pairs)
    views = np.stack(emb.sides(pairs)[: 2 if symmetric else 1])
    return emb.summed_energies(energy, e, views), (-positive, exists)


@declare(operands=Operands.PAIR, terms=_dhel_terms)
def dhel(
    x: ArrayLike, y: ArrayLike, temperature: ArrayLike = 0.3, symmetric: bool = True, **shared: Unpack[Queued]
) -> jax.Array:
    """DHEL: align the two views, spread each on its own.

        mean_i [ -s(x_i, y_i) + LSE_{j != i} s(x_i, x_j) + LSE_{j != i} s(y_i, y_j) ],
        s(u, v) = <u, v> / temperature

    Koromilas 2024 (Decoupled hyperspherical energy loss).

    Cost: 2 n² d multiply-adds in the forward pass.

    Args:
      symmetric: False drops the last term, the energy of y.
      mask: alignment is averaged over the instances with both; the energy, a sum over the views that the instance has,
        over those with one or more.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors: 1 / temperature + 2 log(n-1).
    """
    return emb.loss_of_pair(_dhel_terms, **locals())  # every argument, by name
