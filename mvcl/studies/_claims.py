"""Claims of Shidani 2024 that need no training: two classes, and the variance of Multi-Crop."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import losses


def two_classes(instances: int, views: int) -> tuple[float, float]:
    """The printed bound and the one that holds, where both know everything and the information is log 2.

    An instance has one of two classes with equal probability, every view is its class, and the score of two classes is
    far below that of one. With s ~ Bin(K - 1, 1/2) other instances of the same class, a likelihood is 1 / (1 + M s),
    and of groups 1 / (1 + s).

    Args:
      instances: K.
      views: M.

    Returns:
      E[log(M (K - 1) + 1) - log(1 + M s)] and E[log K - log(1 + s)], nats.
    """
    others = np.arange(instances)
    logs = [math.lgamma(instances) - math.lgamma(s + 1) - math.lgamma(instances - s) for s in others]
    weight = np.exp(np.array(logs) - (instances - 1) * math.log(2))
    printed = math.log(views * (instances - 1) + 1) - weight @ np.log1p(views * others)
    return float(printed), float(math.log(instances) - weight @ np.log1p(others))


def multi_crop_variance(
    seed: int = 0, views: tuple[int, ...] = (2, 3, 4, 8), batches: int = 20_000
) -> list[dict[str, float]]:
    """Variance over batches of Multi-Crop's loss by that of one pair of views, beside Proposition 2.2's factor.

    Views c + noise / 2, both standard normal, of 32 instances, embedded as (cos x, sin x), temperature 0.5.

    Args:
      seed: of the draws.
      views: M; the first is the pair.
      batches: of each M; the standard error of a ratio is about 2 / sqrt(batches) of it.

    Returns:
      For each M "views", "measured" and "printed", 2 (2M - 1) / (3 M (M - 1)).
    """
    loss = losses.all_pairs(partial(losses.info_nce, temperature=0.5), pairs="ordered")

    def value(m: int, key: jax.Array) -> jax.Array:
        shared, noise = jax.random.split(key)
        x = jax.random.normal(shared, (1, 32)) + 0.5 * jax.random.normal(noise, (m, 32))
        return loss(jnp.stack([jnp.cos(x), jnp.sin(x)], axis=-1))

    found: list[dict[str, float]] = []
    pair = 0.0
    for m in views:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), m), batches)
        draw = jax.jit(partial(jax.lax.map, partial(value, m), batch_size=100))
        variance = float(np.var(np.asarray(draw(keys), np.float64), ddof=1))
        pair = pair or variance
        printed = 2 * (2 * m - 1) / (3 * m * (m - 1))
        found.append({"views": m, "measured": variance / pair, "printed": printed})
    return found
