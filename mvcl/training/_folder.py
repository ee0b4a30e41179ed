"""The files of a run folder: its lock, its config, its log and the times of its phases."""

import dataclasses
import fcntl
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import jax

from mvcl import _buckets, _files, _progress
from mvcl.training import _serialise
from mvcl.training._config import Config, free

SCORE = "score"
"""A row of metrics.jsonl with this key is a score; its value is the name of the entry with the number."""
# Phases of the clock that a logged row tells: the time between two rows without saving and evaluating.
_PHASES = {"seconds_data": "data", "seconds_step": "training", "seconds_log": "logging"}
_PAGES = Path("/proc/self/statm")  # the memory of this process, on Linux
# Consecutive logged steps at chance level, or with a collapsed rank, before a warning.
_PATIENCE = 5


class Locked(ValueError):
    """Another run is using the folder."""


@contextmanager
def locked(workdir: Path, name: str = ".lock") -> Iterator[None]:
    """Lock the folder, which is made if it is missing, for this run.

    The lock is `flock` of a file, which ends with the process. A folder in a bucket has no lock.

    Raises:
      Locked: another run holds the lock.
      ValueError: the folder is not writable.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = None if _buckets.is_remote(workdir) else open(workdir / name, "w")
    except OSError as error:
        raise ValueError(f"--workdir {workdir} is not writable ({error}); choose another") from error
    with file or nullcontext():
        for wait in (0.01, 0.1, None):  # a report that looks whether a run is alive holds it for less
            try:
                if file is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if wait is None:
                    raise Locked(
                        f"another run is using {workdir}; wait until it ends, or choose another --workdir"
                    ) from error
                time.sleep(wait)
        yield


def claim(workdir: Path, config: Config) -> None:
    """Write the config, or check that the folder's config is the same; log which user code has changed.

    Raises:
      ValueError: the folder belongs to another config, or holds other files.
    """
    path = workdir / "config.json"
    if not path.is_file():
        there = workdir.iterdir() if workdir.is_dir() else ()  # a new folder in a bucket is not there yet
        unexpected = sorted(p.name for p in there if not p.name.startswith("."))
        if unexpected:
            raise ValueError(
                f"--workdir {workdir} has files ({', '.join(unexpected[:3])}) but no run; choose an empty folder"
            )
        _files.write_whole(path, _serialise.to_json(config))
        return
    given = _serialise.tree(config)
    with _files.reading(path, "config"):
        saved = _files.read_json(path)
        old, before = _serialise.flatten(saved), _serialise.digests(saved)
    differing = differences(old, _serialise.flatten(given), free("resume"))
    if differing:
        more = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
        raise ValueError(
            f"--workdir {workdir} belongs to another config: {'; '.join(differing[:3])}{more}. "
            "Choose another --workdir, or pass the same options to resume it"
        )
    now = _serialise.digests(given)
    for name, digest in before.items():
        if digest != now.get(name):
            _progress.line(
                f"{name} has changed since this run started (digest {digest}, now {now.get(name)}); the run resumes "
                "with the new code"
            )
    if saved != given:
        _files.write_whole(path, _serialise.to_json(config))


def differences(old: dict[str, Any], new: dict[str, Any], free: tuple[str, ...] = ()) -> list[str]:
    """The leaves that differ between two flat trees, in words; names that begin with one of `free` may."""
    return [
        f"{name} was {old.get(name)!r} and is {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and not name.startswith(free)
    ]


@dataclasses.dataclass
class Clock:
    """Seconds of a run by phase, over all its sessions.

    Time counts as the innermost phase that is entered, as `other` outside of all.
    """

    _seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    _doing: list[str] = dataclasses.field(default_factory=lambda: ["other"])
    _last: float = dataclasses.field(default_factory=lambda: time.monotonic())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time within counts as this phase."""
        self.seconds()
        self._doing.append(name)
        try:
            yield
        finally:
            self.seconds()
            self._doing.pop()

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase until now."""
        now, doing = time.monotonic(), self._doing[-1]
        self._seconds[doing] = self._seconds.get(doing, 0.0) + now - self._last
        self._last = now
        return dict(self._seconds)

    def resume(self, path: Path) -> None:
        """Add the seconds of earlier sessions; nothing of a missing or damaged file."""
        try:
            earlier = {str(name): float(value) for name, value in _files.read_json(path).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return
        for name, value in earlier.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + value

    def write(self, path: Path) -> None:
        """Write the seconds for `resume`."""
        rounded = {name: round(value, 3) for name, value in self.seconds().items()}
        _files.write_whole(path, json.dumps(rounded) + "\n")


class Log:
    """A line of progress and a row of metrics.jsonl and TensorBoard for each logged step, scores, and warnings.

    Only process 0 has a log.
    """

    def __init__(
        self,
        workdir: Path,
        clock: Clock,
        *,
        step: int,
        steps: int,
        views_per_step: int,
        full_speed: float | None = None,
    ) -> None:
        """Add to the log of a folder, which ends at `step`.

        A bucket's objects cannot grow: its log is written to a temporary folder, which `upload` copies. With
        `full_speed`, steps per second at the devices' peak FLOP/s, rows have the utilisation.
        """
        from tensorboardX import SummaryWriter  # takes half a second with the clients of cloud storage

        self._workdir, self._clock, self._steps, self._views = workdir, clock, steps, views_per_step
        self._full_speed, self._folder, self._temporary = full_speed, workdir, None
        if _buckets.is_remote(workdir):
            self._temporary = tempfile.TemporaryDirectory(prefix="mvcl_")
            self._folder = Path(self._temporary.name)
            rows = workdir / "metrics.jsonl"
            (self._folder / rows.name).write_text(rows.read_text() if rows.is_file() else "")
        self._file = open(self._folder / "metrics.jsonl", "a", buffering=1)
        self._board = SummaryWriter(str(self._folder / "tensorboard"), purge_step=step or None)
        self._last, self._before, self._started = step, clock.seconds(), time.monotonic()
        # Time never decreases, even if the machine's clock is set back.
        last = max((float(row.get("time", 0.0)) for row in read_log(workdir)), default=0.0)
        self._wall = max(time.time(), last) - self._started
        self._signs: dict[str, int] = {}

    def row(self, step: int, values: dict[str, Any]) -> None:
        """Log a step's values, among them `loss` and `effective_rank`, and its time; warn of what they show."""
        seconds, done = self._clock.seconds(), max(step - self._last, 1)
        parts = {name: (seconds.get(p, 0.0) - self._before.get(p, 0.0)) / done for name, p in _PHASES.items()}
        self._before, self._last = seconds, step
        each = max(sum(parts.values()), 1e-9)
        row = {"step": step, **values, **parts, "views_per_second": self._views / each}
        used = jax.local_devices()[0].memory_stats() or {}  # of a CPU there are none
        for name, key in (("memory_gib", "bytes_in_use"), ("memory_peak_gib", "peak_bytes_in_use")):
            row |= {name: used[key] / 2**30} if key in used else {}
        if not used and _PAGES.is_file():
            row["memory_gib"] = int(_PAGES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**30
        if self._full_speed is not None:
            row["model_flops_utilisation"] = 1 / (each * self._full_speed)
        now = time.monotonic()
        row |= {"seconds": now - self._started, "time": round(self._wall + now, 3)}
        row = {k: v for k, v in row.items() if not (isinstance(v, float) and not math.isfinite(v))}
        self._file.write(json.dumps(row) + "\n")
        for name, value in row.items():
            if name not in ("step", "time"):
                self._board.add_scalar(name, value, step, walltime=row["time"])
        chance = f" (chance {values['chance']:.4f})" if "chance" in values else ""
        _progress.show(
            f"step {step:>{len(str(self._steps))}}/{self._steps}  loss {values['loss']:.4f}{chance}  "
            f"rank {values['effective_rank']:.1f}  {self._views / each:,.0f} views/s  "
            f"{_progress.duration((self._steps - step) * each)} left"
        )
        self._warn(values)

    def _warn(self, values: dict[str, Any]) -> None:
        chance, rank = values.get("chance", math.inf), values["effective_rank"]
        unconverged = values.get("solver_unconverged", 0) > 0 or "solver" in self._signs
        signs = {
            "chance": math.isfinite(chance) and values["loss"] > chance - 0.01 * (1 + abs(chance)),
            "rank": rank < 1.5,
            "solver": unconverged,  # once
        }
        self._signs = {name: self._signs.get(name, 0) + 1 for name, holds in signs.items() if holds}
        if self._signs.get("chance") == _PATIENCE:
            _progress.line(
                f"warning: the loss has stayed at the chance level {chance:.4f} for {_PATIENCE} logged steps: the "
                "features do not separate the instances. Check the learning rate, the temperature and the views"
            )
        if self._signs.get("rank") == _PATIENCE:
            _progress.line(
                f"warning: the effective rank of the embeddings has fallen to {rank:.2f}: they "
                "collapse to one direction. Check the objective (has it negatives?), the head and the learning rate"
            )
        if self._signs.get("solver") == 1:
            _progress.line(
                f"warning: the transport solver stopped after {values['solver_iterations']:.0f} iterations with "
                f"marginals wrong by {values['solver_error']:.2g}: the loss is a lower bound. Raise "
                "--objective.max-iterations or --objective.epsilon"
            )

    def scores(self, step: int, values: Mapping[str, float], **more: str) -> None:
        """Log several evaluations of one step in one row, with `more` entries; nothing without values."""
        if not values:
            return
        self._file.write(json.dumps({"step": step, **values, **more}) + "\n")
        for name, value in values.items():
            self._board.add_scalar(name, value, step, walltime=self._wall + time.monotonic())
        _progress.line(f"step {step}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
        self.upload()

    def upload(self) -> None:
        """Bring the log to the bucket of the run, if it is in one."""
        if self._temporary is not None:
            self._board.flush()
            _buckets.upload(self._folder, self._workdir)

    def close(self) -> None:
        """Print where the time went, and close the files."""
        seconds = self._clock.seconds()
        whole = max(sum(seconds.values()), 1e-3)
        shares = (
            f"{name} {100 * seconds[name] / whole:.0f} %"
            for name in sorted(seconds, key=lambda n: -seconds[n])
        )
        _progress.line(", ".join([f"time: {_progress.duration(whole)}", *shares]))
        for file in (self._file, self._board):
            with suppress(OSError):  # a full disk: the first write that failed has raised
                file.close()
        if self._temporary is not None:
            try:
                _buckets.upload(self._folder, self._workdir)
            except OSError as error:  # it must not hide why the run ends
                _progress.line(f"mvcl: the end of the log was not uploaded: {error}")
            self._temporary.cleanup()


def read_log(workdir: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The rows of a log file; an incomplete last line and damaged ones are skipped."""
    path = workdir / name
    rows = []
    for line in path.read_bytes().decode(errors="replace").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        numbers = [row.get("step", 0), row.get("time", 0.0)] if isinstance(row, dict) else [None]
        if all(isinstance(number, (int, float)) for number in numbers):
            rows.append(row)
    return rows


def read_scores(workdir: Path) -> dict[int, float]:
    """Step -> score, of the log of a run folder."""
    rows = read_log(workdir)
    found = [(row.get("step"), row.get(str(row[SCORE]))) for row in rows if SCORE in row]
    return {step: value for step, value in found if isinstance(step, int) and isinstance(value, float)}


def rewind_log(workdir: Path, step: int, *, done: bool = False) -> None:
    """Remove the rows after this step, which will be logged again; `done`: it is the last step of the run.

    A refresh precedes its step, which is not done yet.
    """
    for name, end in (("metrics.jsonl", step + 1), ("refresh.jsonl", step + done)):
        if name == "metrics.jsonl" or (workdir / name).is_file():
            rows = [row for row in read_log(workdir, name) if row.get("step", 0) < end]
            _files.write_whole(workdir / name, "".join(json.dumps(row) + "\n" for row in rows))


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a log file that is not open."""
    _files.append(path, json.dumps(row) + "\n")
