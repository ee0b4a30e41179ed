"""Checkpoints that are damaged or left by a killed run; an evaluation that is stopped goes on where it stopped."""

import shutil
import signal
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mvcl import training
from mvcl.evaluation import _classification
from mvcl.studies import changed
from mvcl.training import Checkpoints, _session


def array(step):
    return np.random.default_rng(step).normal(size=4096).astype(np.float32)


def state(step, devices=1):
    mesh = Mesh(np.asarray(jax.devices()[:devices]), ("data",))
    put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))  # noqa: E731
    return {"w": put(array(step), "data"), "step": put(jnp.int32(step)), "key": put(jax.random.key(step))}


def like(devices=1):
    abstract = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)  # noqa: E731
    return jax.tree.map(abstract, state(0, devices))


def fill(folder, steps, scores=(), keep=2):
    manager = Checkpoints(folder, keep)
    for step in steps:
        manager.save(step, state(step), {"seed": 5})
        if step in dict(scores):
            manager.scores[step] = dict(scores)[step]  # a state is scored after it is saved
    manager.close()


def test_keeps_the_newest_and_the_best(tmp_path):
    scores = {2: 0.9, 4: 0.5}
    fill(tmp_path, range(1, 7), scores)
    manager = Checkpoints(tmp_path, 2)
    manager.scores |= scores
    assert manager.steps() == [2, 5, 6]
    assert manager.best(manager.steps()) == 2
    assert manager.best([5, 6]) is None
    restored, record = manager.restore(like())
    assert (int(restored["step"]), record["step"], record["seed"]) == (6, 6, 5)
    np.testing.assert_array_equal(restored["w"], array(6))
    assert restored["key"] == jax.random.key(6)


@pytest.mark.parametrize(("saved", "wanted"), [(8, 2), (1, 8)])
def test_restores_on_another_number_of_devices(tmp_path, saved, wanted):
    manager = Checkpoints(tmp_path, 1)
    manager.save(3, state(3, saved), {})
    manager.wait()
    restored, _ = manager.restore(like(wanted))
    np.testing.assert_array_equal(restored["w"], array(3))
    assert len(restored["w"].sharding.device_set) == wanted


def largest_file(folder):
    files = [file for file in folder.rglob("*") if file.is_file() and "/d/" in str(file)]
    return max(files, key=lambda file: file.stat().st_size)


def truncate(folder):
    file = largest_file(folder)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(folder):
    file = largest_file(folder)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def remove_part(folder):
    shutil.rmtree(folder / "state")


def swap(folder):
    remove_part(folder)
    shutil.copytree(folder.parent / "1" / "state", folder / "state")


@pytest.mark.parametrize(
    ("damage", "words"),
    [(truncate, ""), (flip, ""), (remove_part, ""), (swap, "differ from those that were saved")],
)
def test_resumes_from_a_damaged_checkpoint(tmp_path, damage, words, capsys):
    fill(tmp_path, (1, 2))
    damage(tmp_path / "2")
    manager = Checkpoints(tmp_path, 2)
    restored, record = manager.restore(like())
    assert (int(restored["step"]), record["step"]) == (1, 1)
    [line] = capsys.readouterr().out.splitlines()
    assert all(text in line for text in ("step 2 is damaged", "falling back to step 1", words)), line
    assert list((tmp_path / "damaged").iterdir())  # kept for inspection
    assert manager.save(2, state(2), {})  # and the step can be saved again
    manager.close()
    assert Checkpoints(tmp_path, 2).steps() == [1, 2]


def test_raises_if_all_checkpoints_are_damaged(tmp_path):
    fill(tmp_path, (1, 2))
    truncate(tmp_path / "1")
    truncate(tmp_path / "2")
    with pytest.raises(ValueError, match="none of the checkpoints"):
        Checkpoints(tmp_path, 2).restore(like())
    assert len(list((tmp_path / "damaged").iterdir())) == 2


def test_ignores_unfinished_checkpoints(tmp_path):
    fill(tmp_path, (1,))
    shutil.copytree(tmp_path / "1", tmp_path / "2.orbax-checkpoint-tmp")
    manager = Checkpoints(tmp_path, 2)
    assert manager.steps() == [1]
    assert manager.save(2, state(2), {})
    manager.close()


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


def test_a_stop_while_scoring_keeps_the_step(tiny, whole, tmp_path, stopper, rows, numbers):
    stopper.at = 3  # of the 2 splits' 5 batches at step 2
    with pytest.raises(training.Interrupted, match="while evaluating; saved at step 2 of 6") as stopped:
        training.train(tiny, tmp_path / "run")
    assert stopped.value.signal == signal.SIGTERM
    assert [row["step"] for row in rows(tmp_path / "run")] == [2]
    assert training.train(tiny, tmp_path / "run") == whole[1]
    assert numbers(tmp_path / "run") == numbers(whole[0])


def test_a_stopped_evaluation_keeps_its_finished_rows(tiny, whole, trained, stopper, numbers):
    training.train(tiny, trained)
    assert stopper.probes == 3  # one for each row of the table
    (trained / "evaluation.json").unlink()
    stopper.at, stopper.checks, stopper.probes = stopper.checks - 12, 0, 0
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
