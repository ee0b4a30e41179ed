"""The cost of a config's step and run, as XLA counts it; its data may be absent."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from mvcl import _buckets, _progress, data, metrics, models
from mvcl.training import _optimizers
from mvcl.training._config import Config, suited_to
from mvcl.training._program import Program, build


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Cost of a config's step at full size and of its run, from XLA's analysis of the compiled program.

    XLA counts the body of a loop once: solver iterations and microbatches are not multiplied.
    """

    config: Config  # as data and devices fix it
    devices: int
    encoder_parameters: int  # without a predictor or a decoder, as those of the head
    head_parameters: int
    flops: float  # of a step, per device, as the bytes
    bytes: float  # read and written
    state_bytes: float  # with the batch
    temporary_bytes: float
    steps: int | None  # of the run; None if the length of an epoch is unknown
    epochs: float | None  # of the run, and examples of one; None if unknown
    training_examples: int | None
    evaluation_flops: float | None  # of `evaluation.passes` encodings of the training images; None if unknown
    relative_compute: float | None  # encoder passes by those of 128 epochs of 2 views (Shidani 2024, Eq. 29)
    assumed: str  # of missing data


def absent(source: data.Source) -> str:
    """Why data cannot be opened, with their published size; empty if they can be."""
    try:
        source.open()
    except (ValueError, OSError) as error:
        known = data.expected(source)
        return f"{error}" + (f" (published: {known.examples:,} training examples)" if known else "")
    return ""


def outlined(config: Config) -> tuple[Config, data.Outline, str, bool]:
    """A config as its data fix it, their outline, what is assumed of missing data, and whether an epoch is known."""
    assumed, counted = "", True
    try:
        with _progress.during("opening the data"):
            outline = config.data.open()["train"].outline
    except ValueError as error:
        known, path = data.expected(config.data), getattr(config.data, "path", "")
        if path and (known is None or _buckets.path(path).exists()):
            raise  # it is mistyped, or damaged
        guessed = "assumed 3 channels and host crops; epochs are not counted"
        what = f"{known.examples:,} training examples are assumed" if known else guessed
        assumed, counted = f"the data are missing ({error}): {what}", known is not None
        # The assumed length of an epoch affects schedules, not the cost of a step.
        outline = known or data.Outline(1000 * config.examples, 1000, data.ExampleSpec(((None, None, 3),)))
    return suited_to(config, outline), outline, assumed, counted


def estimate(config: Config) -> Estimate:
    """Compile the step at full size; missing data are assumed to have their published size."""
    config, outline, assumed, counted = outlined(config)
    program = build(config, outline)
    state, batch = program.abstract_state, abstract_batch(program, config, outline)
    with _progress.during("compiling the training step"), models.xla_convolutions():
        compiled = program.step.lower(state, batch).compile()  # type: ignore[attr-defined]
    analysis, memory = compiled.cost_analysis(), compiled.memory_analysis()
    network = jax.eval_shape(program.learner.network, state["params"], state["statistics"])
    epochs = program.steps / program.steps_per_epoch
    encoded = outline.examples * config.evaluation.passes
    return Estimate(
        config=config,
        devices=program.mesh.size,
        encoder_parameters=models.parameter_count(network.encoder),
        head_parameters=models.parameter_count(network.head),
        flops=float(analysis.get("flops", math.nan)),
        bytes=float(analysis.get("bytes accessed", math.nan)),
        state_bytes=float(memory.argument_size_in_bytes),
        temporary_bytes=float(memory.temp_size_in_bytes),
        steps=program.steps if counted or config.train.steps is not None else None,
        epochs=epochs if counted else None,
        training_examples=outline.examples if counted else None,
        evaluation_flops=encoded * _encoding(program, config, outline) if counted else None,
        relative_compute=metrics.relative_compute(config.views.k, epochs) if counted else None,
        assumed=assumed,
    )


def _encoding(program: Program, config: Config, outline: data.Outline) -> float:
    """FLOPs of encoding an example for evaluation."""
    if not (spec := outline.spec).given:
        one = dataclasses.replace(spec, shapes=spec.shapes[:1], view_names=())
        outline = dataclasses.replace(outline, spec=one)
    batch = batch_of(config, outline, config.evaluation.batch_size)
    images = batch.get("images", batch)
    inputs = images[0] if isinstance(images, tuple) else images
    with _progress.during("compiling the encoder"), models.xla_convolutions():
        compiled = jax.jit(program.apply).lower(program.abstract_state, inputs).compile()
    return float((compiled.cost_analysis() or {}).get("flops", math.nan)) / config.evaluation.batch_size


def dry_run(config: Config) -> str:
    """The estimate of a config as text."""
    e = estimate(config)
    n, k, rate = e.config.examples, e.config.views.k, _optimizers.peak(e.config.optimizer, e.config.examples)
    length = "unknown" if e.steps is None else f"{e.steps:,}"
    if e.epochs is not None:
        length += f" ({e.epochs:.1f} epochs of {e.training_examples:,} examples)"
    lines = [
        f"batch        {n:,} examples x {k} views = {n * k:,} views{e.config.batch_origin}",
        f"rate         {rate:.4g}, the peak learning rate for this batch",
        f"steps        {length}",
        f"devices      {e.devices} {jax.devices()[0].platform}",
        f"parameters   {e.encoder_parameters:,} encoder, {e.head_parameters:,} head",
        f"per step     {e.flops / 1e9:,.2f} GFLOP and {e.bytes / 1e9:,.2f} GB read and written by each device",
        f"memory       {e.state_bytes / 2**20:,.0f} MiB state and batch, "
        f"{e.temporary_bytes / 2**20:,.0f} MiB temporaries on each device",
    ]
    if e.steps is not None:
        lines.append(f"whole run    {e.steps * e.flops * e.devices / 1e15:,.4g} PFLOP")
    if e.evaluation_flops:
        encoded = f"{e.config.evaluation.passes} x {e.training_examples:,} examples encoded"
        lines.append(f"evaluation   {e.evaluation_flops / 1e15:,.4g} PFLOP more, {encoded}")
    if e.relative_compute is not None:
        passes = "times the encoder passes of 128 epochs of two views (Shidani 2024, Eq. 29)"
        lines.append(f"relative     {e.relative_compute:.4g} {passes}")
    return "\n".join(lines) + (f"\n  {e.assumed}" if e.assumed else "")


def abstract_batch(program: Program, config: Config, outline: data.Outline) -> dict[str, Any]:
    """Shapes, dtypes and shardings of a global batch."""
    rows = config.examples + -config.examples % program.mesh.size
    return batch_of(config, outline, rows, program.batch_sharding)


def batch_of(config: Config, outline: data.Outline, examples: int, sharding: Any = None) -> dict[str, Any]:
    """Shapes and dtypes of so many examples."""
    spec = outline.spec

    def rows(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((examples, *shape), dtype, sharding=sharding)

    labels, number = rows((), jnp.int32 if outline.classes else jnp.float32), rows((), jnp.int32)
    batch: dict[str, Any] = {"labels": labels, "index": number, "epoch": number}
    if spec.given:
        batch["views"] = tuple(rows(shape, jnp.float32) for shape in spec.view_shapes)
        return batch | ({"present": rows((config.views.k,), jnp.bool_)} if outline.missing else {})
    if spec.image_shape is not None:
        several = () if spec.views is None else (spec.views,)
        return batch | {"images": rows((*several, *spec.image_shape), jnp.uint8)}
    sizes = [(policy.image_size, policy.image_size, spec.channels) for policy in config.policies]
    return batch | {"images": tuple(rows(size, jnp.uint8) for size in sizes)}
