"""Augmentation of the views that data give, by their kind: tables, sequences and images."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp

from mvcl.augment._policy import Policy
from mvcl.augment._views import apply_policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByKind:
    """One augmentation of a view, chosen by the shape of its examples; all settings are ours.

    A table (d,) has entries set to 0 and noise added. A sequence (time, d) is a random part of itself, stretched to its
    length by linear interpolation; padding, rows of NaN at its end, stays. An image (height, width, channels), in
    [0, 1], is drawn by a policy.
    """

    masked: float = 0.2
    """Share of a table's entries that are set to 0, in [0, 1)."""
    noise: float = 0.1
    """Deviation of the normal noise of a table, in the units of its scaled columns."""
    crop: float = 0.5
    """Least share of a sequence that is kept, in (0, 1]."""
    policy: Policy = dataclasses.field(default_factory=lambda: Policy(crop_scale=(0.4, 1.0)))
    """Policy of images; its `image_size` is that of the view."""

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        """(n, ...) examples of one view, augmented; of the same shape."""
        if x.ndim == 4:
            policy = dataclasses.replace(self.policy, image_size=x.shape[1])
            return jax.vmap(partial(apply_policy, policy))(jax.random.split(key, len(x)), x)
        first, second = jax.random.split(key)
        if x.ndim == 2:
            kept = jax.random.bernoulli(first, 1 - self.masked, x.shape)
            return jnp.where(kept, x + self.noise * jax.random.normal(second, x.shape, x.dtype), 0)
        there = ~jnp.isnan(x).any(-1)
        last = jnp.maximum(there.sum(1, keepdims=True) - 1, 0)
        size = last * jax.random.uniform(first, last.shape, minval=self.crop)
        start = (last - size) * jax.random.uniform(second, last.shape)
        at = jnp.minimum(start + size * jnp.arange(x.shape[1])[None] / jnp.maximum(last, 1), last)
        before = jnp.floor(at).astype(jnp.int32)
        low, high = (
            jnp.take_along_axis(x, jnp.minimum(before + step, last)[..., None], axis=1) for step in (0, 1)
        )
        share = (at - before)[..., None].astype(x.dtype)
        return jnp.where(there[..., None], (1 - share) * low + share * high, x)
