"""Global and local views of different sizes, from the reader to the report."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
import stepping
from parametrize import some

from mvcl import augment, data, losses, methods, models, training
from mvcl.studies import changed
from mvcl.training import Mesh, Views


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
    ("method", "encoder", "message"),
    [
        (methods.MocoV2(queue=0), None, "moco_v2 needs views of one size and no views.global_views, since"),
        (methods.MocoV3(), None, r"moco_v3 needs views of one size .* got sizes 16, 16, 8, 8, 8"),
        (methods.Simclr(), models.MLP(widths=(4,)), "MLP was built for 768 numbers an example"),
        (methods.Simclr(), VIT, "patch must divide height and width of every view; got 16 for 8x8"),
    ],
)
def test_raises_where_sizes_do_not_fit(crops, method, encoder, message):
    config = dataclasses.replace(crops, method=method, encoder=encoder or crops.encoder)
    with pytest.raises(ValueError, match=message):
        training.prepare(config)


def test_raises_on_groups_of_an_odd_number_of_views(crops):
    message = r"views\.k must be even, got 5\. With views\.global_views the groups"
    with pytest.raises(ValueError, match=message):
        training.check(changed(crops, {"views.global_views": None}))
