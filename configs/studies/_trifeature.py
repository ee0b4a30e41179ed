"""Images of three factors: shape, texture and colour, ten of each, at a random place and rotation.

After Trifeature (Hermann and Lampinen 2020) and its pairs in CoMM (Dufumier and Castillo-Navarro 2025); the drawing
is ours. Two or three images of an example share the shape. A label tells a fair bit of synergy: of two images,
whether the texture of the second belongs to the colour of the first by a fixed table; of three, whether it belongs
to the sum of the colours of the first and the third. So what one image has alone, of k = 2 and 3:

    image 1   its texture
    image 2   its colour
    image 3   its texture

Where the label is 1, the texture of image 2 is a function of the colours; where it is 0, it is any other texture. So of
three images no two tell anything of the label, and of two images no single one does.
"""

import colorsys
import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import data

COUNT = 10
"""Levels of each factor."""
COLOURS = np.asarray([colorsys.hsv_to_rgb(i / COUNT, 0.9 - 0.3 * (i % 2), 1.0) for i in range(COUNT)])
"""(10, 3) in [0, 1]."""
MATCH = np.asarray([3, 7, 0, 9, 1, 5, 8, 2, 6, 4])
"""The texture that belongs to each colour."""


class Factors(NamedTuple):
    """Factors of n examples of k images, integers.

    Attributes:
      shape: (n,), 0 to 9.
      texture: (n, k), 0 to 9.
      colour: (n, k), 0 to 9.
      match: (n,), 0 or 1: the synergy.
    """

    shape: np.ndarray
    texture: np.ndarray
    colour: np.ndarray
    match: np.ndarray


def drawn(rng: np.random.Generator, n: int, k: int) -> Factors:
    """Independent, uniform factors of n examples, but for the texture of the second image, which follows the match."""
    shape, texture, colour = (rng.integers(COUNT, size=size) for size in ((n,), (n, k), (n, k)))
    match = rng.integers(2, size=n)
    belongs = MATCH[(colour[:, 0] + (colour[:, 2] if k > 2 else 0)) % COUNT]
    texture[:, 1] = np.where(match == 1, belongs, (belongs + rng.integers(1, COUNT, size=n)) % COUNT)
    return Factors(shape, texture, colour, match)


def _shapes(u: jax.Array, v: jax.Array) -> jax.Array:
    """(10, height, width) bool: the shapes, of radius about 1."""
    r, angle = jnp.hypot(u, v), jnp.arctan2(v, u)

    def polygon(corners: int) -> jax.Array:
        part = 2 * jnp.pi / corners
        return r * jnp.cos(angle % part - part / 2) < jnp.cos(jnp.pi / corners)

    def star(points: int) -> jax.Array:
        return r < 0.7 + 0.35 * jnp.cos(points * angle)

    cross = (jnp.minimum(abs(u), abs(v)) < 0.3) & (jnp.maximum(abs(u), abs(v)) < 1)
    ring, half = (r < 1) & (r > 0.55), (r < 1) & (u > -0.1)
    ellipse = jnp.hypot(u, 2 * v) < 1.1
    every = [r < 0.9, polygon(3), polygon(4), polygon(5), star(3), star(5), cross, ring, half, ellipse]
    return jnp.stack(every)


def _textures(u: jax.Array, v: jax.Array) -> jax.Array:
    """(10, height, width) in [0, 1]: the textures, in units of the shape's radius."""

    def waves(x: jax.Array, number: float) -> jax.Array:
        return (jnp.sin(jnp.pi * number * x) > 0).astype(jnp.float32)

    r = jnp.hypot(u, v)
    dots = (jnp.hypot((2.5 * u) % 1 - 0.5, (2.5 * v) % 1 - 0.5) < 0.3).astype(jnp.float32)
    grid = (((2.5 * u) % 1 < 0.3) | ((2.5 * v) % 1 < 0.3)).astype(jnp.float32)
    coarse, fine = waves(u, 2), waves(u, 5)
    checks = [abs(waves(u, n) - waves(v, n)) for n in (2, 4)]
    rings, zigzag = waves(r, 5), waves(v + 0.4 * abs((2 * u) % 1 - 0.5), 4)
    return jnp.stack([jnp.ones_like(u), coarse, fine, *checks, dots, grid, rings, zigzag, (1 + u) / 2 % 1])


def images(key: jax.Array, shape: jax.Array, texture: jax.Array, colour: jax.Array, size: int) -> jax.Array:
    """(n, size, size, 3) float32 in [0, 1]: of (n,) factors, each at a random place, scale and rotation, with noise."""

    def one(key: jax.Array, shape: jax.Array, texture: jax.Array, colour: jax.Array) -> jax.Array:
        of_place, of_noise = jax.random.split(key)
        x, y, scale, turn = jax.random.uniform(of_place, (4,))
        at = (jnp.arange(size) + 0.5) * 2 / size - 1
        right, down = at[None] - 0.6 * (x - 0.5), at[:, None] - 0.6 * (y - 0.5)
        c, s, radius = jnp.cos(2 * jnp.pi * turn), jnp.sin(2 * jnp.pi * turn), 0.55 + 0.15 * scale
        u, v = (c * right + s * down) / radius, (c * down - s * right) / radius
        inside, bright = _shapes(u, v)[shape], 0.3 + 0.7 * _textures(u, v)[texture]
        painted = bright[..., None] * jnp.asarray(COLOURS, jnp.float32)[colour][None, None]
        plain = jnp.where(inside[..., None], painted, 0.1)
        return jnp.clip(plain + 0.03 * jax.random.normal(of_noise, plain.shape), 0, 1)

    return jax.vmap(one)(jax.random.split(key, len(shape)), shape, texture, colour)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trifeature:
    """Two or three images of an example as given views, in [0, 1]; the label is one of its factors."""

    views: int = 2
    """Images of an example, 2 or 3."""
    label: Literal["shared", "unique1", "unique2", "unique3", "synergy"] = "synergy"
    """The shape; what the image of this number has alone; or the match."""
    examples: int = 10_000
    """Training examples; the split `test` has a fifth."""
    image_size: int = 32
    """Side of an image, pixels."""
    seed: int = 0
    """Seed of factors, places and noise."""

    def open(self) -> dict[str, data.Split]:
        """The splits `train` and `test`."""
        if self.views not in (2, 3):
            raise ValueError(f"data.views must be 2 or 3, got {self.views}")
        return {name: self._split(number, name == "train") for number, name in enumerate(("train", "test"))}

    def painted(self, number: int, n: int) -> tuple[tuple[np.ndarray, ...], dict[str, np.ndarray]]:
        """The k images of n examples, of the draw of this number, and their factors by label."""
        factors = drawn(np.random.default_rng([self.seed, number]), n, self.views)
        key = jax.random.fold_in(jax.random.key(self.seed), number)
        paint = jax.jit(images, static_argnums=4)
        views = []
        for l in range(self.views):
            of_image = factors.shape, factors.texture[:, l], factors.colour[:, l]
            image = paint(jax.random.fold_in(key, l), *of_image, self.image_size)
            views.append(jax.device_get(image))
        known = {"shared": factors.shape, "unique1": factors.texture[:, 0], "unique2": factors.colour[:, 1]}
        if self.views > 2:
            known["unique3"] = factors.texture[:, 2]
        return tuple(views), known | {"synergy": factors.match}

    def _split(self, number: int, training: bool) -> data.Split:
        views, known = self.painted(number, self.examples if training else self.examples // 5)
        if self.label not in known:
            raise ValueError(f"data.label must be one of {', '.join(known)}, got {self.label}")
        names = tuple(map(str, range(2 if self.label == "synergy" else COUNT)))
        named = tuple(f"image{l + 1}" for l in range(self.views))
        return data.in_memory(views, known[self.label].astype(np.int32), names, view_names=named, given=True)
