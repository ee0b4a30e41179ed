"""The one interface between training and a method: pure functions of parameters, statistics and a batch."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
from flax import nnx

from mvcl import models

Params = Any
Statistics = Any
Measures = dict[str, jax.Array]
Inputs = Any  # a pytree of arrays that lead with the n examples


class Network(nnx.Module):
    """An encoder and the head on top of it."""

    def __init__(
        self,
        encoder: models.EncoderConfig,
        head: models.HeadConfig,
        input_shape: tuple[int, ...],
        *,
        dtype: Any,
        rngs: nnx.Rngs,
    ) -> None:
        self.encoder = encoder.build(input_shape, dtype=dtype, rngs=rngs)
        self.head = head.build(self.encoder.features, dtype=dtype, rngs=rngs)


@dataclasses.dataclass(frozen=True)
class Pieces:
    """How a batch is embedded piece by piece.

    Attributes:
      split: inputs of n rows -> (pieces, rows, ...), each piece spread evenly over the devices.
      join: (pieces, rows * m, ...) outputs -> (n * m, ...) in the order of the inputs.
    """

    split: Callable[[Inputs], Inputs]
    join: Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Learner:
    """A method at work on given networks.

    Attributes:
      init: key -> (parameters, statistics): what the gradient moves, and all else that training changes.
      loss: (parameters, statistics, inputs, draw, objective, pieces) -> (loss, (statistics, embeddings, measures)),
        where draw turns inputs into (n, k, ...) views, objective turns (k, n, d) into the loss of the global batch
        and a dict of what else is worth logging, and pieces is None or how the batch is cut.
      features: (parameters, statistics, images, output) -> (n, d) float32 from frozen statistics; output is
        `encoder` or `head`.
      network: (parameters, statistics) -> the network that is evaluated and exported.
    """

    init: Callable[[jax.Array], tuple[Params, Statistics]]
    loss: Callable[..., tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]]
    features: Callable[[Params, Statistics, jax.Array, str], jax.Array]
    network: Callable[[Params, Statistics], Network]


class Method(Protocol):
    """A way of training; its implementations are frozen dataclasses that hold its options."""

    def check(self, encoder: models.EncoderConfig, head: models.HeadConfig, microbatch: int | None) -> None:
        """Raise a `ValueError` about options that do not go together."""

    def build(
        self, encoder: models.EncoderConfig, head: models.HeadConfig, input_shape: tuple[int, ...], dtype: Any
    ) -> Learner:
        """The pure functions for these networks, inputs of this shape and arithmetic of this dtype."""
        ...
