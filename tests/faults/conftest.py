"""Fixtures of the fault and distributed tests: an undisturbed run, and the table of results printed at the end."""

import pytest
from campaign import finish, start

_TABLE: list[tuple[str, str, str]] = []


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Folder of an undisturbed run."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    finish(start(workdir))
    return workdir


@pytest.fixture
def report(request):
    """`report(fault, outcome)` adds a row to the table printed at the end."""
    trial = request.node.name.removeprefix("test_").replace("_", " ")

    def add(fault, outcome):
        _TABLE.append((trial, fault, outcome))

    return add


def pytest_terminal_summary(terminalreporter):
    if not _TABLE:
        return
    lines = [("test", "fault", "result"), *_TABLE]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    text = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    terminalreporter.write_sep("=", "results")
    terminalreporter.write_line("\n".join(text))
