"""Results of run folders written by the test: means over seeds, and the matrix of held-out domains."""

import json
import sys

import numpy as np
import pytest

from benchmarks import aggregate
from mvcl import data, evaluation, training

DOMAINS = ("a", "b", "c")


def write(folder, held_out, seed, results, draw_seed=0, evaluation_seed=0, **options):
    config = training.Config(
        data=data.DomainNet(domains=DOMAINS, held_out=held_out, draw_seed=draw_seed),
        train=training.Train(seed=seed, **options),
        evaluation=evaluation.Domains(seed=evaluation_seed),
    )
    folder.mkdir()
    (folder / "config.json").write_text(training._saved.to_json(config))
    rows = [
        {"name": name, "value": value, "deviation": None, "protocol": ""} for name, value in results.items()
    ]
    (folder / "evaluation.json").write_text(json.dumps({"step": 1, "rows": {"trained encoder": rows}}))


def test_means_over_seeds_and_the_matrix(tmp_path, monkeypatch, capsys):
    for number, held in enumerate(DOMAINS):
        seen = [name for name in DOMAINS if name != held]
        for seed in range(2):
            results = {"2 to 1": 0.1 * number + 0.02 * seed, "1 to 1": 0.5}
            results |= {f"{name} to {held}": 0.3 + 0.1 * i + 0.04 * seed for i, name in enumerate(seen)}
            write(tmp_path / f"{held}{seed}", held, seed, results)
    folders = sorted(map(str, tmp_path.iterdir()))
    monkeypatch.setattr(sys, "argv", ["aggregate", *folders, "--write", str(tmp_path / "out")])
    assert aggregate.main() == 0
    said = capsys.readouterr().out
    assert "data.held_out b (2 runs)" in said
    assert f"{'2 to 1':24}  11.00 ± {100 * np.std([0.1, 0.12], ddof=1):.2f} %" in said
    table = (tmp_path / "out.md").read_text().splitlines()
    assert table[0] == "| trained on | a | b | c |"
    assert table[2:] == [
        "| a | - | 32.0% | 32.0% |",
        "| b | 32.0% | - | 42.0% |",
        "| c | 42.0% | 42.0% | - |",
        "| all others | 1.0% | 11.0% | 21.0% |",
    ]
    assert (tmp_path / "out.svg").is_file()


def test_raises_on_what_is_no_run_and_on_equal_seeds(tmp_path):
    with pytest.raises(ValueError, match=r"has no config\.json"):
        aggregate.read(tmp_path)
    for name in ("x", "y"):
        write(tmp_path / name, "a", 0, {"k-NN": 0.5})
    runs = [aggregate.read(tmp_path / name) for name in ("x", "y")]
    with pytest.raises(ValueError, match=r"train\.seed = 0"):
        aggregate.grouped(runs)


def test_runs_that_differ_in_their_seeds_are_repetitions(tmp_path):
    for seed in range(2):
        write(tmp_path / f"x{seed}", "a", seed, {"2 to 1": 0.5 + seed / 10}, seed, seed)
    write(tmp_path / "y", "a", 1, {"2 to 1": 0.1}, draw_seed=1, group=16)
    groups = aggregate.grouped([aggregate.read(tmp_path / name) for name in ("x0", "x1", "y")])
    assert [len(results) for _, results in groups] == [2, 1]
    assert aggregate.means(groups[0][1])["2 to 1"] == pytest.approx((0.55, 0.1 / np.sqrt(2)))
    assert aggregate.differences(groups) == ["train.group None", "train.group 16"]


def test_configs_that_differ_are_different_rows(tmp_path):
    write(tmp_path / "x", "a", 0, {"k-NN": 0.5})
    write(tmp_path / "y", "a", 1, {"k-NN": 0.7}, batch_size=64)
    groups = aggregate.grouped([aggregate.read(tmp_path / name) for name in ("x", "y")])
    assert aggregate.differences(groups) == ["train.batch_size 256", "train.batch_size 64"]
    assert [aggregate.means(results) for _, results in groups] == [
        {"k-NN": (0.5, None)},
        {"k-NN": (0.7, None)},
    ]
