"""The processes of a run: their start, with the cache of compiled programs, and their stop at the same step."""

import dataclasses
import importlib.util
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mvcl import _progress

_LAG = 2  # steps between setting and reading a flag, so that the host never waits for the device
# Variables with the number of processes, and with the index of this one.
_NUMBERS = (("JAX_NUM_PROCESSES", "OMPI_COMM_WORLD_SIZE"), ("JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK"))


def join() -> None:
    """Connect to the other processes of the run, if any; call before any other use of jax.

    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID override what jax detects: a TPU pod, SLURM or Open
    MPI. Only process 0 reports progress. `ValueError` for incomplete or contradicting values.
    """
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    scheduler = None if address else cluster(os.environ)
    numbers: list[int | None] = [None, None]
    if address:
        for place, names in enumerate(_NUMBERS):
            if name := next(filter(os.environ.get, names), None):
                if not os.environ[name].isdecimal():
                    raise ValueError(f"{name} must be a number, got {os.environ[name]!r}")
                numbers[place] = int(os.environ[name])
        count, rank = numbers
        if ":" not in address:
            raise ValueError(f"JAX_COORDINATOR_ADDRESS must be HOST:PORT, got {address!r}")
        if count is not None and rank is not None and rank >= count:
            raise ValueError(f"JAX_PROCESS_ID must be 0 to {count - 1} of {count}, got {rank}")
    if not (address or scheduler) or jax.distributed.is_initialized():
        return
    # On SIGTERM a process saves; jax's service would take the signal before there is anything to save, and keep it.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(address or None, numbers[0], numbers[1])
    except ValueError:
        if scheduler != "TPU VM":
            raise
        return  # chips without a pod's metadata, as in a notebook: a single process
    if jax.process_index() > 0:
        _progress.silence()


def cluster(environ: Mapping[str, str]) -> str | None:
    """The scheduler that started several processes, if jax can find them; else None."""
    step = {f"SLURM_{name}" for name in ("JOB_ID", "STEP_NODELIST", "NTASKS", "PROCID", "LOCALID")}
    if step <= set(environ) and int(environ["SLURM_NTASKS"]) > 1:  # else maybe a shell on a node
        return "SLURM"
    if int(environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
        if "OMPI_MCA_orte_hnp_uri" not in environ:
            what = "Open MPI started several processes; since version 5 it does not give the address of process 0"
            raise ValueError(f"{what}: set JAX_COORDINATOR_ADDRESS=HOST:PORT with its host")
        return "Open MPI"
    wanted = environ.get("JAX_PLATFORMS", "")
    if (wanted and "tpu" not in wanted.split(",")) or "TPU_SKIP_MDS_QUERY" in environ:
        return None
    chips = [*Path("/dev").glob("accel[0-9]*"), *Path("/dev").glob("vfio/[0-9]*")]
    return "TPU VM" if chips and importlib.util.find_spec("libtpu") is not None else None


# Patterns in the errors of gloo, NCCL and jax's coordination service after a connection is lost.
_SIGNS_OF_LOSS = re.compile(
    r"(?i)gloo|connection (was )?(closed|reset|refused|aborted)|broken pipe|socket closed|peer|UNAVAILABLE|"
    r"coordination service|barrier|heartbeat|task.*(disconnect|died|unhealthy)"
)


@contextmanager
def losses_named(workdir: Path) -> Iterator[None]:
    """Context that raises `RuntimeError` where an error, or a cause of it, means that another process has ended."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, jax.errors.JaxRuntimeError) and _SIGNS_OF_LOSS.search(str(cause)):
                this = f"process {jax.process_index()} of {jax.process_count()} stops"
                what = f"another process of this run has ended; {this}. See the last lines of the others"
                how = f"repeat the command on all hosts to resume {workdir} from its newest checkpoint"
                raise RuntimeError(f"{what}; {how}") from error
            cause = cause.__cause__ or cause.__context__
        raise


class Interrupted(RuntimeError):
    """A signal stopped the run; the state of the last step is saved. `signal` is the number of the signal."""

    def __init__(self, number: int, step: int, steps: int, doing: str = "") -> None:
        what = f"stopped by {signal.Signals(number).name}{doing and ' while '}{doing}"
        super().__init__(f"{what}; saved at step {step} of {steps}. Repeat the command to resume")
        self.signal = number


@dataclasses.dataclass
class Stop:
    """Whether the run has to stop: a signal that any process got, known to all at the same call of `agreed`."""

    mesh: Mesh
    signal: int = 0
    """Number of the signal that this process got; 0: none."""
    _pending: deque[jax.Array] = dataclasses.field(default_factory=deque)

    def handle(self, number: int, _: Any) -> None:
        """For `handling`: a second SIGINT ends the process at once."""
        if self.signal == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    def agreed(self) -> int:
        """Number of the signal that stops all processes, or 0; every process calls it after the same piece of work. A
        signal reaches all two calls later: devices exchange it after their steps, and no step waits."""
        if jax.process_count() == 1:
            return self.signal
        mine = np.full((jax.local_device_count(),), self.signal, np.int32)
        rows = NamedSharding(self.mesh, PartitionSpec(self.mesh.axis_names))
        self._pending.append(self._gather(jax.make_array_from_process_local_data(rows, mine)))
        if len(self._pending) <= _LAG:
            return 0
        return int(np.max(self._pending.popleft().addressable_data(0)))

    @cached_property
    def _gather(self) -> Any:
        return jax.jit(lambda x: x + jnp.int32(0), out_shardings=NamedSharding(self.mesh, PartitionSpec()))


@contextmanager
def handling(handle: Callable[[int, Any], object]) -> Iterator[None]:
    """Context in which SIGTERM and SIGINT call a function; no change in other threads, which get no signals."""
    caught = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handle) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def compilation_cache() -> None:
    """Cache compiled programs in MVCL_CACHE or ~/.cache/mvcl, except with several CPU devices.

    On CPU, XLA orders the collectives of a program through a shared object. In a program loaded from the cache each
    collective has its own object (jaxlib 0.10.2), so two may run at once, which aborted runs.
    """
    if jax.default_backend() == "cpu" and jax.device_count() > 1:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    folder = os.environ.get("MVCL_CACHE") or str(Path.home() / ".cache" / "mvcl")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
