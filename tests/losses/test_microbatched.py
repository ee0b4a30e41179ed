"""Value, gradient and memory of a batch that is encoded in parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mvcl import losses


@pytest.mark.parametrize("size", [3, 99])  # 7 rows: parts that fill up, or one
def test_value_and_gradient_are_those_of_the_whole_batch(x64, rng, size):
    views = [rng.normal(size=(7, 5)), rng.normal(size=(7, 4))]
    params = [rng.normal(size=(5, 3)), rng.normal(size=(4, 3))]

    def whole(params):
        return losses.mv_dhel(jnp.stack([jnp.tanh(x @ w) for x, w in zip(views, params)]))

    def parts(params):
        encode = [lambda x, w=w: jnp.tanh(x @ w) for w in params]
        return losses.microbatched(losses.mv_dhel, encode, views, size=size)

    found, expected = (jax.jit(jax.value_and_grad(f))(params) for f in (parts, whole))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)


def test_an_nnx_module_takes_the_memory_of_a_part(rng):
    rngs = nnx.Rngs(0)
    net = nnx.Sequential(nnx.Linear(4, 4096, rngs=rngs), jnp.tanh, nnx.Linear(4096, 4, rngs=rngs))
    x = jnp.asarray(rng.normal(size=(2, 256, 4)), jnp.float32)
    graph, state = nnx.split(net)

    def memory(size):
        def loss(state):
            return losses.microbatched(losses.mv_dhel, nnx.merge(graph, state), x, size=size)

        return jax.jit(jax.grad(loss)).lower(state).compile().memory_analysis().temp_size_in_bytes

    assert memory(16) < memory(256) / 2
    slopes = lambda loss: nnx.jit(nnx.value_and_grad(loss))(net)  # noqa: E731
    whole = slopes(lambda net: losses.mv_dhel(jax.vmap(net)(x)))
    found = slopes(lambda net: losses.microbatched(losses.mv_dhel, net, x, size=50))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, whole)
    with pytest.raises(ValueError, match="one of each of 2 views, got 1"):
        losses.microbatched(losses.mv_dhel, [net], x, size=4)
