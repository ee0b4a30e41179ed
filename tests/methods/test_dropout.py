"""Dropout masks change from step to step, with and without microbatches."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import methods, models
from mvcl.methods._method import embed

PIECES = (lambda x: x.reshape(2, -1, *x.shape[1:]), lambda z: z.reshape(-1, z.shape[-1]))


def test_masks_change_from_step_to_step_in_microbatches_too(rng):
    encoder = models.EegConv(channels=4, out=2, dropout=0.5).build((64,), dtype=jnp.float32, rngs=nnx.Rngs(0))
    graph, params, statistics = nnx.split(encoder, nnx.Param, ...)
    views = jnp.asarray(rng.normal(size=(4, 3, 64)), jnp.float32)

    def step(statistics, microbatches):
        module = nnx.merge(graph, params, statistics, copy=True)
        features = embed(module, methods.Batch(views, lambda x: x, microbatches))
        return features, nnx.state(module, nnx.Not(nnx.Param))

    counts = [int(leaf) for leaf in jax.tree.leaves(statistics)]
    for microbatches in (None, PIECES):
        run = jax.jit(lambda statistics, microbatches=microbatches: step(statistics, microbatches))
        first, after = run(statistics)
        assert first.shape == (12, 2)
        assert [int(leaf) - 1 for leaf in jax.tree.leaves(after)] == counts
        np.testing.assert_array_equal(run(statistics)[0], first)
        assert float(jnp.abs(run(after)[0] - first).max()) > 1e-3
