"""The step does not depend on devices or microbatches."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import stepping
from flax import nnx
from parametrize import some

from mvcl import augment, data, losses, methods, models, training
from mvcl.studies import changed
from mvcl.training import AdamW, Lars, Mesh, Sgd, _optimizers, _program, _sharding


def curve(config, steps):
    """Losses and final parameters."""
    values, state = stepping.taken(config, steps)
    return values["loss"], state["params"]


@pytest.fixture(scope="module")
def tables(tiny):
    """Views that are given, so that a step draws none."""
    return dataclasses.replace(tiny, data=data.Synthetic(view_shapes=((6,), (6,), (6,)), examples=96))


MESHES = [Mesh(data=2), Mesh(data=8), Mesh(data=2, fsdp=2), Mesh(slices=2, data=2, fsdp=2)]


@pytest.mark.parametrize("mesh", some(MESHES, fast=MESHES[-1:]), ids=str)
def test_loss_curve_does_not_depend_on_devices(tiny, mesh):
    found, expected = (curve(config, 5)[0] for config in (dataclasses.replace(tiny, mesh=mesh), tiny))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.exhaustive
def test_parameters_are_split_over_fsdp(tiny):
    config = changed(tiny, {"encoder": models.ConvNet(widths=(32, 64)), "mesh": Mesh(data=2, fsdp=4)})
    kernel = max(jax.tree.leaves(training.prepare(config).program.init()["params"]), key=lambda x: x.size)
    assert kernel.addressable_shards[0].data.size == kernel.size // 4
    whole, _ = curve(changed(config, {"mesh": Mesh(data=1)}), 5)
    np.testing.assert_allclose(curve(config, 5)[0], whole, rtol=1e-5)


class Chip:
    """A TPU core as jax describes it: its slice, and its place in the slice's 2 x 2 torus."""

    platform, device_kind, core_on_chip, process_index = "tpu", "TPU", 0, 0

    def __init__(self, slice_index, x, y):
        self.slice_index, self.coords = slice_index, (x, y, 0)


def test_tpu_devices_are_arranged_by_slice():
    # not in the order of slices
    chips = [Chip(s, x, y) for y in range(2) for s in (1, 0, 2) for x in range(2)]
    mesh = _program.arranged(chips, 3, 2, 2)
    assert [[chip.slice_index for chip in row] for row in mesh] == [[s, s] for s in (0, 0, 1, 1, 2, 2)]
    assert len(set(mesh.flat)) == 12
    one = [chip for chip in chips if chip.slice_index == 1]
    assert _program.arranged(one, 1, 2, 1).tolist() == [[one[0]], [one[1]]]  # of one slice, a part will do


def test_raises_on_slices_that_are_not_there():
    chips = [Chip(s, x, y) for s in range(2) for y in range(2) for x in range(2)]
    for slices in (1, 4):
        with pytest.raises(ValueError, match=f"mesh.slices must be 2, .*, got {slices}"):
            _program.arranged(chips, slices, 2, 8 // slices // 2)
    with pytest.raises(ValueError, match=r"2 \* 1 must be all devices of each slice; the slices have 4, 4"):
        _program.arranged(chips, 2, 2, 1)
    with pytest.raises(ValueError, match=r"4 \* 2 \* 2 devices, but there are 8"):
        _program.make_mesh(Mesh(slices=4, data=2, fsdp=2))


@pytest.mark.parametrize("mesh", some([Mesh(data=1), Mesh(data=4)], fast=[Mesh(data=4)]), ids=str)
def test_microbatches_give_the_loss_and_gradient_of_the_batch(tables, mesh):
    config = dataclasses.replace(tables, mesh=mesh, optimizer=Sgd(learning_rate=0.1, momentum=0.0))
    pieces = changed(config, {"train.microbatch": 4})
    (whole, params), (cut, cut_params) = curve(config, 2), curve(pieces, 2)
    np.testing.assert_allclose(cut, whole, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), cut_params, params)


@pytest.mark.exhaustive
def test_microbatches_save_memory(tiny):
    encoder = models.ConvNet(widths=(32, 64), norm="group")
    config = changed(tiny, {"encoder": encoder, "train.batch_size": 512, "data.examples": 512})
    pieces = changed(config, {"train.microbatch": 32})
    compiled = [stepping.lowered(c).compile() for c in (pieces, config)]
    memory = [step.memory_analysis().temp_size_in_bytes for step in compiled]
    assert memory[0] < memory[1] / 4


@pytest.mark.parametrize("devices", some([1, 4], fast=[4]))
def test_loss_of_groups_is_the_mean_of_their_losses(tables, devices):
    changes = {"objective": losses.info_nce, "train.group": 4, "mesh.data": devices}
    run = training.prepare(changed(tables, changes | {"data.view_shapes": ((6,), (6,))}))
    state = run.program.init()
    batch = next(stepping.batches(run))

    @jax.jit
    def embeddings(state, batch):
        given, none = methods.Batch(batch, lambda batch: batch["views"]), lambda z: (jnp.float32(0), {})
        return run.program.learner.loss(state["params"], state["statistics"], given, none)[1][1]

    z, loss = np.asarray(embeddings(state, batch)), jax.jit(losses.info_nce)
    expected = np.mean([loss(*part) for part in np.split(z, 8, axis=1)])
    _, values = run.program.step(state, batch)
    np.testing.assert_allclose(float(values["loss"]), expected, rtol=1e-5)
    assert abs(expected - float(loss(*z))) > 0.1


@losses.declare(axis_name=True)
def spread(z, axis_name=None):
    """An objective that splits over devices and cannot leave out views."""
    mean = z.mean((0, 1)) if axis_name is None else jax.lax.pmean(z.mean((0, 1)), axis_name)
    return (mean**2).sum()


PAIRS, SLOW = losses.cross_pairs(losses.info_nce), pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("method", "objective"),
    [
        pytest.param(methods.Simclr(), losses.mv_infonce, id="masked"),  # a mask hides the rows of padding
        pytest.param(methods.Simclr(), losses.frossl, id="gathered", marks=SLOW),
        pytest.param(methods.Simclr(), spread, id="unmasked", marks=SLOW),
        pytest.param(methods.MocoV2(queue=24), PAIRS, id="queue"),
    ],
)
def test_devices_that_do_not_divide_the_batch_train_on_the_same_one(tables, method, objective):
    """10 instances of 4 views on 1 and 8 devices; batch statistics and queue are of these only."""
    encoder, head = models.MLP((8, 8), norm="batch"), models.MLPHead(hidden=8, out=8, norm="batch")
    more = {"method": method, "objective": objective, "optimizer": Sgd(learning_rate=0.1)}
    more |= {"encoder": encoder, "head": head, "data.view_shapes": ((6,),) * 4}
    budget = {"views.strategy": "fixed", "views.reference_views": 1, "train.batch_size": 40}
    config, states = changed(tables, more | budget), []
    for devices in (1, 8):
        values, state = stepping.taken(changed(config, {"mesh.data": devices}), 3)
        found = [values[name] for name in ("loss", "effective_rank") if name in values]
        states.append((found, state["params"], state["statistics"]))
    assert training.prepare(config).config.examples == 10
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), *states)


def test_groups_split_masks_and_weights(rng):
    z = rng.normal(size=(3, 8, 5)).astype(np.float32)
    mask = rng.random((3, 8)) < 0.7
    weights = rng.random((3, 3, 8)).astype(np.float32)
    objective = losses.all_pairs(losses.nt_xent)
    grouped = _sharding.in_groups(losses.of_views(objective), losses.takes(objective), 4)
    value, _ = grouped(z, mask=mask, weights=weights)
    of_part = jax.jit(lambda z, mask, weights: objective(z, mask=mask, weights=weights))
    expected = [of_part(z[:, part], mask[:, part], weights[:, :, part]) for part in (slice(4), slice(4, 8))]
    np.testing.assert_allclose(value, np.mean(expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.group": 1}, r"train.group must .* batch of 32 examples, got 1"),
        ({"train.group": 16, "mesh.data": 4}, r"divide the 8 examples of a device's part of a batch, got 16"),
        ({"mesh.data": 6, "train.group": 8}, r"32 examples does not divide over 6 devices"),
        (
            {"mesh.data": 6, "encoder": models.ResNet(width=2, batch_groups=2)},
            r"32 examples does not divide over 6 devices, as method supervised",
        ),
        ({"mesh.data": 16}, r"16 \* 1 devices, but there are 8"),
        ({"train.batch_size": 2000, "views.strategy": "fixed"}, "at most the 88 training examples, got"),
        (
            {"views.policy": augment.simclr(image_size=8)},
            r"normalises 3 channels and the images have 1; use --views\.policy\.mean",
        ),
        ({"optimizer.warmup_share": 0.6}, r"warmup_share must be in \[0, 0.5\], got 0.6"),
        (
            {"optimizer": AdamW(warmup_share=0.1, warmup_epochs=1.0)},
            "warmup_share must be 0 with optimizer.w",
        ),
        ({"optimizer.warmup_epochs": -1.0}, "warmup_epochs must be at least 0, got -1"),
        ({"optimizer.learning_rate": 0.0}, "learning_rate must be more than 0, got 0.0"),
        ({"optimizer.weight_decay": -0.1}, "weight_decay must be at least 0, got -0.1"),
        ({"method": methods.Sem()}, "method sem needs .* given views, .*, not images"),
    ],
)
def test_raises_on_options_that_do_not_fit(tiny, changes, message):
    with pytest.raises(ValueError, match=message):
        training.prepare(changed(tiny, changes))


def test_ema_follows_the_parameters(tables):
    run = training.prepare(changed(tables, {"train.ema": 0.9}))
    state = run.program.init()
    expected = jax.device_get(state["params"])
    for batch in itertools.islice(stepping.batches(run), 3):
        state, _ = run.program.step(state, batch)
        expected = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, expected, jax.device_get(state["params"]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), state["ema"], expected)
    assert _program.evaluated(state)[0] is state["ema"]


def test_rates_of_parts():
    params = {"encoder": {"a": jnp.ones(2), "b": jnp.ones(2)}, "head": jnp.ones(2)}
    options = {"examples": 4, "steps": 9, "steps_per_epoch": 3}
    rates = ("encoder=0.5", "encoder.b=0")
    optimizer = Sgd(learning_rate=1.0, end_learning_rate=1.0, momentum=0.0, rates=rates)
    rule, _ = _optimizers.build(optimizer, **options)
    updates, _ = rule.update(params, rule.init(params), params)
    assert [float(x[0]) for x in jax.tree.leaves(updates)] == [-0.5, 0, -1]
    with pytest.raises(ValueError, match=r"optimizer.rates: no parameter is of 'body'; there are .*'head'"):
        _optimizers.build(Sgd(rates=("body=0",)), **options)[0].init(params)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (Sgd(learning_rate=0.1), lambda rate, decay, mask: optax.chain(
            optax.add_decayed_weights(decay, mask), optax.sgd(rate, 0.9))),
        (Sgd(learning_rate=0.1, decays="all"), lambda rate, decay, mask: optax.chain(
            optax.add_decayed_weights(decay), optax.sgd(rate, 0.9))),
        (AdamW(learning_rate=0.1, clip_norm=0.5), lambda rate, decay, mask: optax.chain(
            optax.clip_by_global_norm(0.5), optax.adamw(rate, weight_decay=decay, mask=mask))),
        (Lars(learning_rate=0.05), lambda rate, decay, mask: optax.lars(rate, decay, mask, trust_ratio_mask=mask)),
    ],
    ids=["sgd", "sgd of all", "adamw", "lars"],
)  # fmt: skip
def test_optimisers_are_those_of_optax_and_decay_biases_and_norms_if_asked(mine, theirs):
    mine = dataclasses.replace(mine, weight_decay=0.2, warmup_epochs=1)
    mine, _ = _optimizers.build(mine, examples=512, steps=10, steps_per_epoch=5)
    rate = optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 10)
    theirs = theirs(rate, 0.2, {"k": True, "b": False})
    params = {"k": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
    a, b = mine.init(params), theirs.init(params)
    for i in range(4):
        gradient = jax.tree.map(lambda x: jnp.sin(x + i), params)  # noqa: B023
        (u, a), (v, b) = mine.update(gradient, a, params), theirs.update(gradient, b, params)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), u, v)


def test_stacked_biases_are_not_decayed():
    """Those of layers that are stacked over views are matrices."""
    build = partial(models.Autoencoders, (3, 4), (5, 6), 7, 8, dtype=jnp.float32)
    state = nnx.state(nnx.eval_shape(lambda: build(rngs=nnx.Rngs(jax.random.key(0)))), nnx.Param)
    mask = jax.tree_util.tree_flatten_with_path(_optimizers.decay_mask(state))[0]
    assert {decayed for path, decayed in mask if "bias" in jax.tree_util.keystr(path)} == {False}
    assert {decayed for path, decayed in mask if "kernel" in jax.tree_util.keystr(path)} == {True}


def test_clipped_lars_takes_the_smaller_of_its_step_and_that_of_sgd():
    optimizer = Lars(learning_rate=0.5, weight_decay=0.1, momentum=0.0, trust_coefficient=0.02, clip=True)
    rule, rate = _optimizers.build(optimizer, examples=256, steps=10, steps_per_epoch=5)
    square = jnp.ones((2, 2))
    params = {"large": 3 * square, "small": 3 * square, "zero": 0 * square, "b": jnp.ones(2)}
    gradient = {"large": 7 * square, "small": -0.29 * square, "zero": 2 * square, "b": 5 * jnp.ones(2)}
    state = rule.init(params)
    for i in range(3):
        updates, state = rule.update(gradient, state, params)
        # of the large one a fiftieth of the parameters, whatever the learning rate
        expected = {"large": -0.02 * 3, "zero": -rate(i) * 2, "b": -rate(i) * 5}
        expected |= {"small": -rate(i) * (-0.29 + 0.1 * 3)}
        for name, value in expected.items():
            np.testing.assert_allclose(updates[name], value, rtol=1e-4)


WARMED = AdamW(learning_rate=0.4, end_learning_rate=0.1, reference_batch=256, warmup_epochs=2)


@pytest.mark.parametrize(
    ("optimizer", "examples", "steps_per_epoch", "expected"),
    [
        (WARMED, 512, 10, {0: 0, 10: 0.4, 20: 0.8, 60: (0.8 + 0.1) / 2, 100: 0.1}),  # the end is not scaled
        (WARMED, 512, 100, {25: 0.4, 50: 0.8}),  # two epochs of warm-up are shortened to half the run
        # the peak is half of it for a quarter of 256
        (dataclasses.replace(WARMED, scaling="sqrt"), 64, 10, {20: 0.2, 100: 0.1}),
        (AdamW(learning_rate=0.4, warmup_share=0.1), 8, 7, {0: 0, 5: 0.2, 10: 0.4, 55: 0.2}),
    ],
)
def test_schedules_end_at_their_end_values(optimizer, examples, steps_per_epoch, expected):
    options = {"examples": examples, "steps": 100, "steps_per_epoch": steps_per_epoch}
    _, rate = _optimizers.build(optimizer, **options)
    np.testing.assert_allclose([float(rate(step)) for step in expected], [*expected.values()], atol=1e-7)


def test_weight_decay_follows_a_cosine_to_its_end():
    """Half-way it is 0.22, and the learning rate a half."""
    options = Sgd(learning_rate=1.0, momentum=0.0, weight_decay=0.04, end_weight_decay=0.4)
    rule, _ = _optimizers.build(options, examples=8, steps=2, steps_per_epoch=2)
    params = jnp.ones((2, 2))
    first, state = rule.update(0 * params, rule.init(params), params)
    second, _ = rule.update(0 * params, state, params)
    np.testing.assert_allclose([first[0, 0], second[0, 0]], [-0.04, -0.5 * 0.22], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "k", "expected"),
    [
        ("info_nce", 2, np.log(64)),
        ("byol", 2, 2.0),
        # k log(n-1) - log(k(k-1)), the limit of many dimensions; constant embeddings are (k-1)/temperature above
        pytest.param("mv_dhel", 3, 3 * np.log(63) - np.log(6), marks=pytest.mark.exhaustive),
    ],
)
def test_chance_level_of_features_without_information(name, k, expected):
    of_views = losses.of_views(getattr(losses, name))
    level = methods.chance_level(lambda z: of_views(z)[0], k, 64, 4096)
    np.testing.assert_allclose(level, expected, atol=2e-3 * (k - 1))


@losses.declare(key=True)
def with_key(z, *, key):
    """An objective that draws a direction."""
    return jnp.mean((z @ jax.random.normal(key, z.shape[-1:])) ** 2)


def test_an_own_objective_is_that_of_the_global_batch(tables):
    config = dataclasses.replace(tables, objective=with_key)
    one, four = (curve(dataclasses.replace(config, mesh=Mesh(data=devices)), 2)[0] for devices in (1, 4))
    np.testing.assert_allclose(four, one, rtol=1e-4)
    z = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 3)), jnp.float32)
    first, second = (float(losses.of_views(with_key)(z, key=jax.random.key(seed))[0]) for seed in (0, 1))
    assert abs(first - second) > 1e-3


UNREAD = {
    **{"train.seed": 7, "train.threads": 2, "train.evaluate_every": 3.0, "train.geometry_every": 1.0},
    **{"train.corrupt_limit": 3, "train.stall_seconds": 9.0, "train.peak_tflops": 2.0},
    **{"train.initial": "elsewhere", "checkpoint.every_steps": 5, "evaluation.knn_k": 3},
}
READ = {"train.log_every": 3, "train.ema": 0.5, "evaluation.features": "head", "train.microbatch": 8}


@pytest.mark.parametrize(("field", "value"), [*UNREAD.items(), *READ.items()])
def test_runs_share_a_program_that_does_not_read_what_differs(tables, field, value):
    outline = tables.data.open()["train"].outline
    one, other = (training.build(c, outline) for c in (tables, changed(tables, {field: value})))
    assert (one.step is other.step and one.apply is other.apply) == (field in UNREAD)


def test_a_step_is_compiled_with_the_options_for_a_cpu(tables, monkeypatch):
    monkeypatch.setattr(_program, "cpu_options", lambda remat: {"xla_cpu_no_such_option": "1"})
    lowered = stepping.lowered(changed(tables, {"optimizer.learning_rate": 0.0123}))  # a program of its own
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        lowered.compile()


def test_a_step_compiles_where_xla_does_not_know_an_option(monkeypatch):
    monkeypatch.setattr(_program, "_ALL_CORES", {"xla_cpu_no_such_option": "1"})
    assert _program.cpu_options.__wrapped__() == {}
    assert _program.cpu_options.__wrapped__(True) == _program._REMAT
