"""Encoders against their definitions: shapes, norms, dropout; attention against its formula, with masks."""

import dataclasses
import functools
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from parametrize import some

from mvcl.models import (
    ENCODERS,
    MLP,
    ConvNet,
    EegConv,
    MLPHead,
    ResNet,
    Transformer,
    ViT,
    _layers,
    _remat,
    _vit,
    eval_view,
    parameter_count,
)
from mvcl.models._layers import convolve
from mvcl.models._norms import norm

SMALL = {
    "resnet_cifar": (ResNet(stem="cifar", width=8), (8, 8, 3)),
    "resnet_group": (ResNet(stem="cifar", norm="group", width=8), (8, 8, 3)),
    "vit": (ViT(patch=2, width=24, depth=2, heads=3), (8, 8, 1)),
    "convnet": (ConvNet((8, 16, 24)), (8, 8, 1)),
    "convnet_group": (ConvNet((8, 16, 24), norm="group"), (9, 7, 2)),
    "mlp_batch": (MLP((32, 16), norm="batch"), (4, 4, 1)),
}


def build(name, dtype=jnp.float32):
    config, shape = SMALL[name]
    return config.build(shape, dtype=dtype, rngs=nnx.Rngs(0)), shape


def abstract(config, shape):
    return nnx.eval_shape(lambda: config.build(shape, dtype=jnp.bfloat16, rngs=nnx.Rngs(0)))


# The first four numbers are documented. ResNet-34 and -101: torchvision's published 21,797,672
# and 44,549,160 less the classifiers 512·1000 + 1000 and 2048·1000 + 1000. ViT-Ti: timm's
# vit_tiny_patch16_224 without head. CIFAR stem: 3·3·3·64 kernel entries in place of 7·7·3·64.
@pytest.mark.parametrize(
    ("config", "shape", "expected"),
    [
        (ENCODERS["resnet18"](), (224, 224, 3), 11_176_512),
        pytest.param(ENCODERS["resnet50"](), (224, 224, 3), 23_508_032, marks=pytest.mark.exhaustive),
        pytest.param(ENCODERS["vit_s16"](), (224, 224, 3), 21_665_664, marks=pytest.mark.exhaustive),
        pytest.param(ENCODERS["vit_b16"](), (224, 224, 3), 85_798_656, marks=pytest.mark.exhaustive),
        pytest.param(ResNet(depth=34), (224, 224, 3), 21_797_672 - 513_000, marks=pytest.mark.exhaustive),
        pytest.param(ResNet(depth=101), (224, 224, 3), 44_549_160 - 2_049_000, marks=pytest.mark.exhaustive),
        (ViT(width=192, heads=3), (224, 224, 3), 5_524_416),
        (ENCODERS["resnet18_cifar"](), (32, 32, 3), 11_176_512 - (49 - 9) * 3 * 64),
        (ENCODERS["convnet"](), (8, 8, 1), 9 * (32 + 32 * 64 + 64 * 128) + 2 * (32 + 64 + 128)),
        (ENCODERS["mlp"](), (64,), 64 * 512 + 512 + 512 * 512 + 512),
    ],
)
def test_parameter_count(config, shape, expected):
    module = abstract(config, shape)
    assert parameter_count(module) == expected
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(module, nnx.Param))} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("strided", [True, False])
def test_batch_statistics_of_groups(rng, strided):
    """Each group of rows is normalised on its own; running statistics are the groups' mean."""
    x = np.arange(3).repeat(4)[:, None, None, None] + rng.normal(size=(12, 2, 2, 5))
    x = (0.01 * x).astype(np.float32)  # so that epsilon counts
    one, split = (norm("batch", 5, groups=groups, strided=strided, rngs=nnx.Rngs(0)) for groups in (1, 3))
    for module in (one, split):
        module.scale[...], module.bias[...] = jnp.arange(1.0, 6), jnp.ones(5)
    found = split(x)
    rows = [slice(g, None, 3) if strided else slice(4 * g, 4 * g + 4) for g in range(3)]
    parts = [x[own] for own in rows]
    for own, part in zip(rows, parts, strict=True):
        np.testing.assert_allclose(found[own], one(part), rtol=1e-4, atol=1e-5)
    means, variances = ([f(p.reshape(-1, 5), axis=0) for p in parts] for f in (np.mean, np.var))
    np.testing.assert_allclose(split.mean[...], 0.1 * np.mean(means, axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(split.var[...], 0.9 + 0.1 * np.mean(variances, axis=0), rtol=1e-5)
    nnx.update(one, nnx.state(split))
    np.testing.assert_array_equal(eval_view(split)(x[:2]), eval_view(one)(x[:2]))
    with pytest.raises(ValueError, match="batch_groups must divide the 10 views of a batch, got 3"):
        split(x[:10])


def test_group_norm_by_hand(rng):
    x = 0.01 * rng.normal(size=(2, 3, 3, 16)).astype(np.float32)  # two groups of 8 channels
    split = x.astype(np.float64).reshape(2, 9, 2, 8)
    mean, variance = (f(split, axis=(1, 3), keepdims=True) for f in (np.mean, np.var))
    expected = ((split - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    np.testing.assert_allclose(norm("group", 16, rngs=nnx.Rngs(0))(x), expected, rtol=1e-4, atol=1e-5)


def test_a_resnet_passes_groups_to_every_norm():
    module = abstract(ResNet(width=2, stem="cifar", batch_groups=2), (8, 8, 3))
    norms = [part for _, part in nnx.iter_modules(module) if isinstance(part, nnx.BatchNorm)]
    assert [part.groups for part in norms] == [2] * 20


def test_running_statistics_are_accurate_at_a_large_mean():
    # deviations of 0.01 about 1000: E[x^2] - E[x]^2 loses the variance 1e-4 to rounding
    module = MLP((1, 1), norm="batch").build((1,), dtype=jnp.float32, rngs=nnx.Rngs(0))
    module.linears[0].kernel[...] = jnp.ones((1, 1))
    x = np.float32(1000) + np.float32([[-0.01], [0.01]] * 8)
    module(x)
    np.testing.assert_allclose(module.norms[0].mean[...], 0.1 * np.mean(x, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(module.norms[0].var[...], 0.9 + 0.1 * np.var(x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("name", some(["vit", "convnet", "convnet_group", "mlp_batch"], fast=["mlp_batch"]))
def test_bfloat16_is_close_to_float32(name, rng):
    x = rng.normal(size=(8, *SMALL[name][1])).astype(np.float32)
    single, half = (
        jax.jit(lambda x, d=dtype: build(name, d)[0](x))(x) for dtype in (jnp.float32, jnp.bfloat16)
    )
    assert half.dtype == jnp.float32
    error = np.linalg.norm(half - single) / np.linalg.norm(single)
    assert 1e-5 < error < 0.1  # a smaller error would mean that bfloat16 was not used


@pytest.mark.parametrize(
    "name", some(["resnet_cifar", "vit", "convnet_group", "mlp_batch"], fast=["mlp_batch"])
)
def test_gradients_are_finite_and_reach_every_parameter(name, rng):
    module, shape = build(name, jnp.bfloat16)
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    target = rng.normal(size=module.features).astype(np.float32)

    @jax.jit
    @jax.grad
    def grad(params, x):
        return jnp.sum(nnx.merge(graph, params, rest, copy=True)(x) @ target)

    x = np.stack([np.zeros(shape), np.full(shape, 255.0), rng.normal(size=shape)]).astype(np.float32)
    for path, leaf in nnx.to_flat_state(grad(params, x)):
        assert leaf[...].dtype == jnp.float32
        assert bool(jnp.isfinite(leaf[...]).all()), path
        assert bool((leaf[...] != 0).any()), path
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(grad(params, np.zeros_like(x))))


@pytest.mark.parametrize("window", some([(3, 2), (3, 1), (1, 2), (2, 2), (7, 2)], fast=[(3, 2), (3, 1)]))
@pytest.mark.parametrize("shape", some([(16, 7, 5, 9), (3, 8, 8, 2), (1, 1, 1, 4)], fast=[(16, 7, 5, 9)]))
def test_derivatives_of_the_convolution_equal_xla(window, shape, rng, monkeypatch):
    """Of both modes and of second order, of stacked inputs, of blocks of a batch and of a batch on two devices."""
    monkeypatch.setattr(_layers, "PATCHES", 1)
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    size, stride = window
    x = rng.normal(size=(2, *shape)).astype(np.float32)
    kernel = rng.normal(size=(2, size, size, shape[-1], 6)).astype(np.float32)
    padding = ((size // 2, size // 2),) * 2

    def results(convolve, dtype=jnp.float32):
        def f(x, kernel):
            arrays = x.astype(dtype), kernel.astype(dtype)
            out = convolve(*arrays, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
            return out.astype(jnp.float32)

        def gradient(x, kernel):
            return jax.grad(lambda *of: jnp.sin(f(*of)).sum(), (0, 1))(x, kernel)

        def run(x, kernel):
            return f(x, kernel), gradient(x, kernel), jax.jvp(gradient, (x, kernel), (x, kernel))

        return jax.jit(jax.vmap(run))(x, kernel)

    ours, xla = convolve, jax.lax.conv_general_dilated
    chex.assert_trees_all_close(results(ours), results(xla), rtol=1e-4, atol=1e-3)
    halves = (results(of, jnp.bfloat16)[:2] for of in (ours, xla))
    chex.assert_trees_all_close(*halves, rtol=0.05, atol=0.5)


@pytest.mark.parametrize("channels", [3, 9])
def test_a_convolution_is_computed_where_its_images_are(channels, rng):
    x, kernel = rng.normal(size=(32, 6, 6, channels)), rng.normal(size=(3, 3, channels, 4))
    f = functools.partial(convolve, strides=(2, 2), padding=((1, 1), (1, 1)))
    dimensions = ("NHWC", "HWIO", "NHWC")

    def gradient(x, kernel):
        return jax.grad(lambda *of: jnp.sin(f(*of, dimension_numbers=dimensions)).sum(), (0, 1))(x, kernel)

    mesh = jax.make_mesh((2,), ("data",), (AxisType.Auto,), devices=jax.devices()[:2])
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    shardings = {"in_shardings": (rows, whole), "out_shardings": (rows, whole)}
    split = jax.jit(gradient, **shardings).lower(x, kernel).compile()
    assert "all-gather" not in split.as_text()
    sharded = split(jax.device_put(x, rows), jax.device_put(kernel, whole))
    chex.assert_trees_all_close(sharded, jax.jit(gradient)(x, kernel), rtol=1e-4, atol=1e-4)


def test_zero_init_residual_starts_blocks_as_the_identity(rng):
    x = rng.uniform(size=(2, 8, 8, 8)).astype(np.float32)

    def of_block(zero):
        config = ResNet(stem="cifar", width=8, zero_init_residual=zero)
        return part_of_new(config, (8, 8, 3), lambda module: module.layer1[0](x))

    np.testing.assert_array_equal(of_block(True), x)
    assert float(jnp.abs(of_block(False) - x).max()) > 0.1


def part_of_new(config, shape, part):
    """Part of a new module; compiled, so that only what it needs is drawn."""
    return jax.jit(lambda: part(config.build(shape, dtype=jnp.float32, rngs=nnx.Rngs(0))))()


def uniform(variance_of_three):
    """Deviation and bound."""
    return np.sqrt(variance_of_three / 3), np.sqrt(variance_of_three)


@pytest.mark.parametrize(
    ("config", "shape", "laws"),
    [
        # He's fan-out rule: variance 2 / (9 · 256) for a 3x3 kernel with 256 outputs
        (ConvNet((128, 256)), (8, 8, 1), {"convs.1": (np.sqrt(2 / (9 * 256)), None)}),
        # A normal of deviation 0.02 cut at two deviations has deviation 0.02 · 0.8796.
        (*SMALL["vit"], {"blocks.0.mlp.fc1": (0.01759, 0.04)}),
        # torch.nn.init.kaiming_uniform_ with ReLU's gain, to ±sqrt(6 / fan in): 3x3, 64 to 128 channels
        (ResNet(18, initial="kaiming_uniform"), (32, 32, 3), {"layer2.0.conv1": uniform(6 / (9 * 64))}),
        (  # torch.nn.Conv2d's own law, to ±1/sqrt(fan in), in the stem alone
            ResNet(18, stem="cifar", stem_initial="torch"),
            (32, 32, 3),
            {"conv1": uniform(1 / (9 * 3)), "layer1.0.conv1": (np.sqrt(2 / (9 * 64)), None)},
        ),
        (  # and torch.nn.Conv1d's and Linear's, of biases too
            EegConv(init="torch"),
            (60,),
            {
                "blocks.1.conv": uniform(1 / (2 * 256)),
                "blocks.1.conv.bias": uniform(1 / (2 * 256)),
                "readout": uniform(1 / 64),
            },
        ),
        # Heads, of 256 features: lecun_normal, ViT's normal, torch.nn.init.kaiming_uniform_, torch.nn.Linear's own.
        (MLPHead(hidden=512), 256, {"linears.0": (1 / 16, None)}),
        (MLPHead(hidden=512, init="trunc_normal"), 256, {"linears.0": (0.01759, 0.04)}),
        (MLPHead(hidden=512, init="kaiming_uniform"), 256, {"linears.0": uniform(6 / 256)}),
        (
            MLPHead(hidden=512, init="torch"),
            256,
            {"linears.0": uniform(1 / 256), "linears.0.bias": uniform(1 / 256)},
        ),
        (  # MoCo v3, to ±sqrt(6 / (inputs + outputs)), with queries, keys and values as three maps
            ViT(patch=8, width=64, depth=1, heads=2, init="xavier_uniform"),
            (8, 8, 3),
            {
                "blocks.0.attn.qkv": uniform(6 / (64 + 64)),
                "blocks.0.attn.proj": uniform(6 / (64 + 64)),
                "blocks.0.mlp.fc1": uniform(6 / (64 + 256)),
                "blocks.0.mlp.fc2": uniform(6 / (64 + 256)),
                "patch_embed.proj": uniform(6 / (3 * 8 * 8 + 64)),
            },
        ),
    ],
)
def test_initial_kernels(config, shape, laws):
    def kernels(module):
        flat = {".".join(map(str, path)): v[...] for path, v in nnx.to_flat_state(nnx.state(module))}
        return {name: flat[name if name.endswith(".bias") else f"{name}.kernel"] for name in laws}

    for name, kernel in part_of_new(config, shape, kernels).items():
        deviation, largest = laws[name]
        np.testing.assert_allclose(np.std(kernel), deviation, rtol=0.05)
        if largest is not None:
            assert 0.95 * largest < np.abs(kernel).max() <= largest


def test_fixed_positions_are_sines_and_cosines_of_row_and_column():
    learned = ViT(patch=4, width=16, depth=1, heads=2)
    fixed = dataclasses.replace(learned, positions="sincos", init="xavier_uniform")
    expected = [np.zeros(16)]
    for row, column in np.ndindex(3, 2):
        angles = [[place / 10_000 ** (d / 4) for d in range(4)] for place in (row, column)]
        expected.append(np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)]))
    found, token = part_of_new(fixed, (12, 8, 1), lambda m: (m.pos_embed[...], m.cls_token[...]))
    assert 0 < np.abs(token).max() < 1e-5
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    trained = ["pos_embed" in nnx.state(abstract(vit, (12, 8, 1)), nnx.Param) for vit in (learned, fixed)]
    assert trained == [True, False]


def test_a_frozen_projection_is_no_parameter():
    vit = ViT(patch=4, width=16, depth=1, heads=2)
    configs = (dataclasses.replace(vit, frozen_patches=frozen) for frozen in (False, True))
    free, frozen = (parameter_count(abstract(config, (8, 8, 3))) for config in configs)
    assert free - frozen == 4 * 4 * 3 * 16 + 16


def test_positions_are_interpolated_for_images_of_another_size():
    """Half the size: the mean of the bicubic kernel over pairs of patches; the same size again: as they are."""
    encoder = ViT(patch=4, width=16, depth=1, heads=2).build((32, 32, 3), dtype=jnp.float32, rngs=nnx.Rngs(0))
    whole = encoder.pos_embed[...]
    np.testing.assert_array_equal(_vit.resized(whole, encoder.grid, (8, 8)), whole)
    half = _vit.resized(whole, encoder.grid, (4, 4))
    assert half.shape == (1, 1 + 16, 16)
    np.testing.assert_array_equal(half[:, 0], whole[:, 0])
    grid, small = whole[0, 1:].reshape(8, 8, 16), half[0, 1:].reshape(4, 4, 16)
    # Keys' cubic (a = -1/2) stretched by two, at distances 0.5, 1.5, 2.5 and 3.5 patches from the middle of a pair.
    x = np.array([3.5, 2.5, 1.5, 0.5, 0.5, 1.5, 2.5, 3.5]) / 2
    cubic = np.where(x < 1, 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2)
    weights = np.array([np.pad(cubic, (2 * row, 6 - 2 * row))[3:-3] for row in range(4)])
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(small, np.einsum("ai,bj,ijd->abd", weights, weights, grid), atol=1e-5)
    with pytest.raises(ValueError, match=r"patch must divide .* every view; got 4 for 18x16"):
        encoder(jnp.zeros((1, 18, 16, 3)))


@pytest.mark.parametrize(
    ("config", "shape", "message"),
    [
        (ResNet(norm="group", batch_groups=2), (8, 8, 3), "batch_groups must be 1 with norm group"),
        (ResNet(depth=20), (32, 32, 3), r"depth must be one of 18, 34, 50, 101; got 20"),
        (ResNet(width=0), (32, 32, 3), r"width must be an integer of at least 1; got 0"),
        (ResNet(), (64,), r"input_shape of ResNet must be \(height, width, channels\); got \(64,\)"),
        (ConvNet(()), (8, 8, 1), r"widths must name at least one layer"),
        (ViT(patch=4, width=30, heads=4), (8, 8, 1), r"heads must divide width; got 4 heads for width 30"),
        (
            ViT(patch=4, width=30, heads=3, positions="sincos"),
            (8, 8, 1),
            r"width must be a multiple of 4 with positions sincos; got 30",
        ),
        (MLP(), (), r"input_shape of MLP must have at least one entry; got \(\)"),
        (EegConv(), (3000, 2), r"input_shape of EegConv must be \(time,\) or \(time, 1\).* got \(3000, 2\)"),
        (EegConv(channels=255), (3000,), r"channels must be even.* got 255"),
        (EegConv(dropout=1.0), (3000,), r"dropout must be in \[0, 1\); got 1.0"),
        (EegConv(stretches=4), (90,), r"stretches must be at most the 2 positions of 90 samples; got 4"),
        (MLPHead(init="xavier"), 4, r"init must be one of lecun, .*, kaiming_uniform, torch; got 'xavier'"),
        (MLPHead(layers=0), 16, r"layers must be an integer of at least 1; got 0"),
        (Transformer(), (50,), r"input_shape of Transformer must be \(time, d\); got \(50,\)"),
    ],
)
def test_raises_on_bad_configs(config, shape, message):
    with pytest.raises(ValueError, match=message):
        config.build(shape, dtype=jnp.float32, rngs=nnx.Rngs(0))


def case(rng, tokens, masked, dtype=jnp.float32):
    """Queries, keys, values, and a mask in which the first token is always there."""
    q, k, v = (jnp.asarray(rng.normal(size=(3, tokens, 2, 8)), dtype) for _ in range(3))
    there = np.concatenate([np.ones((3, 1), bool), rng.random((3, tokens - 1)) < 0.6], axis=1)
    return q, k, v, there if masked else None


def formula(q, k, v, there):
    """Of each head: softmax(q k' / sqrt(d)) v, over the tokens that are there."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros_like(v)
    for i, t, h in np.ndindex(*q.shape[:3]):
        weights = np.exp(k[i, :, h] @ q[i, t, h] / np.sqrt(8)) * (1 if there is None else there[i])
        out[i, t, h] = weights @ v[i, :, h] / weights.sum()
    return out


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_attention_is_the_formula(fused, masked, rng, monkeypatch):
    """The arguments of the fused kernel are those of XLA's, which stands for it."""
    arrays, plain = case(rng, 5, masked), jax.nn.dot_product_attention
    monkeypatch.setattr(_vit, "_fused", lambda q: fused)
    attention = lambda *arrays, implementation, **which: plain(*arrays, **which)  # noqa: E731
    monkeypatch.setattr(jax.nn, "dot_product_attention", attention)
    expected = formula(*arrays)
    np.testing.assert_allclose(_vit.attend(*arrays), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(_vit.attend(*arrays, first=2), expected[:, :2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [1, 2])
def test_the_summary_is_that_of_all_tokens(depth, rng, monkeypatch):
    """Values and gradients, though the last block computes one token."""
    config = Transformer(width=8, depth=depth, heads=2, dropout=0.0)
    net = config.build((5, 3), dtype=jnp.float32, rngs=nnx.Rngs(0))
    x = rng.normal(size=(4, 5, 3)).astype(np.float32)
    x[1, 3:] = np.nan
    graph, params = nnx.split(net)

    def both():
        return jax.value_and_grad(lambda params: (nnx.merge(graph, params)(x) ** 2)[:, ::2].sum())(params)

    found = both()
    monkeypatch.setattr(_vit, "_summary", lambda blocks, x, *there: _remat.in_turn(blocks, x, *there)[:, 0])
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, both())


@pytest.mark.parametrize("masked", [False, True])
def test_a_gpu_gets_the_fused_kernel_both_ways(masked, rng, monkeypatch):
    """Lowered for a GPU that is not there: 197 tokens, as a ViT's of 224 pixels."""
    monkeypatch.setattr(_vit, "_fused", lambda q: True)
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    *arrays, there = case(rng, 197, masked, jnp.bfloat16)

    total = lambda *arrays: _vit.attend(*arrays, there).sum().astype(jnp.float32)  # noqa: E731
    text = jax.jit(jax.grad(total, (0, 1, 2))).trace(*arrays).lower(lowering_platforms=("cuda",)).as_text()
    kernel = "fmhaScaleBiasSoftmax" if masked else "fmhaSoftmax"
    assert f"{kernel}(" in text
    assert f"{kernel}Backward(" in text
    assert masked == ("198x198" in text)  # a mask is of pairs of tokens, scores would be of each head


def test_the_fused_kernel_is_for_recent_gpus_and_half_precision(monkeypatch):
    def chosen(capability, dtype, numbers):
        device = type("Device", (), {"compute_capability": capability} if capability else {})()
        monkeypatch.setattr(jax, "devices", lambda: [device])
        return _vit._fused(jax.ShapeDtypeStruct((1, 4, 2, numbers), dtype))

    assert chosen("9.0", jnp.bfloat16, 64)
    assert chosen("8.0", jnp.bfloat16, 32)
    refused = [("7.5", jnp.bfloat16, 64), ("gfx90a", jnp.bfloat16, 64), (None, jnp.bfloat16, 64)]
    refused += [("9.0", jnp.float32, 64), ("9.0", jnp.bfloat16, 12), ("9.0", jnp.bfloat16, 192)]
    assert not any(chosen(*case) for case in refused)
