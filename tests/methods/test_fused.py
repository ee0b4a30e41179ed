"""Fusion of any subset of views: against a fusion of all tokens under a mask, for any k, with missing views."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from test_methods import N, loss_of, setting

from mvcl import augment, losses, methods, models

SHAPES = ((5,), (4, 3), (4, 4, 1), (2,), (6,), (3,))
FUSION = models.Transformer(width=8, depth=1, heads=2, dropout=0.0)
HEAD = models.MLPHead(layers=1, out=3)
MASKED = partial(methods.Fused, fusion=FUSION, tokens=2, maskings=2, masked=0.5)


def started(objective, k, rng, **options):
    """Learner, parameters and statistics, and inputs of which views are missing."""
    spec = setting(objective, SHAPES[:k], encoder=models.MLP(widths=(6,)), head=HEAD)
    learner = MASKED(**options).build(spec)
    params, statistics = jax.jit(learner.init)(jax.random.key(1))
    views = tuple(rng.normal(size=(N, *shape)).astype(np.float32) for shape in SHAPES[:k])
    present = rng.random((N, k)) < 0.6
    present[0], present[1:, 0] = True, True
    count = {"epoch": np.zeros(N, np.int32), "index": np.arange(N, dtype=np.int32)}
    return learner, params, statistics, {"views": views, "present": present, **count}


class Unplaced(nnx.Module):
    """A fusion that knows missing tokens, and no positions."""

    def __init__(self, network):
        self.network, self.features = network, network.features

    def __call__(self, x):
        return self.network(x)


def test_a_fusion_without_positions_takes_each_view_alone(rng):
    learner, params, statistics, _ = started(losses.comm, 3, rng)
    networks, x = learner.network(params, statistics), rng.normal(size=(N, 3, 2, 3)).astype(np.float32)
    alone = networks.alone(x)
    networks.fusion = Unplaced(networks.fusion)
    np.testing.assert_allclose(networks.alone(x), alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [2, pytest.param(6, marks=pytest.mark.exhaustive)])
def test_comm_of_every_view_alone_and_of_all_that_are_there(rng, k):
    """Embeddings are those of the tokens that are there without any mask. What is missing is never read."""
    learner, params, statistics, inputs = started(losses.comm, k, rng, augmentation=None)
    loss, present = loss_of(learner, losses.comm), inputs["present"]
    mask = np.concatenate([present.T, np.ones((1, N), bool)] * 2)

    def alone(nets, tokens, which):
        """The class token after attention to some tokens only."""
        net, which = nets.fusion, np.flatnonzero(which)
        x = net.embed(tokens[:, which]) + net.pos_embed[...][:, which]
        x = jnp.concatenate([jnp.broadcast_to(net.cls_token[...], (len(x), 1, 8)), x], axis=1)
        return nets.head(net.norm(net.blocks[0](x)[:, 0]))

    @jax.jit
    def both(params, inputs):
        (value, (_, z, _)), gradient = jax.value_and_grad(loss, has_aux=True)(params, statistics, inputs)
        nets = learner.network(params, statistics)
        tokens = [e(x).reshape(N, 2, 3) for e, x in zip(nets.encoder, inputs["views"])]
        tokens = jnp.concatenate(tokens, axis=1)
        each = [alone(nets, tokens, np.repeat(np.eye(k)[l], 2)) for l in range(k)]
        rows = [alone(nets, tokens[i : i + 1], np.repeat(here, 2)) for i, here in enumerate(present)]
        every = [*each, jnp.concatenate(rows)]
        return value, z, gradient, losses.comm(jnp.stack(every * 2), mask=mask), every

    value, z, gradient, expected, every = both(params, inputs)
    np.testing.assert_allclose(z, every[:k], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert all(np.any(g) for g in jax.tree.leaves(gradient))
    pairs = zip(inputs["views"], present.T)
    far = tuple(np.where(here.reshape(-1, *[1] * (x.ndim - 1)), x, np.float32(9)) for x, here in pairs)
    np.testing.assert_allclose(both(params, {**inputs, "views": far})[0], value, rtol=1e-6)
    given = {name: inputs[name] for name in ("views", "present")}
    for output, width in [("encoder", 8), ("head", 3), ("views", 8 * k), ("head_views", 3 * k)]:
        shape = jax.eval_shape(lambda x, of=output: learner.features(params, statistics, x, of), given).shape
        assert shape == (N, width)


@pytest.mark.exhaustive
def test_inf_masking_grows_with_the_run(rng):
    learner, params, statistics, inputs = started(losses.inf_masking, 2, rng, ratio=1000.0)
    loss = loss_of(learner, losses.inf_masking)
    later = learner.after(params, statistics, jnp.float32(0.5))
    assert loss(params, statistics, inputs)[0] < loss(params, later, inputs)[0] - 2e-5


def test_other_objectives_compare_the_views(rng):
    pairs = losses.all_pairs(losses.info_nce)
    learner, params, statistics, inputs = started(pairs, 2, rng)
    value, (_, z, _) = loss_of(learner, pairs)(params, statistics, inputs)
    np.testing.assert_allclose(value, pairs(z, mask=inputs["present"].T), rtol=1e-5)
    with pytest.raises(ValueError, match=r"method.tokens must divide 6, .* got 4; for example 2"):
        methods.Fused().build(setting(encoder=models.MLP(widths=(6,))))


def test_without_a_network_views_are_fused_by_their_mean(rng):
    learner, params, statistics, inputs = started(losses.comm, 3, rng, augmentation=None, fusion=None)
    nets, present = learner.network(params, statistics), inputs["present"]
    z = np.stack([e(x) for e, x in zip(nets.encoder, inputs["views"])])
    whole = np.stack([z[here, i].mean(0) for i, here in enumerate(present)])
    given = {name: inputs[name] for name in ("views", "present")}
    found = learner.features(params, statistics, given, "encoder")
    np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-5)
    every = [nets.head(x) for x in (*z, whole)]
    mask = np.concatenate([present.T, np.ones((1, N), bool)] * 2)
    value = loss_of(learner, losses.comm)(params, statistics, inputs)[0]
    np.testing.assert_allclose(value, losses.comm(jnp.stack(every * 2), mask=mask), rtol=1e-4)


def test_encoders_of_other_widths_have_a_linear_layer_each(rng):
    encoders = models.MLP(widths=(12,)), models.MLP(widths=(8,))
    learner = methods.Fused(encoders=encoders, fusion=FUSION).build(setting(shapes=((4,), (3,))))
    params, statistics = learner.init(jax.random.key(0))
    assert [params["adapter"][i]["kernel"].shape for i in range(2)] == [(12, 12), (8, 12)]
    views = tuple(rng.normal(size=(5, d)).astype(np.float32) for d in (4, 3))
    alone = {"views": (views[0], np.full_like(views[1], 9)), "present": np.eye(2, dtype=bool)[[0] * 5]}
    both = jax.jit(lambda views: learner.features(params, statistics, views, "views"))({"views": views})
    one = jax.jit(lambda inputs: learner.features(params, statistics, inputs, "encoder"))(alone)
    np.testing.assert_allclose(one, both[:, :8], rtol=1e-5, atol=1e-6)


def test_augmentation_is_by_kind(rng):
    change = augment.ByKind(masked=0.3, noise=0.5, crop=0.5)
    draw = jax.jit(lambda key, *views: [change(key, x) for x in views])
    time = np.broadcast_to(np.arange(9.0, dtype=np.float32)[None, :, None], (400, 9, 2)).copy()
    time[:, 6:] = np.nan
    table, sequence, image = draw(jax.random.key(0), jnp.zeros((400, 50)), time, rng.random((3, 8, 8, 1)))
    np.testing.assert_allclose(np.mean(table == 0), 0.3, atol=0.02)
    np.testing.assert_allclose(np.std(table), 0.5 * np.sqrt(0.7), atol=0.02)
    assert np.isnan(sequence[:, 6:]).all()
    first, last = sequence[:, 0, 0], sequence[:, 5, 0]
    assert (first >= 0).all()
    assert (last <= 5 + 1e-5).all()
    # a share of 0.5 to 1 of the five steps
    np.testing.assert_allclose(np.mean(last - first), 5 * 0.75, atol=0.1)
    np.testing.assert_allclose(sequence[:, 2, 0], first + (last - first) * 2 / 5, rtol=1e-4, atol=1e-4)
    assert image.shape == (3, 8, 8, 1)
