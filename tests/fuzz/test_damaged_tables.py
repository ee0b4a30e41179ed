"""Damaged and hostile tables, configs, weights and checkpoints: each is read, or a `ValueError` names the file.

Within 5 seconds and 1 GiB of memory beyond the file's size, as measured in a process of its own.
"""

import json

import numpy as np
import pytest
import run_files
import table_files
from mutations import check

from mvcl import _untrusted, cli, data, training
from mvcl.training import _evaluate, _folder

REPORT = "run folder in a report"
RUN_FILES = {name: one for name, one in run_files.FORMATS.items() if name != REPORT}
ALL = [("table_files", name) for name in table_files.FORMATS] + [("run_files", name) for name in RUN_FILES]
CASES, BLOCK = 10_000, 500


def crafted_and(number, formats):
    """The unchanged and hostile cases of each format, and this many mutations."""
    return [(name, 0, 1 + len(one.crafted) + number) for name, one in formats.items()]


def test_damaged_tables(record_property):
    check("table_files", crafted_and(60, table_files.FORMATS), record_property)


def test_damaged_run_files(record_property):
    check("run_files", crafted_and(40, RUN_FILES), record_property)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, CASES, BLOCK))
@pytest.mark.parametrize(("module", "name"), ALL, ids=[name for _, name in ALL])
def test_ten_thousand(module, name, first, record_property):
    check(module, [(name, first, first + BLOCK)], record_property)


@pytest.mark.slow
def test_damaged_files_in_a_report(record_property):
    """The page lists the files that it could not read; fewer cases, since each draws a page."""
    check("run_files", [(REPORT, 0, 500)], record_property)


@pytest.mark.parametrize(
    ("name", "case"),
    [(".mat v5", "deflate bomb"), (".mat v7.3", "gzip bomb"), (".npz of tables", "2^40 numbers")],
)
def test_training_on_a_hostile_file_is_one_line_and_exit_code_2(name, case, tmp_path, capsys):
    one = table_files.FORMATS[name]
    one.write(tmp_path)
    file = one.crafted[case](tmp_path)
    options = ["--data.path", str(file), "--workdir", str(tmp_path / "run")]
    assert cli.main(["train", "xu/sem:tables", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mvcl: ")
    assert str(file) in line


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_ordinary_data_that_compress_well_are_read(save, tmp_path):
    """400,000 numbers, nearly all of them zero."""
    view = np.zeros((1000, 200))
    view[np.arange(200), np.arange(200)] = 1
    save(tmp_path / "a.npz", X1=view, X2=view[:, ::-1], labels=np.arange(1000) % 2)
    split = data.Tables(path=str(tmp_path / "a.npz"), scaling=("none",)).open()["train"]
    np.testing.assert_array_equal(split.arrays[0], view.astype(np.float32))


def test_a_file_may_expand_to_16_times_its_size(tmp_path):
    """The limit is 256 MiB for small files; the error says what would do."""
    budget = _untrusted.Budget(tmp_path, 100 << 20)
    budget.take(1600 << 20, "a table")
    with pytest.raises(ValueError, match=r"expands to more than 1,600 MiB.*save it without compression"):
        budget.take(1, "another")
    with pytest.raises(ValueError, match="expands to more than 256 MiB"):
        _untrusted.Budget(tmp_path, 1 << 20).take((256 << 20) + 1, "a table")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("train", "steps"), "many"),
        (("train", "batch_size"), 1.5),
        (("train", "batch_size"), True),
        (("train", "steps"), 2**63),
        (("views", "policies"), 3),
        (("data",), None),
        (("views", "strategy"), "other"),
    ],
)
def test_a_saved_config_has_fields_of_their_types(path, value, tmp_path):
    tree = json.loads(training.to_json(training.Config()))
    node = tree
    for part in path[:-1]:
        node = node[part]
    assert path[-1] in node
    node[path[-1]] = value
    (tmp_path / "config.json").write_text(json.dumps(tree))
    with pytest.raises(ValueError, match=rf"config\.json: the saved config does not fit .*: {path[-1]} is "):
        training.load(tmp_path)


def test_damaged_results_are_measured_again_and_damaged_rows_of_a_log_skipped(tmp_path):
    log = (
        b'{"step": 1, "loss": 2.0}\n{"step": "x"}\n[1]\n\xff\xfe\n' + b"[" * 100_000 + b'\n{"step": 2}\n{"st'
    )
    (tmp_path / "metrics.jsonl").write_bytes(log)
    assert _folder.read_log(tmp_path) == [{"step": 1, "loss": 2.0}, {"step": 2}]
    for content in (b"", b"[1]", b"\xff", b'{"step": ' + b"[" * 100_000):
        (tmp_path / "evaluation.json").write_bytes(content)
        assert _evaluate._read(tmp_path / "evaluation.json") == {}
