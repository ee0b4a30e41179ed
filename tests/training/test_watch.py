"""Monitoring: times, FLOPs, memory, clock, heartbeat, profile; flags and detection of processes."""

import gzip
import json
import socket
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from mvcl.training import _goodput, _processes, _watch


class Times:
    """A monotonic and a wall clock set by the tests."""

    def __init__(self, monkeypatch):
        self.monotonic, self.wall = 100.0, 1000.0
        monkeypatch.setattr(_watch.time, "monotonic", lambda: self.monotonic)
        monkeypatch.setattr(_watch.time, "time", lambda: self.wall)


@pytest.fixture
def times(monkeypatch):
    return Times(monkeypatch)


def test_times_of_a_row_add_up(times):
    watch = _watch.Watch(devices=8, flops=3e12, peak=2e12)
    for _ in range(4):
        with watch.data():
            times.monotonic += 0.5
        times.monotonic += 1.0
    with watch.log():
        times.monotonic += 0.4
    row = watch.row(4)
    assert row["seconds_data"] == pytest.approx(0.5)
    assert row["seconds_step"] == pytest.approx(1.0)
    assert row["seconds_log"] == pytest.approx(0.1)
    # 4 steps of 3 TFLOP in 6.4 s on 8 devices of 2 TFLOP/s
    assert row["model_flops_utilisation"] == pytest.approx(4 * 3 / (6.4 * 8 * 2))
    times.monotonic += 2.0
    watch.restart(7)  # such as after a checkpoint
    times.monotonic += 3.0
    assert watch.row(8)["seconds_step"] == pytest.approx(3.0)


def test_no_utilisation_without_a_known_peak():
    assert "model_flops_utilisation" not in _watch.Watch(1, 1e9, None).row(1)
    assert "model_flops_utilisation" not in _watch.Watch(1, None, 1e12).row(1)
    assert _watch.peak_flops() is None  # of a CPU
    assert _watch.peak_flops(1.5) == 1.5e12


def test_peaks_are_found_by_the_longest_name(monkeypatch):
    for kind, tflops in [
        ("NVIDIA L40S", 362),
        ("NVIDIA H100 80GB HBM3", 989),
        ("TPU v5 lite", 197),
        ("TPU v5", 459),
    ]:
        device = type("Device", (), {"device_kind": kind})()
        monkeypatch.setattr(_watch.jax, "devices", lambda device=device: [device])
        assert _watch.peak_flops() == tflops * 1e12


def test_flops_of_a_product():
    step = jax.jit(lambda a, b: a @ b)
    a, b = jax.ShapeDtypeStruct((64, 32), jnp.float32), jax.ShapeDtypeStruct((32, 16), jnp.float32)
    assert _watch.step_flops(step, a, b) == 2 * 64 * 32 * 16


def test_memory_of_the_process():
    before = _watch.memory()["memory_gib"]
    array = np.ones(2**26, np.uint8)  # 64 MiB
    assert _watch.memory()["memory_gib"] - before == pytest.approx(1 / 16, rel=0.2)
    del array


def test_clock_does_not_decrease(times):
    clock = _watch.Clock()
    times.monotonic, times.wall = times.monotonic + 5, times.wall - 3600
    assert clock.now() == 1005.0
    again = _watch.Clock(last=clock.now())  # a resumed run, on a clock an hour behind
    times.monotonic += 1
    assert again.now() == 1006.0
    times.wall = 5000.0
    assert _watch.Clock(last=1006.0).now() == 5000.0


def test_heartbeat_is_atomic_rate_limited_and_never_fatal(times, tmp_path, capsys):
    path = tmp_path / "heartbeat.json"
    heartbeat = _watch.Heartbeat(path, 10, _watch.Clock(), _goodput.Goodput())
    heartbeat.beat(1)
    beat = json.loads(path.read_text())
    assert (beat["step"], beat["steps"], beat["doing"], beat["unix_time"]) == (1, 10, "training", 1000.0)
    assert beat["time"] == "1970-01-01T00:16:40.000+00:00"
    heartbeat.beat(2)
    assert json.loads(path.read_text())["step"] == 1  # rate limited
    heartbeat.beat(2, "evaluating", now=True)
    assert json.loads(path.read_text())["doing"] == "evaluating"
    times.monotonic += 6
    heartbeat.beat(3)
    assert json.loads(path.read_text())["step"] == 3
    assert [f.name for f in tmp_path.iterdir()] == ["heartbeat.json"]
    _watch.Heartbeat(tmp_path / "no" / "heartbeat.json", 10, _watch.Clock(), _goodput.Goodput()).beat(1)
    assert "heartbeat not written" in capsys.readouterr().err


def test_profile_has_the_files_of_both_viewers(tmp_path):
    profile = _watch.Profile(tmp_path, first=1, steps=2)
    f = jax.jit(lambda x: x @ x)
    x = jnp.ones((8, 8))
    f(x)
    for step in range(4):
        with profile.step(step):
            x = f(x) / 8
        profile.after(step, x)
    profile.close()
    (xplane,) = tmp_path.rglob("*.xplane.pb")
    assert xplane.stat().st_size > 1000
    (trace,) = tmp_path.rglob("perfetto_trace.json.gz")
    with gzip.open(trace) as file:
        events = json.load(file)["traceEvents"]
    steps = {
        e["args"]["step_num"] for e in events if e.get("name") == "train" and "step_num" in e.get("args", {})
    }
    assert steps == {"1", "2"}


def test_profiler_server_listens():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for wrong in (port, 0, 99999):
            with pytest.raises(ValueError, match=rf"--profiler-port must be a port .*, got {wrong}$"):
                _watch.profiler_server(wrong)
    _watch.profiler_server(port)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")  # as gRPC begins
            assert client.recv(9)[3] == 4  # its settings
    finally:
        jax.profiler.stop_server()


def test_flags_of_one_process():
    mesh = Mesh(np.asarray(jax.devices()), ("data",), axis_types=(AxisType.Auto,))
    flags = _processes.Flags(mesh, 3)
    assert flags.exchange(np.asarray([1, 0, 7], np.int32)).tolist() == [[1, 0, 7]]
    with pytest.raises(ValueError, match=r"flags must be int32 \(3,\), got int64 \(2,\)"):
        flags.exchange(np.zeros(2, np.int64))


SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "3",
}


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        ({}, None),
        (SLURM, "SLURM"),
        (SLURM | {"SLURM_NTASKS": "1"}, None),  # srun --pty bash
        ({k: v for k, v in SLURM.items() if k != "SLURM_STEP_NODELIST"}, None),  # a batch script, no task
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.0.0.1:5000"}, "Open MPI"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0"}, "GKE"),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "JAX_PLATFORMS": "cpu"}, None),
    ],
)
def test_detects_clusters_from_the_environment(environ, who):
    assert _processes.cluster(environ) == who


def test_detects_a_tpu_vm_by_its_chips(monkeypatch):
    monkeypatch.setattr(
        _processes.glob, "glob", lambda pattern: ["/dev/accel0"] if "accel" in pattern else []
    )
    assert _processes.cluster({}) is None  # no libtpu here
    monkeypatch.setattr(_processes.importlib.util, "find_spec", lambda name: object())
    assert _processes.cluster({}) == "TPU VM"
    assert _processes.cluster({"TPU_SKIP_MDS_QUERY": "1"}) is None


def test_tpu_vm_without_a_pod_is_a_single_process(monkeypatch):
    def initialize(*_):
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(_processes.jax.distributed, "initialize", initialize)
    monkeypatch.setattr(_processes, "cluster", lambda environ: "TPU VM")
    assert _processes.join(environ={}) is None
    monkeypatch.setattr(_processes, "cluster", lambda environ: "SLURM")
    with pytest.raises(ValueError, match="should be defined"):
        _processes.join(environ={})


@pytest.fixture
def joined(monkeypatch):
    calls = []
    monkeypatch.setattr(_processes.jax.distributed, "initialize", lambda *a: calls.append(a))
    monkeypatch.setattr(_processes.jax.distributed, "is_initialized", lambda: bool(calls))
    return calls


def test_flags_override_variables_and_variables_the_scheduler(joined):
    variables = {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "2"}
    flags = _processes.Distributed(coordinator_address="b:2", process_id=3)
    assert _processes.join(flags, variables | SLURM) == "flags or variables"
    assert joined == [("b:2", 4, 3)]
    assert _processes.join(flags, variables) == "flags or variables"
    assert len(joined) == 1  # once


@pytest.mark.parametrize(
    ("environ", "call"),
    [
        (SLURM, (None, None, None)),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, ("a:1", None, None)),  # jax finds the numbers
        (
            {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1", "JAX_COORDINATOR_ADDRESS": "a:1"},
            ("a:1", 4, 1),  # Open MPI 5
        ),
    ],
)
def test_arguments_of_jax_distributed(joined, environ, call):
    _processes.join(environ=environ)
    assert joined == [call]


def test_single_process_joins_none(joined):
    assert _processes.join(environ={}) is None
    assert joined == []


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        ({"num_processes": 2}, {}, "need --distributed.coordinator-address"),
        ({"coordinator_address": "host"}, {}, "must be HOST:PORT, got 'host'"),
        (
            {"coordinator_address": "h:1", "num_processes": 2, "process_id": 2},
            {},
            "must be 0 to 1 for 2 processes",
        ),
        (
            {},
            {"JAX_COORDINATOR_ADDRESS": "h:1", "JAX_NUM_PROCESSES": "two"},
            "JAX_NUM_PROCESSES must be a number",
        ),
        ({}, {"OMPI_COMM_WORLD_SIZE": "4"}, "does not give the address of process 0"),
    ],
)
def test_raises_on_incomplete_settings(joined, flags, environ, message):
    with pytest.raises(ValueError, match=message):
        _processes.join(_processes.Distributed(**flags), environ)
    assert joined == []


def test_cost_of_monitoring(tmp_path):
    """Cost per step without log rows: less than a millisecond."""
    watch, profile = _watch.Watch(1, None, None), _watch.Profile(tmp_path, 0, 0)
    heartbeat = _watch.Heartbeat(tmp_path / "heartbeat.json", 10, _watch.Clock(), _goodput.Goodput())
    begun = time.perf_counter()
    for step in range(200):
        with watch.data():
            pass
        with profile.step(step):
            pass
        profile.after(step, None)
        heartbeat.beat(step)
    assert (time.perf_counter() - begun) / 200 < 1e-3
