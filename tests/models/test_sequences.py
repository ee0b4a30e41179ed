"""The EEG network, the transformer over feature sequences, and the dropout of both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mvcl.models import EegConv, Transformer, advance_dropout
from mvcl.models._layers import Dropout

EEG = EegConv(channels=6, out=4, dropout=0.5)
TEXT = Transformer(width=8, depth=2, heads=2, dropout=0.5)


def build(config, shape):
    return config.build(shape, dtype=jnp.float32, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(("config", "shape"), [(EEG, (64,)), (TEXT, (7, 3))])
def test_dropout_is_a_function_of_the_statistics_and_missing_views_have_finite_gradients(rng, config, shape):
    graph, params, rest = nnx.split(build(config, shape), nnx.Param, ...)

    @jax.jit
    def step(rest, x):
        def loss(params):
            module = nnx.merge(graph, params, rest, copy=True)
            z = module(x)
            return jnp.sum(z**3), (z, nnx.state(module, nnx.Not(nnx.Param)))

        gradient, (z, after) = jax.grad(loss, has_aux=True)(params)
        return z, after, gradient

    x = rng.normal(size=(4, *shape)).astype(np.float32)
    first, after, _ = step(rest, x)
    np.testing.assert_array_equal(first, step(rest, x)[0])
    second = step(after, x)[0]
    assert float(jnp.abs(first - second).max()) > 1e-3  # the next step has other masks
    module = nnx.merge(graph, params, rest, copy=True)
    advance_dropout(module)
    np.testing.assert_array_equal(step(nnx.state(module, nnx.Not(nnx.Param)), x)[0], second)
    leaves = jax.tree.leaves(rest)
    assert {(leaf.shape, leaf.dtype) for leaf in leaves} == {((), jnp.dtype("uint32"))}
    assert len({int(leaf) for leaf in leaves}) == len(leaves)  # all layers have different masks
    x[0], x[1, 2] = np.nan, np.nan
    for path, leaf in nnx.to_flat_state(step(rest, x)[2]):
        assert np.isfinite(leaf[...]).all(), path


def test_dropout_keeps_the_mean_and_drops_whole_maps():
    layer = Dropout(0.25, broadcast_dims=(1,), rngs=nnx.Rngs(3))
    out = np.asarray(layer(jnp.ones((40, 5, 100))))
    assert set(np.unique(out)) == {0, np.float32(1 / 0.75)}
    assert (out == out[:, :1]).all()
    # 4000 draws: the share of zeros deviates by sqrt(0.25·0.75/4000) = 0.007
    assert abs((out[:, 0] == 0).mean() - 0.25) < 4 * 0.007
    assert not nnx.state(Dropout(0.0, rngs=nnx.Rngs(3)))
