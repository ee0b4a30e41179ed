"""VICReg: two views close to each other, their features neither constant nor correlated."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _pairs, _statistics
from mvcl.losses._declaration import Operands, declare


@declare(operands=Operands.PAIR, mask=True, axis_name=True)
def vicreg(
    x: ArrayLike,
    y: ArrayLike,
    invariance: ArrayLike = 25.0,
    variance: ArrayLike = 25.0,
    covariance: ArrayLike = 1.0,
    eps: ArrayLike = 1e-4,
    *,
    mask: ArrayLike | None = None,
    axis_name: str | None = None,
) -> jax.Array:
    """VICReg: an instance's two vectors close, each feature's deviation at least 1, no two features correlated.

        invariance mean_{i,a} (x_ia - y_ia)² + variance ½ Σ_{v in x,y} mean_a max(0, 1 - sqrt(cov(v)_aa + eps))
        + covariance Σ_{v in x,y} (1/d) Σ_{a != b} cov(v)_ab²
        cov(v)_ab = Σ_i (v_ia - mean_i v_ia) (v_ib - mean_i v_ib) / (n - 1)

    Bardes 2022 (ICLR), in the units of the released code: the paper sums the squares of the first term over the d
    features, though not in its pseudocode, and has no ½ in the second. Its loss with weights λ, μ and ν is this one
    with invariance d λ, variance 2 μ and covariance ν; the 25, 25 and 1 of its experiments are those of the code, the
    defaults here. A port that does not halve the second term needs `variance=50.0` here for its 25. Vectors are
    compared as they are, not projected. A term belongs to the whole batch and not to an instance, so that instances
    cannot be weighted. Devices exchange 2 d² + 2 d numbers, 8 d (d + 1) bytes, whatever n is.

    Cost: 2 n d² multiply-adds in the forward pass.

    Args:
      x: (n, d) floating, n >= 2: one view. Half precision is summed in float32.
      y: (n, d), of the same dtype: the other view of the same instances.
      invariance: factor of the squared distances.
      variance: factor of the deviations.
      covariance: factor of the covariances.
      eps: positive number added to each variance; the gradient by a constant feature is then finite.
      mask: (2, n) bool, False where x (row 0) or y (row 1) lacks the instance. The first mean is over the instances
        with both; the covariances of a view are over the vectors that it has, n of them, and it has none with n < 2.
      axis_name: mesh axis over which the instances are split, inside `shard_map`.

    Returns:
      Scalar, float32 or wider: variance (1 - sqrt(eps)) where all vectors coincide.

    Raises:
      ValueError: for shapes, dtypes or values other than these.
    """
    e = _pairs.two(x, y, False, mask, axis_name)
    dtype, d = e.z.dtype, e.z.shape[2]
    near = _checks.scalar("invariance", invariance, dtype)
    spread = _checks.scalar("variance", variance, dtype)
    independent = _checks.scalar("covariance", covariance, dtype)
    small = _checks.scalar("eps", eps, dtype, positive=True)
    both = None if e.keep is None else e.keep.all(0)
    distance = _numerics.mean_where(jnp.mean((e.z[0] - e.z[1]) ** 2, axis=1), both, axis_name)
    vectors, _ = _statistics.centred(e)
    count = _statistics.counts(e)
    cov = _statistics.moments(vectors, axis_name) / jnp.maximum(count - 1, 1)[:, None, None]
    hinge = jax.nn.relu(1 - jnp.sqrt(jnp.diagonal(cov, axis1=1, axis2=2) + small))
    off = jnp.where(jnp.eye(d, dtype=bool)[None], 0, cov)
    deviations, correlations = jnp.mean(hinge, axis=1) / 2, jnp.sum(off**2, axis=(1, 2)) / d
    terms = jnp.where(count > 1, spread * deviations + independent * correlations, 0)
    return near * distance + jnp.sum(terms)
