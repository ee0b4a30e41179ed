import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mvcl.training import Checkpoints, DamagedCheckpoints


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
    known = {}
    manager = Checkpoints(folder, keep, known)
    for step in steps:
        manager.save(step, state(step), {"seed": 5})
        if step in dict(scores):
            known[step] = dict(scores)[step]  # a state is scored after it is saved
    manager.close()


def test_keeps_the_newest_and_the_best(tmp_path):
    scores = {2: 0.9, 4: 0.5}
    fill(tmp_path, range(1, 7), scores)
    manager = Checkpoints(tmp_path, 2, scores)
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
    with pytest.raises(DamagedCheckpoints, match="none of the checkpoints"):
        Checkpoints(tmp_path, 2).restore(like())
    assert len(list((tmp_path / "damaged").iterdir())) == 2


def test_ignores_unfinished_checkpoints(tmp_path):
    fill(tmp_path, (1,))
    shutil.copytree(tmp_path / "1", tmp_path / "2.orbax-checkpoint-tmp")
    manager = Checkpoints(tmp_path, 2)
    assert manager.steps() == [1]
    assert manager.save(2, state(2), {})
    manager.close()
