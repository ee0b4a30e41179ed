"""A signal ends the smoke run; a failure does not."""

import signal
import sys

import pytest

from benchmarks import smoke


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_smoke_run(monkeypatch, number):
    called = []

    def stopped(arguments):
        called.append(arguments[1])
        return 128 + number

    monkeypatch.setattr(smoke.cli, "main", stopped)
    monkeypatch.setattr(sys, "argv", ["smoke", "first", "second"])
    with pytest.raises(SystemExit) as ended:
        smoke.main()
    assert ended.value.code == 128 + number
    assert called == ["first"]


def test_a_failure_does_not_end_the_smoke_run(monkeypatch, capsys):
    monkeypatch.setattr(smoke.cli, "main", lambda arguments: 2)
    monkeypatch.setattr(sys, "argv", ["smoke", "first", "second"])
    assert smoke.main() == 1
    assert "0 of 2 pass" in capsys.readouterr().out
