"""An encoder by itself: equal to `mvcl embed`, without data and config file."""

import dataclasses

import numpy as np
import pytest
from parametrize import some

import mvcl
from mvcl import data, losses, methods, models, training

GIVEN = data.Synthetic(view_shapes=((6,), (5,)), missing=0.2, examples=40)
SMALL = {
    methods.Sem: {"hidden": (8,), "features": 6, "embedding": 4},
    methods.MultiEncoder: {"encoders": (models.MLP(widths=(7,)), models.MLP(widths=(9,)))},
    methods.MocoV3: {"predictor": models.MLPHead(out=8)},
    methods.StudentTeacher: {"predictor": models.MLPHead(out=8)},
}


def config_of(tiny, method):
    method = dataclasses.replace(method, **SMALL.get(type(method), {}))
    objective, views, source = losses.mv_infonce, tiny.views, tiny.data
    if isinstance(method, methods.MocoV2):
        objective, views = losses.info_nce, dataclasses.replace(views, k=2)
    if isinstance(method, (methods.Sem, methods.MultiEncoder)):
        objective, source = losses.all_pairs(losses.nt_xent), GIVEN
    return dataclasses.replace(tiny, method=method, objective=objective, views=views, data=source)


@pytest.mark.parametrize("method", some(methods.METHODS, fast={"sem", "multi_encoder", "student_teacher"}))
def test_equals_embed_for_every_method(tiny, write_run, tmp_path, method):
    folder = write_run(config_of(tiny, methods.METHODS[method]()), tmp_path / "run")
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
