"""Periodic computations of a method over the whole training split."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from mvcl import data, metrics
from mvcl.training import _folder, _program
from mvcl.training._log import Log
from mvcl.training._run import Run


def refreshed(run: Run, state: _program.State, step: int, workdir: Path, log: Log | None) -> _program.State:
    """The state before this step, refreshed if due; a refresh adds a line to refresh.jsonl.

    Raises:
      ValueError: a refresh is due and the examples have no given views.
    """
    refresh = run.program.learner.refresh
    if refresh is None or not refresh.due(step, run.program.steps_per_epoch):
        return state
    statistics = _computed(run, state, step, workdir, log)
    place = run.program.abstract_state()["statistics"]
    statistics = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), statistics, place)
    return {**state, "statistics": statistics}


def recorded_at_end(run: Run, state: _program.State, workdir: Path, log: Log | None) -> None:
    """Record a refresh that is due after the last step; the state, which is saved, stays as it is."""
    refresh, step = run.program.learner.refresh, run.program.steps
    if refresh is not None and refresh.due(step, run.program.steps_per_epoch):
        _computed(run, state, step, workdir, log)


def restarted(run: Run, state: _program.State, step: int) -> _program.State:
    """The state before this step, with a new optimiser state for the parts of the network that start again."""
    restarts = run.program.learner.restarts
    parts = () if restarts is None else restarts(step, run.program.steps_per_epoch)
    return run.program.restart(state, parts) if parts else state


def _computed(run: Run, state: _program.State, step: int, workdir: Path, log: Log | None) -> Any:
    """The refreshed statistics; process 0 records how they came about."""
    split = run.splits["train"]
    refresh = run.program.learner.refresh
    assert refresh is not None
    if not split.spec.given:
        raise ValueError(
            f"method {type(run.config.method).__name__} needs examples with given views, such as tables of features"
        )
    with run.progress.during("refreshing the method's statistics"):
        inputs = data.inputs(split, np.arange(len(split)))
        statistics, record = refresh.compute(
            state["params"],
            state["statistics"],
            inputs["views"],
            inputs.get("present"),
            step,
            run.program.steps_per_epoch,
            track=run.progress,
        )
    if jax.process_index() == 0:
        plain = {name: np.asarray(value).tolist() for name, value in record.items()}
        scores = _agreement(split, record)
        _folder.append_line(workdir / "refresh.jsonl", {"step": step, **scores, **plain})
        if log is not None:
            log.scores(step, scores)
    return statistics


def _agreement(split: data.Split, record: dict[str, Any]) -> dict[str, float]:
    """Agreement of the clusters from all views with the classes; nothing without classes or clusters."""
    if len(split.class_names) < 2 or "clusters_all" not in record:
        return {}
    found = np.asarray(record["clusters_all"])
    return {
        "acc_all": metrics.clustering_accuracy(split.labels, found),
        "nmi_all": metrics.normalized_mutual_information(split.labels, found),
    }
