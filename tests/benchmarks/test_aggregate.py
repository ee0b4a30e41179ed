"""Results of run folders written by the test: means over seeds, and the matrix of held-out domains."""

import json
import sys

import numpy as np
import pytest

from benchmarks import aggregate
from mvcl import data, training

DOMAINS = ("a", "b", "c")


def write(folder, held_out, seed, results, **options):
    config = training.Config(
        data=data.DomainNet(domains=DOMAINS, held_out=held_out), train=training.Train(seed=seed, **options)
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


def test_configs_that_differ_are_different_rows(tmp_path):
    write(tmp_path / "x", "a", 0, {"k-NN": 0.5})
    write(tmp_path / "y", "a", 1, {"k-NN": 0.7}, batch_size=64)
    groups = aggregate.grouped([aggregate.read(tmp_path / name) for name in ("x", "y")])
    assert aggregate.differences(groups) == ["train.batch_size 256", "train.batch_size 64"]
    assert [aggregate.means(results) for _, results in groups] == [
        {"k-NN": (0.5, None)},
        {"k-NN": (0.7, None)},
    ]
