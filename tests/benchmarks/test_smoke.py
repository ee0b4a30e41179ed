"""A signal ends the smoke run; a failure does not."""

import signal
import sys

import pytest

from benchmarks import smoke


@pytest.mark.parametrize(
    ("code", "called"),
    [(2, ["first", "second"]), (128 + signal.SIGINT, ["first"]), (128 + signal.SIGTERM, ["first"])],
)
def test_a_signal_ends_the_smoke_run_and_a_failure_does_not(monkeypatch, capsys, code, called):
    found = []
    monkeypatch.setattr(smoke.cli, "main", lambda arguments: found.append(arguments[1]) or code)
    monkeypatch.setattr(sys, "argv", ["smoke", "first", "second"])
    if code == 2:
        assert smoke.main() == 1
        assert "0 of 2 pass" in capsys.readouterr().out
    else:
        with pytest.raises(SystemExit) as ended:
            smoke.main()
        assert ended.value.code == code
    assert found == called
