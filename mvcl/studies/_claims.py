"""Claims of Shidani 2024 that need no training: two classes, and the variance of Multi-Crop."""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import losses
from mvcl._progress import Progress
from mvcl.studies._task import Values


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


def printed_variance(views: int) -> float:
    """The factor of Shidani 2024, Eq. 3, 2 (2M - 1) / (3 M (M - 1)): variance of Multi-Crop by that of one pair."""
    return 2 * (2 * views - 1) / (3 * views * (views - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiCropVariance:
    """Variance over batches of Multi-Crop's loss by that of one pair of views; a `Task`.

    Views c + noise / 2, both standard normal, of 32 instances, embedded as (cos x, sin x), temperature 0.5.
    """

    views: int
    """M."""
    batches: int = 20_000
    """Batches of each; the standard error of a ratio is about 2 / sqrt(batches) of it."""

    def run(self, folder: Path, seed: int, progress: Progress) -> Sequence[Values]:
        """The ratio, and what it exceeds `printed_variance` by."""
        pair, several = (self._variance(views, seed) for views in (2, self.views))
        return [{"variance": several / pair, "excess": several / pair - printed_variance(self.views)}]

    def _variance(self, views: int, seed: int) -> float:
        loss = losses.all_pairs(partial(losses.info_nce, temperature=0.5), pairs="ordered")

        def value(key: jax.Array) -> jax.Array:
            shared, noise = jax.random.split(key)
            x = jax.random.normal(shared, (1, 32)) + 0.5 * jax.random.normal(noise, (views, 32))
            return loss(jnp.stack([jnp.cos(x), jnp.sin(x)], axis=-1))

        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), views), self.batches)
        draw = jax.jit(partial(jax.lax.map, value, batch_size=100))
        return float(np.var(np.asarray(draw(keys), np.float64), ddof=1))
