"""Pictures of three factors: shape, texture and colour, five of each, at a random place, scale and rotation.

After Trifeature (Hermann and Lampinen 2020) and its pairs in CoMM (Dufumier and Castillo-Navarro 2025); the drawing
is ours. Pictures of an example share the shape. Pictures 1 and 3 have their texture for themselves, picture 2 its
colour. A label tells a fair bit of synergy: whether the texture of picture 2 belongs, by a fixed table, to the colour
of picture 1, of three pictures to the sum of the colours of 1 and 3. Where it is 0, that texture is any other: of three
pictures no two tell anything of the label, and of two no single one does.
"""

import colorsys
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

COUNT = 5  # levels of each factor
SIZE = 16  # side of a picture, pixels
RENDERED = 32
"""Pictures of each combination of factors, for training; as many for the probes' fit and for their test."""
COLOURS = np.asarray([colorsys.hsv_to_rgb(i / COUNT, 0.9 - 0.3 * (i % 2), 1.0) for i in range(COUNT)])
"""(5, 3) in [0, 1]."""
MATCH = np.asarray([3, 0, 4, 1, 2])  # the texture that belongs to each colour


class Factors(NamedTuple):
    """Factors of examples of k pictures, integers; any axes in front.

    Attributes:
      shape: (..., n), 0 to 4.
      texture: (..., n, k), 0 to 4.
      colour: (..., n, k), 0 to 4.
      match: (..., n), 0 or 1: the synergy.
    """

    shape: np.ndarray
    texture: np.ndarray
    colour: np.ndarray
    match: np.ndarray

    def each(self) -> np.ndarray:
        """(..., k, n, 3): shape, texture and colour of each picture."""
        shape = np.broadcast_to(self.shape[..., None], self.texture.shape)
        return np.swapaxes(np.stack([shape, self.texture, self.colour], axis=-1), -2, -3)

    def labels(self) -> dict[str, np.ndarray]:
        """What all pictures share, what each has alone, and the synergy."""
        known = {"shared": self.shape, "unique1": self.texture[..., 0], "unique2": self.colour[..., 1]}
        if self.texture.shape[-1] > 2:
            known["unique3"] = self.texture[..., 2]
        return known | {"synergy": self.match}


def drawn(rng: np.random.Generator, shape: tuple[int, ...], k: int, matched: float = 0.5) -> Factors:
    """Independent, uniform factors, but for the texture of the second picture, which follows the match.

    `matched` is the probability of a match.
    """
    shared, (texture, colour) = rng.integers(COUNT, size=shape), rng.integers(COUNT, size=(2, *shape, k))
    match = rng.random(shape) < matched
    belongs = MATCH[(colour[..., 0] + (colour[..., 2] if k > 2 else 0)) % COUNT]
    other = (belongs + rng.integers(1, COUNT, size=shape)) % COUNT
    texture[..., 1] = np.where(match, belongs, other)
    return Factors(shared, texture, colour, match.astype(int))


def pictures(rng: np.random.Generator, factors: Factors, sides: int) -> np.ndarray:
    """(..., sides, k, n) int32: places in `rendered` of any pictures of these factors."""
    kind = (factors.shape[..., None] * COUNT + factors.texture) * COUNT + factors.colour
    kind = np.swapaxes(kind, -1, -2)[..., None, :, :]
    size = (*kind.shape[:-3], sides, *kind.shape[-2:])
    return (kind * RENDERED + rng.integers(RENDERED, size=size)).astype(np.int32)


def _shapes(u: jax.Array, v: jax.Array) -> jax.Array:
    """(5, height, width) bool: disc, triangle, cross, ring and half a disc, of radius about 1."""
    r, angle = jnp.hypot(u, v), jnp.arctan2(v, u)
    part = 2 * jnp.pi / 3
    triangle = r * jnp.cos(angle % part - part / 2) < 0.5
    cross = (jnp.minimum(abs(u), abs(v)) < 0.3) & (jnp.maximum(abs(u), abs(v)) < 1)
    return jnp.stack([r < 0.9, triangle, cross, (r < 1) & (r > 0.55), (r < 1) & (u > -0.1)])


def _textures(u: jax.Array, v: jax.Array) -> jax.Array:
    """(5, height, width) in [0, 1]: plain, stripes, checks, rings and a gradient, in units of the shape's radius."""

    def waves(x: jax.Array) -> jax.Array:
        return (jnp.sin(2 * jnp.pi * x) > 0).astype(jnp.float32)

    checks, rings = abs(waves(u) - waves(v)), waves(jnp.hypot(u, v) * 1.5)
    return jnp.stack([jnp.ones_like(u), waves(u), checks, rings, jnp.clip((1 + u) / 2, 0, 1)])


def _picture(shape: jax.Array, texture: jax.Array, colour: jax.Array, key: jax.Array) -> jax.Array:
    """(SIZE, SIZE, 3) in [0, 1], at a random place, scale and rotation, with noise."""
    of_place, of_noise = jax.random.split(key)
    x, y, scale, turn = jax.random.uniform(of_place, (4,))
    at = (jnp.arange(SIZE) + 0.5) * 2 / SIZE - 1
    right, down = at[None] - 0.4 * (x - 0.5), at[:, None] - 0.4 * (y - 0.5)
    angle, radius = jnp.pi / 2 * (turn - 0.5), 0.65 + 0.15 * scale
    c, s = jnp.cos(angle), jnp.sin(angle)
    u, v = (c * right + s * down) / radius, (c * down - s * right) / radius
    inside, bright = _shapes(u, v)[shape], 0.2 + 0.8 * _textures(u, v)[texture]
    painted = bright[..., None] * jnp.asarray(COLOURS, jnp.float32)[colour][None, None]
    plain = jnp.where(inside[..., None], painted, 0.4)
    return jnp.clip(plain + 0.03 * jax.random.normal(of_noise, plain.shape), 0, 1)


@cache
def rendered(part: int) -> np.ndarray:
    """(COUNT³ RENDERED, SIZE, SIZE, 3): pictures of all combinations, for training, probes or their test."""
    every = jnp.arange(COUNT**3 * RENDERED) // RENDERED
    keys = jax.random.split(jax.random.key(part), len(every))
    of = every // COUNT**2, every // COUNT % COUNT, every % COUNT
    return jax.device_get(jax.jit(partial(jax.lax.map, lambda x: _picture(*x), batch_size=500))((*of, keys)))
