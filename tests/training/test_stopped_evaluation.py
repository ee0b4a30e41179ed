"""An evaluation that is stopped goes on where it stopped; no step is trained twice."""

import shutil
import signal
from types import SimpleNamespace

import pytest
from parametrize import some

from mvcl import training
from mvcl.evaluation import _classification
from mvcl.studies import changed
from mvcl.training import _session


@pytest.fixture
def numbers(rows):
    """Reads the losses and scores by step, in the order of the log."""
    return lambda workdir: [(row["step"], row.get("loss", row.get("knn"))) for row in rows(workdir)]


@pytest.fixture
def trained(whole, tmp_path):
    """A run that is trained and scored, without its final evaluation."""
    shutil.copytree(whole[0], tmp_path / "run")
    (tmp_path / "run" / "evaluation.json").unlink()
    return tmp_path / "run"


@pytest.fixture
def stopper(monkeypatch):
    """Raises a signal at the check `at` of an evaluation; counts the checks and the finished linear probes."""
    found = SimpleNamespace(checks=0, at=None, probes=0)
    check, probe = _session.Session._check_stop, _classification.linear_probe

    def counted(session):
        found.checks += 1
        if found.checks == found.at:
            signal.raise_signal(signal.SIGTERM)
        check(session)

    def probed(*args, **options):
        result = probe(*args, **options)
        found.probes += 1
        return result

    monkeypatch.setattr(_session.Session, "_check_stop", counted)
    monkeypatch.setattr(_classification, "linear_probe", probed)
    return found


@pytest.mark.parametrize("at", some([1, 3], fast=[3]))  # of the 2 splits' 5 batches at step 2
def test_a_stop_while_scoring_keeps_the_step(tiny, whole, tmp_path, stopper, at, rows, numbers):
    stopper.at = at
    with pytest.raises(training.Interrupted, match="while evaluating; saved at step 2 of 6") as stopped:
        training.train(tiny, tmp_path / "run")
    assert stopped.value.signal == signal.SIGTERM
    assert [row["step"] for row in rows(tmp_path / "run")] == [2]
    assert training.train(tiny, tmp_path / "run") == whole[1]
    assert numbers(tmp_path / "run") == numbers(whole[0])


@pytest.mark.parametrize("back", some([1, 12], fast=[12]))  # before the last check
def test_a_stopped_evaluation_keeps_its_finished_rows(tiny, whole, trained, stopper, back, numbers):
    training.train(tiny, trained)
    assert stopper.probes == 3  # one for each row of the table
    (trained / "evaluation.json").unlink()
    stopper.at, stopper.checks, stopper.probes = stopper.checks - back, 0, 0
    with pytest.raises(training.Interrupted, match="while evaluating; saved at step 6 of 6"):
        training.train(tiny, trained)
    assert (trained / "evaluation.unfinished.json").is_file()
    assert not (trained / "evaluation.json").exists()
    stopper.at = None
    assert training.train(tiny, trained) == whole[1]
    assert 3 <= stopper.probes <= 4  # the row that was stopped begins again
    assert not (trained / "evaluation.unfinished.json").exists()
    assert numbers(trained) == numbers(whole[0])


def test_rows_of_another_protocol_are_not_used(tiny, whole, trained, stopper):
    stopper.at = 20
    with pytest.raises(training.Interrupted, match="step 6 of 6"):
        training.train(tiny, trained)
    assert (trained / "evaluation.unfinished.json").is_file()
    stopper.at = None
    first = training.train(changed(tiny, {"evaluation.knn_k": 5}), trained)
    assert "5 nearest" in first["trained encoder"][0].protocol
    # a finished run is evaluated by the protocol that is asked for
    assert training.train(tiny, trained) == whole[1]


def test_the_best_checkpoint_is_that_of_the_log(whole, rows):
    workdir, _ = whole
    best = max((row["knn"], row["step"]) for row in rows(workdir) if "score" in row)[1]
    _, state = training.open_run(workdir, "best")
    assert int(state["step"]) == best


def test_a_kill_after_the_evaluation_loses_no_score(tiny, whole, tmp_path, monkeypatch, rows, numbers):
    record = _session.Session._record_score

    def killed(session, score):
        if session.step == 6:
            raise KeyboardInterrupt
        record(session, score)

    monkeypatch.setattr(_session.Session, "_record_score", killed)
    with pytest.raises(KeyboardInterrupt):
        training.train(tiny, tmp_path / "run")
    monkeypatch.undo()
    assert [row["step"] for row in rows(tmp_path / "run") if "score" in row] == [2, 4]
    for _ in range(2):  # a finished run is read, and not changed any more
        assert training.train(tiny, tmp_path / "run") == whole[1]
        assert numbers(tmp_path / "run") == numbers(whole[0])


def test_a_signal_at_the_end_of_a_run_stops_the_next_seed(tiny, tmp_path, monkeypatch):
    record = _session.Session._record_score

    def signalled(session, score):
        record(session, score)
        if session.step == 6:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(_session.Session, "_record_score", signalled)
    with pytest.raises(training.Interrupted, match="stopped by SIGTERM while ending"):
        training.train_seeds(tiny, tmp_path, 2)
    assert (tmp_path / "seed0" / "evaluation.json").is_file()
    assert not (tmp_path / "seed1").exists()
