"""The benchmark of accelerators, in its small size: slices, what they keep, and the page."""

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import accelerator, scale
from benchmarks import accelerator_cases as cases
from benchmarks import accelerator_measure as measure
from benchmarks import accelerator_page as pages
from mvcl import training
from mvcl.training import CHOICES, _watch

DOCS = Path(__file__).parents[2] / "docs"
ALL = accelerator.names(cases.SMALL)
LOSS = {
    "shape": [4, 32, 16],
    "ms": 1.0,
    "mib": 2.0,
    "floor_gflop": 0.5,
    "over_floor": {"low": 1.1, "median": 1.25, "high": 1.5},
    "torch_missing": "no PyTorch was given",
}


def call(folder, *arguments):
    return accelerator.main(["--size", "small", "--out", str(folder), *arguments])


def record_of(folder):
    return json.loads((folder / "small.json").read_text())


def stub_losses(monkeypatch, measured):
    monkeypatch.setattr(measure, "of_loss", lambda name, *_: measured(name))


def test_page_in_docs_is_made_from_its_record():
    record = accelerator.read(DOCS / "design" / "accelerator.json", "full")
    assert (DOCS / "design" / "accelerator.md").read_text() == accelerator.page(record, "full")


def test_page_says_not_run_in_each_table():
    page = accelerator.page({"size": "full", "device": None, "pieces": {}}, "full")
    assert "It was not run yet." in page
    full = accelerator.names(cases.FULL)
    for part in pages.TABLES:
        number = sum(name.startswith(part) for name in full)
        assert f"| {number} of {number} rows | not run |" in page


def test_full_size_has_what_it_promises():
    full = accelerator.names(cases.FULL)
    for name in CHOICES["objective"]:
        assert (f"losses {name} 1024" in full) != (name in cases.TRANSPORT)
        assert {f"steps ResNet-50 {name}", f"steps ViT-B/16 {name}"} <= set(full)
    assert {"m3g 1024 4", "m3g 16384 2", "recipe 2", "recipe 4"} <= set(full)


def test_pytorch_has_every_loss():
    source = Path(measure.__file__).with_name("accelerator_torch.py").read_text()
    functions = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert set(cases.FLOORS) <= functions


@pytest.mark.parametrize(
    ("name", "same", "sets"),
    [
        ("mv_infonce", True, lambda z: [(z.reshape(-1, z.shape[2]),) * 2]),
        ("mv_dhel", True, lambda z: [(view, view) for view in z]),
        ("pmrl", True, lambda z: [(z[0], z[0])]),
        ("info_nce", False, lambda z: [(z[0], z[1])]),
        ("barlow_twins", False, lambda z: [(z[0].T, z[1].T)]),
    ],
)
def test_floors_are_products_of_the_gradient(name, same, sets):
    """Of half the sum of the squares of the inner products that the formula needs; a symmetric matrix counts once."""
    z = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5, 3)), jnp.float32)
    expected = []
    for x, y in sets(z):
        by_both = jax.grad(lambda x, y: jnp.sum((x @ y.T) ** 2) / 2, (0, 1))(x, y)
        expected += by_both[:1] if same else by_both
    found = jax.tree.leaves(cases.FLOORS[name](z))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", cases.FLOORS)
def test_losses_and_floors_trace(name):
    z = jnp.zeros(cases.shape_of(name, 16, cases.SMALL), jnp.float32)
    loss = cases.loss_of(name)
    value, gradient = jax.eval_shape(jax.value_and_grad(loss), z)
    assert value.shape == ()
    assert gradient.shape == z.shape
    flops = scale.traced(jax.make_jaxpr(cases.FLOORS[name])(z).jaxpr, 1).flops
    assert (flops > 0) == (name != "byol")


def test_slices_resume_and_repeat_nothing(tmp_path, monkeypatch, capsys):
    measured = []
    stub_losses(monkeypatch, lambda name: measured.append(name) or LOSS)
    # The first piece of a slice has all of its time, the second would not end in it.
    assert call(tmp_path, "--minutes", "0.001") == 0
    assert measured == ["mv_dhel"]
    assert "is for the next slice" in capsys.readouterr().out
    first = record_of(tmp_path)["pieces"]["losses mv_dhel 32"]
    assert call(tmp_path, "--minutes", "0.001", "--only", "losses") == 0
    assert call(tmp_path, "--only", "losses") == 0
    assert measured == ["mv_dhel", "info_nce"]
    record = record_of(tmp_path)
    assert record["pieces"]["losses mv_dhel 32"] == first
    assert list(record["pieces"]) == ALL[:2]
    assert call(tmp_path, "--only", "losses", "--again", "losses info_nce 32") == 0
    assert measured == ["mv_dhel", "info_nce", "info_nce"]


def test_list_and_page_of_a_part(tmp_path, monkeypatch, capsys):
    stub_losses(monkeypatch, lambda name: LOSS)
    assert call(tmp_path, "--minutes", "0.001") == 0
    capsys.readouterr()
    assert call(tmp_path, "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["done", "losses", "mv_dhel", "32", "0", "s"]
    assert lines[1].split() == ["left", "losses", "info_nce", "32"]
    assert lines[-1] == f"{len(ALL)} pieces: 1 done, 0 failed, 0 under way, {len(ALL) - 1} left"
    assert call(tmp_path, "--write", str(tmp_path / "docs")) == 0
    page = (tmp_path / "docs" / "accelerator.md").read_text()
    assert (
        "| `mv_dhel` | (4, 32, 16) | 0.50 | 1.25 (1.10 to 1.50) | - | no PyTorch was given | - | 2.0 | - |"
        in page
    )
    assert "| 1 of 2 rows | not run |" in page
    assert "| 1 of 1 rows | not run |" in page  # of the other tables
    assert f"Size small, on {accelerator.device()}; jax {jax.__version__}, without torch, commit" in page
    assert record_of(tmp_path) == json.loads((tmp_path / "docs" / "accelerator.json").read_text())


def test_piece_that_is_killed_is_begun_once_more(tmp_path, monkeypatch):
    def killed(name):
        raise SystemExit

    stub_losses(monkeypatch, killed)
    for starts in (1, 2):
        with pytest.raises(SystemExit):
            call(tmp_path, "--only", "losses")
        assert record_of(tmp_path)["pieces"] == {"losses mv_dhel 32": {"starts": starts}}
    stub_losses(monkeypatch, lambda name: LOSS)
    assert call(tmp_path, "--only", "losses") == 1
    pieces = record_of(tmp_path)["pieces"]
    assert pieces["losses mv_dhel 32"] == {"failed": "did not end when it was begun 2 times"}
    assert pieces["losses info_nce 32"]["result"] == LOSS
    assert call(tmp_path, "--only", "losses", "--again", "losses mv_dhel 32") == 0
    assert record_of(tmp_path)["pieces"]["losses mv_dhel 32"]["result"] == LOSS


def test_piece_without_memory_fails_and_others_go_on(tmp_path, monkeypatch):
    def measured(name):
        if name == "mv_dhel":
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nmore")
        return LOSS

    stub_losses(monkeypatch, measured)
    assert call(tmp_path, "--only", "losses") == 1
    pieces = record_of(tmp_path)["pieces"]
    assert pieces["losses mv_dhel 32"] == {"failed": "JaxRuntimeError: RESOURCE_EXHAUSTED: out of memory"}
    assert "result" in pieces["losses info_nce 32"]
    assert call(tmp_path, "--write", str(tmp_path)) == 0
    assert "| mv_dhel 32 | failed: JaxRuntimeError: RESOURCE" in (tmp_path / "accelerator.md").read_text()


@pytest.mark.parametrize(
    "content",
    ['{"size": "small", "pieces"', "[]", "{}", '{"size": "full", "device": null, "pieces": {}}']
    + ['{"size": "small", "device": null, "pieces": {"losses mv_dhel 32": 1}}', "\udcff"],
)
def test_damaged_record_is_not_overwritten(tmp_path, capsys, content):
    file = tmp_path / "small.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    before = file.read_bytes()
    assert call(tmp_path) == 2
    message = capsys.readouterr().err
    assert f"{file} must be a record of this benchmark, got a damaged or another file" in message
    assert "--out" in message
    assert file.read_bytes() == before


def test_list_needs_no_device(tmp_path):
    """Nothing may look for the device before the command has said how jax is to take its memory."""
    command = [sys.executable, "-m", "benchmarks.accelerator", "--out", str(tmp_path), "--list"]
    ended = subprocess.run(
        command, env=os.environ | {"JAX_PLATFORMS": "none"}, cwd=DOCS.parent, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "0 done" in ended.stdout.splitlines()[-1]


def test_other_device_raises(tmp_path, capsys):
    (tmp_path / "small.json").write_text(json.dumps({"size": "small", "device": "a GPU", "pieces": {}}))
    assert call(tmp_path) == 2
    assert "was measured on a GPU, and this is cpu" in capsys.readouterr().err


def test_wrong_options(tmp_path, capsys):
    assert call(tmp_path, "--again", "losses x") == 2
    assert "--again must name pieces of --list, got 'losses x'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        call(tmp_path, "--minutes", "0")
    assert call(tmp_path, "--torch-python", str(tmp_path / "none")) == 2
    assert "--torch-python must be a Python that has torch and numpy" in capsys.readouterr().err
    # of this Python, which has no torch
    assert call(tmp_path, "--torch-python", sys.executable) == 2
    assert "it ended; its message is above" in capsys.readouterr().err


def test_recipe_of_the_full_size_needs_data(tmp_path, capsys):
    assert accelerator.main(["--out", str(tmp_path), "--only", "recipe"]) == 0
    assert "recipe 2: needs --data" in capsys.readouterr().out
    np.savez(
        tmp_path / "other.npz",
        train_images=np.zeros((20, 32, 32, 3), np.uint8),
        train_labels=np.arange(20) % 10,
        test_images=np.zeros((10, 32, 32, 3), np.uint8),
        test_labels=np.arange(10),
    )
    command = ["--out", str(tmp_path), "--only", "recipe", "--data", str(tmp_path / "other.npz")]
    assert accelerator.main(command) == 2
    assert (
        "--data must be CIFAR-10, 5,000 train images of 32x32x3 in each of 10 classes"
        in capsys.readouterr().err
    )


def test_recipe_is_that_of_the_paper_on_decoded_images(tmp_path):
    (tmp_path / "cifar10.npz").touch()  # decoded before
    for k in (2, 4):
        config = cases.recipe("full", k, Path("cifar10.npz"), tmp_path)
        assert config.views.k == k
        assert config.data.path == str(tmp_path / "cifar10.npz")
        assert (config.train.epochs, config.train.batch_size, config.encoder.depth) == (200, 256, 18)


def test_alarm_before_training_leaves_the_piece(tmp_path):
    with pytest.raises(accelerator.OutOfTime), accelerator.stopped_at(0.0):
        signal.pause()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def at_step(monkeypatch, step, number):
    """Send this process a signal once, after a step of training."""
    beat, sent = _watch.Heartbeat.beat, []

    def beaten(self, at, *arguments, **options):
        beat(self, at, *arguments, **options)
        if at == step and not sent:
            sent.append(at)
            os.kill(os.getpid(), number)

    monkeypatch.setattr(_watch.Heartbeat, "beat", beaten)
    return sent


def test_recipe_is_trained_in_slices(tmp_path, monkeypatch, capsys):
    """Stopped by the end of a slice, then trained to its end, and not again."""
    sent = at_step(monkeypatch, 3, signal.SIGALRM)
    assert call(tmp_path, "--only", "recipe") == 0
    assert sent == [3]
    assert record_of(tmp_path)["pieces"]["recipe 2"] == {"progress": "step 4 of 8"}
    assert call(tmp_path, "--list", "--only", "recipe") == 0
    assert "under way  recipe 2" in capsys.readouterr().out
    monkeypatch.undo()
    assert call(tmp_path, "--only", "recipe") == 0
    assert "resuming from step 4 of 8" in capsys.readouterr().out
    result = record_of(tmp_path)["pieces"]["recipe 2"]["result"]
    assert (result["k"], result["steps"]) == (2, 8)
    assert 0 <= result["linear"] <= 1
    monkeypatch.setattr(training, "train", None)
    assert call(tmp_path, "--only", "recipe") == 0
    assert call(tmp_path, "--write", str(tmp_path), "--only", "recipe") == 0
    assert f"| 2 | 8 | {100 * result['linear']:.1f} | 87.4 |" in (tmp_path / "accelerator.md").read_text()


def test_signal_from_outside_ends_the_command(tmp_path, monkeypatch, capsys):
    def interrupted(config, folder):
        raise training.Interrupted(signal.SIGTERM, 5, 8)

    monkeypatch.setattr(training, "train", interrupted)
    assert call(tmp_path, "--only", "recipe") == 128 + signal.SIGTERM
    assert "stopped by SIGTERM; saved at step 5 of 8. Repeat the command" in capsys.readouterr().err
    assert record_of(tmp_path)["pieces"]["recipe 2"] == {
        "progress": "not begun"
    }  # of a folder without a heartbeat


def in_order(found):
    return 0 < found["low"] <= found["median"] <= found["high"]


def test_losses_and_transport_of_the_small_size(tmp_path):
    """Without PyTorch; the ratios are positive, and the products of the floor are counted by hand."""
    assert call(tmp_path, "--only", "losses", "m3g") == 0
    pieces = record_of(tmp_path)["pieces"]
    assert list(pieces) == ALL[:3]
    loss, transported = (pieces[ALL[i]]["result"] for i in (0, 2))
    assert loss["shape"] == [4, 32, 16]
    assert in_order(loss["over_floor"])
    assert loss["floor_gflop"] == pytest.approx(4 * 2 * 2 * 32**2 * 16 / 1e9)
    assert in_order(transported["over_floor"])
    assert in_order(transported["ott_over_ours"])
    assert transported["converged"]
    assert transported["sweeps"] >= 1


def test_step_of_the_small_size(tmp_path):
    assert call(tmp_path, "--only", "steps") == 0
    (step,) = [piece["result"] for piece in record_of(tmp_path)["pieces"].values()]
    assert in_order(step["over_reference"])
    assert in_order(step["of_product"])
    assert (step["k"], step["examples"]) == (4, 4)
    assert step["tflop"] > 0
    assert step["of_peak"] is None  # of a CPU none is known


def test_ratios_are_those_of_the_turns():
    """4/2, 9/3 and 2/2."""
    found = measure.ratio([4.0, 9.0, 2.0], [2.0, 3.0, 2.0])
    assert found == {"low": 1.5, "median": 2.0, "high": 2.5}


def test_programs_take_turns():
    order = []

    def program(name):
        def seconds(calls):
            order.append(name)
            return 1.0

        return seconds

    found = measure.turns({name: program(name) for name in "abc"}, 4)
    assert found == {name: [1.0] * 4 for name in "abc"}
    assert (
        "".join(order) == "abc" + "abc" + "bca" + "cab" + "abc"
    )  # the first are to choose the number of calls
