"""Normalisations, and the rows of a padded batch that their statistics count."""

import math
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl.models import _remat

NORM_EPS = {"batch": 1e-5, "group": 1e-5, "layer": 1e-6}
"""What each norm adds to the variance: PyTorch's defaults, and of layer norm that of timm's ViT and MoCo v3's."""
RUNNING_DECAY = 0.9
"""Share of its running statistics that batch normalisation keeps in a step; PyTorch's `momentum` is 1 - this."""

# Of a batch whose last rows only make it divide over the devices: examples that count, and rows.
_COUNTED: ContextVar[tuple[int, int] | None] = ContextVar("counted", default=None)


def counted(examples: int, rows: int) -> AbstractContextManager[None]:
    """Context in which batch statistics are of the first so many examples of a batch of `rows`."""
    return _remat.setting(_COUNTED, (examples, rows))


class BatchNorm(nnx.BatchNorm):
    """Batch normalisation of the rows that are `counted`, which are in the order of the examples."""

    def __call__(self, x: jax.Array, use_running_average: bool | None = None, **options: Any) -> jax.Array:
        if (found := _COUNTED.get()) is not None:
            each = x.shape[0] // found[1]  # rows of an example
            counts = np.arange(x.shape[0]) < each * found[0]
            # The barrier keeps XLA from computing the mask's sums over pixels and channels while it compiles.
            options["mask"] = jax.lax.optimization_barrier(counts.reshape((-1, *(1,) * (x.ndim - 1))))
        return super().__call__(x, use_running_average, **options)


def counts_rows(module: nnx.Module) -> bool:
    """Whether all batch statistics in a network are of the rows that are `counted`."""
    parts = [part for _, part in nnx.iter_modules(module)]
    known = sum(2 for part in parts if isinstance(part, BatchNorm))
    return known == len(jax.tree.leaves(nnx.state(module, nnx.BatchStat)))


def norm(
    kind: str,
    features: int,
    *,
    zero_init: bool = False,
    groups: int = 1,
    strided: bool = True,
    rngs: nnx.Rngs,
) -> Any:
    """A normalisation that computes and returns float32 for every encoder dtype; None of kind `none`.

    Otherwise flax would round running statistics to bfloat16. E[x^2] - E[x]^2 would cancel for a large mean.

    batch: with more `groups` it is `SplitBatchNorm`. `batch_no_shift` and `batch_plain` have no shift, and no shift and
    no scale. group (Wu & He 2018): gcd(features, 256) / 8 groups, at least 1, so that two channels at 1x1, in the last
    stage on a small image, are not normalised to their sign; `pairs`: of two features each.
    """
    if kind == "none":
        return None
    shared: dict[str, Any] = {"dtype": jnp.float32, "use_fast_variance": False, "rngs": rngs}
    if kind == "layer":
        return nnx.LayerNorm(features, epsilon=NORM_EPS[kind], **shared)
    scale_init = nnx.initializers.zeros_init() if zero_init else nnx.initializers.ones_init()
    parts = {"group": max(1, math.gcd(features, 256) // 8), "pairs": features // 2}.get(kind)
    shared |= {"epsilon": NORM_EPS["group" if parts else "batch"], "scale_init": scale_init}
    if parts:
        return nnx.GroupNorm(features, num_groups=parts, **shared)
    shared |= {"momentum": RUNNING_DECAY, "use_scale": kind != "batch_plain", "use_bias": kind == "batch"}
    if groups > 1:
        return SplitBatchNorm(features, groups, strided, **shared)
    return BatchNorm(features, **shared)


class SplitBatchNorm(nnx.BatchNorm):
    """Batch normalisation with statistics of each group of rows; the running ones are the groups' mean.

    Strided, group g has the rows g, g + groups, ..., as the SplitBatchNorm of MoCo's code. Otherwise a group is of
    consecutive rows: with as many groups as devices, BatchNorm without synchronisation.
    """

    def __init__(self, features: int, groups: int, strided: bool, **options: Any) -> None:
        super().__init__(features, **options)
        self.groups, self.strided = groups, strided

    def __call__(self, x: jax.Array, use_running_average: bool | None = None, **options: Any) -> jax.Array:
        """Normalise (n, ..., features); raise `ValueError` if in train mode n is not a multiple of the groups."""
        if self.use_running_average if use_running_average is None else use_running_average:
            return super().__call__(x, use_running_average=True, **options)
        if x.shape[0] % self.groups:
            raise ValueError(f"batch_groups must divide the {x.shape[0]} views of a batch, got {self.groups}")
        rows, own = ((-1, self.groups), (0, 2)) if self.strided else ((self.groups, -1), (1, 2))
        split = x.astype(jnp.float32).reshape((*rows, math.prod(x.shape[1:-1]), x.shape[-1]))
        mean = split.mean(own, keepdims=True)
        variance = jnp.mean((split - mean) ** 2, axis=own, keepdims=True)
        for running, found in ((self.mean, mean), (self.var, variance)):
            running[...] = self.momentum * running[...] + (1 - self.momentum) * found.mean((0, 1, 2))
        z = (split - mean) * jax.lax.rsqrt(variance + self.epsilon)
        z = z if self.scale is None else z * self.scale[...][None, None, None]
        return (z if self.bias is None else z + self.bias[...][None, None, None]).reshape(x.shape)
