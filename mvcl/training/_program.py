"""The jitted functions of a run: initial state, step, features."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from mvcl import _progress, augment, data, losses, methods, metrics, models
from mvcl.evaluation import Classification
from mvcl.training import _config, _optimizers, _sharding
from mvcl.training._config import Config, Train

State = dict[str, Any]
# On CPU this pass removes the barriers before what is computed again, and XLA then keeps it.
_REMAT = {"xla_disable_hlo_passes": "cse_barrier_expander"}
# On CPU products and convolutions of this library run on one core, so it is left the sums, at which it is fast.
_ALL_CORES = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"}


@dataclasses.dataclass(frozen=True)
class Program:
    """A run's compiled functions."""

    mesh: Mesh  # axes `data`, along which slices follow one another, and `fsdp`
    batch_sharding: NamedSharding  # rows split over all devices
    steps: int
    steps_per_epoch: int
    learner: methods.Learner
    abstract_state: State  # shapes, dtypes and shardings
    # The state is a dict of params, statistics, opt, step (updates done), seed and, with an EMA, ema.
    init: Callable[[], State]
    step: Callable[[State, Any], tuple[State, dict[str, jax.Array]]]  # donates the state; logs the rest
    # Of a batch (n, k, H, W, C) views, or a tuple of k arrays (n, ...) for given views and for sizes that differ.
    views: Callable[[Any], Any]
    # (b, d) features of (b, H, W, C) float32 or uint8 images, or of what `data.inputs` returns; the last `head` of them
    # are the head's beside the encoder's.
    apply: Callable[[State, Any], jax.Array]
    head: int
    rows: Callable[[Any], jax.Array]  # (b, d): images as the encoder sees them, or all given views
    learning_rate: optax.Schedule
    chance: Callable[[], jax.Array] | None  # level of the objective; None if the method minimises another
    restart: Callable[[State, tuple[str, ...]], State]  # new moments of the optimiser for some parts


@cache
def cpu_options(remat: bool = False) -> dict[str, str]:
    """Options by which XLA compiles a training step for a CPU; without those that this version does not know."""
    try:
        jax.jit(jnp.negative, compiler_options=_ALL_CORES).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return _REMAT if remat else {}
    return _ALL_CORES | _REMAT if remat else _ALL_CORES


def evaluated(state: State) -> tuple[Any, Any]:
    """Parameters and statistics to evaluate: the moving average of the parameters if there is one."""
    return state.get("ema", state["params"]), state["statistics"]


def build(config: Config, outline: data.Outline) -> Program:
    """The compiled functions of a config for data of this outline; `ValueError` if they do not fit, or the devices.

    Configs that differ only in fields that change none of them, such as the seed, an argument of the compiled functions
    and part of the state, have them in common, so that runs one after the other compile once.
    """
    mesh, protocol = make_mesh(config.mesh), config.evaluation
    both = isinstance(protocol, Classification) and protocol.knn_head
    unread: Any = {f.name: f.default for f in dataclasses.fields(Train) if "unread" in f.metadata}
    read = dataclasses.replace(
        config,
        data=data.Digits(),  # `outline` has what matters
        train=dataclasses.replace(config.train, **unread),
        mesh=_config.Mesh(),
        checkpoint=_config.Checkpoint(),
        evaluation=Classification(features=protocol.features, knn_head=both),
    )
    built: Any = _built
    try:
        hash((read, outline))
    except TypeError:  # a field of the user's own, such as a dict
        built = _built.__wrapped__
    with _progress.during("building the model"):
        program, seed = built(read, outline, mesh), np.uint32(config.train.seed % 2**32)
    return dataclasses.replace(program, init=partial(program.init, seed), views=partial(program.views, seed))


@lru_cache(maxsize=2)
def _built(config: Config, outline: data.Outline, mesh: Mesh) -> Program:
    """`build` for any seed, which `init` and `views` take as their first argument."""
    n, k, train, spec = config.examples, config.views.k, config.train, outline.spec
    platform = mesh.devices.flat[0].platform
    learner = learner_of(config, outline, platform)
    learner.last_batch &= outline.examples % n > 1  # one example has no negatives
    rows, left = rows_per_device(config, outline.examples, mesh, learner)
    steps_per_epoch = data.epoch_steps(outline.examples, n, last_batch=learner.last_batch)
    steps = round(train.epochs * steps_per_epoch) if train.steps is None else train.steps
    if steps < 1:
        raise ValueError(f"train.epochs = {train.epochs} is less than one step of {n} examples")
    parts = tuple(jax.eval_shape(learner.init, jax.random.key(0))[0]) if learner.restarts_parts else ()
    lengths = {"examples": n, "steps": steps, "steps_per_epoch": steps_per_epoch}
    rule, learning_rate = _optimizers.build(config.optimizer, **lengths, parts=parts)
    takes, objective = losses.takes(config.objective), _sharding.objective(config, learner, mesh)

    def init(seed: jax.Array) -> State:
        params, statistics = learner.init(jax.random.key(seed))
        counts = {"step": jnp.zeros((), jnp.int32), "seed": jnp.asarray(seed, jnp.uint32)}
        state = {"params": params, "statistics": statistics, "opt": rule.init(params), **counts}
        return state | ({"ema": jax.tree.map(jnp.copy, params)} if train.ema else {})

    def chance(seed: jax.Array) -> jax.Array:  # seed is an argument, or XLA folds the draws as constants
        keyed = partial(objective, key=jax.random.key(seed)) if takes.key else objective
        return methods.chance_level(partial(learner.level, keyed), k, n, learner.dimension, seed)

    replicated = NamedSharding(mesh, PartitionSpec())
    microbatches = _sharding.microbatches(train.microbatch, rows, mesh)
    apply, plain, head = features_of(config, spec, learner)
    state = jax.tree.map(partial(placed, mesh=mesh), jax.eval_shape(init, np.uint32(0)))
    sharding = jax.tree.map(lambda x: x.sharding, state)
    restart, level = partial(_optimizers.restart, rule), jax.jit(chance, out_shardings=replicated)
    return Program(
        mesh=mesh,
        batch_sharding=NamedSharding(mesh, _sharding.BATCH),
        steps=steps,
        steps_per_epoch=steps_per_epoch,
        learner=learner,
        abstract_state=state,
        init=jax.jit(init, out_shardings=sharding),
        step=jax.jit(
            step_of(config, steps, learner, rule, objective, microbatches, left),
            donate_argnums=0,
            out_shardings=(sharding, replicated),
            compiler_options=cpu_options(train.remat != "none") if platform == "cpu" else None,
        ),
        views=jax.jit(partial(drawn, config.policies)),
        apply=apply,
        head=head,
        rows=plain,
        learning_rate=jax.jit(learning_rate),
        chance=partial(level, np.uint32(0)) if learner.has_level else None,
        restart=jax.jit(restart, static_argnums=1, donate_argnums=0, out_shardings=sharding),
    )


def learner_of(config: Config, outline: data.Outline, platform: str) -> methods.Learner:
    """The method with its networks; `ValueError` if it does not take these views."""
    of_device = jnp.float32 if platform == "cpu" else jnp.bfloat16
    dtypes = {"auto": of_device, "float32": jnp.float32, "bfloat16": jnp.bfloat16}
    spec, sizes = outline.spec, [policy.image_size for policy in config.policies]
    return config.method.build(
        methods.Specification(
            encoder=config.encoder,
            head=config.head,
            objective=config.objective,
            shapes=spec.view_shapes if spec.given else tuple((size, size, spec.channels) for size in sizes),
            given=spec.given,
            global_views=config.views.global_views,
            examples=outline.examples,
            classes=outline.classes,
            microbatch=config.train.microbatch,
            dtype=dtypes[config.train.precision],
        )
    )


def drawn(policies: tuple[augment.Policy, ...], seed: jax.Array, inputs: dict[str, Any]) -> Any:
    """The given views of a batch; or views of its images, by one policy each."""
    if "views" in inputs:
        return inputs["views"]
    return augment.draw_views(policies, inputs["images"], seed, inputs["epoch"], inputs["index"])


def step_of(
    config: Config,
    steps: int,
    learner: methods.Learner,
    rule: optax.GradientTransformation,
    objective: methods.OfViews,
    microbatches: methods.Microbatches | None,
    left: int = 0,
) -> Callable[[State, Any], tuple[State, dict[str, jax.Array]]]:
    """(state, batch) -> (state after one update, values to log); `left` examples are a smaller last batch."""

    def loss(params: Any, state: State, batch: Any) -> tuple[jax.Array, Any]:
        key = jax.random.fold_in(jax.random.key(state["seed"]), state["step"])
        rows = len(batch["index"])
        examples = config.examples if rows >= config.examples else left
        padded = examples if examples < rows else None
        given = methods.Batch(batch, partial(drawn, config.policies, state["seed"]), microbatches, padded)
        keyed = partial(objective, key=key) if losses.takes(config.objective).key else objective
        counted = models.counted(examples, rows) if examples < rows else nullcontext()
        with counted, models.rematerialised(config.train.remat):
            return learner.loss(params, state["statistics"], given, keyed)

    def step(state: State, batch: dict[str, jax.Array]) -> tuple[State, dict[str, jax.Array]]:
        of = jax.value_and_grad(loss, has_aux=True)(state["params"], state, batch)
        (value, (statistics, z, measures)), gradient = of
        updates, opt = rule.update(gradient, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        statistics = learner.after(params, statistics, (state["step"] + 1) / steps)
        new = {**state, "params": params, "statistics": statistics, "opt": opt, "step": state["step"] + 1}
        if config.train.ema:
            new["ema"] = optax.incremental_update(params, state["ema"], 1 - config.train.ema)
        # The singular value decomposition is slow compared with a small encoder's step: only at logged steps.
        rank = jax.lax.cond(
            new["step"] % config.train.log_every == 0,
            lambda z: metrics.effective_rank(z).astype(jnp.float32),
            lambda z: jnp.full((), jnp.nan, jnp.float32),
            jax.lax.stop_gradient(z[0]),
        )
        values = {"loss": value, "gradient_norm": optax.tree.norm(gradient), "effective_rank": rank}
        return new, values | measures

    return step


def features_of(config: Config, spec: data.ExampleSpec, learner: methods.Learner) -> tuple[Any, Any, int]:
    """`apply`, `rows` and `head` of a `Program`; images are transformed by the evaluation policy."""
    protocol, output, policy = config.evaluation, config.evaluation.features, evaluation_policy(config, spec)
    both = isinstance(protocol, Classification) and protocol.knn_head
    view = jax.vmap(  # deterministic: the key draws nothing
        lambda image: augment.apply_policy(policy, jax.random.key(0), image, cropped=spec.image_shape is None)
    )
    name = type(config.method).__name__
    if output not in learner.outputs:
        outputs = ", ".join(learner.outputs)
        raise ValueError(f"evaluation.features must be one of {outputs} for method {name}, got {output!r}")
    if both and (not learner.one_encoder or isinstance(config.method, methods.Supervised)):
        raise ValueError(f"evaluation.knn_head needs one encoder with a projection head, got method {name}")

    def apply(state: State, inputs: Any) -> jax.Array:
        x = inputs if spec.given else {"images": view(inputs)}
        found = [learner.features(*evaluated(state), x, name) for name in (output, "head")[: 1 + both]]
        return jnp.concatenate(found, axis=1) if both else found[0]  # XLA merges the encoder's passes

    def rows(inputs: Any) -> jax.Array:
        parts = inputs["views"] if spec.given else (view(inputs),)
        return jnp.concatenate([jnp.nan_to_num(x).reshape((x.shape[0], -1)) for x in parts], axis=1)

    return apply, rows, learner.dimension if both else 0


def evaluation_policy(config: Config, spec: data.ExampleSpec | None) -> augment.Policy:
    """The policy of evaluation: the whole image if all have the encoder's size, else its central 7/8."""
    first, shape = config.policies[0], None if spec is None else spec.image_shape
    whole = shape is not None and min(shape[:2]) <= first.image_size
    size, part = first.image_size, 1.0 if whole else 0.875
    return augment.evaluation(image_size=size, center_fraction=part, mean=first.mean, std=first.std)


def make_mesh(options: _config.Mesh) -> Mesh:
    """Devices in axes `data` and `fsdp`.

    Slices follow one another along `data`, so that `fsdp` stays inside a slice: gathers of parameters use its fast
    network, and the gradient's all-reduce is the one collective of the parameters that crosses slices. `ValueError` if
    there are too few devices, or other slices than mesh.slices.
    """
    slices, fsdp, available = options.slices, options.fsdp, jax.device_count()
    data = max(available // (slices * fsdp), 1) if options.data == -1 else options.data
    used = slices * data * fsdp
    if used > available or (jax.process_count() > 1 and used != available):
        given = f"mesh.slices * mesh.data * mesh.fsdp = {slices} * {data} * {fsdp}"
        raise ValueError(f"{given} devices, but there are {available}")
    devices = arranged(jax.devices(), slices, data, fsdp)
    return Mesh(devices, ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)


def arranged(devices: Sequence[Any], slices: int, data: int, fsdp: int) -> np.ndarray:
    """(slices * data, fsdp) devices, those of a slice in consecutive rows.

    TPUs tell their slice, and are placed by their position in it if there are several. CPU and GPU devices are taken
    in their order, which is that of the processes.
    """
    found = Counter(device.slice_index for device in devices if device.platform == "tpu")
    if not found or (slices == 1 and len(found) == 1):
        return np.asarray(devices[: slices * data * fsdp]).reshape(slices * data, fsdp)
    if len(found) != slices:
        raise ValueError(f"mesh.slices must be {len(found)}, the slices of the devices, got {slices}")
    if set(found.values()) != {data * fsdp}:
        sizes = ", ".join(str(found[index]) for index in sorted(found))
        product = f"mesh.data * mesh.fsdp = {data} * {fsdp}"
        raise ValueError(f"{product} must be all devices of each slice; the slices have {sizes}")
    return mesh_utils.create_hybrid_device_mesh((data, fsdp), (slices, 1), devices)


def rows_per_device(config: Config, examples: int, mesh: Mesh, learner: methods.Learner) -> tuple[int, int]:
    """Rows per device of a batch, of which the last are not counted where devices do not divide it; and the number of
    examples of the last batch of an epoch, 0 without `last_batch`; `ValueError` if they do not fit."""
    n, group = config.examples, config.train.group
    if n > examples:
        raise ValueError(f"train.batch_size must be at most the {examples} training examples, got {n}")
    last, size = examples % n if learner.last_batch else 0, mesh.size
    for count, batch in ((n, "a batch"), (last, "the last batch of an epoch")):
        if count % size:
            own = isinstance(config.method, methods.Supervised) or not models.counts_rows(learner.abstract)
            needs = ", as method supervised and batch statistics of groups or other packages need" * own
            same = last > 0 and -(-last // size) == -(-n // size)  # a step tells a last batch by its rows
            if own or same or group is not None:
                what = f"{batch} of {count} examples does not divide over {size} devices{needs}"
                raise ValueError(f"{what}; use --mesh.data 1, or another --train.batch-size than {n}")
        if group is not None and (rows := count // size) % group:
            what = f"train.group must divide the {rows} examples of a device's part of {batch}, got {group}"
            raise ValueError(f"{what}; use fewer devices with --mesh.data, or a larger --train.batch-size")
    return -(-n // size), last


def placed(x: jax.ShapeDtypeStruct, mesh: Mesh | AbstractMesh) -> jax.ShapeDtypeStruct:
    """A shape with its sharding: over `fsdp` along the longest divisible axis, or replicated if there is none."""
    devices = mesh.shape["fsdp"]
    axes = [a for a, size in enumerate(x.shape) if devices > 1 and size % devices == 0]
    split: tuple[str | None, ...] = ()
    if axes and np.prod(x.shape) >= 1024:  # gathering a smaller array costs more than replicating it
        longest = max(axes, key=lambda a: x.shape[a])
        split = tuple("fsdp" if a == longest else None for a in range(x.ndim))
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, PartitionSpec(*split)))
