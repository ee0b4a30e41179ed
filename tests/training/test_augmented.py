"""Global and local views of different sizes, from the reader to the report; the training split under fresh crops."""

import dataclasses
from functools import partial
from unittest import mock

import jax
import numpy as np
import pytest
import stepping
from parametrize import some

from mvcl import augment, data, evaluation, losses, methods, models, training
from mvcl.studies import changed
from mvcl.training import Mesh, Train, Views, _evaluate
from mvcl.training._program import evaluated


def config(**options):
    options = {"data": data.Synthetic(image_size=8, examples=24), "mesh": Mesh(data=1)} | options
    probe = evaluation.LinearProbe(learning_rates=(0.1, 1.0), batch_size=16, epochs=2)
    return training.Config(
        views=training.Views(policy=augment.digits(mean=(0.4,), std=(0.2,), flip_probability=0.5)),
        encoder=models.ConvNet(widths=(4,)),
        head=models.MLPHead(out=4),
        train=Train(steps=2, batch_size=8, evaluate_every=0, threads=2),
        evaluation=evaluation.Classification(labels_per_class=(), batch_size=8, seed=3, linear=probe),
        **options,
    )


OWN = augment.Policy(brightness=0.5, mean=(9.0,), flip_probability=0.3)


def batches_of(config, steps=4, batch_size=16):
    run = training.prepare(config)
    state = run.program.init()
    options = {"probe": config.evaluation.linear, "batch_size": batch_size, "steps": steps, "seed": 3}
    return run, state, list(_evaluate.augmented(run, state, "train", **options))


@pytest.mark.parametrize("own", some([None, OWN], fast=[OWN]))
def test_features_are_the_encoders_of_the_drawn_views(own):
    run, state, batches = batches_of(changed(config(), {"evaluation.linear.policy": own}))
    split = run.splits["train"]
    policy = _evaluate.policy(run.config, run.config.evaluation.linear)
    assert policy.random_crop
    assert (policy.flip_probability, policy.brightness) == ((0.3, 0.5) if own else (0.5, 0.0))
    assert (policy.mean, policy.std, policy.image_size) == ((0.4,), (0.2,), 8)
    encoded = jax.jit(run.program.learner.features, static_argnums=3)
    params, statistics = evaluated(state)
    draw = jax.jit(lambda images, epoch, rows: augment.draw_views([policy], images, 1_000_006, epoch, rows))
    for step, (found, labels) in enumerate(batches):
        rows = np.arange(24)
        views = draw(split.take(rows)[0], np.full(24, step), rows)  # 24 // 16 = 1 step an epoch
        every = np.asarray(encoded(params, statistics, {"images": views[:, 0]}, "encoder"))
        distance = np.abs(found[:, None] - every[None]).max(-1)
        assert distance.min(1).max() < 1e-5
        np.testing.assert_array_equal(labels, split.labels[distance.argmin(1)])
        assert len(set(distance.argmin(1))) == 16
    assert np.abs(batches[0][0].sum(0) - batches[1][0].sum(0)).max() > 1e-4


def test_neighbours_of_encoder_and_head_in_one_encoding():
    few = data.Synthetic(image_size=8, examples=24, classes=12)  # a class: only neighbours are measured
    base = changed(config(data=few), {"evaluation.linear": None, "evaluation.knn_k": 3})
    both = training.prepare(changed(base, {"evaluation.knn_head": True}))
    of_head = training.prepare(changed(base, {"evaluation.features": "head"}))
    state = both.program.init()
    with mock.patch.object(evaluation, "encode", wraps=evaluation.encode) as encode:
        features, _ = training.encode(both, state)
    assert encode.call_count == 2
    expected, _ = training.encode(of_head, state)
    for name in ("train", "test"):
        np.testing.assert_array_equal(features[f"{name}, head"], expected[name])
        assert not np.allclose(features[name], expected[name])
    protocol, splits = both.config.evaluation, both.splits
    plain = {name: features[name] for name in ("train", "test")}  # as of the raw input
    found, others = ({r.name: r.value for r in protocol.measure(x, splits)} for x in (features, plain))
    assert found.pop("k-NN, head") == protocol.score(expected, splits)[1]
    assert found == others
    for change in ({"evaluation.features": "head"}, {"method": methods.Supervised()}):
        with pytest.raises(ValueError, match=r"evaluation\.knn_head needs"):
            training.prepare(changed(base, {"evaluation.knn_head": True} | change))


@pytest.mark.parametrize("sizes", some(["one", "different"], fast=["different"]))
def test_devices_do_not_change_the_batches(sizes):
    source = data.Synthetic(image_size=8, examples=24, sizes=sizes)
    _, _, one = batches_of(config(data=source), steps=2)
    _, _, eight = batches_of(config(data=source, mesh=Mesh(data=8)), steps=2)
    for (x, y), (other, labels) in zip(one, eight, strict=True):
        np.testing.assert_allclose(x, other, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(y, labels)


def test_a_batch_that_the_processes_cannot_share_is_refused_before_training(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    message = r"linear\.batch_size must be a multiple of 3 processes, got 16 and a split of 24 rows"
    with pytest.raises(ValueError, match=message):
        training.prepare(config(mesh=Mesh(data=8)))
    with pytest.raises(ValueError, match=r"got 16 and a split of 8 rows"):
        training.prepare(config(data=data.Synthetic(image_size=8, examples=8), mesh=Mesh(data=8)))


@pytest.fixture(scope="module")
def crops(tiny):
    """Photographs of several sizes, cropped on the host to 2 global and 3 local views."""
    whole = augment.Policy(image_size=16)  # crops and flips: little to compile
    local = augment.Policy(image_size=8, crop_scale=(0.05, 0.4))
    return dataclasses.replace(
        tiny,
        data=data.Synthetic(examples=64, image_size=20, sizes="different"),
        views=Views(k=5, policy=whole, global_views=2, local_policy=local),
        encoder=models.ConvNet(widths=(4,), norm="group"),
        head=models.MLPHead(out=8),
        objective=losses.cross_pairs(partial(losses.info_nce, temperature=0.2)),
        train=dataclasses.replace(tiny.train, batch_size=16, steps=4),
    )


@pytest.mark.parametrize(
    ("sizes", "microbatch", "mesh"),
    [
        ("different", None, Mesh(data=1)),
        pytest.param("one", 4, Mesh(data=2, fsdp=2), marks=pytest.mark.exhaustive),
    ],
)
def test_the_loss_is_that_of_global_and_local_views(crops, sizes, microbatch, mesh):
    """By hand: each view through encoder and head alone, the objective of the two groups."""
    config = changed(crops, {"data.sizes": sizes, "train.microbatch": microbatch, "mesh": mesh})
    run = training.prepare(config)
    batch, state = next(stepping.batches(run)), run.program.init()
    views = run.program.views(batch)
    assert [view.shape for view in views] == [(16, s, s, 3) for s in (16, 16, 8, 8, 8)]
    network = run.program.learner.network(state["params"], state["statistics"])
    embed = jax.jit(lambda view: network.head(network.encoder(view)))
    z = np.stack([embed(view) for view in views])
    _, values = run.program.step(state, batch)
    np.testing.assert_allclose(values["loss"], config.objective(z[:2], z[2:]), rtol=1e-5)


@pytest.mark.parametrize("sizes", some(["one", "different"], fast=["different"]))
def test_views_have_the_same_bits_on_any_devices(crops, sizes):
    views = []
    for mesh in (Mesh(data=1), Mesh(data=2, fsdp=2)):
        run = training.prepare(changed(crops, {"data.sizes": sizes, "mesh": mesh}))
        views.append(jax.device_get(run.program.views(next(stepping.batches(run, 3)))))
    jax.tree.map(np.testing.assert_array_equal, *views)


VIT = models.ViT(patch=16, width=16, depth=1, heads=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": methods.MocoV2(queue=0)}, "moco_v2 needs views of one size and no views.global_views, s"),
        ({"method": methods.MocoV3()}, r"moco_v3 needs views of one size .* got sizes 16, 16, 8, 8, 8"),
        ({"encoder": models.MLP(widths=(4,))}, "MLP was built for 768 numbers an example"),
        ({"encoder": VIT}, "patch must divide height and width of every view; got 16 for 8x8"),
        ({"views.global_views": None}, r"views\.k must be even, got 5\. With views\.global_views the groups"),
    ],
)
def test_raises_where_sizes_and_groups_do_not_fit(crops, change, message):
    with pytest.raises(ValueError, match=message):
        training.prepare(changed(crops, change))
