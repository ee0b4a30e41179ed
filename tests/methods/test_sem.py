"""SEM against its formulas in numpy loops, and its schedule."""

import dataclasses
from functools import cache

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from parametrize import some
from test_methods import draw, setting

from mvcl import losses, methods, metrics, models
from mvcl.methods import _sem

WIDTHS, N = (5, 3, 4), 12
LAM = 0.5
PAPER = dict(zip(_sem._TRAINING, _sem._PAPER))
SMALL = methods.Sem(
    pretrain_epochs=2, update_epochs=3, hidden=(6,), features=4, embedding=3, clusters=2, lam=LAM, **PAPER
)


OBJECTIVE = losses.all_pairs(losses.nt_xent, None, "all", "sum")
NETWORKS = {"encoder": models.MLP(), "head": models.IdentityHead()}
SPECIFICATION = setting(OBJECTIVE, tuple((w,) for w in WIDTHS), examples=N, classes=2, **NETWORKS)


@cache
def build(method=SMALL):
    return method.build(SPECIFICATION)


def batch(rng, epoch=2, present=None):
    views = tuple(rng.normal(size=(N, w)).astype(np.float32) for w in WIDTHS)
    present = np.ones((N, 3), bool) if present is None else present
    return {"views": views, "index": np.arange(N), "epoch": np.full(N, epoch), "present": present}


@cache
def initial(learner):
    return jax.jit(learner.init)(jax.random.key(3))


def started(learner, weights=None):
    params, statistics = initial(learner)
    given = {} if weights is None else {"weights": jnp.asarray(weights, jnp.float32)}
    rng = np.random.default_rng(1)  # biases are initially 0, which would hide errors
    params = jax.tree.map(lambda p: p + rng.normal(size=p.shape).astype(np.float32) * 0.3, params)
    return params, {**statistics, **given}


def loss(learner, params, statistics, inputs):
    return learner.loss(params, statistics, methods.Batch(inputs, draw), losses.of_views(OBJECTIVE))


# Compiled once per learner.
value = jax.jit(loss, static_argnums=0)
program = jax.jit(jax.value_and_grad(loss, argnums=1, has_aux=True), static_argnums=0)


def by_hand(net, x):
    """Layer by layer, view by view: z, H and the reconstruction."""
    net = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(net)))
    layers = {of: [net[of]["rest"][i] for i in sorted(net[of]["rest"])] for of in ("encoder", "decoder")}
    z, h, restored = [], [], []
    for v, view in enumerate(x):
        a = view @ net["encoder"]["first"][v]["kernel"] + net["encoder"]["first"][v]["bias"]
        for layer in layers["encoder"]:
            a = np.maximum(a, 0) @ layer["kernel"][v] + layer["bias"][v]
        b = a @ net["head"]["kernel"][v] + net["head"]["bias"][v]
        z.append(b / np.linalg.norm(b, axis=1, keepdims=True))
        h.append(a)
        c = a
        for layer in layers["decoder"]:
            c = np.maximum(c @ layer["kernel"][v] + layer["bias"][v], 0)
        restored.append(c @ net["decoder"]["last"][v]["kernel"] + net["decoder"]["last"][v]["bias"])
    return np.stack(z), np.stack(h), restored


def test_loss_is_equation_1(rng):
    learner, weights = build(), rng.random((3, 3))
    params, statistics = started(learner, weights)
    inputs = batch(rng)
    (total, (_, z, measures)), gradient = program(learner, params, statistics, inputs)
    hand, _, restored = by_hand(learner.network(params, statistics), inputs["views"])
    np.testing.assert_allclose(z, hand, atol=1e-5)
    pairs = sum(weights[m, n] * losses.nt_xent(hand[m], hand[n], 0.5) for m in range(3) for n in range(3))
    error = sum(np.mean((a - b) ** 2) for a, b in zip(inputs["views"], restored))
    np.testing.assert_allclose(total, pairs + LAM * error, rtol=1e-5)
    np.testing.assert_allclose(measures["reconstruction"], error, rtol=1e-5)

    @jax.grad
    def plain(params):
        net, x = learner.network(params, statistics), inputs["views"]
        h = net.encode(x)
        restored = [jnp.mean((a - b) ** 2) for a, b in zip(x, net.decode(h))]
        contrast, _ = losses.of_views(OBJECTIVE)(net.embed(h), weights=jnp.asarray(weights, jnp.float32))
        return contrast + LAM * sum(restored)

    chex.assert_trees_all_close(gradient, plain(params), rtol=1e-4, atol=1e-5)
    without = build(dataclasses.replace(SMALL, lam=0.0))
    total, (_, _, measures) = value(without, params, statistics, inputs)
    np.testing.assert_allclose(total, pairs, rtol=1e-5)
    assert measures["reconstruction"] == 0


def test_pretraining_is_reconstruction_only(rng):
    learner = build()
    params, statistics = started(learner)
    _, gradient = program(learner, params, statistics, batch(rng, epoch=1))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient["head"]))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient["decoder"]))


@pytest.mark.parametrize("kind", some(["mae", "dae"], fast=["mae"]))
def test_targets_and_contrast_use_clean_views(rng, kind):
    learner, plain = build(dataclasses.replace(SMALL, reconstruction=kind)), build()
    params, statistics = started(learner)
    inputs = batch(rng)
    total, (_, z, measures) = value(learner, params, statistics, inputs)
    (_, (_, clean, expected)), _ = program(plain, params, statistics, inputs)
    np.testing.assert_allclose(z, clean, rtol=1e-6)
    np.testing.assert_allclose(measures["contrast"], expected["contrast"], rtol=1e-6)
    assert abs(measures["reconstruction"] - expected["reconstruction"]) > 1e-3
    key = jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(statistics["key"]), 2), 0)
    kind = {"dae": "noise", "mae": "masked"}[kind]
    keys = [jax.random.fold_in(key, v) for v in range(3)]
    noisy = [np.asarray(losses.corrupted(*of, kind)) for of in zip(keys, inputs["views"])]
    _, _, restored = by_hand(learner.network(params, statistics), noisy)
    error = sum(np.mean((a - b) ** 2) for a, b in zip(inputs["views"], restored))
    np.testing.assert_allclose(measures["reconstruction"], error, rtol=1e-5)
    np.testing.assert_allclose(total, measures["contrast"] + LAM * error, rtol=1e-5)


def test_missing_views(rng):
    """Loss with missing views: R over the rows with the view, pairs over the rows with both."""
    present = rng.random((N, 3)) < 0.7
    learner = build()
    weights = rng.random((3, 3))
    params, statistics = started(learner, weights)
    inputs = batch(rng, present=present)
    (total, (_, _, measures)), _ = program(learner, params, statistics, inputs)
    hand, _, restored = by_hand(learner.network(params, statistics), inputs["views"])
    error = sum(np.mean((a[p] - b[p]) ** 2) for a, b, p in zip(inputs["views"], restored, present.T))
    np.testing.assert_allclose(measures["reconstruction"], error, rtol=1e-5)
    expected = jax.jit(losses.all_pairs(losses.nt_xent, weights, "all", "sum"))(hand, mask=present.T)
    np.testing.assert_allclose(total, expected + LAM * error, rtol=1e-5)
    inputs["views"] = tuple(np.where(p[:, None], v, np.nan) for v, p in zip(inputs["views"], present.T))
    (again, _), gradient = program(learner, params, statistics, inputs)
    np.testing.assert_allclose(again, total, rtol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("missing", [False, True])
def test_rows_that_fill_the_devices_do_not_count(rng, missing):
    learner = build()
    params, statistics = started(learner)
    inputs = batch(rng, present=rng.random((N, 3)) < 0.7)
    if not missing:
        del inputs["present"]
    filled = jax.tree.map(lambda x: np.concatenate([x, x[:4]]), inputs)

    @jax.jit
    def of(inputs):
        batch = methods.Batch(inputs, draw, None, N)
        return learner.loss(params, statistics, batch, losses.of_views(OBJECTIVE))

    (total, (_, z, measures)), (expected, (_, _, same)) = of(filled), of(inputs)
    assert z.shape[1] == N
    np.testing.assert_allclose([total, *measures.values()], [expected, *same.values()], rtol=1e-6)


def test_concatenates_features_of_all_views(rng):
    learner = build()
    params, statistics = started(learner)
    inputs = {"views": batch(rng)["views"]}
    z, h, _ = by_hand(learner.network(params, statistics), inputs["views"])
    for output, of_views in (("head", z), ("encoder", h)):
        found = learner.features(params, statistics, inputs, output)
        np.testing.assert_allclose(found, np.concatenate(of_views, 1), atol=1e-5)
    inputs["present"] = np.ones((N, 3), bool)
    inputs["present"][0, 1] = False
    found = learner.features(params, statistics, inputs, "head")
    mean = (z[0, 0] + z[2, 0]) / np.linalg.norm(z[0, 0] + z[2, 0])
    np.testing.assert_allclose(found[0, 3:6], mean, atol=1e-5)
    np.testing.assert_array_equal(learner.features(params, statistics, inputs, "encoder")[0, 4:8], 0)


def test_optimiser_restarts_follow_the_paper_or_the_released_code():
    """The embedding layer before the first contrastive epoch, in both; all parts before each later one if released."""
    every = ("encoder", "head", "decoder")
    for restart, later in ((False, ()), (True, every)):
        restarts = build(dataclasses.replace(SMALL, restart_optimizer=restart)).restarts
        expected = [(), (), (), (), ("head",), (), later, (), later, ()]
        assert [restarts(step, 2) for step in range(10)] == expected


@pytest.mark.parametrize(("flag", "on", "starts"), [("paper", False, 10), ("as_released", True, 100)])
def test_the_papers_and_the_released_training_are_their_parts(flag, on, starts):
    parts = {"restart_optimizer": on, "last_batch": on, "uniform_biases": on, "k_means_starts": starts}
    opposite = {"restart_optimizer": not on, "last_batch": not on, "uniform_biases": not on}
    asked = dataclasses.replace(SMALL, **opposite, k_means_starts=3, **{flag: True})
    learner = build(asked)
    assert (learner.last_batch, learner.restarts_parts) == (on, True)
    assert learner.options == dataclasses.replace(asked, **parts)


def test_initial_weights_and_biases_are_those_of_pytorch():
    """Both uniform in ±1/sqrt(inputs); without the option biases are zero."""
    wide = {"hidden": (300,), "features": 200, "embedding": 100}
    net = nnx.to_pure_dict(initial(build(dataclasses.replace(SMALL, uniform_biases=True, **wide)))[0])
    layers = {300: net["decoder"]["last"][0], WIDTHS[0]: net["encoder"]["first"][0], 200: net["head"]}
    for inputs, layer in layers.items():
        bound = 1 / np.sqrt(inputs)
        for name, least in (("kernel", 0.95), ("bias", 0.3)):
            assert least * bound < np.abs(layer[name]).max() <= bound
    np.testing.assert_allclose(net["head"]["bias"].std(), 1 / np.sqrt(3 * 200), rtol=0.1)
    plain = nnx.to_pure_dict(initial(build())[0])
    assert not np.any(plain["head"]["bias"])
    assert not np.any(plain["encoder"]["first"][0]["bias"])


def test_losses_and_similarities_of_pairs(rng):
    z = rng.normal(size=(3, 300, 4)).astype(np.float32)
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    present = np.ones((3, 300), bool)
    present[1, ::3] = False
    present[2, 1:] = False
    found = _sem.pair_measures(z, present, lambda x, y: -jnp.mean(jnp.sum(x * y, axis=-1)))
    both = present[0] & present[1]
    cosines = [np.mean(np.sum(z[0, rows] * z[v, rows], 1)) for v, rows in ((1, both), (0, slice(None)))]
    np.testing.assert_allclose([found["cosines"][0, 1], found["cosines"][0, 0]], cosines, rtol=1e-5)
    # 200 shared instances are one batch; 300 are one batch of 256, and the rest is left out.
    expected = -np.mean(np.sum(z[1, both] * z[0, both], 1))
    np.testing.assert_allclose(found["losses"][1, 0], expected, rtol=1e-5)
    first = slice(256)
    np.testing.assert_allclose(found["losses"][0, 0], -np.mean(np.sum(z[0, first] ** 2, 1)), rtol=1e-5)
    assert np.isnan(found["cosines"][2]).all()
    assert np.isnan(found["losses"][2]).all()
    assert set(_sem.pair_measures(z, present, None)) == {"cosines"}


def two_groups(rng):
    """Views 0 and 1 depend on the half of an example; view 2 is noise."""
    half = np.where(np.arange(N) < N // 2, 20.0, -20.0)[:, None]
    views = [rng.normal(size=(N, w)) + shift for w, shift in zip(WIDTHS, (half, half, 0))]
    return tuple(view.astype(np.float32) for view in views)


def test_weights_use_h_first_and_z_later(rng, monkeypatch):
    learner, views = build(), two_groups(rng)
    monkeypatch.setattr("mvcl.methods._sem._ENCODE_ROWS", 7)
    params, statistics = started(learner)
    z, h, _ = by_hand(learner.network(params, statistics), views)
    seen, real = [], metrics.k_means
    watched = lambda x, *rest, **more: (seen.append(x), real(x, *rest, **more))[1]  # noqa: E731
    monkeypatch.setattr(metrics, "k_means", watched)
    for step, expected in ((10, h), (25, z)):
        new, record = learner.refresh(params, statistics, {"views": views}, step, 5)
        np.testing.assert_allclose(seen[-4:-1], expected, atol=1e-5)  # the last is of all views
        np.testing.assert_allclose(new["weights"], losses.cmi_weights(record["clusters"]), rtol=1e-6)
        np.testing.assert_array_equal(record["weights"], new["weights"])
        joined = np.concatenate(expected, 1)
        assert metrics.clustering_accuracy(metrics.k_means(joined, 2)[0], record["clusters_all"]) == 1
    # Views 0 and 1 agree.
    np.testing.assert_allclose(record["weights"][0, 1], np.e - 1, rtol=1e-6)
    assert record["weights"][0, 2] < 0.8
    watched, record = learner.refresh(params, statistics, {"views": views}, 15, 5)
    assert "weights" not in record
    np.testing.assert_array_equal(watched["weights"], statistics["weights"])


@pytest.mark.parametrize(("kind", "step", "starts"), [("cmi", 10, 12), ("jsd", 10, 10), ("cmi", 15, 10)])
def test_many_starts_are_for_clusters_that_give_weights(rng, monkeypatch, kind, step, starts):
    """And the clusters of all views have 10 in any case, so that runs compare."""
    seen, real = [], metrics.k_means
    watched = lambda *x, starts, **more: (seen.append(starts), real(*x, **more))[1]  # noqa: E731
    monkeypatch.setattr(metrics, "k_means", watched)
    learner = build(dataclasses.replace(SMALL, weights=kind, k_means_starts=12))
    learner.refresh(*started(learner), {"views": two_groups(rng)}, step, 5)
    assert seen == [starts] * 3 + [10]


@pytest.mark.parametrize("kind", some(["cmi", "jsd", "mmd", "none"], fast=["cmi", "jsd", "none"]))
def test_weights_of_views_with_missing_rows(rng, kind):
    """Each pair uses the rows with both views."""
    features = rng.normal(size=(3, N, 4)).astype(np.float32)
    present = np.ones((3, N), bool)
    present[0, :3] = present[2, 6:9] = False
    labels = np.where(present, rng.integers(0, 3, (3, N)), -1)
    found = _sem.view_weights(features, labels, kind, present)
    both = [*range(3, 6), *range(9, 12)]
    features, labels = features[[0, 2]][:, both], labels[[0, 2]][:, both]
    of = {"none": None, "cmi": losses.cmi_weights, "jsd": losses.jsd_weights, "mmd": losses.mmd_weights}[kind]
    expected = 1.0 if of is None else of(labels if kind == "cmi" else features)[0, 1]
    np.testing.assert_allclose([found[0, 2], found[2, 0]], expected, rtol=1e-5)
