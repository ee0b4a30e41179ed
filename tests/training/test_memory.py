"""The model of a step's memory: by hand, beside XLA's analysis, and what is said of a run that does not fit."""

import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stepping
from parametrize import some

from mvcl import data, losses, methods, models
from mvcl.studies import changed
from mvcl.training import Mesh, Sgd, _cost, _memory

ROWS = _memory.ROWS


def traced(function, *shapes):
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return _memory.Trace(jax.make_jaxpr(function)(*arrays).jaxpr)


def test_a_product_stores_its_result_and_fused_operations_do_not():
    """Peak: the first product, beside the second; the tanh of the first is in its place. FLOPs: 2 n a b."""
    trace = traced(lambda x, a, b: (jnp.tanh(x @ a + 1.0) @ b).sum(), (ROWS, 5), (5, 6), (6, 7))
    for rows in (ROWS, 1, 200):
        scale = _memory.Scale(rows=rows)
        assert trace.peak(scale) == 4 * rows * (6 + 7)
        assert trace.flops(scale) == 2 * rows * (5 * 6 + 6 * 7)


def test_the_backward_pass_keeps_what_a_block_gives_and_with_remat_its_inputs():
    def network(checkpointed):
        def block(x, a):
            return jnp.tanh(jnp.tanh(x @ a) @ a)

        inner = jax.checkpoint(block) if checkpointed else block

        def loss(a, x):
            for _ in range(20):
                x = inner(x, a)
            return x.sum()

        trace = traced(jax.grad(loss), (4, 4), (ROWS, 4))
        return trace.peak(_memory.Scale()) / (4 * ROWS * 4)

    # Of each block both results, or the input of each and about both of one; more in the backward pass.
    assert 40 <= network(False) <= 45
    assert 20 <= network(True) <= 25


def test_a_loop_holds_one_turn_and_computes_all():
    def body(total, x):
        return total + (x @ x.T).sum(), None

    trace = traced(lambda xs: jax.lax.scan(body, jnp.zeros(()), xs)[0], (10, 3, 4))
    assert trace.flops(_memory.Scale()) == 10 * 2 * 3 * 3 * 4
    assert 4 * 3 * 3 <= trace.peak(_memory.Scale()) <= 4 * (3 * 3 + 2 * 3 * 4 + 8)


@pytest.fixture(scope="module")
def convolutional(tiny):
    more = {"encoder": models.ConvNet((16, 32)), "train.batch_size": 256, "data.examples": 256}
    return changed(tiny, more | {"train.log_every": 10**9})


@pytest.mark.parametrize("devices", some([1, 8], fast=[8]))
@pytest.mark.parametrize("policy", some(["none", "blocks"], fast=["none"]))
def test_the_model_is_near_the_analysis_of_the_compiled_step(convolutional, devices, policy):
    config = changed(convolutional, {"mesh.data": devices, "train.remat": policy})
    config, outline, *_ = _cost.outlined(config)
    found = _memory.Model(config, outline, "cpu").on(devices)
    with models.xla_convolutions():
        compiled = stepping.lowered(config).compile()
    assert 0.6 < found.temporaries / compiled.memory_analysis().temp_size_in_bytes < 1.3
    assert 0.7 < found.flops / compiled.cost_analysis()["flops"] < 1.1  # of products only


def test_state_is_split_over_fsdp_and_groups_stay_on_a_device(convolutional):
    more = {"train.group": 32, "objective": losses.info_nce, "views.k": 2}
    config = changed(convolutional, {"mesh.fsdp": 4} | more)
    model = _memory.Model(*_cost.outlined(config)[:2])
    one, eight = model.on(1), model.on(8)
    kernels = 4 * (9 * 16 * 32 + 32 * 32 + 32 * 8)
    assert one.parameters - eight.parameters >= 0.7 * kernels
    assert one.optimizer - eight.optimizer >= 2 * 0.7 * kernels
    assert one.batch == 8 * eight.batch
    with pytest.raises(ValueError, match="256 examples in groups of 32 does not divide over 16 devices"):
        model.on(16)


def test_a_run_that_does_not_fit_says_so_with_the_policy_that_does(convolutional):
    def warned(config, limit):
        device = types.SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": limit})
        mesh = types.SimpleNamespace(size=1, devices=types.SimpleNamespace(flat=[device]))
        run = types.SimpleNamespace(config=config, outline=outline, program=types.SimpleNamespace(mesh=mesh))
        return _memory.warning(run)

    config, outline, *_ = _cost.outlined(convolutional)
    needs = {name: model.on(1).total for name, model in _memory.models_of(config, outline).items()}
    assert needs["blocks"] < 0.9 * needs["none"]
    assert warned(config, needs["none"] + 1) == ""
    assert "--train.remat blocks needs" in warned(config, (needs["none"] + needs["blocks"]) / 2)
    assert "more devices" in warned(config, needs["full"] / 2)
    assert warned(config, None) == ""


CONVNET = {"encoder": models.ConvNet((4, 8)), "optimizer": Sgd(learning_rate=0.1), "views.k": 2}
SEQUENCES = CONVNET | {
    "data": data.Synthetic(view_shapes=((6, 5),) * 2, examples=96),
    "encoder": models.Transformer(width=32, depth=1, heads=2),
}
CASES = {
    "eight": CONVNET | {"mesh.data": 8},
    "microbatches": SEQUENCES | {"train.microbatch": 4, "mesh.data": 4},
    "fsdp": SEQUENCES | {"mesh": Mesh(data=2, fsdp=2)},
    "student_teacher": CONVNET | {"method": methods.StudentTeacher(predictor=models.MLPHead(out=8))},
    "multi_encoder": SEQUENCES | {"method": methods.MultiEncoder()},
}


@pytest.mark.parametrize("policy", some(["blocks", "full"], fast=["full"]))
@pytest.mark.parametrize("case", some(CASES, fast=["eight", "microbatches", "student_teacher"]))
def test_losses_and_state_are_those_without(tiny, case, policy):
    config = changed(tiny, CASES[case])
    both = (stepping.taken(of, 2) for of in (config, changed(config, {"train.remat": policy})))
    compared = ((values["loss"], state) for values, state in both)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), *compared)


def test_temporaries_fall_by_policy(tiny):
    encoder = models.Transformer(width=32, depth=4, heads=2, dropout=0.0)
    more = {"encoder": encoder, "train.batch_size": 64, "data.examples": 64}
    options = [SEQUENCES | more | {"train.remat": policy} for policy in ("none", "blocks", "full")]
    compiled = [stepping.lowered(changed(tiny, of)).compile() for of in options]
    memory = [step.memory_analysis().temp_size_in_bytes for step in compiled]
    assert memory[2] < 0.9 * memory[1] < 0.5 * memory[0], memory


def test_raises_on_an_encoder_that_does_not_say_its_blocks(tiny):
    with pytest.raises(ValueError, match=r"train.remat must be none .* models.in_turn, got blocks"):
        stepping.lowered(changed(tiny, {"train.remat": "blocks"}))
