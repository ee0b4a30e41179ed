"""Blocks of a network that are computed again in the backward pass, so that their activations are not kept."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import call
from typing import Any, Literal, TypeVar

import jax
from flax import nnx

Remat = Literal["none", "blocks", "full"]

_POLICY: ContextVar[tuple[Remat, list[int]]] = ContextVar("remat", default=("none", []))

T = TypeVar("T")


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Context in which a variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class NoBlocks(ValueError):
    """`train.remat` met an encoder that does not say its blocks."""


@contextmanager
def rematerialised(policy: Remat) -> Iterator[None]:
    """Context in which networks are traced so that `in_turn` keeps what this policy keeps.

    Raises:
      NoBlocks: at the end, if a policy but `none` met no network with blocks.
    """
    seen: list[int] = []
    with setting(_POLICY, (policy, seen)):
        yield
    if policy != "none" and not seen:
        what = "train.remat must be none for an encoder that does not pass its blocks to models.in_turn"
        raise NoBlocks(f"{what}, got {policy}; ResNet, ConvNet, ViT, EegConv and Transformer do")


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
        with setting(_POLICY, ("blocks" if policy == "full" else "none", seen)):
            return apply(block, x, *more)

    for block in blocks:
        x = apply(block, x, *more) if policy == "none" else nnx.remat(inside)(block, x, *more)
    return x
