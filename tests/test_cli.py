"""The command line: output and exit codes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from mvcl import _configs, cli, evaluation, studies, training
from mvcl.training import _serialise

ROOT = Path(__file__).parents[1]
SMALL = [
    "--train.steps", "2", "--train.batch-size", "16", "--train.evaluate-every", "0", "--mesh.data", "1",
    "--views.k", "2", "encoder:mlp", "--encoder.widths", "16", "8", "--head.out", "8", "--evaluation.draws", "2",
    "--evaluation.labels-per-class", "10",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MVCL_CACHE", str(ROOT / ".cache" / "jax"))
        yield


def run(*arguments):
    """Exit code of a command."""
    try:
        return cli.main([str(a) for a in arguments])
    except SystemExit as stop:  # tyro's own errors
        return stop.code


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "a"
    assert run("train", "digits:smoke", "--workdir", workdir, *SMALL) == 0
    return workdir


def test_train_and_evaluate_print_the_table_and_export_writes_the_encoder(trained, tmp_path, capsys):
    assert run("train", trained / "config.json", "--workdir", trained) == 0  # finished: nothing is trained
    out = capsys.readouterr().out
    for words in ("trained encoder", "untrained encoder", "raw input", "10 labels/class", "report.html"):
        assert words in out
    assert (trained / "report.html").stat().st_size > 10_000
    assert run("evaluate", trained) == 0
    assert "trained encoder" in capsys.readouterr().out
    assert run("export", trained, "--out", tmp_path / "encoder.safetensors") == 0
    assert sum(x.size for x in load_file(tmp_path / "encoder.safetensors").values()) > 300


def test_evaluates_weights_of_a_file_without_a_run(trained, tmp_path, capsys):
    file, out = tmp_path / "encoder.safetensors", tmp_path / "out"
    assert run("export", trained, "--out", file) == 0
    capsys.readouterr()
    command = ("evaluate", "digits:smoke", f"--weights={file}", *SMALL, "--evaluation.no-baselines")
    assert run(*command, "--workdir", out) == 0
    said = capsys.readouterr().out
    assert "weights encoder.safetensors * sha256 " in said
    assert "encoder.safetensors " in said  # the row
    ours, own = (json.loads((folder / "evaluation.json").read_text()) for folder in (out, trained))
    assert ours["rows"]["trained encoder"] == own["rows"]["trained encoder"]  # to the bit
    assert ours["weights"].startswith("encoder.safetensors * sha256 ")
    for options, message in (
        (("--evaluation.features", "head"), "the evaluation of the head needs its layers, (8, 8), (8, 8)"),
        (("--encoder.widths", "16", "9"), "must have the encoder's shape (9,); got (8,)"),
        (("--workdir", trained), "is the folder of a run"),
    ):
        assert run(*command, *options) == 2
        assert message in capsys.readouterr().err


def test_embed_writes_features_and_measures(trained, tmp_path, capsys):
    assert run("embed", trained, "--split", "test", "--out", tmp_path / "z.npz") == 0
    with np.load(tmp_path / "z.npz", allow_pickle=False) as z:
        assert z["features"].shape == (32, 8)
    capsys.readouterr()
    options = ("--views", 3, "--output", "head", "--out", tmp_path / "views.npz")
    assert run("embed", trained, *options) == 0
    said = capsys.readouterr().out
    assert "features 32 x 3 x" in said
    assert "alignment" in said
    measures = {m["name"]: m["value"] for m in json.loads((tmp_path / "views.json").read_text())}
    with np.load(tmp_path / "views.npz", allow_pickle=False) as z:
        assert 1 <= measures["rank"] <= z["features"].shape[2]
        assert not np.allclose(z["features"][:, 0], z["features"][:, 1])
    assert run("embed", trained, "--views", -1) == 2


def test_embeds_and_finds_new_rows_without_the_data(trained, tmp_path, capsys):
    images = training.load(trained).data.open()["test"].arrays[0]
    np.savez(tmp_path / "new.npz", images=images[4:8, ..., 0])
    np.savez(tmp_path / "all.npz", images=images[..., 0])
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "one.png")
    for file in ("new.npz", "all.npz", "one.png"):
        command = ("embed", trained, "--data.path", tmp_path / file)
        assert run(*command, "--out", tmp_path / f"z_{file[:3]}.npz") == 0
    new, every = (np.load(tmp_path / f"z_{name}.npz") for name in ("new", "all"))
    np.testing.assert_allclose(new["features"], every["features"][4:8], atol=1e-6)
    assert list(new["ids"]) == ["0", "1", "2", "3"]
    assert list(np.load(tmp_path / "z_one.npz")["ids"]) == [str(tmp_path / "one.png")]
    capsys.readouterr()
    options = ("--data.path", tmp_path / "all.npz", "--count", 1)
    assert run("neighbours", trained, tmp_path / "new.npz", *options) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()][1::2] == ["4", "5", "6", "7"]
    assert run("embed", trained, "--data.path", tmp_path / "none") == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_geometry_writes_its_file(trained, tmp_path, capsys):
    assert run("geometry", trained, "--examples", 20) == 0
    said = capsys.readouterr().out
    assert "20 examples of split test" in said
    assert "head, all views" in said
    assert json.loads((trained / "geometry.json").read_text())["examples"] == 20
    assert run("geometry", trained, "--out", tmp_path / "g.txt") == 2


def test_report_of_two_runs_is_a_file(trained, tmp_path):
    assert run("report", trained, trained, "--out", tmp_path / "two.html") == 0
    assert (tmp_path / "two.html").is_file()


def test_dry_run_prints_the_cost(capsys):
    assert run("train", "digits", "--dry-run", *SMALL) == 0
    out = capsys.readouterr().out
    assert "16 examples x 2 views = 32 views" in out
    for words in (
        "parameters",
        "GFLOP",
        "memory",
        "2 (0.0 epochs of 1,437 examples)",
        "1 x 1,437 examples encoded",
    ):
        assert words in out


def test_the_cost_of_the_evaluation_is_that_of_its_encodings():
    """Once, and in each epoch of an augmented probe: 200 of Koromilas's, 100 of DomainNet's; SEM's are clusters."""
    names = ("koromilas/cifar", "piran/images:domainnet", "xu/sem:dha")
    assert [training.load(name).evaluation.passes for name in names] == [201, 100, 1]
    digits = training.load("digits:smoke")
    probed = dataclasses.replace(digits.evaluation, linear=evaluation.LinearProbe(epochs=3))
    costs = [
        training.estimate(dataclasses.replace(digits, evaluation=e)) for e in (digits.evaluation, probed)
    ]
    assert costs[1].evaluation_flops == pytest.approx(4 * costs[0].evaluation_flops)
    assert costs[1].flops == costs[0].flops


def test_dry_run_prints_the_memory_of_each_device_by_policy(capsys):
    small = [*SMALL[: SMALL.index("encoder:mlp")], "encoder:convnet", "--encoder.widths", "4", "8"]
    assert run("train", "digits", "--dry-run", "--devices", "8", *small) == 0
    out = capsys.readouterr().out
    assert "GB of each of 8 devices, 2 examples each" in out
    names, *rows = out[out.index("GB of each") :].splitlines()[1:]
    assert [row.split()[0] for row in rows[:3]] == ["none", "blocks", "full"]
    assert len(rows[0].split()) == 10
    assert "16 GB TPU cores" in names


def test_lists_configs_with_their_variants(capsys):
    assert run("configs") == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line for line in lines if not line.startswith(" ")]
    every = sorted((ROOT / "configs").rglob("*.py"))
    every = [file for file in every if file.parent.name != "studies"]  # `mvcl study --list` has those
    assert [ROOT / "configs" / f"{name}.py" for name in names] == every
    assert "CIFAR-10 and CIFAR-100" in lines[lines.index("koromilas/cifar") + 1]
    variants = [line for line in lines if line.startswith("    ")]
    assert all(len(line.split(None, 1)) == 2 for line in variants)
    for source in (*names, *(line.split()[0] for line in variants)):
        assert _configs.find(source)[0].is_file()


def test_a_copy_of_a_config_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("configs", "--copy", "koromilas/cifar:smoke") == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["mvcl", "train", "cifar.py:smoke"]
    assert (tmp_path / "cifar.py").read_text() == (ROOT / "configs" / "koromilas" / "cifar.py").read_text()
    copied, original = map(training.load, ("cifar.py:smoke", "koromilas/cifar:smoke"))
    assert training.to_json(copied) == training.to_json(original)
    assert run("configs", "--copy", "studies/control_m3g", "--out", "mine/study.py") == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["mvcl", "study", "mine/study.py"]
    assert studies.scales(studies.find("mine/study.py"))
    assert run("configs", "--copy", "koromilas/cifar") == 2
    assert "cifar.py exists and is kept" in capsys.readouterr().err


def test_a_name_is_not_a_file_of_the_same_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.py").write_text("from mvcl.training import Config\nget_config = Config\n")
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "config.json").write_text(training.to_json(training.load("jeon/dsf")))
    ours, folder = ROOT / "configs" / "digits.py", Path("digits/config.json")
    found = [_configs.find(source)[0] for source in ("digits", "digits.py", "./digits", Path("digits"))]
    assert found == [ours, Path("digits.py"), folder, folder]


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_prints_help(command, capsys):
    assert run(*command.split(), "--help") == 0
    assert "usage" in capsys.readouterr().out


def test_help_of_a_config_describes_its_fields(capsys):
    assert run("train", "digits", "objective:mv_infonce", "--help") == 0
    out = capsys.readouterr().out
    for option in ("--objective.negatives", "--train.microbatch", "--views.policy.crop-scale"):
        assert option in out
    assert "--objective.symmetric" not in out  # an option of another objective
    assert "positive" in out[out.index("--objective.temperature") :][:400]
    assert "rows of similarities" in out[out.index("--objective.block-size") :][:200]


PAIRS = "objective:all_pairs objective.pair:m3g_pair"


def test_cost_of_m3g_of_pairs_is_chosen_by_name(capsys):
    assert run("train", "digits", *PAIRS.split(), "objective.pair.cost:barycenter", "--help") == 0
    assert "--objective.pair.cost.weights" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", "did you mean train?"),
        ("train", "needs a CONFIG first: mvcl train CONFIG"),
        ("train configs/none.py", "no config at configs/none.py; `mvcl configs` lists"),
        ("train configs/koromilas/cifra.py", "did you mean koromilas/cifar?"),
        ("train koromilas/cifra", "no config 'koromilas/cifra'; did you mean koromilas/cifar?"),
        ("train gs://b/mine.py:small", "gs://b/mine.py:small is in a bucket"),
        ("train digits:m3", "digits has no function m3() that returns a Config; did you mean m3g?"),
        ("train koromilas_table2", "is a study: mvcl study koromilas_table2"),
        ("configs --copy digits --out digits", "--out must be a file on a disk that ends in .py"),
        ("configs --out digits.py", "mvcl configs --copy"),
        ("train digits objective:mv_dehl", "did you mean objective:mv_dhel?"),
        ("train digits --views.k 1", "at least 2"),
        ("train digits objective:nt_xent", "exactly 2 views"),
        (f"train digits {PAIRS} objective.pair.cost:baricenter", "you mean objective.pair.cost:barycenter?"),
        ("train digits data:folder --data.path nowhere", "data.path must be a folder"),
        ("train digits data:tfds --data.name cifar10", "mvcl data prepare cifar10"),
        ("data prepare cifar10", "mvcl[tensorflow]"),
        ("data prepare digits", "the digits need no preparation"),
        ("evaluate nowhere", "not a run folder"),
        ("evaluate --weights a.pth", "needs a CONFIG first: mvcl evaluate CONFIG --weights FILE"),
        ("evaluate digits:smoke --weights a.pth", "must be a file of weights on a disk; a.pth does"),
        ("evaluate field/modalities --weights a.pth", "has one for each view"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys, tmp_path):
    arguments = arguments.split()
    if arguments[0] == "train" and len(arguments) > 2:
        arguments += ["--workdir", tmp_path / "x"]
    assert run(*arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err
    assert not (tmp_path / "x" / "config.json").exists()


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("nothing", 1, "own.py, line 3: NameError: name 'nothing' is not defined"),
        ("training.Config(views=training.Views(k='4'))", 2, "own.py: k is '4', not of type int"),
    ],
)
def test_an_error_of_a_users_file_names_it(line, code, message, tmp_path, capsys):
    file = tmp_path / "own.py"
    file.write_text(f"from mvcl import training\ndef get_config():\n    return {line}\n")
    assert run("train", file) == code
    assert message in (err := capsys.readouterr().err)
    assert "bug" not in err


def test_a_misspelt_option_is_told_the_nearest(capsys):
    assert run("train", "digits", "--train.batchsize", "3") == 2
    assert "--train.batch-size" in capsys.readouterr().err


OWN = """
from dataclasses import replace
from mvcl import losses, training

def my_loss(z):
    return losses.mv_dhel(z)

def get_config():
    return replace(training.load("digits:smoke"), objective=my_loss)
"""


@pytest.mark.exhaustive
def test_run_with_own_code_is_opened_with_its_config_file_only(tmp_path, capsys):
    file, workdir = tmp_path / "own.py", tmp_path / "run"
    file.write_text(OWN)
    assert run("train", file, "--workdir", workdir, *SMALL) == 0
    small = "--seeds 1 --train.steps 2 --train.batch-size 32 --views.k 2 --views.policy.rand-augment-ops 0"
    for command, options in (("evaluate", []), ("finetune", small.split())):
        _serialise._own.clear()  # as in another process
        assert run(command, workdir, *options) == 2
        assert "--config own.py" in capsys.readouterr().err
        assert run(command, workdir, "--config", file, *options) == 0


FAULTS = """
import resource
from mvcl import cli
cli.keep_freed_memory()
for _ in range(2):
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytes([1]) * int("16777216")
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_memory_of_the_last_step_is_used_again_unless_the_environment_says_how():
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_"))}

    def faults(**more):
        environment = plain | {"JAX_PLATFORMS": "cpu"} | more
        return int(subprocess.check_output([sys.executable, "-c", FAULTS], env=environment))

    pages = 2**24 // os.sysconf("SC_PAGE_SIZE")
    assert faults() < pages / 4
    assert faults(MALLOC_MMAP_THRESHOLD_="65536") > pages / 4
