import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import nnx

from mvcl.models import HEADS, MLPHead, parameter_count


def head(config, features, dtype=jnp.float32):
    return config.build(features, dtype=dtype, rngs=nnx.Rngs(0))


# Counts by hand from each paper's description, for 512 features.
@pytest.mark.parametrize(
    ("name", "features", "parameters"),
    [
        ("koromilas", 128, 512 * 512 + 2 * 512 + 512 * 128 + 128),
        ("piran", 256, 512 * 4096 + 3 * 4096 + 4096 * 256 + 256),
        ("moco_v2", 128, 512 * 512 + 512 + 512 * 128 + 128),
        ("moco_v3", 256, 512 * 4096 + 2 * 4096 + 4096 * 4096 + 2 * 4096 + 4096 * 256),
        ("byol", 256, 512 * 4096 + 2 * 4096 + 4096 * 256 + 256),
        ("mlp", 128, 512 * 512 + 512 + 512 * 128 + 128),
        ("none", 512, 0),
    ],
)
def test_sizes(name, features, parameters):
    module = nnx.eval_shape(lambda: head(HEADS[name](), 512))
    assert module.features == features
    assert parameter_count(module) == parameters


def unit(x):
    return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)


def layer(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)


def gelu(x):
    return x * 0.5 * (1 + scipy.special.erf(x / np.sqrt(2)))


def relu(x):
    return np.maximum(x, 0)


# A new head: scales are 1, shifts and biases 0. w: the linear layers' kernels.
@pytest.mark.parametrize(
    ("config", "by_hand"),
    [
        (HEADS["koromilas"](), lambda x, w: unit(relu(unit(x @ w[0])) @ w[1])),
        (HEADS["piran"](), lambda x, w: gelu(layer(x @ w[0])) @ w[1]),
        (MLPHead(hidden=24, out=8, activation="gelu"), lambda x, w: gelu(x @ w[0]) @ w[1]),
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
    module = head(config, 16)
    kernels = [np.asarray(linear.kernel[...], np.float64) for linear in getattr(module, "linears", [])]
    expected = by_hand(x.astype(np.float64), kernels)
    np.testing.assert_allclose(module(x), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_initial_weights_of_vit():
    kernel = np.asarray(head(MLPHead(hidden=512, init="trunc_normal"), 256).linears[0].kernel[...])
    assert np.abs(kernel).max() <= 0.04 + 1e-6  # cut off at two deviations
    np.testing.assert_allclose(kernel.std(), 0.02, rtol=0.2)
    assert np.asarray(head(MLPHead(hidden=512), 256).linears[0].kernel[...]).std() > 0.05
    with pytest.raises(ValueError, match="init must be one of lecun, trunc_normal; got 'xavier'"):
        head(MLPHead(init="xavier"), 4)


def test_output_norms_have_the_papers_parameters():
    def leaves(kind):
        return sorted(nnx.state(head(MLPHead(out=4, output_norm=kind), 8).norms[1], nnx.Param))

    assert leaves("batch") == ["bias", "scale"]
    assert leaves("batch_no_shift") == ["scale"]
    assert leaves("batch_plain") == []


@pytest.mark.parametrize("name", ["koromilas", "moco_v2", "none"])
def test_bfloat16_heads_return_float32(name, rng):
    x = rng.normal(size=(32, 16)).astype(np.float32)
    single, half = (head(HEADS[name](), 16, dtype)(x) for dtype in (jnp.float32, jnp.bfloat16))
    assert half.dtype == jnp.float32
    assert np.linalg.norm(half - single) < 0.03 * np.linalg.norm(single)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MLPHead(layers=0), r"layers must be an integer of at least 1; got 0"),
        (MLPHead(hidden=0), r"hidden must be an integer of at least 1; got 0"),
        (MLPHead(activation="tanh"), r"activation must be one of relu, gelu; got 'tanh'"),
        (MLPHead(norm="group"), r"norm must be one of none, batch, layer; got 'group'"),
        (
            MLPHead(output_norm="l2"),
            r"output_norm must be one of none, batch, batch_no_shift, batch_plain; got 'l2'",
        ),
    ],
)
def test_raises_on_bad_configs(config, message):
    with pytest.raises(ValueError, match=message):
        head(config, 16)
