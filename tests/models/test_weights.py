"""Weights of other programs' files, which are written here without PyTorch and read by name."""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from torch_files import Bomb, Parameter, save

from mvcl.models import (
    Autoencoders,
    IdentityHead,
    MLPHead,
    ResNet,
    ViT,
    _convolutional,
    _weights,
    export,
    load_weights,
)


def test_reads_the_tensors_of_a_file_of_pytorch_and_runs_nothing(tmp_path, rng):
    x, mark = rng.normal(size=(4, 6)), tmp_path / "code-was-run"
    double, half = x[1:3, ::2].T, x.astype(np.float16)[:, 3]  # parts of storages, with strides
    brain = x.astype(jnp.bfloat16)
    tree = {
        "state_dict": {"a.weight": double, "b": Parameter(half), "c": brain, "n": np.asarray(7)},
        "epoch": 3,
        "hparams": argparse.Namespace(data="cifar", dist="dp"),
        "optimizer": {"state": {0: {"step": np.ones(()), "bomb": Bomb(mark)}}, "param_groups": [{"lr": 0.1}]},
        "bomb": [Bomb(mark)],
    }
    tree["again"] = tree["state_dict"]  # once
    save(tree, tmp_path / "a.pth")
    found = _weights._read(tmp_path / "a.pth")
    names = ["a.weight", "b", "c", "n"]
    assert [*found] == [*(f"state_dict.{name}" for name in names), "optimizer.state.0.step"]
    for name, expected in zip(names, (double, half, brain, 7)):
        np.testing.assert_array_equal(found[f"state_dict.{name}"], expected)
    assert found["state_dict.c"].dtype == jnp.bfloat16
    assert not mark.exists()


@pytest.fixture
def short(monkeypatch):
    """A ResNet-18 has one block in each stage."""
    monkeypatch.setitem(_convolutional._BLOCKS, 18, (1, 1, 1, 1))


def zeros(make):
    """A module of zeros; drawing its weights would take longer than the test."""
    return fill(nnx.eval_shape(lambda: make(dtype=jnp.float32, rngs=nnx.Rngs(0))), np.zeros)


def build(config, shape=(8, 8, 3)):
    return zeros(partial(config.build, shape))


def fill(module, draw):
    for _, variable in nnx.to_flat_state(nnx.state(module, nnx.Not(nnx.RngState))):
        variable.set_value(jnp.asarray(draw(variable.shape), jnp.float32))
    return module


def tensors_of(module, rng, tmp_path):
    """Random numbers by the names of `export`."""
    export(fill(module, lambda shape: rng.uniform(0.5, 1.5, shape)), IdentityHead(), tmp_path / "names")
    fill(module, np.zeros)
    return load_file(tmp_path / "names")


def numbered(tensors, places):
    """With the names of nn.Sequential: {"linears.0": "0"}."""
    return {
        f"{places[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}": value
        for name, value in tensors.items()
    }


def prefixed(tensors, prefix):
    return {prefix + name: value for name, value in tensors.items()}


RESNET = ResNet(depth=18, stem="cifar", width=2)
PLACES = {"conv1": "0", "bn1": "1", **{f"layer{i}": str(i + 2) for i in range(1, 5)}}
MOCO_V3 = MLPHead(layers=3, hidden=5, out=4, norm="batch", output_norm="batch_plain")


def of_torchvision(encoder, _):
    return encoder | {"fc.weight": np.ones((10, 16)), "fc.bias": np.ones(10)}, {}


def of_dsf_vit(encoder, head):  # main_mocov3_multiview.py; utils/models/mocov3.py, _build_mlp
    places = dict(zip(("linears.0", "norms.0", "linears.1", "norms.1", "linears.2", "norms.2"), "013467"))
    whole = encoder | prefixed(numbered(head, places), "head.")
    predictor = {"0.weight": np.ones((5, 4)), "1.weight": np.ones(5), "3.weight": np.ones((4, 5))}
    tensors = prefixed(whole, "module.base_encoder.") | prefixed(predictor, "module.predictor.")
    other = prefixed({name: 0 * value for name, value in whole.items()}, "module.momentum_encoder.")
    return {"epoch": 100, "arch": "vit_small", "state_dict": other | tensors}, {"prefix": "base_encoder"}


def of_dsf_cifar(encoder, head):  # utils/models/mocov2_cifar.py, ModelBase and ModelMoCo
    moved = {PLACES[name.partition(".")[0]] + "." + name.partition(".")[2]: x for name, x in encoder.items()}
    whole = moved | numbered(head, {"linears.0": "9.0", "linears.1": "9.2"})
    other = prefixed({name: 0 * value for name, value in whole.items()}, "encoder_k.net.")
    return {"state_dict": prefixed(whole, "encoder_q.net.") | other}, {"prefix": "encoder_q.net"}


def of_koromilas(encoder, head):  # models/encoder.py, EncodeProject; models/ssl.py, get_ckpt
    places = {"linears.0": "fc1", "norms.0": "bn1", "linears.1": "fc2", "norms.1": "bn2"}
    projection = numbered(head, places) | {"bn2.bias": np.zeros(6)}
    whole = prefixed(of_torchvision(encoder, head)[0], "convnet.") | prefixed(projection, "projection.")
    hparams = argparse.Namespace(arch="ResNet50")
    return {"state_dict": prefixed(whole, "model.module."), "hparams": hparams}, {}


def of_moco(encoder, head):  # facebookresearch/moco, moco/builder.py
    whole = encoder | numbered(head, {"linears.0": "fc.0", "linears.1": "fc.2"})
    both = prefixed(whole, "module.encoder_q.") | prefixed(whole, "module.encoder_k.")
    return {"state_dict": both}, {"prefix": "module.encoder_q"}


@pytest.mark.parametrize(
    ("config", "head", "layout"),
    [
        (RESNET, IdentityHead(), of_torchvision),
        (RESNET, MLPHead(out=6, norm="batch", output_norm="batch_no_shift"), of_koromilas),
        (RESNET, MLPHead(hidden=7, out=6), of_dsf_cifar),
        (RESNET, MLPHead(hidden=7, out=6), of_moco),
        (
            ViT(patch=4, width=8, depth=1, heads=2, positions="sincos", frozen_patches=True),
            MOCO_V3,
            of_dsf_vit,
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) and not isinstance(value, type) else "",
)
def test_reads_encoder_and_head_by_the_names_of_released_code(config, head, layout, tmp_path, rng, short):
    modules = (encoder := build(config)), (top := build(head, encoder.features))
    ours = [tensors_of(module, rng, tmp_path) for module in modules]
    content, options = layout(*ours)
    save(content, path := tmp_path / "a.pth.tar")
    if options:
        with pytest.raises(ValueError, match=r"under .*; choose one with --prefix, got None"):
            load_weights(encoder, path, head=top)
    found = load_weights(encoder, path, head=top, **options)
    assert found.rstrip(".").endswith(options.get("prefix", ""))
    for module, expected in zip(modules, ours):
        export(module, IdentityHead(), tmp_path / "read")
        found = load_file(tmp_path / "read")
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)


def test_errors_of_names(tmp_path, rng, short):
    encoder, path = build(RESNET), tmp_path / "a.safetensors"
    tensors = tensors_of(encoder, rng, tmp_path)
    save_file(prefixed(tensors, "q.") | prefixed(tensors, "k."), path)
    with pytest.raises(ValueError, match=r"has this encoder under (q, k|k, q); .* got 'z'"):
        load_weights(encoder, path, prefix="z")
    with pytest.raises(ValueError, match=r"the head needs its layers, \(16, 16\), \(16, 128\); .*has none"):
        load_weights(encoder, path, prefix="q", head=build(MLPHead(), 16))
    without_layers = build(IdentityHead(), 16)
    assert load_weights(encoder, path, prefix="q.", head=without_layers) == "q."
    fill(encoder, np.zeros)
    save_file(prefixed(tensors, "q.") | {"q.layer1.1.conv1.weight": np.ones(1)}, path)
    with pytest.raises(ValueError, match=r"has \['q.layer1.1.conv1.weight'\] too"):
        load_weights(encoder, path)
    save_file(prefixed({n: x for n, x in tensors.items() if n != "bn1.bias"}, "q."), path)
    with pytest.raises(ValueError, match=r"lacks \['bn1.bias'\]"):
        load_weights(encoder, path)
    assert not np.any(encoder.conv1.kernel[...])  # nothing was changed
    vit = ViT(patch=4, width=8, depth=1, heads=2)
    tensors = tensors_of(build(vit), rng, tmp_path)
    save_file(tensors, path)
    load_weights(encoder := build(vit, (12, 12, 3)), path)  # positions of 2 x 2 patches for 3 x 3
    patches = jax.image.resize(tensors["pos_embed"][0, 1:].reshape(2, 2, 8), (3, 3, 8), "bicubic")
    np.testing.assert_allclose(encoder.pos_embed[0, 1:].reshape(3, 3, 8), patches, rtol=1e-6)


_VIT = """embeddings.cls_token embeddings.position_embeddings embeddings.patch_embeddings.projection encoder.layer.
    attention.attention.query attention.attention.key attention.attention.value attention.output.dense
    intermediate.dense output.dense layernorm_before layernorm_after layernorm"""
_CLIP = """embeddings.class_embedding embeddings.position_embedding.weight embeddings.patch_embedding encoder.layers.
    self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj
    mlp.fc1 mlp.fc2 layer_norm1 layer_norm2 post_layernorm"""
_DINO = _VIT.replace(
    "intermediate.dense output.dense layernorm_before layernorm_after", "mlp.fc1 mlp.fc2 norm1 norm2"
)


def published_vit(names, rng, width=8):
    """Random tensors by Hugging Face's names, and the features that they give to one image."""
    token, positions, patch, layer, *qkv, out, fc1, fc2, norm1, norm2, last = names.split()
    clip, dino, tensors = names == _CLIP, names == _DINO, {}

    def draw(name, *shape):
        return tensors.setdefault(name, rng.normal(size=shape).astype(np.float32))

    def linear(x, name, outputs=width):
        return x @ draw(f"{name}.weight", outputs, x.shape[-1]).T + draw(f"{name}.bias", outputs)

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * draw(f"{name}.weight", width) + draw(f"{name}.bias", width)

    image, kernel = rng.normal(size=(8, 8, 3)).astype(np.float32), draw(f"{patch}.weight", width, 3, 4, 4)
    parts = [np.einsum("ochw,hwc->o", kernel, image[i : i + 4, j : j + 4]) for i in (0, 4) for j in (0, 4)]
    bias = 0 if clip else draw(f"{patch}.bias", width)
    x = np.array([draw(token, *(1, 1)[2 * clip :], width).reshape(-1), *[part + bias for part in parts]])
    x = x + draw(positions, *(1,)[clip:], 5, width).reshape(5, width)
    x = norm(x, "pre_layrnorm") if clip else x
    for at in (f"{layer}0.", f"{layer}1."):
        q, k, v = (linear(norm(x, at + norm1), at + name).reshape(5, 2, 4) for name in qkv)
        shares = np.asarray(jax.nn.softmax(np.einsum("qhd,khd->hqk", q, k) / 2, axis=-1))
        added = linear(np.einsum("hqk,khd->qhd", shares, v).reshape(5, width), at + out)
        x = x + added * (draw(f"{at}layer_scale1.lambda1", width) if dino else 1)
        h = linear(norm(x, at + norm2), at + fc1, 4 * width)
        h = h / (1 + np.exp(-1.702 * h)) if clip else np.asarray(jax.nn.gelu(h, approximate=False))
        x = x + linear(h, at + fc2) * (draw(f"{at}layer_scale2.lambda1", width) if dino else 1)
    return tensors, image, norm(x[0], last)


@pytest.mark.parametrize("names", [_VIT, _CLIP, _DINO], ids=["vit", "clip", "dinov2"])
def test_vision_transformers_of_hugging_face(names, tmp_path, rng):
    tensors, image, expected = published_vit(names, rng)
    np.savez(tmp_path / "a.npz", **prefixed(tensors, "tower."))
    clip = {"pre_norm": True, "activation": "quick_gelu"} if names == _CLIP else {}
    encoder = build(ViT(patch=4, width=8, depth=2, heads=2, **clip))
    assert load_weights(encoder, tmp_path / "a.npz") == "tower."
    np.testing.assert_allclose(encoder(image[None])[0], expected, rtol=2e-4, atol=2e-5)
    if clip:
        with pytest.raises(ValueError, match="has a norm before the blocks"):
            load_weights(build(ViT(patch=4, width=8, depth=2, heads=2)), tmp_path / "a.npz")


def test_the_released_autoencoders_of_sem(tmp_path, rng):
    """As network.py names them: an encoder and a decoder of four layers, ReLU between them, and an embedding."""
    make, tensors = partial(Autoencoders, (3, 5), (6, 7, 4), 2, 3), {}
    network = fill(zeros(make), lambda shape: rng.normal(size=shape))
    net = jax.tree.map(np.array, nnx.to_pure_dict(nnx.state(network)))
    for v in range(2):
        of_view = partial(jax.tree.map, lambda stacked, v=v: stacked[v])
        inner = {part: list(of_view(net[part]["rest"]).values()) for part in ("encoder", "decoder")}
        layers = {
            f"encoders.{v}.encoder": [net["encoder"]["first"][v], *inner["encoder"]],
            f"decoders.{v}.decoder": [*inner["decoder"], net["decoder"]["last"][v]],
            f"feature_contrastive_modules.{v}": [of_view(net["head"])],
        }
        for name, of in layers.items():
            tensors |= {f"{name}.{2 * i}.weight": layer["kernel"].T for i, layer in enumerate(of)}
            tensors |= {f"{name}.{2 * i}.bias": layer["bias"] for i, layer in enumerate(of)}
    save(tensors, tmp_path / "Caltech.pth")
    read = zeros(make)
    assert load_weights(read, tmp_path / "Caltech.pth") == ""
    jax.tree.map(np.testing.assert_array_equal, nnx.to_pure_dict(nnx.state(read)), net)
