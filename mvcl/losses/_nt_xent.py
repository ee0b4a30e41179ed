"""The losses whose anchors are the 2n vectors of two views: NT-Xent, DCL and RINCE."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.losses import _pairs, _views
from mvcl.losses._declaration import Operands, declare


def _anchors(
    e: _views.Embedded,
    pairs: _views.Pairs,
    temperature: ArrayLike,
    extra_negatives: ArrayLike | None,
    *,
    diagonal: bool,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Positives (pairs, 1, n), the anchors' log-sum-exps (pairs, 2, n), and whether both views are there."""
    s = _views.similarities(e, temperature, extra_negatives)
    same_view = _views.with_queue(s, _views.within(s))
    b = _views.blocks(s, pairs, diagonal=diagonal)
    left, right = _views.columns_of(pairs)
    energies = [_views.join(same_view[left], b.forward), _views.join(same_view[right], b.backward)]
    exists = None if b.exists is None else jnp.broadcast_to(b.exists[:, None], (len(pairs), 2, e.z.shape[1]))
    return b.positive[:, None], jnp.stack(energies, axis=1), exists


def _nt_xent_terms(
    e: _views.Embedded, pairs: _views.Pairs, *, temperature: ArrayLike, extra_negatives: ArrayLike | None
) -> tuple[_pairs.Terms, ...]:
    positive, energy, exists = _anchors(e, pairs, temperature, extra_negatives, diagonal=True)
    return (_pairs.Terms(energy - positive, exists),)


@declare(
    operands=Operands.PAIR,
    terms=_nt_xent_terms,
    mask=True,
    axis_name=True,
    block_size=True,
    normalize=True,
    queue="extra_negatives",
)
def nt_xent(
    x: ArrayLike,
    y: ArrayLike,
    temperature: ArrayLike = 0.5,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """NT-Xent, SimCLR's loss: each of the 2n vectors finds its partner among the 2n - 1 others.

        mean over the 2n anchors a of [ -s(a, a+) + LSE_{b != a} s(a, b) ],   s(u, v) = <u, v> / temperature

    Chen 2020 (SimCLR), Eq. 1. The released baselines of Koromilas 2025 use it; the paper's text has the
    self-pair in the sum too, its Table I prints InfoNCE.

    Cost: 3 n² d multiply-adds in the forward pass.

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view of the same instances.
      temperature: positive divisor of the inner products, no unit.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. The mean runs over the anchors
        whose partner is there; the others stay negatives.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(2n - 1), the chance level.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _pairs.two(x, y, normalize, mask, axis_name, block_size)
    return _pairs.loss(_nt_xent_terms, e, temperature=temperature, extra_negatives=extra_negatives)


def _dcl_terms(
    e: _views.Embedded, pairs: _views.Pairs, *, temperature: ArrayLike, extra_negatives: ArrayLike | None
) -> tuple[_pairs.Terms, ...]:
    positive, energy, exists = _anchors(e, pairs, temperature, extra_negatives, diagonal=False)
    if exists is not None:
        exists &= energy != -jnp.inf
    return (_pairs.Terms(energy - positive, exists),)


@declare(
    operands=Operands.PAIR,
    terms=_dcl_terms,
    mask=True,
    axis_name=True,
    block_size=True,
    normalize=True,
    queue="extra_negatives",
)
def dcl(
    x: ArrayLike,
    y: ArrayLike,
    temperature: ArrayLike = 0.1,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """Decoupled contrastive loss: NT-Xent with the positive left out of the denominator.

        mean over the 2n anchors a of [ -s(a, a+) + LSE_{b not a, a+} s(a, b) ],
        s(u, v) = <u, v> / temperature

    with 2n - 2 negatives. Yeh 2022 (ECCV), Eq. 4.

    Cost: 3 n² d multiply-adds in the forward pass.

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view of the same instances.
      temperature: positive divisor of the inner products, no unit.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. The mean runs over the anchors
        whose partner is there; the others stay negatives.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(2n - 2).

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _pairs.two(x, y, normalize, mask, axis_name, block_size)
    return _pairs.loss(_dcl_terms, e, temperature=temperature, extra_negatives=extra_negatives)


def _rince_terms(
    e: _views.Embedded,
    pairs: _views.Pairs,
    *,
    temperature: ArrayLike,
    q: ArrayLike,
    lam: ArrayLike,
    extra_negatives: ArrayLike | None,
) -> tuple[_pairs.Terms, ...]:
    positive, energy, exists = _anchors(e, pairs, temperature, extra_negatives, diagonal=True)
    power = _checks.scalar("q", q, energy.dtype, positive=True)
    weight = _checks.scalar("lam", lam, energy.dtype, positive=True)
    values = (jnp.exp(power * (jnp.log(weight) + energy)) - jnp.exp(power * positive)) / power
    return (_pairs.Terms(values, exists),)


@declare(
    operands=Operands.PAIR,
    terms=_rince_terms,
    mask=True,
    axis_name=True,
    block_size=True,
    normalize=True,
    queue="extra_negatives",
)
def rince(
    x: ArrayLike,
    y: ArrayLike,
    temperature: ArrayLike = 0.5,
    q: ArrayLike = 0.5,
    lam: ArrayLike = 0.001,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """Robust InfoNCE: a loss between NT-Xent (q -> 0) and a symmetric one (q = 1) that forgives false
    positives.

        mean over the 2n anchors of [ -e^{q s+} / q + (lam (e^{s+} + Σ e^{s-}))^q / q ],
        s(u, v) = <u, v> / temperature

    with 2n - 2 negatives s-. Xu 2023 (SEM), footnote 2; Chuang 2022. Its size is e^{q / temperature}, by
    definition: float32 holds it down to a temperature of q / 88.

    Cost: 3 n² d multiply-adds in the forward pass.

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view of the same instances.
      temperature: positive divisor of the inner products, no unit.
      q: positive exponent.
      lam: positive weight of the denominator.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. The mean runs over the anchors
        whose partner is there; the others stay negatives.
      extra_negatives: (q, d) vectors that join every anchor's sum, for instance a queue. Inside `shard_map`
        every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. Where all unit vectors coincide it is e^{q / temperature} ((lam (2n-1))^q - 1)
      / q.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _pairs.two(x, y, normalize, mask, axis_name, block_size)
    return _pairs.loss(
        _rince_terms, e, temperature=temperature, q=q, lam=lam, extra_negatives=extra_negatives
    )
