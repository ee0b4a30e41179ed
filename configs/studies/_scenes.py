"""Pictures of scenes as views of known information: an object's shape, colour, position and size, shared or private.

Each factor is made of fair bits, as those of `_factors`. The place of the object and its size vary within their level,
and every pixel has noise. The drawing is ours.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _factors import FactorViews
from _factors_task import Factored, Read

from mvcl.studies import Values

BITS = {"shape": 2, "colour": 2, "position": 2, "size": 1}
"""Bits of each factor: disc, square, triangle or cross; four hues; left or right, up or down; small or large."""
SIDE = 16  # of a picture, in pixels
_HUES = np.asarray([[0.9, 0.2, 0.2], [0.9, 0.8, 0.1], [0.2, 0.4, 0.9], [0.1, 0.8, 0.6]], np.float32)
_GREY = 0.4


@dataclasses.dataclass(frozen=True, kw_only=True)
class SceneViews(FactorViews):
    """k pictures that agree in the factors `together`; all others each picture has for itself. Made by `scenes`."""

    together: tuple[str, ...] = ()

    @property
    def order(self) -> list[str]:
        """The factors in the order of a picture's bits: shared ones first."""
        return [*self.together, *(name for name in BITS if name not in self.together)]

    def render(
        self, world: Any, seen: jax.Array, gain: jax.Array, noise: jax.Array, key: jax.Array
    ) -> jax.Array:
        """(k, n, SIDE² 3): the pictures of (k, n, 7) bits; networks do not differ in how they are drawn."""
        ends = np.cumsum([BITS[name] for name in self.order])
        of = dict(zip(self.order, jnp.split(seen, ends[:-1], axis=-1)))
        of_place, of_noise = jax.random.split(key)
        x, y, size = jax.random.uniform(of_place, (3, *seen.shape[:2]), minval=-1.0)
        radius = jnp.where(of["size"][..., 0] > 0, 0.6, 0.4) * (1 + 0.05 * size)
        at = ((jnp.arange(SIDE) + 0.5) * 2 / SIDE - 1)[None, None]
        left, top = (0.35 * of["position"][..., i] + 0.05 * moved for i, moved in enumerate((x, y)))
        u = ((at - left[..., None]) / radius[..., None])[..., None, :]
        v = ((at - top[..., None]) / radius[..., None])[..., :, None]
        wide, narrow = jnp.maximum(abs(u), abs(v)), jnp.minimum(abs(u), abs(v))
        triangle = (v < 0.7) & (2 * abs(u) < v + 1)
        first, second = (of["shape"][..., i, None, None] > 0 for i in range(2))
        round_or_square = jnp.where(second, u * u + v * v < 1, wide < 0.85)
        inside = jnp.where(first, round_or_square, jnp.where(second, triangle, (narrow < 0.3) & (wide < 1)))
        hue = jnp.asarray(_HUES)[((of["colour"] > 0) @ jnp.asarray([2, 1])).astype(int)] - _GREY
        shown = jnp.where(inside[..., None], hue[..., None, None, :], 0).reshape(*seen.shape[:2], -1)
        of_pixels = (*seen.shape[:2], SIDE**2)  # the three channels of a pixel have the same noise
        e = jax.random.uniform(of_noise, of_pixels, minval=-math.sqrt(3), maxval=math.sqrt(3)).repeat(
            3, axis=-1
        )
        return gain[:, None, None] * shown + noise[:, None, None] * e


def scenes(k: int, *together: str) -> SceneViews:
    """k pictures that share the factors named."""
    shared = sum(BITS[name] for name in together)
    unique = sum(BITS.values()) - shared
    sizes = {"shared": shared, "unique": unique, "pair": 0, "synergy": 0, "inputs": 3 * SIDE**2}
    return SceneViews(views=k, together=together, **sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen(Factored):
    """`Factored` on scenes; its values are those of each factor too."""

    def _values(self, found: Read) -> Values:
        assert isinstance(self.data, SceneViews)
        bits = np.concatenate([found.joint.shared, found.joint.unique.mean(0)])
        ends = np.cumsum([BITS[name] for name in self.data.order])
        each = dict(zip(self.data.order, np.split(bits, ends[:-1])))
        return super()._values(found) | {name: float(each[name].mean()) for name in BITS}
