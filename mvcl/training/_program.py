"""The jitted functions of a run: initial state, step, features; and their cost."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mvcl import augment, data, losses, methods, metrics, models
from mvcl.training import _config, _optimizers
from mvcl.training._config import Config

State = dict[str, Any]
_BATCH = PartitionSpec(("data", "fsdp"))


@dataclasses.dataclass(frozen=True)
class Program:
    """A run's compiled functions.

    Attributes:
      mesh: devices, axes `data`, along which slices follow one another, and `fsdp`.
      steps: updates of the whole run.
      steps_per_epoch: updates in one pass over the training split.
      learner: the method with its networks.
      init: () -> state, a dict of params, statistics, opt, step (updates done), seed and, with an EMA, ema.
      step: (state, batch) -> (state, metrics); the state is donated.
      views: batch -> (n, k, H, W, C) views, or a tuple of k arrays (n, ...) for given views and for sizes that differ.
      apply: (params, statistics, inputs) -> (b, d) features; the inputs are (b, H, W, C) float32 or uint8 images, or
        the output of `mvcl.data.inputs`.
      learning_rate: step -> learning rate.
      chance: () -> the objective's chance level; None if the method minimises something else.
      restart: (state, parts) -> state with a new optimiser state for these parts of the parameters; for methods with
        `restarts`.
    """

    mesh: Mesh
    steps: int
    steps_per_epoch: int
    learner: methods.Learner
    init: Callable[[], State]
    step: Callable[[State, Any], tuple[State, dict[str, jax.Array]]]
    views: Callable[[Any], Any]
    apply: Callable[[Any, Any, Any], jax.Array]
    learning_rate: optax.Schedule
    chance: Callable[[], jax.Array] | None
    restart: Callable[[State, tuple[str, ...]], State]

    @property
    def batch_sharding(self) -> NamedSharding:
        """Rows split over all devices."""
        return NamedSharding(self.mesh, _BATCH)

    def abstract_state(self) -> State:
        """Shapes, dtypes and shardings of the state."""
        shapes = jax.eval_shape(self.init)
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
            shapes,
            _state_sharding(shapes, self.mesh),
        )

    def evaluated(self, state: State) -> tuple[Any, Any]:
        """Parameters and statistics to evaluate: the moving average of the parameters if there is one."""
        return state.get("ema", state["params"]), state["statistics"]


def build(config: Config, outline: data.Outline) -> Program:
    """The compiled functions of a config for data of this outline.

    The seed is an argument of the compiled functions, part of the state. Configs that differ in nothing else have them
    in common, so that runs one after the other compile once.

    Raises:
      ValueError: a batch does not divide over the devices, or is larger than the split; or the method's options do
        not allow this optimiser.
    """
    of_any = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=0))
    mesh = make_mesh(config.mesh)
    try:
        hash((of_any, outline))
    except TypeError:  # a field of the user's own, such as a dict
        program = _built.__wrapped__(of_any, outline, mesh)
    else:
        program = _built(of_any, outline, mesh)
    seed = np.uint32(config.train.seed % 2**32)
    init: Any = program.init
    draw: Any = program.views
    return dataclasses.replace(program, init=partial(init, seed), views=partial(draw, seed))


@lru_cache(maxsize=2)
def _built(config: Config, outline: data.Outline, mesh: Mesh) -> Program:
    """`build` for any seed, which `init` and `views` take as their first argument."""
    n, k = config.examples, config.views.k
    rows = _rows(n, outline.examples, mesh)
    learner = _learner(config, outline, mesh)
    steps_per_epoch = data.epoch_steps(outline.examples, n, last_batch=learner.last_batch)
    if learner.last_batch:
        _check_last(outline.examples % n, n, mesh, config.train.group)
    steps = (
        config.train.steps if config.train.steps is not None else round(config.train.epochs * steps_per_epoch)
    )
    if steps < 1:
        raise ValueError(f"train.epochs = {config.train.epochs} is less than one step of {n} examples")
    rule, learning_rate = _optimizers.build(
        config.optimizer, examples=n, steps=steps, steps_per_epoch=steps_per_epoch
    )
    if learner.restarts_parts:
        names = tuple(jax.eval_shape(learner.init, jax.random.key(0))[0])
        rule = _by_part(rule, config.optimizer, names, n)
    of_views = methods.of_views(config.objective, config.views.global_views)
    objective = _sharded(of_views, losses.takes(config.objective), mesh, _group(config.train.group, rows))
    draw = _draw(config, outline.spec)

    microbatches = _microbatches(config.train.microbatch, rows, mesh)
    takes_key = losses.takes(config.objective).key

    def keyed(key: jax.Array) -> methods.OfViews:
        return partial(objective, key=key) if takes_key else objective

    def loss(params: Any, state: State, batch: Any) -> tuple[jax.Array, Any]:
        seed = state["seed"]
        of_step = keyed(jax.random.fold_in(jax.random.key(seed), state["step"]))
        given = methods.Batch(batch, partial(draw, seed), microbatches)
        return learner.loss(params, state["statistics"], given, of_step)

    def init(seed: jax.Array) -> State:
        params, statistics = learner.init(jax.random.key(seed))
        state = {
            "params": params,
            "statistics": statistics,
            "opt": rule.init(params),
            "step": jnp.zeros((), jnp.int32),
            "seed": jnp.asarray(seed, jnp.uint32),
        }
        return state | ({"ema": jax.tree.map(jnp.copy, params)} if config.train.ema else {})

    sharding = _state_sharding(jax.eval_shape(init, np.uint32(0)), mesh)
    replicated = NamedSharding(mesh, PartitionSpec())

    @partial(jax.jit, out_shardings=replicated)
    def chance(seed: jax.Array) -> jax.Array:  # seed is an argument, or XLA folds the draws as constants
        return methods.chance_level(
            lambda z: learner.level(keyed(jax.random.key(seed)), z), k, n, learner.dimension, seed
        )

    return Program(
        mesh=mesh,
        steps=steps,
        steps_per_epoch=steps_per_epoch,
        learner=learner,
        init=jax.jit(init, out_shardings=sharding),
        step=jax.jit(
            _step(config, steps, learner, rule, loss),
            donate_argnums=0,
            out_shardings=(sharding, replicated),
        ),
        views=jax.jit(draw),
        apply=_apply(config, outline.spec, learner),
        learning_rate=jax.jit(learning_rate),
        chance=partial(chance, np.uint32(0)) if learner.has_level else None,
        restart=jax.jit(partial(_restart, rule), static_argnums=1, donate_argnums=0, out_shardings=sharding),
    )


def _rows(n: int, examples: int, mesh: Mesh) -> int:
    """Examples per device of a batch of n."""
    if n > examples:
        raise ValueError(
            f"train.batch_size must be at most the {examples} training examples, got a batch of {n}"
        )
    rows, left = divmod(n, mesh.size)
    if left:
        sizes = [size for size in (n - left, n - left + mesh.size) if 0 < size <= examples]
        use = f"use --train.batch-size {' or '.join(map(str, sizes))}, or " if sizes else "use "
        raise ValueError(
            f"a batch of {n} examples does not divide over {mesh.size} devices; {use}fewer devices with --mesh.data"
        )
    return rows


def _check_last(last: int, n: int, mesh: Mesh, group: int | None) -> None:
    """Raise `ValueError` unless the examples that are left can be a batch."""
    if last == 1:
        raise ValueError(
            f"the last batch of an epoch would have one example, which has no negatives; use another "
            f"--train.batch-size than {n}, or leave the last batch out"
        )
    if last % mesh.size:
        raise ValueError(
            f"the last batch of an epoch has {last} examples, which do not divide over {mesh.size} devices; use "
            "--mesh.data 1, another --train.batch-size, or leave the last batch out"
        )
    if group is not None and last // mesh.size % group:
        raise ValueError(
            f"train.group must divide the {last // mesh.size} examples of a device's last batch of an epoch, got "
            f"{group}"
        )


def _by_part(
    rule: optax.GradientTransformation, options: _optimizers.Optimizer, names: tuple[str, ...], examples: int
) -> optax.GradientTransformationExtraArgs:
    """The rule with a state for each part of the parameters, so that parts can start again on their own."""
    rate = _optimizers.peak(options, examples)
    varies = options.warmup_epochs > 0 or options.end_learning_rate != rate
    if varies or options.end_weight_decay not in (None, options.weight_decay):
        raise ValueError(
            "an optimiser that starts again needs a constant learning rate and weight decay, or its schedule starts "
            f"again too; use --optimizer.warmup-epochs 0 --optimizer.end-learning-rate {rate}"
        )
    if options.clip_norm is not None:
        raise ValueError(
            "an optimiser that starts again has a state for each part of the network, over which "
            f"optimizer.clip_norm = {options.clip_norm:g} cannot take one norm; use --optimizer.clip-norm None"
        )

    def parts(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(lambda path, _: path[0].key, params)

    return optax.partition(dict.fromkeys(names, rule), parts)


def _restart(rule: optax.GradientTransformation, state: State, parts: tuple[str, ...]) -> State:
    """The state with a new optimiser state for these parts."""
    new, old = rule.init(state["params"]), state["opt"]
    inner = {name: (new if name in parts else old).inner_states[name] for name in old.inner_states}
    return {**state, "opt": old._replace(inner_states=inner)}


def _learner(config: Config, outline: data.Outline, mesh: Mesh) -> methods.Learner:
    """The method with its networks."""
    dtype = {"auto": None, "float32": jnp.float32, "bfloat16": jnp.bfloat16}[config.train.precision]
    if dtype is None:
        dtype = jnp.float32 if mesh.devices.flat[0].platform == "cpu" else jnp.bfloat16
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
            dtype=dtype,
        )
    )


def _draw(config: Config, spec: data.ExampleSpec) -> Callable[[jax.Array, dict[str, Any]], Any]:
    """(seed, batch) -> views: drawn from images, or the given views."""
    policies = config.policies
    for policy in () if spec.given else policies:
        numbers = max(len(policy.mean), len(policy.std))
        if numbers not in (1, spec.channels):
            raise ValueError(
                f"views.policy normalises {numbers} channels and the images have {spec.channels}; use "
                "--views.policy.mean 0.5 --views.policy.std 0.5, or 0 and 1 for none"
            )

    def draw(seed: jax.Array, inputs: dict[str, Any]) -> Any:
        if spec.given:
            return inputs["views"]
        return augment.draw_views(policies, inputs["images"], seed, inputs["epoch"], inputs["index"])

    return draw


def _step(
    config: Config,
    steps: int,
    learner: methods.Learner,
    rule: optax.GradientTransformation,
    loss: Callable[..., tuple[jax.Array, Any]],
) -> Callable[[State, Any], tuple[State, dict[str, jax.Array]]]:
    """(state, batch) -> (state after one update, values to log)."""

    def step(state: State, batch: dict[str, jax.Array]) -> tuple[State, dict[str, jax.Array]]:
        (value, (statistics, z, measures)), gradient = jax.value_and_grad(loss, has_aux=True)(
            state["params"], state, batch
        )
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


def _apply(config: Config, spec: data.ExampleSpec, learner: methods.Learner) -> Callable[..., jax.Array]:
    """(params, statistics, inputs) -> features; images are transformed by the evaluation policy."""
    output, resize = config.evaluation.features, evaluation_view(config, spec.image_shape)
    if output not in learner.outputs:
        raise ValueError(
            f"evaluation.features must be one of {', '.join(learner.outputs)} for method "
            f"{type(config.method).__name__}, got {output!r}"
        )

    def apply(params: Any, statistics: Any, inputs: Any) -> jax.Array:
        x = inputs if spec.given else {"images": resize(inputs)}
        return learner.features(params, statistics, x, output)

    return apply


def evaluation_policy(config: Config, image_shape: tuple[int, int, int] | None) -> augment.Policy:
    """The policy of evaluation: the whole image if it has the encoder's size, else its central 7/8."""
    size = config.policies[0].image_size
    whole = image_shape is not None and min(image_shape[:2]) <= size
    return augment.evaluation(
        image_size=size,
        center_fraction=1.0 if whole else 0.875,
        mean=config.policies[0].mean,
        std=config.policies[0].std,
    )


def evaluation_view(
    config: Config, image_shape: tuple[int, int, int] | None
) -> Callable[[jax.Array], jax.Array]:
    """(b, H, W, C) images, or crops from the host, to (b, size, size, C) inputs of the encoder; deterministic."""
    return _resized(evaluation_policy(config, image_shape), image_shape is None)


@lru_cache(maxsize=8)  # the same function compiles once
def _resized(policy: augment.Policy, cropped: bool) -> Callable[[jax.Array], jax.Array]:
    def of_one(image: jax.Array) -> jax.Array:
        return augment.apply_policy(policy, jax.random.key(0), image, cropped=cropped)  # draws nothing

    return jax.vmap(of_one)


def make_mesh(options: _config.Mesh) -> Mesh:
    """Devices in axes `data` and `fsdp`.

    Slices follow one another along `data`, so that `fsdp` stays inside a slice: gathers of parameters use its fast
    network, and the gradient's all-reduce is the one collective of the parameters that crosses slices. An axis of its
    own would change no collective, since the batch is always split over slices and `data` together.

    Raises:
      ValueError: there are too few devices, or other slices than mesh.slices.
    """
    slices, fsdp, available = options.slices, options.fsdp, jax.device_count()
    data = options.data if options.data != -1 else max(available // (slices * fsdp), 1)
    used = slices * data * fsdp
    if used > available or (jax.process_count() > 1 and used != available):
        named = f"mesh.slices * mesh.data * mesh.fsdp = {slices} * {data} * {fsdp}"
        if slices == 1:
            named = f"mesh.data * mesh.fsdp = {data} * {fsdp}"
        raise ValueError(f"{named} devices, but there are {available}")
    return Mesh(
        arranged(jax.devices(), slices, data, fsdp),
        ("data", "fsdp"),
        axis_types=(AxisType.Auto, AxisType.Auto),
    )


def arranged(devices: Sequence[Any], slices: int, data: int, fsdp: int) -> np.ndarray:
    """(slices * data, fsdp) devices, those of a slice in consecutive rows.

    TPUs tell their slice, and are placed by their position in it if there are several. CPU and GPU devices are taken
    in their order, which is that of the processes.

    Raises:
      ValueError: TPUs are in another number of slices, or a slice has other than data * fsdp devices.
    """
    found = Counter(device.slice_index for device in devices if device.platform == "tpu")
    if not found or (slices == 1 and len(found) == 1):
        return np.asarray(devices[: slices * data * fsdp]).reshape(slices * data, fsdp)
    if len(found) != slices:
        raise ValueError(
            f"mesh.slices = {slices}, but the devices are in {len(found)} slices; use --mesh.slices {len(found)}"
        )
    if set(found.values()) != {data * fsdp}:
        sizes = ", ".join(str(found[index]) for index in sorted(found))
        raise ValueError(
            f"mesh.data * mesh.fsdp = {data} * {fsdp} must be all devices of each slice; the slices have {sizes}"
        )
    return mesh_utils.create_hybrid_device_mesh((data, fsdp), (slices, 1), devices)


def abstract_batch(program: Program, config: Config, outline: data.Outline) -> dict[str, Any]:
    """Shapes, dtypes and shardings of a global batch."""
    n, k = config.examples, config.views.k

    def rows(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((n, *shape), dtype, sharding=program.batch_sharding)

    label = jnp.int32 if outline.classes else jnp.float32
    batch: dict[str, Any] = {
        "labels": rows((), label),
        "index": rows((), jnp.int32),
        "epoch": rows((), jnp.int32),
    }
    if not outline.spec.given:
        if outline.spec.image_shape is not None:
            return batch | {"images": rows(outline.spec.image_shape, jnp.uint8)}
        sizes, channels = [policy.image_size for policy in config.policies], outline.spec.channels
        return batch | {"images": tuple(rows((size, size, channels), jnp.uint8) for size in sizes)}
    batch["views"] = tuple(rows(shape, jnp.float32) for shape in outline.spec.view_shapes)
    return batch | ({"present": rows((k,), jnp.bool_)} if outline.missing else {})


def cost(program: Program, config: Config, outline: data.Outline) -> dict[str, float]:
    """Cost of a step, from XLA's analysis of the compiled program.

    Returns:
      Parameters of encoder and head; per device, FLOPs of a step, bytes read and written by it, and bytes of memory.
    """
    state = program.abstract_state()
    batch = abstract_batch(program, config, outline)
    compiled = program.step.lower(state, batch).compile()  # type: ignore[attr-defined]
    analysis, memory = compiled.cost_analysis(), compiled.memory_analysis()
    network = jax.eval_shape(lambda s: program.learner.network(s["params"], s["statistics"]), state)
    return {
        "encoder_parameters": models.parameter_count(network.encoder),
        "head_parameters": models.parameter_count(network.head),
        "flops_per_step_and_device": float(analysis.get("flops", float("nan"))),
        "bytes_per_step_and_device": float(analysis.get("bytes accessed", float("nan"))),
        "memory_arguments": float(memory.argument_size_in_bytes),
        "memory_temporaries": float(memory.temp_size_in_bytes),
    }


def encoder_flops(
    program: Program, config: Config, outline: data.Outline
) -> tuple[tuple[int, int, float], ...]:
    """Of views drawn in several sizes, largest first: (size, number of views, FLOPs of a step and device).

    FLOPs are those of value and gradient of the encoder that is evaluated, for all views of the size: what XLA's
    analysis has for a second image, since some work is done once for all images of a batch. A second encoder, heads and
    the objective are not among them. Empty for one size.
    """
    counts = Counter(policy.image_size for policy in config.policies)
    if outline.spec.given or len(counts) == 1 or not program.learner.one_encoder:
        return ()
    state = jax.eval_shape(program.init)
    network = jax.eval_shape(lambda s: program.learner.network(s["params"], s["statistics"]), state)
    structure, params, *rest = nnx.split(network.encoder, nnx.Param, ...)

    def total(params: Any, rest: Any, images: jax.Array) -> jax.Array:
        return nnx.merge(structure, params, *rest, copy=True)(images).sum()

    found = []
    for size, count in sorted(counts.items(), reverse=True):
        of_images = []
        for images in (1, 2):
            batch = jax.ShapeDtypeStruct((images, size, size, outline.spec.channels), jnp.float32)
            compiled: Any = jax.jit(jax.value_and_grad(total)).lower(params, rest, batch).compile()
            of_images.append(float(compiled.cost_analysis().get("flops", float("nan"))))
        one = of_images[1] - of_images[0]
        found.append((size, count, one * count * config.examples / program.mesh.size))
    return tuple(found)


def _group(group: int | None, rows: int) -> int | None:
    """The examples of a group, where devices hold whole groups."""
    if group is not None and rows % group:
        raise ValueError(
            f"train.group must divide the {rows} examples of a device's batch, got {group}; use fewer devices with "
            "--mesh.data, or a larger --train.batch-size"
        )
    return group


def _in_groups(of_views: methods.OfViews, takes: losses.Takes, group: int | None) -> methods.OfViews:
    """The mean of an objective over groups of consecutive instances; None for all instances in one group.

    Of a stack of problems, the mean of the groups' sums; each group's problems are solved one from another.

    The groups are taken one after the other: the solver of each stops by itself, and one tensor of costs is held.
    """
    if group is None:
        return of_views

    def mean(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        places = {name: takes.axis_of_instances(name, x) for name, x in extra.items()}
        whole = {name: x for name, x in extra.items() if places[name] is None}
        split = {
            name: _cut(x, axis, group) for name, x in extra.items() if (axis := places[name]) is not None
        }

        def of_group(given: tuple[jax.Array, dict[str, jax.Array]]) -> tuple[jax.Array, methods.Measures]:
            return of_views(given[0], **given[1], **whole)

        values = jax.lax.map(of_group, (_cut(z, z.ndim - 2, group), split))
        return jax.tree.map(lambda x: x.mean(0), values)

    return mean


def _cut(x: jax.Array, axis: int, group: int) -> jax.Array:
    """(groups, ...): the slices of an axis."""
    shape = (*x.shape[:axis], x.shape[axis] // group, group, *x.shape[axis + 1 :])
    return jnp.moveaxis(x.reshape(shape), axis, 0)


def _sharded(
    of_views: methods.OfViews, takes: losses.Takes, mesh: Mesh, group: int | None
) -> methods.OfViews:
    """The objective of (k, n, d) views, or of a (p, k, n, d) stack of problems, whose rows are split over the mesh.

    An objective with `axis_name` computes its rows of the similarities on each device; others are computed on the
    gathered embeddings; the objective of groups is computed on the device of each group. A `mask` (k, n) is split as
    the views are; other keywords, such as a queue, are replicated.
    """
    of_views = _in_groups(of_views, takes, group)
    if mesh.size == 1:
        return of_views
    axes: Any = tuple(name for name in mesh.axis_names if mesh.shape[name] > 1)
    axes = axes[0] if len(axes) == 1 else axes
    whole = PartitionSpec()
    if group is None and not takes.axis_name:

        def gathered(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
            everywhere = jax.lax.with_sharding_constraint((z, extra), NamedSharding(mesh, whole))
            return of_views(everywhere[0], **everywhere[1])

        return gathered

    def local(z: jax.Array, extra: dict[str, jax.Array]) -> tuple[jax.Array, methods.Measures]:
        if group is not None:
            return jax.lax.pmean(of_views(z, **extra), axes)
        return of_views(z, axis_name=axes, **extra)

    def split(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        places = {name: takes.axis_of_instances(name, x) for name, x in extra.items()}
        specs = {
            name: whole if axis is None else PartitionSpec(*(None,) * axis, axes)
            for name, axis in places.items()
        }
        by_row = PartitionSpec(*(None,) * (z.ndim - 2), axes)
        return jax.shard_map(local, mesh=mesh, in_specs=(by_row, specs), out_specs=whole)(z, extra)

    return split


def _microbatches(microbatch: int | None, rows: int, mesh: Mesh) -> methods.Microbatches | None:
    """Microbatches that take rows of every device, so that all devices share each of them."""
    if microbatch is None or microbatch >= rows:
        return None
    if rows % microbatch:
        raise ValueError(
            f"train.microbatch must divide the {rows} examples of a device's batch, got {microbatch}"
        )
    count = rows // microbatch
    over_devices = NamedSharding(mesh, PartitionSpec(None, ("data", "fsdp")))
    constrain = partial(jax.lax.with_sharding_constraint, shardings=over_devices)

    def split(inputs: Any) -> Any:
        def cut(x: jax.Array) -> jax.Array:
            x = x.reshape((mesh.size, count, microbatch, *x.shape[1:])).swapaxes(0, 1)
            return constrain(x.reshape((count, mesh.size * microbatch, *x.shape[3:])))

        return jax.tree.map(cut, inputs)

    def join(outputs: jax.Array) -> jax.Array:
        tail = outputs.shape[2:]
        outputs = constrain(outputs).reshape((count, mesh.size, outputs.shape[1] // mesh.size, *tail))
        joined = outputs.swapaxes(0, 1).reshape((-1, *tail))
        return jax.lax.with_sharding_constraint(joined, NamedSharding(mesh, _BATCH))

    return methods.Microbatches(split, join)


def _state_sharding(shapes: Any, mesh: Mesh) -> Any:
    """Each array is split over `fsdp` along its longest divisible axis, or replicated if it has none."""
    devices = mesh.shape["fsdp"]

    def place(x: jax.ShapeDtypeStruct) -> NamedSharding:
        axes = [a for a, size in enumerate(x.shape) if devices > 1 and size % devices == 0]
        if not axes or np.prod(x.shape) < 1024:  # gathering a small array costs more than replicating it
            return NamedSharding(mesh, PartitionSpec())
        longest = max(axes, key=lambda a: x.shape[a])
        return NamedSharding(
            mesh, PartitionSpec(*(("fsdp" if a == longest else None) for a in range(x.ndim)))
        )

    return jax.tree.map(place, shapes)
