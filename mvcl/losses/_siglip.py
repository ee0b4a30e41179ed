"""The sigmoid loss, of two views and of many."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks
from mvcl.losses import _pairs, _views
from mvcl.losses._declaration import Operands, declare
from mvcl.losses._poly_view import aggregate


def _others(e: _views.Embedded, pairs: _views.Pairs, slope: jax.Array, shift: jax.Array) -> jax.Array:
    """(pairs, n): -Σ_{j != i} log σ(-(scale <z_li, z_mj> + bias))."""

    def entry(inner: jax.Array, same: jax.Array, slope: jax.Array, shift: jax.Array) -> jax.Array:
        return jnp.where(same, 0, jax.nn.softplus(slope * inner + shift))

    return _views.sum_over(
        *(entry, e.z, e.z, pairs, e.keep, e.keep, slope, shift),
        axis_name=e.axis_name,
        block_size=e.block_size,
    )


def _terms(
    e: _views.Embedded,
    pairs: _views.Pairs,
    *,
    scale: ArrayLike,
    bias: ArrayLike,
    extra_negatives: ArrayLike | None,
) -> tuple[_pairs.Terms, ...]:
    slope, shift = _checks.scalar("scale", scale, e.z.dtype), _checks.scalar("bias", bias, e.z.dtype)
    negative = _others(e, pairs, slope, shift)
    left, _ = _views.columns_of(pairs)
    queue = _views.queue_embeddings(extra_negatives, e)
    if queue is not None:
        negative = negative + _views.sum_over(
            lambda inner, _, slope, shift: jax.nn.softplus(slope * inner + shift),
            *(e.z, queue.z, tuple((int(l), 0) for l in left), None, None, slope, shift),
            axis_name=e.axis_name,
            block_size=e.block_size,
            gathered=False,
        )
    positive = jax.nn.softplus(-slope * _views.positives(e.z, pairs) - shift)
    anchors = None if e.keep is None else e.keep[left]
    return _pairs.Terms(positive, _views.both_there(e.keep, pairs)), _pairs.Terms(negative, anchors)


@declare(
    operands=Operands.PAIR,
    terms=_terms,
    mask=True,
    axis_name=True,
    block_size=True,
    normalize=True,
    queue="extra_negatives",
)
def siglip(
    x: ArrayLike,
    y: ArrayLike,
    scale: ArrayLike = 10.0,
    bias: ArrayLike = -10.0,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    extra_negatives: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """SigLIP: each pair of vectors is classified on its own as of one instance or of two.

        -(1/n) Σ_i Σ_j log σ( t_ij (scale <x_i, y_j> + bias) ),   t_ij = +1 if i = j else -1

    Zhai 2023 (ICCV), the released code; the printed formula (Shidani 2024, Eq. 124) flips the sign of the
    bias.

    Cost: n² d multiply-adds in the forward pass.

    Args:
      x: (n, d) floating, n >= 2: one view.
      y: (n, d), of the same dtype: the other view of the same instances.
      scale: factor of the inner products, the inverse of a temperature.
      bias: added to them; the default makes the many negatives likely at the start.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. Positives are averaged over
        the instances with both views, the sums of negatives over the x that are there.
      extra_negatives: (q, d) vectors that are negatives of every x_i, for instance a queue. Inside
        `shard_map` every device holds all of them.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors, a = scale + bias:
      log(1 + e^-a) + (n-1) log(1 + e^a).

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _pairs.two(x, y, normalize, mask, axis_name, block_size)
    return _pairs.loss(_terms, e, scale=scale, bias=bias, extra_negatives=extra_negatives)


@declare(mask=True, axis_name=True, block_size=True, normalize=True)
def poly_siglip(
    z: ArrayLike,
    scale: ArrayLike = 10.0,
    bias: ArrayLike = -10.0,
    aggregation: Literal["geometric", "arithmetic", "harmonic"] | float = "geometric",
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
    block_size: int | None = None,
) -> jax.Array:
    """The sigmoid loss of many views, under the aggregations of poly-view learning.

        -mean_{i,α} (1/ρ) log [ 1/(k-1) Σ_{β != α} ℓ_iαβ^ρ ];   -mean_{i,α} 1/(k-1) Σ_{β != α} log ℓ_iαβ  at ρ = 0
        log ℓ_iαβ = log σ(a(z_αi, z_βi)) + Σ_{j != i} log σ(-a(z_αj, z_βi)),   a(u, v) = scale <u, v> + bias

    Shidani 2024 (ICLR), App. E.3, leaves it open. Derivation: in the sigmoid model of Zhai 2023 the labels of
    all pairs of two views are independent, so the likelihood that anchor z_βi labels all of view α right is
    the product ℓ_iαβ above; it takes the place of poly-view's softmax likelihood in Eqs. 12 and 13, anchored
    on β as Eq. 14 is. The other views are not among the negatives, as the sigmoid loss compares two views at
    a time. The geometric one is then the mean of `siglip` over the pairs of views; at k = 2 all equal
    `siglip`, which is symmetric.

    Cost: k² n² d multiply-adds in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      scale: factor of the inner products, the inverse of a temperature.
      bias: added to them.
      aggregation: mean of the likelihoods: "geometric", "arithmetic", "harmonic", or a number, its ρ.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. A term exists where both of its views do,
        and k is then the number of views that the instance has; vectors without a partner stay negatives.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.
      block_size: rows of similarities held at once; None decides.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors, a = scale + bias:
      log(1 + e^-a) + (n-1) log(1 + e^a).

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    z = _checks.views(z, axis_name)
    rho = _checks.aggregation("aggregation", aggregation)
    e = _views.embedded(z, normalize, mask, axis_name, block_size)
    slope, shift = _checks.scalar("scale", scale, e.z.dtype), _checks.scalar("bias", bias, e.z.dtype)
    k, n, _ = e.z.shape
    # Row α, column β: the negatives of anchor β in view α.
    pairs = tuple((b, a) for a in range(k) for b in range(k))
    negative = _others(e, pairs, slope, shift).reshape(k, k, n)
    positive = jax.nn.softplus(-slope * _views.same_instance(e.z) - shift)
    return aggregate(-positive - negative, e.keep, rho, axis_name)
