"""Steps with recomputed blocks are those without, in less memory."""

from functools import partial

import jax
import numpy as np
import pytest
import stepping
from parametrize import some

from mvcl import data, losses, methods, models
from mvcl.studies import changed
from mvcl.training import Mesh, Sgd

PAIRS = losses.cross_pairs(losses.info_nce)
CONVNET = {"encoder": models.ConvNet((4, 8)), "optimizer": Sgd(learning_rate=0.1), "views.k": 2}
SEQUENCES = CONVNET | {
    "data": data.Synthetic(view_shapes=((6, 5),) * 2, examples=96),
    "encoder": models.Transformer(width=32, depth=1, heads=2),
}
TEACHER = models.MLPHead(out=8)
CASES = {
    "one": CONVNET,
    "eight": CONVNET | {"mesh.data": 8},
    "microbatches": SEQUENCES | {"train.microbatch": 4, "mesh.data": 4},
    "fsdp": SEQUENCES | {"mesh": Mesh(data=2, fsdp=2)},
    "moco_v2": CONVNET | {"method": methods.MocoV2(queue=24), "objective": PAIRS},
    "moco_v3": CONVNET | {"method": methods.MocoV3(predictor=TEACHER), "objective": PAIRS, "mesh.data": 8},
    "student_teacher": CONVNET | {"method": methods.StudentTeacher(predictor=TEACHER)},
    "multi_encoder": SEQUENCES | {"method": methods.MultiEncoder()},
}


@pytest.mark.parametrize("policy", some(["blocks", "full"], fast=["full"]))
@pytest.mark.parametrize("case", some(CASES, fast=["eight", "microbatches", "student_teacher"]))
def test_losses_and_state_are_those_without(tiny, case, policy):
    config = changed(tiny, CASES[case])
    both = (stepping.taken(of, 2) for of in (config, changed(config, {"train.remat": policy})))
    compared = ((values["loss"], state) for values, state in both)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), *compared)


@pytest.mark.parametrize("examples", some([64, 256], fast=[64]))
def test_temporaries_fall_by_policy(tiny, examples):
    encoder = models.Transformer(width=32, depth=4, heads=2, dropout=0.0)
    more = {"encoder": encoder, "train.batch_size": examples, "data.examples": examples}
    options = [SEQUENCES | more | {"train.remat": policy} for policy in ("none", "blocks", "full")]
    compiled = [stepping.lowered(changed(tiny, of)).compile() for of in options]
    memory = [step.memory_analysis().temp_size_in_bytes for step in compiled]
    assert memory[2] < 0.9 * memory[1] < 0.5 * memory[0], memory


def test_raises_on_an_encoder_that_does_not_say_its_blocks(tiny):
    with pytest.raises(ValueError, match=r"train.remat must be none .* models.in_turn, got blocks"):
        stepping.lowered(changed(tiny, {"train.remat": "blocks"}))
