"""Shidani 2024, Proposition 2.2: how much more views lower the variance of Multi-Crop's loss.

No training.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import losses
from mvcl.studies import SEEDS, Cell, Measure, Study, Trend, Values, Within

_ABOUT = """\
Variance of Multi-Crop's loss over batches by that of one pair of views, beside the factor of Eq. 3, 2 (2M - 1) / (3 M
(M - 1)), which the paper proves to be an upper bound and does not measure. Views c + noise / 2, both standard normal,
of 32 instances, embedded as (cos x, sin x), temperature 0.5, InfoNCE. The factor's proof counts a third of the pairs of
pairs that share a view, and gives pairs without a common view no covariance, although they share their instances."""


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

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
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


def paper(seeds: int = 10) -> Study:
    """20,000 batches for each seed."""
    return _study((2, 3, 4, 8), 20_000, seeds=seeds, cost=f"2 CPU cores, {6 * seeds} seconds, estimated")


def small(seeds: int = SEEDS) -> Study:
    """5,000 batches for each seed."""
    return _study((2, 3, 4, 8), 5_000, seeds=seeds, cost=f"2 CPU cores, {0.065 * seeds:.2g} minutes")


def smoke(seeds: int = 2) -> Study:
    """200 batches for each seed."""
    return _study((2, 4), 200, seeds=seeds, cost="seconds")


def _study(views: tuple[int, ...], batches: int, **scale: Any) -> Study:
    lower = "More views lower the variance of Multi-Crop's loss"
    bound = "The variance is at most the factor of Eq. 3 times that of a pair"
    tasks = {m: MultiCropVariance(views=m, batches=batches) for m in views}
    return Study(
        title="Shidani 2024, Proposition 2.2: variance of Multi-Crop",
        about=_ABOUT,
        cells=[Cell({"M": m}, of, {"variance": round(printed_variance(m), 3)}) for m, of in tasks.items()],
        measures=(
            Measure("variance", label="variance by that of a pair", digits=3, better="lower"),
            Measure("excess", label="above the factor of Eq. 3", digits=3, better="lower"),
        ),
        claims=(
            Trend(lower, "Proposition 2.2; Section 3.1", "variance", {}, "M", rises=False),
            Within(bound, "Proposition 2.2, Eq. 3", "excess", {}, high=0),
        ),
        along="M",
        **scale,
    )
