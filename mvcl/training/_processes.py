"""The processes of one run: connecting them, and stopping them at the same step."""

import dataclasses
import glob
import importlib.util
import os
import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mvcl import data

# Steps between setting and reading flags, so that the host never waits for the device.
_LAG = 2
# Corrupt rows that a process sends per step; further rows are sent at the next step.
MAX_ROWS = 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distributed:
    """Address of the other processes; by default found from the environment (TPU pod, SLURM, GKE, Open MPI)."""

    coordinator_address: str | None = None
    """HOST:PORT of process 0; default JAX_COORDINATOR_ADDRESS."""
    num_processes: int | None = None
    """Number of processes; default JAX_NUM_PROCESSES."""
    process_id: int | None = None
    """Index of this process, from 0; default JAX_PROCESS_ID."""


def join(flags: Distributed = Distributed(), environ: Mapping[str, str] | None = None) -> str | None:
    """Connect to the other processes of the run, if any; call before any other use of jax.

    Flags override JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; these override what jax detects:
    a TPU pod, GKE, SLURM or Open MPI.

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
    hosts = environ.get("TPU_PROCESS_ADDRESSES", environ.get("TPU_WORKER_HOSTNAMES", ""))
    if "," in hosts or "MEGASCALE_COORDINATOR_ADDRESS" in environ:
        return "GKE"
    chips = glob.glob("/dev/accel[0-9]*") + glob.glob("/dev/vfio/[0-9]*")
    if chips and importlib.util.find_spec("libtpu") is not None and "TPU_SKIP_MDS_QUERY" not in environ:
        return "TPU VM"
    return None


def _given(flags: Distributed, environ: Mapping[str, str]) -> Distributed:
    """Values from flags, then from jax's variables, then from the scheduler's variables."""

    def number(flag: int | None, *names: str) -> int | None:
        if flag is not None:
            return flag
        name = next((name for name in names if environ.get(name)), None)
        if name is None:
            return None
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

    def __init__(self, workdir: Path) -> None:
        super().__init__(
            f"another process of this run has ended; process {jax.process_index()} of {jax.process_count()} stops. "
            f"See the last lines of the others; repeat the command on all hosts to resume {workdir} from its newest "
            "checkpoint"
        )


# Patterns in the errors of gloo, NCCL and jax's coordination service after a connection is lost.
_SIGNS_OF_LOSS = re.compile(
    r"gloo|connection (was )?(closed|reset|refused|aborted)|broken pipe|socket closed|peer|UNAVAILABLE|"
    r"coordination service|barrier|heartbeat|task.*(disconnect|died|unhealthy)",
    re.IGNORECASE,
)


def means_lost(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, indicates that another process has ended."""
    if jax.process_count() == 1:
        return False
    while error is not None:
        if isinstance(error, jax.errors.JaxRuntimeError) and _SIGNS_OF_LOSS.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


class Flags:
    """Integers that any process sets and all processes read at the same step.

    Flags set at step s reach every process at step s + 2: the devices exchange them after the steps, and no step
    waits for it.
    """

    def __init__(self, mesh: Mesh, count: int) -> None:
        self._count, self._world = count, jax.process_count()
        self._pending: deque[jax.Array] = deque()
        axes = PartitionSpec(mesh.axis_names)
        self._mine = NamedSharding(mesh, axes)
        self._first = np.asarray(  # one device of each process
            [
                next(i for i, device in enumerate(mesh.devices.flat) if device.process_index == rank)
                for rank in range(self._world)
            ]
        )
        self._gather = jax.jit(lambda x: x + jnp.int32(0), out_shardings=NamedSharding(mesh, PartitionSpec()))

    def exchange(self, flags: np.ndarray) -> np.ndarray:
        """Set this process's flags, (count,) int32; return those of all two steps ago, (processes, count)."""
        if flags.shape != (self._count,) or flags.dtype != np.int32:
            raise ValueError(f"flags must be int32 ({self._count},), got {flags.dtype} {flags.shape}")
        if self._world == 1:
            return flags[None]
        rows = np.repeat(flags[None], jax.local_device_count(), axis=0)
        self._pending.append(self._gather(jax.make_array_from_process_local_data(self._mine, rows)))
        if len(self._pending) <= _LAG:
            return np.zeros((self._world, self._count), np.int32)
        return np.asarray(self._pending.popleft().addressable_data(0))[self._first]


def should_stop(flags: Flags, stop: Mapping[str, int], reading: data.Reading, step: int) -> int:
    """A process's reason to stop, of `Interrupted`, or 0; also exchanges the corrupt rows.

    Call in every process after every step, with `flags` of 1 + MAX_ROWS. All processes get the same answer.

    Raises:
      CorruptExample: the processes together found more corrupt examples than allowed.
    """
    mine = np.zeros(1 + MAX_ROWS, np.int32)
    mine[0] = stop["signal"]
    rows = reading.unshared(step, MAX_ROWS)
    mine[1 : 1 + len(rows)] = np.asarray(rows, np.int32) + 1
    everyone = flags.exchange(mine)
    reading.add_shared(int(flag) - 1 for flag in everyone[:, 1:].flat if flag)
    return int(everyone[:, 0].max())
