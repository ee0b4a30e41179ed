"""Blocks of a network that are computed again in the backward pass, so that their activations are not kept."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import jax
from flax import nnx

Remat = Literal["none", "blocks", "full"]

_POLICY: ContextVar[tuple[Remat, list[int]]] = ContextVar("remat", default=("none", []))


class NoBlocks(ValueError):
    """`train.remat` met an encoder that does not say its blocks."""


@contextmanager
def rematerialised(policy: Remat) -> Iterator[None]:
    """Context in which networks are traced so that `in_turn` keeps what this policy keeps.

    Raises:
      NoBlocks: at the end, if a policy but `none` met no network with blocks.
    """
    seen: list[int] = []
    token = _POLICY.set((policy, seen))
    try:
        yield
    finally:
        _POLICY.reset(token)
    if policy != "none" and not seen:
        raise NoBlocks(
            f"train.remat must be none for an encoder that does not pass its blocks to models.in_turn, got {policy}; "
            "ResNet, ConvNet, ViT, EegConv and Transformer do"
        )


def call(block: Any, x: jax.Array, *more: Any) -> jax.Array:
    return block(x, *more)


def in_turn(
    blocks: Sequence[Any], x: jax.Array, *more: Any, apply: Callable[..., jax.Array] = call
) -> jax.Array:
    """Pass x through the blocks of a network, one after the other: x = block(x, *more).

    With `train.remat` the backward pass keeps each block's input and computes its inside again; with `full` that of a
    call inside a block too, such as over its layers. Running statistics and dropout masks are those of one pass. An
    encoder of one's own calls it in place of its loop over blocks:

        def __call__(self, x):
            return models.in_turn(self.blocks, self.stem(x)).mean(axis=(1, 2))

    Args:
      blocks: nnx modules, or tuples of them with `apply`.
      x: (n, ...), the input of the first block.
      *more: arrays that every block gets, such as a mask.
      apply: a block and its arguments -> its output. It reads no variables but the block's.
    """
    policy, seen = _POLICY.get()
    seen.append(len(blocks))

    def inside(block: Any, x: jax.Array, *more: Any) -> jax.Array:
        token = _POLICY.set(("blocks" if policy == "full" else "none", seen))
        try:
            return apply(block, x, *more)
        finally:
            _POLICY.reset(token)

    for block in blocks:
        x = apply(block, x, *more) if policy == "none" else nnx.remat(inside)(block, x, *more)
    return x
