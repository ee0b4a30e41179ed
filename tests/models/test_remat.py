"""Recomputed blocks: the same function, gradient, running statistics and dropout masks, in less memory."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.extend.core import jaxprs_in_params
from parametrize import some

from mvcl import models

POLICIES = ("none", "blocks", "full")
NETWORKS = {
    "resnet18": (models.ResNet(18, width=8), (32, 32, 3)),
    "resnet50": (models.ResNet(50, stem="cifar", width=4, batch_groups=2), (8, 8, 3)),
    "convnet": (models.ConvNet((4, 8, 8)), (8, 8, 1)),
    "vit": (models.ViT(patch=4, width=16, depth=4, heads=2), (8, 8, 3)),
    "eeg": (models.EegConv(channels=8, out=8), (200,)),
    "transformer": (models.Transformer(width=16, depth=2, heads=2), (6, 5)),
}


class Own(nnx.Module):
    """A user's encoder, whose blocks are in a list."""

    def __init__(self, rngs):
        self.features = 6
        self.blocks = nnx.List([nnx.Linear(6, 6, rngs=rngs) for _ in range(5)])

    def __call__(self, x):
        return models.in_turn(self.blocks, x, apply=lambda block, x: jnp.tanh(block(x)))


def gradient(network, policy):
    """(parameters, statistics, x) -> value, gradient and statistics after it; with the network's parts."""
    graph, params, rest = nnx.split(network, nnx.Param, ...)

    def loss(params, rest, x):
        net = nnx.merge(graph, params, rest, copy=True)
        with models.rematerialised(policy):
            z = net(x)
        return jnp.sin(z).sum(), (z, nnx.state(net, nnx.Not(nnx.Param)))

    return jax.jit(jax.value_and_grad(loss, has_aux=True)), params, rest


def built(name):
    config, shape = NETWORKS[name]
    return config.build(shape, dtype=jnp.float32, rngs=nnx.Rngs(0)), shape


@pytest.mark.parametrize("name", some([*NETWORKS, "own"], fast=["convnet", "transformer", "own"]))
def test_value_gradient_and_statistics_are_those_of_one_pass(name, rng):
    network, shape = (Own(nnx.Rngs(0)), (6,)) if name == "own" else built(name)
    x = rng.normal(size=(4, *shape)).astype(np.float32)
    if name == "transformer":
        x[0, 4:] = np.nan
    expected, *found = (f(params, rest, x) for f, params, rest in map(partial(gradient, network), POLICIES))
    for each in found:
        chex.assert_trees_all_close(each, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", some(["vit", "resnet18", "eeg"], fast=["vit"]))
def test_extra_products_are_a_pass_and_of_all_but_a_last_layer_another(name):
    network, shape = built(name)
    x = jax.ShapeDtypeStruct((4, *shape), jnp.float32)
    programs = map(partial(gradient, network), POLICIES)
    counts = [products(jax.make_jaxpr(f)(*of, x).jaxpr) for f, *of in programs]
    # Products whose result the gradient needs, and those of the layers that are not the last of a block.
    extra = {"vit": (4 * 5, 4 * 3), "resnet18": (20, 8), "eeg": (6, 0)}[name]
    assert [count - counts[0] for count in counts] == [0, extra[0], sum(extra)]


def products(jaxpr):
    own = sum(e.primitive.name in ("conv_general_dilated", "dot_general") for e in jaxpr.eqns)
    return own + sum(products(inner) for e in jaxpr.eqns for inner in jaxprs_in_params(e.params))
