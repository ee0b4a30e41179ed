"""EMP-SSL: many views close to their mean, each view's vectors spread by their coding rate."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _statistics, _views
from mvcl.losses._declaration import declare


@declare(mask=True, axis_name=True, normalize=True)
def emp_ssl(
    z: ArrayLike,
    eps: ArrayLike = 0.2,
    invariance: ArrayLike = 200.0,
    *,
    normalize: bool = True,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
) -> jax.Array:
    """EMP-SSL: each view's vectors fill the space, the views of an instance point to their mean.

        -mean_l ½ log det( I + d / (n eps) z_l^T z_l ) - invariance mean_{l,i} cos(z_li, mean_m z_mi)

    Tong 2023 (arXiv 2304.03977). eps is that of the released code; the paper writes ε² in its place. A public port
    adds the first term in place of subtracting it. Devices exchange k d² numbers, 4 k d² bytes, whatever n is.

    Cost: k (n d² + d³/3) multiply-adds in the forward pass.

    Args:
      z: (k, n, d) floating, k >= 2, n >= 2; half precision is summed in float32.
      eps: positive distortion of the coding rate.
      invariance: factor of the cosines.
      normalize: project vectors onto the unit sphere first; zero stays zero.
      mask: (k, n) bool, False for a view that an instance lacks. n is then the number of instances that have view l;
        the first mean is over the views that some instance has, the second over the vectors that are there, and so
        is the mean of an instance's views.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors: -½ log(1 + d / eps) - invariance.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _views.embedded(_checks.views(z, axis_name), normalize, mask, axis_name)
    distortion = _checks.scalar("eps", eps, e.z.dtype, positive=True)
    factor = _checks.scalar("invariance", invariance, e.z.dtype)
    d = e.z.shape[2]
    gram = _statistics.moments(e.z, axis_name)
    count = _statistics.counts(e)
    scale = d / (jnp.maximum(count, 1) * distortion)
    root = jnp.linalg.cholesky(jnp.eye(d, dtype=e.z.dtype)[None] + scale[:, None, None] * gram)
    rates = jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)  # ½ log det
    # The direction of the mean is that of the sum, whatever views there are.
    centre = _numerics.unit(_statistics.sum_of_views(e.z))
    cosines = jnp.stack([jnp.sum(view * centre, axis=-1) for view in _numerics.unit(e.z)])
    rate = _statistics.mean_of_views(rates, count)
    return -rate - factor * _numerics.mean_where(cosines, e.keep, axis_name)
