"""Periodic computations of a method over the whole training split."""

from typing import Any

import jax
import numpy as np

from mvcl import _progress, data, metrics
from mvcl.training import _log
from mvcl.training._session import Session


def before_step(session: Session) -> None:
    """Refresh the state before its next step, if due, and renew the optimiser's state of parts that start again.

    A refresh adds a line to refresh.jsonl.

    Raises:
      ValueError: a refresh is due and the examples have no given views.
    """
    program, step = session.run.program, session.step
    learner = program.learner
    if learner.due(step, program.steps_per_epoch):
        statistics = _computed(session)
        place = program.abstract_state["statistics"]
        statistics = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), statistics, place)
        session.state = {**session.state, "statistics": statistics}
    if learner.restarts_parts and (parts := learner.restarts(step, program.steps_per_epoch)):
        session.state = program.restart(session.state, parts)


def record_last(session: Session) -> None:
    """Record a refresh that is due after the last step; the state, which is saved, stays as it is."""
    if session.run.program.learner.due(session.step, session.run.program.steps_per_epoch):
        _computed(session)


def _computed(session: Session) -> Any:
    """The refreshed statistics; process 0 records how they came about."""
    run, state, step = session.run, session.state, session.step
    split = run.splits["train"]
    if not split.spec.given:
        raise ValueError(
            f"method {type(run.config.method).__name__} needs examples with given views, such as tables of features"
        )
    with _progress.during("refreshing the method's statistics"):
        inputs = data.inputs(split, np.arange(len(split)))
        statistics, record = run.program.learner.refresh(
            state["params"],
            state["statistics"],
            inputs["views"],
            inputs.get("present"),
            step,
            run.program.steps_per_epoch,
        )
    if session.log is not None:
        plain = {name: np.asarray(value).tolist() for name, value in record.items()}
        scores = _agreement(split, record)
        _log.append_row(session.workdir / "refresh.jsonl", {"step": step, **scores, **plain})
        session.log.scores(step, scores)
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
