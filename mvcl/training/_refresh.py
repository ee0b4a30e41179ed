"""Periodic computations of a method over the whole training split."""

from pathlib import Path

import jax
import numpy as np

from mvcl import data
from mvcl.training import _folder, _program
from mvcl.training._run import Run


def refreshed(run: Run, state: _program.State, step: int, workdir: Path) -> _program.State:
    """The state before this step, refreshed if due; a refresh adds a line to refresh.jsonl.

    Raises:
      ValueError: a refresh is due and the examples have no given views.
    """
    program, split = run.program, run.splits["train"]
    refresh = program.learner.refresh
    if refresh is None or not refresh.due(step, program.steps_per_epoch):
        return state
    if not split.spec.given:
        raise ValueError(
            f"method {type(run.config.method).__name__} needs examples with given views, such as tables of features"
        )
    inputs = data.inputs(split, np.arange(len(split)))
    statistics, record = refresh.compute(
        state["params"],
        state["statistics"],
        inputs["views"],
        inputs.get("present"),
        step,
        program.steps_per_epoch,
    )
    place = program.abstract_state()["statistics"]
    statistics = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), statistics, place)
    if jax.process_index() == 0:
        plain = {name: np.asarray(value).tolist() for name, value in record.items()}
        _folder.append_line(workdir / "refresh.jsonl", {"step": step, **plain})
    return {**state, "statistics": statistics}
