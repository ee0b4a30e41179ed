"""Damaged and hostile tables, configs, weights and checkpoints: each is read, or a `ValueError` names the file.

Within 5 seconds and 1 GiB of memory beyond the file's size, as measured in a process of its own.
"""

import pytest
import run_files
import table_files
from mutations import check

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
