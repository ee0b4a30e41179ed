"""Estimate the cost of a config; its data may be absent."""

import dataclasses
import math
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from mvcl import _progress, data, metrics, models
from mvcl.training import _optimizers, _program, _sharding
from mvcl.training._config import Config, check, divided, suited_to


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Cost of a config's step at full size and of its run, from XLA's analysis of the compiled program.

    XLA counts the body of a loop once: solver iterations and microbatches are not multiplied.

    Attributes:
      examples: n, of a batch.
      views: k.
      batch_origin: how views.strategy=fixed makes n; empty for `growing`.
      learning_rate: peak learning rate, after its scaling with n.
      devices: their number.
      encoder_parameters, head_parameters: without a predictor or a decoder.
      flops, bytes: FLOPs of a step, and bytes that it reads and writes, per device.
      flops_by_size: of views of several sizes, as from `encoder_flops`; empty for one size.
      state_bytes, temporary_bytes: of state and batch, and of temporaries, per device.
      steps: of the run; None if the length of an epoch is unknown.
      training_examples: of the training split; None if unknown.
      relative_compute: encoder passes relative to 128 epochs of two views (Shidani 2024, Eq. 29); None if unknown.
      assumed: the assumptions about missing data; empty if the data are present.
    """

    examples: int
    views: int
    batch_origin: str
    learning_rate: float
    devices: int
    encoder_parameters: int
    head_parameters: int
    flops: float
    flops_by_size: tuple[tuple[int, int, float], ...]
    bytes: float
    state_bytes: float
    temporary_bytes: float
    steps: int | None
    training_examples: int | None
    relative_compute: float | None
    assumed: str


def estimate(config: Config) -> Estimate:
    """Compile the step at full size; missing data are assumed to have their published size.

    Args:
      config: the experiment.

    Raises:
      ValueError: the config cannot work.
    """
    assumed, counted = "", True
    try:
        with _progress.during("opening the data"):
            outline = config.data.open()["train"].outline
    except ValueError as error:
        known = data.expected(config.data)
        assumed = f"the data are missing ({error}): "
        if known is None:  # the assumed epoch length affects schedules, not the cost of a step
            assumed += "assumed 3 channels and host crops; epochs are not counted"
            counted = False
            outline = data.Outline(1000 * config.examples, 1000, data.ExampleSpec(((None, None, 3),)))
        else:
            assumed += f"{known.examples:,} training examples are assumed"
            outline = known
    config = divided(check(suited_to(config, outline)), _sharding.make_mesh(config.mesh).size)
    with _progress.during("building the model"):
        program = _program.build(config, outline)
    state, batch = program.abstract_state, _program.abstract_batch(program, config, outline)
    with _progress.during("compiling the training step"):
        compiled = program.step.lower(state, batch).compile()  # type: ignore[attr-defined]
    analysis, memory = compiled.cost_analysis(), compiled.memory_analysis()
    network = jax.eval_shape(program.learner.network, state["params"], state["statistics"])
    with _progress.during("compiling the encoder for each size of view"):
        flops_by_size = encoder_flops(program, config, outline)
    epochs = program.steps / program.steps_per_epoch
    return Estimate(
        examples=config.examples,
        views=config.views.k,
        batch_origin=config.batch_origin,
        learning_rate=_optimizers.peak(config.optimizer, config.examples),
        devices=program.mesh.size,
        encoder_parameters=models.parameter_count(network.encoder),
        head_parameters=models.parameter_count(network.head),
        flops=float(analysis.get("flops", math.nan)),
        flops_by_size=flops_by_size,
        bytes=float(analysis.get("bytes accessed", math.nan)),
        state_bytes=float(memory.argument_size_in_bytes),
        temporary_bytes=float(memory.temp_size_in_bytes),
        steps=program.steps if counted or config.train.steps is not None else None,
        training_examples=outline.examples if counted else None,
        relative_compute=metrics.relative_compute(config.views.k, epochs) if counted else None,
        assumed=assumed,
    )


def dry_run(config: Config) -> str:
    """The estimate of a config as text."""
    e = estimate(config)
    length = "unknown" if e.steps is None else f"{e.steps:,}"
    if e.steps is not None and e.training_examples is not None:
        epochs = e.steps / (e.training_examples // e.examples)
        length += f" ({epochs:.1f} epochs of {e.training_examples:,} examples)"
    lines = [
        f"batch        {e.examples:,} examples x {e.views} views = {e.examples * e.views:,} views{e.batch_origin}",
        f"rate         {e.learning_rate:.4g}, the peak learning rate for this batch",
        f"steps        {length}",
        f"devices      {e.devices} {jax.devices()[0].platform}",
        f"parameters   {e.encoder_parameters:,} encoder, {e.head_parameters:,} head",
        f"per step     {e.flops / 1e9:,.2f} GFLOP and {e.bytes / 1e9:,.2f} GB read and written by each device",
        f"memory       {e.state_bytes / 2**20:,.0f} MiB state and batch, "
        f"{e.temporary_bytes / 2**20:,.0f} MiB temporaries on each device",
    ]
    for size, count, flops in e.flops_by_size:
        lines.append(
            f"  {size:>4} pixels {flops / 1e9:,.2f} GFLOP for the encoder's value and gradient of {count} views"
        )
    if e.steps is not None:
        lines.append(f"whole run    {e.steps * e.flops * e.devices / 1e15:,.4g} PFLOP")
    if e.relative_compute is not None:
        lines.append(
            f"relative     {e.relative_compute:.4g} times the encoder passes of 128 epochs of two views "
            f"(Shidani 2024, Eq. 29{'; views of all sizes count alike' if e.flops_by_size else ''})"
        )
    return "\n".join(lines) + (f"\n  {e.assumed}" if e.assumed else "")


def encoder_flops(
    program: _program.Program, config: Config, outline: data.Outline
) -> tuple[tuple[int, int, float], ...]:
    """Of views drawn in several sizes, largest first: (size, number of views, FLOPs of a step and device).

    FLOPs are those of value and gradient of the encoder that is evaluated, for all views of the size, as XLA counts
    them before it compiles. A second encoder, heads and the objective are not among them. Empty for one size.
    """
    counts = Counter(policy.image_size for policy in config.policies)
    if outline.spec.given or len(counts) == 1 or not program.learner.one_encoder:
        return ()
    state, found = program.abstract_state, []
    network = jax.eval_shape(program.learner.network, state["params"], state["statistics"])
    structure, params, *rest = nnx.split(network.encoder, nnx.Param, ...)

    def total(params: Any, rest: Any, images: jax.Array) -> jax.Array:
        return nnx.merge(structure, params, *rest, copy=True)(images).sum()

    for size, count in sorted(counts.items(), reverse=True):
        shape = (count * config.examples, size, size, outline.spec.channels)
        images = jax.ShapeDtypeStruct(shape, jnp.float32)
        counted: Any = jax.jit(jax.value_and_grad(total)).lower(params, rest, images).cost_analysis()
        found.append((size, count, float(counted.get("flops", math.nan)) / program.mesh.size))
    return tuple(found)
