"""What a finished run has cost: updates, encoder passes and FLOPs."""

import json
from pathlib import Path

from mvcl import metrics, training
from mvcl.studies._task import Values, results


def with_compute(folder: Path) -> list[Values]:
    """`results`, and what the run has cost.

    Args:
      folder: of the finished run.

    Returns:
      One entry: the results; "updates"; "relative compute", encoder passes by those of 128 epochs of two views
      (Shidani 2024, Eq. 29); "PFLOP" of all devices and updates, from XLA's analysis of the step, which counts the body
      of a loop once.
    """
    config = training.load(folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    epochs = max(line["epoch"] for line in lines if "epoch" in line)
    cost = training.estimate(config)
    updates = json.loads((folder / "evaluation.json").read_text())["step"]
    return [
        values
        | {
            "updates": updates,
            "relative compute": metrics.relative_compute(config.views.k, epochs),
            "PFLOP": updates * cost.flops * cost.devices / 1e15,
        }
        for values in results(folder)
    ]
