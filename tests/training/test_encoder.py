"""An encoder by itself: equal to `mvcl embed`, without data and config file."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from parametrize import some

import mvcl
from mvcl import data, losses, methods, models, training
from mvcl.training import Mesh, Train

GIVEN = data.Synthetic(view_shapes=((6,), (5,)), missing=0.2, examples=40)
SMALL = {
    methods.Sem: {"hidden": (8,), "features": 6, "embedding": 4},
    methods.MultiEncoder: {"encoders": (models.MLP(widths=(7,)), models.MLP(widths=(9,)))},
    methods.Fused: {"encoders": (models.MLP(widths=(8,)), models.MLP(widths=(8,)))},
    methods.MocoV3: {"predictor": models.MLPHead(out=8)},
    methods.StudentTeacher: {"predictor": models.MLPHead(out=8)},
}


@pytest.mark.parametrize("method", some(methods.METHODS, fast={"multi_encoder", "student_teacher"}))
def test_equals_embed_for_every_method(tiny, write_run, tmp_path, method):
    method = methods.METHODS[method]()
    method = dataclasses.replace(method, **SMALL.get(type(method), {}))
    objective, views, source = losses.mv_infonce, tiny.views, tiny.data
    if isinstance(method, (methods.MocoV2, methods.MocoV3)):
        objective, views = losses.info_nce, dataclasses.replace(views, k=2)
    if isinstance(method, (methods.Sem, methods.MultiEncoder, methods.Fused)):
        objective, source = losses.all_pairs(losses.nt_xent), GIVEN
    changes = {"method": method, "objective": objective, "views": views, "data": source}
    folder = write_run(dataclasses.replace(tiny, **changes), tmp_path / "run")
    run, state = training.open_run(folder)
    training.embed(run, state, "test", tmp_path / "z.npz")
    written = np.load(tmp_path / "z.npz")["features"]
    split = run.splits["test"]
    encoder = mvcl.load(folder)
    given = dict(zip(encoder.views, split.arrays)) if split.spec.given else split.arrays[0]
    found = encoder(given, mask=split.present)
    np.testing.assert_allclose(found, written, atol=1e-6)
    again = mvcl.load(encoder.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again(given, mask=split.present), found)


def test_fits_views_of_arrays_with_missing_ones(tmp_path, rng):
    t, i = 5 + 3 * rng.normal(size=(40, 6)), rng.normal(size=(40, 4, 3)).astype(np.float32)
    t[3] = np.nan
    mask = np.ones((40, 2), bool)
    mask[7, 1] = False
    encoders = (models.MLP(widths=(5,)), models.MLP(widths=(5,)))
    options = {"method": methods.MultiEncoder(encoders=encoders), "train": Train(steps=3, evaluate_every=0)}
    options |= {"mask": mask, "mesh": Mesh(data=1), "workdir": tmp_path / "run"}
    views, seen = {"text": t, "image": i}, []
    encoder = mvcl.fit(views, "mv_dhel", hooks=[lambda step, *_: seen.append(step)], **options)
    assert seen == [0, 1, 2, 3]
    z = encoder(views, mask=mask)
    assert z.shape == (40, 10)
    assert not z[3, :5].any()
    assert not z[7, 5:].any()
    inputs = encoder.preprocess({"image": i, "text": t})
    np.testing.assert_allclose(inputs[0][np.arange(40) != 3].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(encoder.module.encoder[0](inputs[0])[9], z[9, :5], atol=1e-6)
    one = encoder({"text": t[8:9]}, output="mean")  # another number of rows, without the other view
    np.testing.assert_allclose(one, z[8:9, :5], atol=1e-6)
    again = mvcl.fit(views, "mv_dhel", **options)  # it has ended
    np.testing.assert_array_equal(again({"text": t[8:]}), encoder({"text": t[8:]}))
    with pytest.raises(ValueError, match="was trained on other data"):
        mvcl.fit({"text": t + rng.normal(size=6), "image": i}, "mv_dhel", **options)
    with pytest.raises(ValueError, match="no view 'txt'; the views are text, image"):
        encoder({"txt": t})


def test_columns_of_a_frame_go_by_name_and_texts_are_encoded(rng):
    table = pd.DataFrame(rng.normal(size=(30, 2)), columns=["x", "y"]).assign(sex=["f", "m", "f"] * 10)
    other = pd.DataFrame(rng.normal(size=(30, 3)))
    options = {"encoder": models.MLP(widths=(4,)), "train": Train(steps=1), "mesh": Mesh(data=1)}
    encoder = mvcl.fit({"a": table, "b": other}, "mv_dhel", **options)
    z = encoder({"a": table, "b": other})
    turned = encoder({"a": table[["sex", "y", "x"]].iloc[:9], "b": other[:9]})
    np.testing.assert_allclose(turned, z[:9], atol=1e-6)
    with pytest.raises(ValueError, match="view a must have the columns of the training data; it lacks sex=f"):
        encoder({"a": table[["x", "y"]], "b": other})


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"y": 1}, TypeError, "no argument 'y'; it takes labels, mask"),
        ({"train": {"steps": 3}}, ValueError, "train is .* not of type Train"),
        ({"train": Train(steps="3")}, ValueError, "steps is '3', not of type int"),  # type: ignore[arg-type]
        ({"method": methods.Supervised()}, ValueError, "needs labels of at least 2 classes"),
    ],
)
def test_fit_raises(rng, fields, error, message):
    with pytest.raises(error, match=message):
        mvcl.fit({"a": rng.normal(size=(9, 4)), "b": rng.normal(size=(9, 4))}, **fields)


@pytest.mark.exhaustive
def test_fits_images_in_memory(rng):
    images = rng.integers(0, 256, (12, 10, 9), dtype=np.uint8)
    encoder = mvcl.fit(images, encoder=models.MLP(widths=(4,)), train=Train(steps=1), mesh=Mesh(data=1))
    z = encoder(images)
    found = encoder([np.tile(images[0], (2, 2)), images[1]])  # a list of any sizes
    np.testing.assert_allclose(found[1], z[1], atol=1e-6)
    np.testing.assert_allclose(encoder.module.encoder(encoder.preprocess(images)), z, atol=1e-6)
