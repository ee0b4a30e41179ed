"""What a config would cost, without its data."""

import jax

from mvcl.training import _program
from mvcl.training._config import Config


def dry_run(config: Config) -> str:
    """Build the true-size step and say what it costs; data that is not there is taken to have three channels."""
    try:
        split = config.data.open()["train"]
        shape = split.image_shape
        examples: int | None = len(split)
        channels = shape[2] if shape else split.read(0).shape[2]
        note = ""
    except ValueError as error:
        examples, channels, shape = None, 3, None
        note = f"\n  the data is not here ({error}): 3 channels and host crops are assumed, epochs are not counted"
    n, k = config.examples, config.views.k
    # The length of an unknown epoch changes schedules, not what a step costs.
    program = _program.build(config, image_shape=shape, channels=channels, examples=examples or 1000 * n)
    costs = _program.cost(program, config, shape, channels)
    length = program.steps if examples or config.train.steps is not None else None
    of_epochs = ""
    if examples:
        of_epochs = f" ({program.steps / program.steps_per_epoch:.1f} epochs of {examples:,} examples)"
    lines = [
        f"batch        {n:,} examples x {k} views = {n * k:,} views",
        f"steps        {'unknown' if length is None else f'{length:,}{of_epochs}'}",
        f"devices      {program.mesh.size} {jax.devices()[0].platform} "
        f"(data {program.mesh.shape['data']}, fsdp {program.mesh.shape['fsdp']})",
        f"parameters   {int(costs['encoder_parameters']):,} encoder, {int(costs['head_parameters']):,} head",
        f"per step     {costs['flops_per_step_and_device'] / 1e9:,.2f} GFLOP and "
        f"{costs['bytes_per_step_and_device'] / 1e9:,.2f} GB read and written by each device",
        f"memory       {costs['memory_arguments'] / 2**20:,.0f} MiB state and batch, "
        f"{costs['memory_temporaries'] / 2**20:,.0f} MiB temporaries on each device",
    ]
    return "\n".join(lines) + note
