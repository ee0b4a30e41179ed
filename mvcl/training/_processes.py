"""The processes of one run: connecting them, and stopping them at the same step."""

import dataclasses
import glob
import importlib.util
import os
import re
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mvcl import _progress

# Steps between setting and reading a flag, so that the host never waits for the device.
_LAG = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distributed:
    """Address of the other processes; by default found from the environment (TPU pod, SLURM, Open MPI)."""

    coordinator_address: str | None = None
    """HOST:PORT of process 0; default JAX_COORDINATOR_ADDRESS."""
    num_processes: int | None = None
    """Number of processes; default JAX_NUM_PROCESSES."""
    process_id: int | None = None
    """Index of this process, from 0; default JAX_PROCESS_ID."""


def join(flags: Distributed = Distributed(), environ: Mapping[str, str] | None = None) -> str | None:
    """Connect to the other processes of the run, if any; call before any other use of jax.

    Flags override JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; these override what jax detects:
    a TPU pod, SLURM or Open MPI. Only process 0 reports progress.

    Returns:
      How the other processes were found; None for a single process.

    Raises:
      ValueError: flags or variables are incomplete or contradict each other.
    """
    environ = os.environ if environ is None else environ
    place = _given(flags, environ)
    found_by = "flags or variables" if place.coordinator_address is not None else cluster(environ)
    if found_by is None or jax.distributed.is_initialized():
        return found_by
    # On SIGTERM a process saves; jax's service would take the signal before there is anything to save, and keep it.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(place.coordinator_address, place.num_processes, place.process_id)
    except ValueError:
        if found_by != "TPU VM":
            raise
        return None  # chips without a pod's metadata, as in a notebook: a single process
    if jax.process_index() > 0:
        _progress.silence()
    return found_by


def cluster(environ: Mapping[str, str]) -> str | None:
    """The scheduler that started several processes, if jax can find them; else None."""
    step = (
        "SLURM_JOB_ID",
        "SLURM_STEP_NODELIST",
        "SLURM_NTASKS",
        "SLURM_PROCID",
        "SLURM_LOCALID",
    )  # without a job step this is a shell on a node, not a task
    if all(name in environ for name in step) and int(environ["SLURM_NTASKS"]) > 1:
        return "SLURM"
    if int(environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
        if "OMPI_MCA_orte_hnp_uri" not in environ:
            raise ValueError(
                f"Open MPI started {environ['OMPI_COMM_WORLD_SIZE']} processes; since version 5 it does not "
                "give the address of process 0: set JAX_COORDINATOR_ADDRESS=HOST:PORT with its host"
            )
        return "Open MPI"
    wanted = environ.get("JAX_PLATFORMS", "")
    if wanted and "tpu" not in wanted.split(","):
        return None
    chips = glob.glob("/dev/accel[0-9]*") + glob.glob("/dev/vfio/[0-9]*")
    if chips and importlib.util.find_spec("libtpu") is not None and "TPU_SKIP_MDS_QUERY" not in environ:
        return "TPU VM"
    return None


def _given(flags: Distributed, environ: Mapping[str, str]) -> Distributed:
    """Values from flags, then from jax's variables, then from the scheduler's variables."""

    def number(flag: int | None, name: str) -> int | None:
        if flag is not None or not environ.get(name):
            return flag
        if not environ[name].isdecimal():
            raise ValueError(f"{name} must be a number, got {environ[name]!r}")
        return int(environ[name])

    address = flags.coordinator_address or environ.get("JAX_COORDINATOR_ADDRESS") or None
    count = number(flags.num_processes, "JAX_NUM_PROCESSES")
    rank = number(flags.process_id, "JAX_PROCESS_ID")
    if address is None:
        if flags.num_processes is not None or flags.process_id is not None:
            raise ValueError(
                "--distributed.num-processes and --distributed.process-id need --distributed.coordinator-address"
            )
        return Distributed()
    if ":" not in address:
        raise ValueError(f"--distributed.coordinator-address must be HOST:PORT, got {address!r}")
    if "OMPI_COMM_WORLD_SIZE" in environ:
        count = number(count, "OMPI_COMM_WORLD_SIZE")
        rank = number(rank, "OMPI_COMM_WORLD_RANK")
    if count is not None and rank is not None and not 0 <= rank < count:
        raise ValueError(
            f"--distributed.process-id must be 0 to {count - 1} for {count} processes, got {rank}"
        )
    return Distributed(coordinator_address=address, num_processes=count, process_id=rank)


class LostProcess(RuntimeError):
    """Another process of the run has ended."""


# Patterns in the errors of gloo, NCCL and jax's coordination service after a connection is lost.
_SIGNS_OF_LOSS = re.compile(
    r"gloo|connection (was )?(closed|reset|refused|aborted)|broken pipe|socket closed|peer|UNAVAILABLE|"
    r"coordination service|barrier|heartbeat|task.*(disconnect|died|unhealthy)",
    re.IGNORECASE,
)


@contextmanager
def losses_named(workdir: Path) -> Iterator[None]:
    """Context that raises `LostProcess` where an error means that another process of the run has ended."""
    try:
        yield
    except Exception as error:
        if not means_lost(error):
            raise
        raise LostProcess(
            f"another process of this run has ended; process {jax.process_index()} of {jax.process_count()} stops. "
            f"See the last lines of the others; repeat the command on all hosts to resume {workdir} from its newest "
            "checkpoint"
        ) from error


def means_lost(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, indicates that another process has ended."""
    if jax.process_count() == 1:
        return False
    while error is not None:
        if isinstance(error, jax.errors.JaxRuntimeError) and _SIGNS_OF_LOSS.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


class Interrupted(RuntimeError):
    """A signal stopped the run; the state of the last step is saved. `signal` is the number of the signal."""

    def __init__(self, number: int, step: int, steps: int, doing: str = "") -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name}{doing and ' while '}{doing}; saved at step {step} of {steps}. "
            "Repeat the command to resume"
        )
        self.signal = number


class Stop:
    """Whether the run has to stop: a signal that any process got, known to all at the same call of `agreed`."""

    def __init__(self, mesh: Mesh) -> None:
        self.signal = 0
        """Number of the signal that this process got; 0: none."""
        self._pending: deque[jax.Array] = deque()
        self._mine = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self._gather = jax.jit(lambda x: x + jnp.int32(0), out_shardings=NamedSharding(mesh, PartitionSpec()))

    def agreed(self) -> int:
        """Number of the signal that stops all processes, or 0; every process calls it after the same piece of work.

        A signal reaches all processes two calls later: devices exchange it after their steps, and no step waits.
        """
        if jax.process_count() == 1:
            return self.signal
        mine = np.full((jax.local_device_count(),), self.signal, np.int32)
        self._pending.append(self._gather(jax.make_array_from_process_local_data(self._mine, mine)))
        if len(self._pending) <= _LAG:
            return 0
        return int(np.max(self._pending.popleft().addressable_data(0)))


@contextmanager
def stop_signals(mesh: Mesh) -> Iterator[Stop]:
    """SIGTERM and SIGINT set `stop.signal` instead of ending the process; a second SIGINT ends it at once."""
    stop = Stop(mesh)

    def handle(number: int, _: Any) -> None:
        if stop.signal == number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
