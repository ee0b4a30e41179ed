"""Self-weighted multi-view contrast (SEM): the weights W of `all_pairs`, and the corrupted inputs.

    Σ_{m,n} W_mn L(z_m, z_n) + λ Σ_v R_v,   R_v the mean squared error of the autoencoder of view v

Xu 2023 (NeurIPS), Eqs. 2, 6-8 and footnote 3; in code `all_pairs(L, weights=W, pairs="all", reduction="sum")`. The
first W is computed from the hidden features, later ones from the embeddings, every few epochs. W is constant in
between.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from mvcl import _checks, _numerics

__all__ = ["cmi_weights", "corrupted", "jsd_weights", "mmd_weights"]


def cmi_weights(labels: ArrayLike) -> jax.Array:
    """W_mn = exp(NMI_mn) - 1 of the views' cluster labels, NMI = 2 I / (H_m + H_n).

    Xu 2023, Eqs. 6 and 7: D is 1 / NMI. Natural logarithms (NMI has no unit).

    Args:
      labels: (k, n) integers, for instance of `metrics.k_means` of each view, over the whole data set.

    Returns:
      (k, k) float32, e - 1 on the diagonal, 0 for independent labels.
    """
    from mvcl.metrics import normalized_mutual_information

    a = np.asarray(labels)
    if a.ndim != 2 or a.shape[0] < 2 or not np.issubdtype(a.dtype, np.integer):
        raise ValueError(f"labels must be integers of shape (k, n) with k >= 2, got {a.dtype} {a.shape}")
    nmi = [[normalized_mutual_information(u, v) for v in a] for u in a]
    return jnp.asarray(np.expm1(nmi), jnp.float32)


def jsd_weights(features: ArrayLike) -> jax.Array:
    """W_mn = exp(1 - JSD_mn) - 1 of the softmax of the features, JSD averaged over samples, natural logarithm.

    Xu 2023, footnote 3 and Eq. 7. The footnote sums over samples; the released code averages, as here.

    Args:
      features: (k, n, d) floating.

    Returns:
      (k, k), float32 or wider, without gradient: e - 1 on the diagonal, e / 2 - 1 at the least.
    """
    z = lax.stop_gradient(_numerics.widen(_checks.views(features, name="features")))
    log_p = jax.nn.log_softmax(z, axis=-1)

    def divergence(a: jax.Array, b: jax.Array) -> jax.Array:
        middle = jnp.logaddexp(a, b) - jnp.log(2.0).astype(a.dtype)
        each = jnp.exp(a) * (a - middle) + jnp.exp(b) * (b - middle)
        return jnp.mean(each.sum(-1)) / 2

    return jnp.expm1(1 - lax.map(lambda a: lax.map(lambda b: divergence(a, b), log_p), log_p))


def mmd_weights(features: ArrayLike, samples: int = 2000) -> jax.Array:
    """W_mn = exp(-MMD_mn), the biased estimate of the squared maximum mean discrepancy of two views.

    Kernel Σ_{i=0..3} exp(-||u - v||² / (b 4^i)), b = (mean squared distance over distinct pairs of the pooled
    sample) / 16. Xu 2023, footnote 3 and Eq. 7; the kernel is the released code's.

    Args:
      features: (k, n, d) floating.
      samples: only the first so many are used.

    Returns:
      (k, k), float32 or wider, without gradient: 1 on the diagonal.
    """
    z = lax.stop_gradient(_numerics.widen(_checks.views(features, name="features")))
    z = z[:, : _checks.whole("samples", samples)]
    n = z.shape[1]

    def discrepancy(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        pooled = z[jnp.stack(pair)].reshape(2 * n, -1)
        pooled = pooled - pooled.mean(0)[None]  # the distances stay, their rounding shrinks
        square = jnp.sum(pooled * pooled, axis=-1)
        distance = square[:, None] + square[None, :] - 2 * _numerics.inner("id,jd->ij", pooled, pooled)
        distance = jnp.maximum(distance, 0) * ~jnp.eye(2 * n, dtype=bool)
        bandwidth = distance.sum() / (2 * n * (2 * n - 1)) / 16
        widest = jnp.exp(distance / (-64 * jnp.where(bandwidth > 0, bandwidth, 1)))
        kernel = widest + widest**4 + widest**16 + widest**64  # the four widths of one exponential
        return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()

    first, second = np.triu_indices(len(z), 1)
    weights = jnp.exp(-lax.map(discrepancy, (jnp.asarray(first), jnp.asarray(second))))
    one = jnp.eye(len(z), dtype=z.dtype)
    return one.at[first, second].set(weights).at[second, first].set(weights)


def corrupted(
    key: jax.Array, inputs: ArrayLike, kind: Literal["none", "noise", "masked"] = "none"
) -> jax.Array:
    """The input of an autoencoder: as it is, plus unit Gaussian noise, or with 30% of its entries set to zero.

    Xu 2023, Eq. 8: AE, DAE and MAE. Exactly floor(0.3 entries) of the array are zero, as in the released code.

    The inputs are floating, of any shape, and so is the result.
    """
    _checks.option("kind", kind, ("none", "noise", "masked"))
    x = _checks.array("inputs", inputs)
    if kind == "noise":
        return x + jax.random.normal(key, x.shape, x.dtype)
    if kind == "masked":
        bits, count = jax.random.bits(key, (x.size,)), int(0.3 * x.size)

        def digit(i: jax.Array, low: jax.Array) -> jax.Array:
            high = low | (jnp.uint32(1 << 31) >> i.astype(jnp.uint32))
            return jnp.where(jnp.sum(bits < high) <= count, high, low)

        # The number in place `count` of the sorted ones, found digit by digit, which is faster than a sort.
        last = lax.fori_loop(0, 32, digit, jnp.uint32(0))
        below, equal = bits < last, bits == last
        zero = below | (equal & (jnp.cumsum(equal) <= count - below.sum()))
        return jnp.where(zero.reshape(x.shape), 0, x)
    return x
