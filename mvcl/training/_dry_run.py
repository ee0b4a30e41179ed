"""What a config would cost, without its data."""

import jax

from mvcl import data, metrics
from mvcl.training import _program
from mvcl.training._config import Config, check, views_of


def dry_run(config: Config) -> str:
    """Build the true-size step and say what it costs; data that are not there are taken at their published size."""
    note, counted = "", True
    try:
        outline = data.outline(config.data.open()["train"])
    except ValueError as error:
        known = data.expected(config.data)
        note = f"\n  the data is not here ({error})"
        if known is None:
            note += ": 3 channels and host crops are assumed, epochs are not counted"
            # The length of an unknown epoch changes schedules, not what a step costs.
            known, counted = data.Outline(1000 * config.examples, 1000), False
        else:
            note += f": {known.examples:,} training examples are assumed"
        outline = known
    config = check(views_of(config, outline))
    n, k = config.examples, config.views.k
    program = _program.build(config, outline)
    costs = _program.cost(program, config, outline)
    length = f"{program.steps:,}" if counted or config.train.steps is not None else "unknown"
    if counted:
        length += f" ({program.steps / program.steps_per_epoch:.1f} epochs of {outline.examples:,} examples)"
    lines = [
        f"batch        {n:,} examples x {k} views = {n * k:,} views",
        f"steps        {length}",
        f"devices      {program.mesh.size} {jax.devices()[0].platform} "
        f"(data {program.mesh.shape['data']}, fsdp {program.mesh.shape['fsdp']})",
        f"parameters   {int(costs['encoder_parameters']):,} encoder, {int(costs['head_parameters']):,} head",
        f"per step     {costs['flops_per_step_and_device'] / 1e9:,.2f} GFLOP and "
        f"{costs['bytes_per_step_and_device'] / 1e9:,.2f} GB read and written by each device",
        f"memory       {costs['memory_arguments'] / 2**20:,.0f} MiB state and batch, "
        f"{costs['memory_temporaries'] / 2**20:,.0f} MiB temporaries on each device",
    ]
    if counted:
        total = program.steps * costs["flops_per_step_and_device"] * program.mesh.size
        relative = metrics.relative_compute(k, program.steps / program.steps_per_epoch)
        lines.append(
            f"whole run    {total / 1e15:,.4g} PFLOP; {relative:.4g} times the encoder passes of 128 epochs of two "
            "views (Shidani 2024, Eq. 29)"
        )
    return "\n".join(lines) + note
