"""Views whose information is known: what all of them share, what pairs share, what one has, and synergy.

Every factor is made of fair bits, written -1 and 1. View l sees, of k views in a ring (all indices modulo k):

    shared   `shared` bits, seen by all views
    pair     `pair` bits for each two neighbours l and l + 1, seen by these two
    unique   `unique` bits for each view, seen by no other
    part     for each three neighbours l, l + 1, l + 2 and each of `synergy` bits one part: two parts are fair, and the
             third is their product with t, the synergy, which is -1 with probability `flip` and else 1

With b(p) the entropy of a bit that is -1 with probability p, in bits:

    a part, one or two views                       tell nothing of t, and two views nothing of each other's parts
    the three parts                                tell t, b(flip) = 0.47 bit at flip 0.1
    I(part of one view; those of the two others)   1 - b(flip) = 0.53 bit
    I(view; another view)                          shared bits, and pair bits where they are neighbours

Two views have neither pair bits, which would be shared, nor synergy.
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import data

FACTORS = ("shared", "pair", "unique", "part", "synergy")
"""Kinds of bits of `FactorViews`, by how many views have to be seen to read one."""


class Bits(NamedTuple):
    """The factors of n instances; -1 and 1, float32.

    Attributes:
      shared: (n, shared).
      pair: (n, k, pair): entry l is of the views l and l + 1.
      unique: (n, k, unique): entry l is of view l.
      part: (n, k, synergy, 3): entry l is of the views l, l + 1 and l + 2, one part each.
      synergy: (n, k, synergy): the product of the three parts, which no two views know.
    """

    shared: jax.Array
    pair: jax.Array
    unique: jax.Array
    part: jax.Array
    synergy: jax.Array


def parts(first: jax.Array, second: jax.Array, synergy: jax.Array) -> jax.Array:
    """The parts of three views, (..., 3): two fair bits and their product with the synergy."""
    return jnp.stack([first, second, first * second * synergy], axis=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorViews:
    """Views of known factors: their bits, through a random network of each view, plus noise.

    x_l = gain_l W_l tanh(V_l bits_l) + noise_l e, with `inputs` numbers; the entries of V_l are normal with deviation
    `bend` and those of W_l with deviation 1 / sqrt(inputs), e is uniform with deviation 1. So a bit is no linear
    function of x.
    """

    views: int = 3
    """k."""
    shared: int = 2
    """Bits that all views see."""
    pair: int = 1
    """Bits of each two neighbours; a view sees twice as many."""
    unique: int = 2
    """Bits that one view sees."""
    synergy: int = 1
    """Bits of each three neighbours; a view sees a part of three times as many."""
    flip: float = 0.1
    """Probability that a bit of synergy is -1."""
    inputs: int = 16
    """Numbers of a view."""
    bend: float = 1.0
    """Deviation of the weights before the tanh: the larger, the less linear."""
    gain: tuple[float, ...] = ()
    """Factor of the signal of each view, 0 for a view of noise alone; empty: 1 for all."""
    noise: tuple[float, ...] = ()
    """Deviation of the noise of each view; empty: 0.1 for all."""
    present: float = 1.0
    """Probability that an instance has a view, independent of all else; below 1 training has a mask."""

    def __post_init__(self) -> None:
        if self.views < 2:
            raise ValueError(f"views must be at least 2, got {self.views}")
        for field in ("gain", "noise"):
            if len(getattr(self, field)) not in (0, self.views):
                raise ValueError(
                    f"{field} must be empty or have {self.views} numbers, got {getattr(self, field)}"
                )
        for field in ("flip", "present"):
            if not 0 <= getattr(self, field) <= 1:
                raise ValueError(f"{field} must be in [0, 1], got {getattr(self, field)}")

    @property
    def neighbours(self) -> int:
        """How many pairs, and triples, of neighbours have bits: k, or none of two views."""
        return self.views if self.views > 2 else 0

    @property
    def seen(self) -> int:
        """Bits of a view."""
        of_neighbours = 2 * self.pair + 3 * self.synergy if self.neighbours else 0
        return self.shared + self.unique + of_neighbours

    def bits(self, key: jax.Array, n: int) -> Bits:
        """The factors of n instances, drawn independently."""
        k, rings = self.views, self.neighbours
        triples = (n, rings, self.synergy)
        shapes = ((n, self.shared), (n, rings, self.pair), (n, k, self.unique), triples, triples)
        # One call for all bits: each call is a program of its own to compile.
        first, second = jax.random.split(key)
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        # The barrier keeps XLA from drawing all of them again in every slice, which takes minutes to compile for k = 8.
        every = jax.lax.optimization_barrier(jax.random.rademacher(first, (int(ends[-1]),), jnp.float32))
        shared, pair, unique, a, b = (x.reshape(s) for x, s in zip(jnp.split(every, ends[:-1]), shapes))
        synergy = jnp.where(jax.random.bernoulli(second, self.flip, triples), -1.0, 1.0)
        return Bits(shared, pair, unique, parts(a, b, synergy), synergy)

    def of_views(self, bits: Bits) -> jax.Array:
        """(k, n, seen): the bits that each view sees; the synergy itself is in none."""

        def of_view(l: int) -> jax.Array:
            seen = [bits.shared, bits.unique[:, l]]
            if self.neighbours:
                seen += [bits.pair[:, l], bits.pair[:, l - 1]]
                seen += [bits.part[:, l - place, :, place] for place in range(3)]
            return jnp.concatenate(seen, axis=1)

        return jnp.stack([of_view(l) for l in range(self.views)])

    def world(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The fixed weights V (k, seen, inputs) and W (k, inputs, inputs) of the views."""
        first, second = jax.random.split(key)
        before = self.bend * jax.random.normal(first, (self.views, self.seen, self.inputs))
        after = jax.random.normal(second, (self.views, self.inputs, self.inputs))
        return before, after / math.sqrt(self.inputs)

    def render(
        self,
        world: tuple[jax.Array, jax.Array],
        seen: jax.Array,
        gain: jax.Array,
        noise: jax.Array,
        key: jax.Array,
    ) -> jax.Array:
        """(k, n, inputs): the views of (k, n, seen) bits, with gain and noise (k,), by the weights of `world`."""
        before, after = world
        hidden = jnp.tanh(jnp.einsum("knb,kbh->knh", seen, before))
        signal = jnp.einsum("knh,khi->kni", hidden, after)
        e = jax.random.uniform(key, signal.shape, minval=-math.sqrt(3), maxval=math.sqrt(3))
        return gain[:, None, None] * signal + noise[:, None, None] * e

    @property
    def quality(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Gain and deviation of the noise of each view."""
        return self.gain or (1.0,) * self.views, self.noise or (0.1,) * self.views


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factors:
    """Tables of k views of known bits as a source of data; the label is one of the factors."""

    views: int = 3
    """k."""
    label: Literal["shared", "unique", "synergy"] = "unique"
    """The bits that all views see, those of the first view alone, or one that only the first three views tell."""
    examples: int = 8192
    """Training examples; the split `test` has a quarter."""
    present: float = 1.0
    """Probability that a training example has a view; it has one at least."""
    seed: int = 0
    """Seed of the bits and of the random networks that make views of them."""

    def open(self) -> dict[str, data.Split]:
        """The splits `train` and `test`."""
        return {name: self._split(number, name == "train") for number, name in enumerate(("train", "test"))}

    def _split(self, number: int, training: bool) -> data.Split:
        made, n = FactorViews(views=self.views), self.examples if training else self.examples // 4
        world, draws = jax.random.split(jax.random.key(self.seed))
        first, second = jax.random.split(jax.random.fold_in(draws, number))
        bits, (gain, noise) = made.bits(first, n), (jnp.asarray(x, jnp.float32) for x in made.quality)
        views = jax.device_get(made.render(made.world(world), made.of_views(bits), gain, noise, second))
        seen = {"shared": bits.shared, "unique": bits.unique[:, 0]}
        if made.neighbours:
            seen["synergy"] = bits.synergy[:, 0]
        if self.label not in seen:
            raise ValueError(
                f"data.label must be one of {', '.join(seen)} for {self.views} views, got {self.label}"
            )
        chosen = np.asarray(seen[self.label]) > 0
        label = (chosen @ (1 << np.arange(chosen.shape[1]))).astype(np.int32)
        present = None
        if training and self.present < 1:
            rng = np.random.default_rng(self.seed)
            present = rng.random((n, self.views)) < self.present
            present[np.arange(n), rng.integers(self.views, size=n)] = True
        return data.in_memory(
            tuple(views),
            label,
            tuple(map(str, range(1 << chosen.shape[1]))),
            view_names=tuple(f"view{l + 1}" for l in range(self.views)),
            given=True,
            present=present,
        )
