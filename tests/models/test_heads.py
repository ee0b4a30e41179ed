import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from test_export import gelu, relu

from mvcl.models import HEADS, MLPHead


def head(config, features, dtype=jnp.float32):
    return config.build(features, dtype=dtype, rngs=nnx.Rngs(0))


def unit(x):
    return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)


def layer(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)


# A new head: scales are 1, shifts and biases 0. w: the linear layers' kernels.
@pytest.mark.parametrize(
    ("config", "by_hand"),
    [
        (HEADS["koromilas"](), lambda x, w: unit(relu(unit(x @ w[0])) @ w[1])),
        (
            dataclasses.replace(HEADS["piran"](), hidden=24, out=8),
            lambda x, w: gelu(layer(x @ w[0])) @ w[1],
        ),
        (HEADS["moco_v2"](), lambda x, w: relu(x @ w[0]) @ w[1]),
        (
            MLPHead(layers=3, hidden=24, out=8, norm="batch", output_norm="batch_plain"),
            lambda x, w: unit(relu(unit(relu(unit(x @ w[0])) @ w[1])) @ w[2]),
        ),
        (MLPHead(hidden=24, out=8, norm="batch"), lambda x, w: relu(unit(x @ w[0])) @ w[1]),
        (MLPHead(layers=1, out=8), lambda x, w: x @ w[0]),
        (HEADS["none"](), lambda x, w: x),
    ],
)
def test_forward_by_hand(config, by_hand, rng):
    x = rng.normal(size=(32, 16)).astype(np.float32)

    @jax.jit
    def run(x):
        module = head(config, 16)
        return module(x), [linear.kernel[...] for linear in module.linears]

    found, kernels = run(x)
    expected = by_hand(x.astype(np.float64), [np.float64(kernel) for kernel in kernels])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_raises_on_bad_configs():
    kinds = "lecun, trunc_normal, kaiming_uniform, torch"
    with pytest.raises(ValueError, match=f"init must be one of {kinds}; got 'xavier'"):
        head(MLPHead(init="xavier"), 4)
    with pytest.raises(ValueError, match="layers must be an integer of at least 1; got 0"):
        head(MLPHead(layers=0), 16)
