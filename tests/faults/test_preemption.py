"""Notices of preemption and maintenance, from a server that plays Google Cloud's metadata server."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from campaign import finish, same_bits, wait_for_step

from mvcl.training import _preemption, _signals

_PATH = "/computeMetadata/v1/instance/"


class Metadata(ThreadingHTTPServer):
    """Values by key; a request with wait_for_change is answered when the value's etag is another than last_etag."""

    daemon_threads = True

    def __init__(self, **values):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.values = {"preempted": "FALSE", "maintenance-event": "NONE"} | values
        self.changed, self.asked = threading.Condition(), []

    @property
    def host(self):
        return f"127.0.0.1:{self.server_port}"

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        key, query = url.path.removeprefix(_PATH), parse_qs(url.query)
        server = self.server
        if self.headers["Metadata-Flavor"] != "Google":
            return self.send_error(403)
        with server.changed:
            server.asked.append(key)
            server.changed.notify_all()
            if query.get("wait_for_change") == ["true"]:
                server.changed.wait_for(
                    lambda: server.values.get(key) != query["last_etag"][0], float(query["timeout_sec"][0])
                )
            value = server.values.get(key)
        if value is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("ETag", value)
        self.end_headers()
        self.wfile.write(f"{value}\n".encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def metadata(**values):
    with Metadata(**values) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        for key in list(server.values):
            server.set(key, "the end")  # ends the requests that wait
        server.shutdown()
        thread.join()


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def asked(server, times):
    """Whether each key was asked for so often: the server's earlier values were received."""
    return all(server.asked.count(key) >= times for key in ("preempted", "maintenance-event"))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("preempted", "TRUE", _signals.PREEMPTED),
        ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", _signals.MAINTENANCE),
    ],
)
def test_a_notice_is_the_reason_to_stop(monkeypatch, key, value, reason):
    with metadata() as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # is not for this server
        stop = {"signal": 0}
        with _preemption.notices(stop):
            until(lambda: asked(server, 2))
            server.set("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")  # the machine goes on
            until(lambda: server.asked.count("maintenance-event") >= 3)
            assert stop["signal"] == 0
            server.set(key, value)
            until(lambda: stop["signal"])
    assert stop["signal"] == reason
    stopped = _signals.Interrupted(reason, 7, 60)
    assert stopped.signal == signal.SIGTERM
    assert str(stopped).startswith("stopped by the platform's notice of ")
    assert str(stopped).endswith("; saved at step 7 of 60. Repeat the command to resume")


def test_a_signal_stays_the_reason(monkeypatch):
    with metadata(preempted="TRUE") as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        stop = {"signal": int(signal.SIGINT)}
        with _preemption.notices(stop):
            until(lambda: asked(server, 1))
    assert stop["signal"] == signal.SIGINT


def test_a_notice_from_before_the_run(monkeypatch):
    """Of a preemption stops the run at once; one of maintenance did so to the run before, on the same machine."""
    with metadata(**{"maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE"}) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        stop = {"signal": 0}
        with _preemption.notices(stop):
            until(lambda: asked(server, 2))
            assert stop["signal"] == 0
            server.set("preempted", "TRUE")
            until(lambda: stop["signal"])
    assert stop["signal"] == _signals.PREEMPTED


def test_without_the_keys_or_the_server_a_run_goes_on(monkeypatch, capfd):
    with metadata(**{"preempted": None, "maintenance-event": None}) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        with _preemption.notices({"signal": 0}):
            until(lambda: asked(server, 1))
            until(lambda: not any("notice of" in thread.name for thread in threading.enumerate()))
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    monkeypatch.setattr(_preemption, "_RETRY_SECONDS", 0.01)
    printed = []
    with _preemption.notices({"signal": 0}):
        until(lambda: printed.append(capfd.readouterr().err) or "".join(printed).count("trying again") == 2)
        time.sleep(0.1)  # ten more attempts, of which nothing is printed
    assert ("".join(printed) + capfd.readouterr().err).count(
        "no notices of pre-emption from 127.0.0.1:1"
    ) == 2


def test_the_server_is_found_without_asking_the_network(tmp_path):
    product = tmp_path / "product_name"
    assert _preemption.metadata_server({}, product) is None
    product.write_text("Standard PC\n")
    assert _preemption.metadata_server({}, product) is None
    product.write_text("Google Compute Engine\n")
    assert _preemption.metadata_server({}, product) == "metadata.google.internal"
    assert _preemption.metadata_server({"NO_GCE_CHECK": "true"}, product) is None
    assert _preemption.metadata_server({"GCE_METADATA_HOST": "host:1"}, tmp_path) == "host:1"


@pytest.mark.slow
def test_sigterm_before_training_ends_one_of_several_processes():
    """There is nothing to save yet, and jax's own service does not take the signal."""
    code = (
        "import os, signal, sys, time; from mvcl import training; training.join(); print('joined', flush=True)\n"
        "if sys.argv[1] == '1': os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(5); os._exit(0)"
    )
    env = os.environ | {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:29658", "JAX_NUM_PROCESSES": "2"}
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", code, rank], env=env | {"JAX_PROCESS_ID": rank}, stdout=subprocess.PIPE
        )
        for rank in ("0", "1")
    ]
    outputs = [process.communicate(timeout=120)[0] for process in pair]
    assert outputs == [b"joined\n", b"joined\n"]
    assert [process.returncode for process in pair] == [0, -signal.SIGTERM]


@pytest.mark.slow
def test_a_preempted_run_saves_and_resumes(runs, whole, tmp_path, report):
    workdir = tmp_path / "run"
    with metadata() as server:
        process = runs.start(workdir, env={"GCE_METADATA_HOST": server.host})
        wait_for_step(process, workdir, 5)
        server.set("preempted", "TRUE")
        output = finish(process, 128 + signal.SIGTERM, timeout=60)
    assert "stopped by the platform's notice of a pre-emption; saved at step" in output
    finish(runs.start(workdir))
    same_bits(workdir, whole)
    report("the platform's notice of a pre-emption", "saved and exited with code 143; bit-identical")


@pytest.mark.slow
def test_a_notice_to_one_of_two_machines_stops_both(runs, tmp_path, report):
    workdir = tmp_path / "run"
    with metadata() as server:
        together = {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:29657", "JAX_NUM_PROCESSES": "2"}
        first = runs.start(workdir, env=together | {"JAX_PROCESS_ID": "0", "NO_GCE_CHECK": "true"})
        second = runs.start(workdir, env=together | {"JAX_PROCESS_ID": "1", "GCE_METADATA_HOST": server.host})
        wait_for_step(first, workdir, 5)
        server.set("preempted", "TRUE")
        outputs = [finish(process, 128 + signal.SIGTERM, timeout=60) for process in (first, second)]
    for output in outputs:
        assert "stopped by the platform's notice of a pre-emption; saved at step" in output
    report(
        "a notice of pre-emption to one of two machines", "both saved the same step and exited with code 143"
    )
