"""A failure does not end the smoke run, and fails it."""

import sys

from benchmarks import smoke


def test_a_failure_fails_the_smoke_run_at_its_end(monkeypatch, capsys):
    monkeypatch.setattr(smoke.cli, "main", lambda arguments: 2)
    monkeypatch.setattr(sys, "argv", ["smoke", "first", "second"])
    assert smoke.main() == 1
    assert "0 of 2 pass" in capsys.readouterr().out
