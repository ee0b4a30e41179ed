"""Losses of second moments, without negatives: VICReg, Barlow Twins, FroSSL, EMP-SSL."""

import dataclasses
from functools import partial
from typing import Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _embeddings as emb
from mvcl.losses._declaration import OfRows, OfUnitRows, Operands, declare
from mvcl.losses._lse import Vectors
from mvcl.losses._lse.whole import One, Two

__all__ = ["barlow_twins", "emp_ssl", "frossl", "vicreg"]


@declare(operands=Operands.PAIR)
def vicreg(
    x: ArrayLike,
    y: ArrayLike,
    invariance: ArrayLike = 25.0,
    variance: ArrayLike = 25.0,
    covariance: ArrayLike = 1.0,
    eps: ArrayLike = 1e-4,
    **shared: Unpack[OfRows],
) -> jax.Array:
    """VICReg: an instance's two vectors close, each feature's deviation at least 1, no two features correlated.

        invariance mean_{i,a} (x_ia - y_ia)² + variance ½ Σ_{v in x,y} mean_a max(0, 1 - sqrt(cov(v)_aa + eps))
        + covariance Σ_{v in x,y} (1/d) Σ_{a != b} cov(v)_ab²
        cov(v)_ab = Σ_i (v_ia - mean_i v_ia) (v_ib - mean_i v_ib) / (n - 1)

    Bardes 2022 (ICLR), in the units of the released code: the paper sums the squares of the first term over the d
    features, though not in its pseudocode, and has no ½ in the second. Its loss with weights λ, μ and ν is this one
    with invariance d λ, variance 2 μ and covariance ν; the 25, 25 and 1 of its experiments are those of the code.
    A term belongs to the whole batch, so that instances cannot be weighted. Devices exchange 8 d (d + 1) bytes.

    Cost: 2 n d² multiply-adds in the forward pass.

    Args:
      invariance: factor of the squared distances.
      variance: factor of the deviations.
      covariance: factor of the covariances.
      eps: positive number added to each variance; the gradient by a constant feature is then finite.
      mask: the first mean is over the instances with both; the covariances of a view are over the vectors that it has,
        n of them, and it has none with n < 2.

    Returns:
      Scalar, float32 or wider: variance (1 - sqrt(eps)) where all vectors coincide.
    """
    e = emb.embedded(_checks.pair(x, y, shared["axis_name"]), normalize=False, **shared)
    dtype, d = e.z.dtype, e.z.shape[2]
    near = _checks.scalar("invariance", invariance, dtype)
    spread = _checks.scalar("variance", variance, dtype)
    independent = _checks.scalar("covariance", covariance, dtype)
    small = _checks.scalar("eps", eps, dtype, positive=True)
    both = None if e.keep is None else e.keep.all(0)
    distance = emb.mean_where(jnp.mean((e.z[0] - e.z[1]) ** 2, axis=1), both, e.axis_name)
    vectors, _ = centred(e)
    count = emb.counts(e)
    cov = moments(vectors, e.axis_name) / jnp.maximum(count - 1, 1)[:, None, None]
    hinge = jax.nn.relu(1 - jnp.sqrt(jnp.diagonal(cov, axis1=1, axis2=2) + small))
    off = jnp.where(jnp.eye(d, dtype=bool)[None], 0, cov)
    deviations, correlations = jnp.mean(hinge, axis=1) / 2, jnp.sum(off**2, axis=(1, 2)) / d
    terms = jnp.where(count > 1, spread * deviations + independent * correlations, 0)
    return near * distance + jnp.sum(terms)


@declare(operands=Operands.PAIR)
def barlow_twins(
    x: ArrayLike, y: ArrayLike, redundancy: ArrayLike = 5e-3, eps: ArrayLike = 1e-5, **shared: Unpack[OfRows]
) -> jax.Array:
    """Barlow Twins: the cross-correlation matrix of two views' features is to be the identity.

        Σ_a (1 - c_aa)² + redundancy Σ_{a != b} c_ab²
        c = x̂^T ŷ / n,   x̂_ia = (x_ia - mean_i x_ia) / sqrt(var_i x_ia + eps), ŷ alike

    Zbontar 2021 (ICML), Eqs. 1 and 2, with the variance over n and eps inside the root, as in the released code; the
    paper has no eps. On several processes the gradient of that code is this one over their number. Instances cannot be
    weighted, as in `vicreg`. Devices exchange 4 d (d + 4) bytes, whatever n is.

    Cost: n d² multiply-adds in the forward pass.

    Args:
      redundancy: factor of the entries off the diagonal.
      eps: positive number added to each variance; a constant feature is then zero.
      mask: the batch is the instances with both.

    Returns:
      Scalar, float32 or wider: d where all vectors coincide, or where no instance has both views.
    """
    e = emb.embedded(_checks.pair(x, y, shared["axis_name"]), normalize=False, **shared)
    weight = _checks.scalar("redundancy", redundancy, e.z.dtype)
    small = _checks.scalar("eps", eps, e.z.dtype, positive=True)
    both = None if e.keep is None else jnp.broadcast_to(e.keep.all(0)[None], e.keep.shape)
    e = dataclasses.replace(e, keep=both)
    vectors, _ = centred(e)
    count = jnp.maximum(emb.counts(e), 1)
    variance = _numerics.device_sum(jnp.sum(vectors**2, axis=1), e.axis_name) / count[:, None]
    features = vectors * lax.rsqrt(variance + small)[:, None]
    correlation = _numerics.device_sum(_numerics.inner("ia,ib->ab", *features), e.axis_name) / count[0]
    identity = jnp.eye(e.z.shape[2], dtype=bool)
    return jnp.sum(jnp.where(identity, (1 - correlation) ** 2, weight * correlation**2))


@declare(mask=False)
def frossl(
    z: ArrayLike, invariance: ArrayLike = 1.0, *, mask: None = None, axis_name: str | None = None
) -> jax.Array:
    """FroSSL: each view's features orthogonal to one another, the views of an instance at their mean.

        Σ_l [ log ‖ẑ_l^T ẑ_l / d‖_F² + invariance k d mean_{i,a} (ẑ_lia - mean_m ẑ_mia)² ]
        ẑ_lia = z_lia / sqrt(Σ_j z_lja²)

    Skean 2023 (arXiv 2310.02903), as the released code computes it for several views. That code divides by the trace of
    ẑ_l^T ẑ_l in place of d, which is less where a feature is zero, and takes each process's own instances. Its older
    function of two views, which the paper's runs used, subtracts the mean of each view first. Devices exchange
    4 k d (d + 2) bytes, whatever n is.

    Cost: k n d² multiply-adds in the forward pass.

    Args:
      z: (k, n, d) views; a feature that is zero stays zero.
      invariance: factor of the squared distances.
      mask: must be None: columns of length 1 compare views only if all of them have the same instances.

    Returns:
      Scalar, float32 or wider: 0 for coinciding vectors, and for views that are zero; at least -k log(min(n, d)) where
      no feature is zero.
    """
    if mask is not None:
        what = "mask must be None: frossl divides each feature of a view by its length over the batch"
        raise ValueError(f"{what}, and views that lack instances would be compared at other lengths")
    z = _numerics.widen(_checks.views(z, axis_name))
    factor = _checks.scalar("invariance", invariance, z.dtype)
    k, _, d = z.shape
    columns = _numerics.unit(z, 1, axis_name)
    gram = moments(columns, axis_name) / d
    norms = jnp.sum(gram**2, axis=(1, 2))
    distances = squared_distances(columns, emb.sum_of_views(columns) / k)
    pull = k * d * emb.mean_where(distances, None, axis_name, axis=1)
    return jnp.sum(jnp.log(jnp.where(norms == 0, 1, norms)) + factor * pull)


@declare()
def emp_ssl(
    z: ArrayLike, eps: ArrayLike = 0.2, invariance: ArrayLike = 200.0, **shared: Unpack[OfUnitRows]
) -> jax.Array:
    """EMP-SSL: each view's vectors fill the space, the views of an instance point to their mean.

        -mean_l ½ log det( I + d / (n eps) z_l^T z_l ) - invariance mean_{l,i} cos(z_li, mean_m z_mi)

    Tong 2023 (arXiv 2304.03977). eps is that of the released code; the paper writes ε² in its place. Devices exchange
    4 k d² bytes, whatever n is.

    Cost: k (n d² + d³/3) multiply-adds in the forward pass.

    Args:
      eps: positive distortion of the coding rate.
      invariance: factor of the cosines.
      mask: n is then the number of instances that have view l; the first mean is over the views that some instance has,
        the second over the vectors that are there, and so is the mean of an instance's views.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors: -½ log(1 + d / eps) - invariance.
    """
    e = emb.embedded(z, **shared)
    distortion = _checks.scalar("eps", eps, e.z.dtype, positive=True)
    factor = _checks.scalar("invariance", invariance, e.z.dtype)
    d = e.z.shape[2]
    gram = moments(e.z, e.axis_name)
    count = emb.counts(e)
    scale = d / (jnp.maximum(count, 1) * distortion)
    root = jnp.linalg.cholesky(jnp.eye(d, dtype=e.z.dtype)[None] + scale[:, None, None] * gram)
    rates = jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)  # ½ log det
    # The direction of the mean is that of the sum, whatever views there are.
    centre = _numerics.unit(emb.sum_of_views(e.z))
    cosines = jnp.stack([jnp.sum(view * centre, axis=-1) for view in _numerics.unit(e.z)])
    return -emb.mean_where(rates, count > 0, None) - factor * emb.mean_where(cosines, e.keep, e.axis_name)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def moments(z: jax.Array, axis_name: str | None) -> jax.Array:
    """`(k, d, d)`: z_l^T z_l of (k, n, d) vectors, over all devices.

    Its derivative is one product in either mode: those by the two factors are transposes of each other.
    """
    return _numerics.device_sum(_numerics.inner("lia,lib->lab", z, z), axis_name)


@moments.defjvp
def _(axis_name: str | None, primals: One, tangents: One) -> Two:
    (z,), (dz,) = primals, tangents
    half = _numerics.inner("lia,lib->lab", z, dz)
    return moments(z, axis_name), _numerics.device_sum(half + jnp.swapaxes(half, 1, 2), axis_name)


def centred(e: Vectors) -> Two:
    """`(k, n, d)` vectors less the mean of their view, zero where there is none; the means, `(k, 1, d)`."""
    there = None if e.keep is None else e.keep[:, :, None]
    mean = emb.mean_where(e.z, there, e.axis_name, axis=1)[:, None]
    return e.z - mean if there is None else jnp.where(there, e.z - mean, 0), mean


def squared_distances(z: jax.Array, centre: jax.Array) -> jax.Array:
    """`(k, n)`: mean_a (z_lia - c_ia)² of (k, n, d) vectors and the (n, d) centres, view by view as `sum_of_views`."""
    return jnp.stack([jnp.mean((view - centre) ** 2, axis=1) for view in z])


def distance_from_centre(e: Vectors, global_views: int | None) -> jax.Array:
    """mean_{l,i,d} (z_li - c_i)², c_i the mean of i's first `global_views` (None: all) that are there, if any."""
    k = e.z.shape[0]
    some = k if global_views is None else _checks.whole("global_views", global_views)
    if some > k:
        raise ValueError(f"global_views must be at most the number of views, {k}, got {global_views}")
    centre, exists = emb.centres(e.z[:some], None if e.keep is None else e.keep[:some])
    there = None if e.keep is None or exists is None else e.keep & exists[None]
    return emb.mean_where(squared_distances(e.z, centre), there, e.axis_name)
