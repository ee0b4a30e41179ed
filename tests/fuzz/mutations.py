"""Damaged and hostile files for the readers: deterministic mutations, and a process that reads them within limits.

A `Format` writes a valid input and reads it as a user would. Case `i` of a format is a copy of that input, of which one
file is changed; the change follows from the format's name and `i` alone. `run` reads the cases in a process of its own,
which the parent ends if a case takes too long and starts again after a crash of a C library.
"""

import dataclasses
import importlib
import json
import os
import random
import re
import resource
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS, MIB = 5.0, 1024.0
_HANGS = 30.0  # seconds after which a case is ended
_GUARD = (
    2 << 30
)  # address space beyond that of the idle process; keeps a failing case from filling the machine
_GROWN = 256.0  # MiB that the idle process may keep before it is replaced by a new one
_STARTUP = 120.0
# What reads a payload, lets it be changed, and packs it again: so that changes pass checksums and compression.
Repack = Callable[[bytes, Callable[[bytes], bytes], random.Random], bytes]


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of input.

    Attributes:
      name: in the table and in the seed of its cases.
      write: writes a valid input into an empty folder.
      read: reads that folder as a user would; what it returns is not used.
      files: glob of the files to change, below the folder.
      crafted: name -> makes a valid folder hostile; returns the file that an error must name, None for any.
      repack: changes a file's content below its checksums and compression; None if there are none.
      names: texts of which an error must contain one, of the changed file; by default its name.
    """

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    files: str = "**/*"
    crafted: Mapping[str, Callable[[Path], Path | None]] = dataclasses.field(default_factory=dict)
    repack: Repack | None = None
    names: Callable[[Path], Sequence[str]] = lambda file: [file.name]


@dataclasses.dataclass(frozen=True)
class Result:
    """What reading one case did.

    Attributes:
      outcome: `read`, `refused` (a `ValueError` that names the file), or the failures `unnamed` (it does not name the
        file), `error` (another exception), `crash`, `slow` and `memory`.
      error: type and text of the exception.
      seconds: wall time.
      mib: peak resident memory beyond that of the idle process and the file's size.
    """

    format: str
    case: int
    outcome: str
    error: str = ""
    seconds: float = 0.0
    mib: float = 0.0
    what: str = ""

    @property
    def failed(self) -> bool:
        """Whether this is a defect of the reader."""
        return self.outcome not in ("read", "refused")


# Mutations

_WHOLE = (
    0,
    1,
    -1,
    2,
    127,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    -(2**31),
)
_DIGITS = (
    b"0",
    b"-1",
    b"65536",
    b"2147483647",
    b"4294967295",
    b"1099511627776",
    b"9223372036854775807",
    b"9" * 400,
)


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """`data` with one to four changes; `other` is the content of another file."""
    for _ in range(min(4, 1 + int(rng.expovariate(1.0)))):
        data = rng.choice(_KINDS)(data, other, rng)
    return data


def _place(data: bytes, rng: random.Random) -> int:
    """A position; headers and trailers are hit as often as the rest."""
    if not data:
        return 0
    near = min(len(data) - 1, 256)
    return rng.choice([rng.randrange(len(data)), rng.randint(0, near), len(data) - 1 - rng.randint(0, near)])


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = _place(data, rng)
    return start, min(len(data), start + rng.choice([1, 2, 4, 8, 64, 512, rng.randint(1, max(1, len(data)))]))


def _flip(data: bytes, other: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8, 32])):
        if changed:
            changed[_place(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, stop = _span(data, rng)
    return data[:start] + rng.randbytes(stop - start) + data[stop:]


def _fill(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, stop = _span(data, rng)
    return data[:start] + rng.choice([b"\0", b"\xff"]) * (stop - start) + data[stop:]


def _truncate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return data[: _place(data, rng)]


def _delete(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, stop = _span(data, rng)
    return data[:start] + data[stop:]


def _duplicate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start, stop = _span(data, rng)
    return data[:stop] + data[start:stop] * rng.choice([1, 1, 3]) + data[stop:]


def _insert(data: bytes, other: bytes, rng: random.Random) -> bytes:
    start = _place(data, rng)
    return data[:start] + rng.randbytes(rng.choice([1, 2, 4, 8, 64])) + data[start:]


def _swap(data: bytes, other: bytes, rng: random.Random) -> bytes:
    size = rng.choice([1, 2, 4, 8, 64, 512])
    i, j = sorted((_place(data, rng), _place(data, rng)))
    if i + size > j:
        return data
    return data[:i] + data[j : j + size] + data[i + size : j] + data[i : i + size] + data[j + size :]


def _integer(data: bytes, other: bytes, rng: random.Random) -> bytes:
    size = rng.choice([2, 4, 8])
    raw = (rng.choice(_WHOLE) % 2 ** (8 * size)).to_bytes(size, rng.choice(["little", "big"]))
    start = _place(data, rng)
    if rng.random() < 0.5:
        start -= start % size
    return data[:start] + raw + data[start + size :]


def _float(data: bytes, other: bytes, rng: random.Random) -> bytes:
    value = rng.choice([float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324, 0.5])
    start = _place(data, rng)
    start -= start % 8
    return data[:start] + struct.pack("<d", value) + data[start + 8 :]


def _digits(data: bytes, other: bytes, rng: random.Random) -> bytes:
    found = [match.span() for match in re.finditer(rb"\d+", data[:100_000])]
    if not found:
        return _flip(data, other, rng)
    start, stop = rng.choice(found)
    return data[:start] + rng.choice(_DIGITS) + data[stop:]


def _splice(data: bytes, other: bytes, rng: random.Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + other[rng.choice([at, _place(other, rng)]) :]


_KINDS = (
    *(_flip, _overwrite, _fill, _truncate, _delete, _duplicate, _insert, _swap, _splice),
    *(_integer, _integer, _float, _digits),
)
# Contents of another kind under a format's name.
_FOREIGN = (
    b"",
    b"\0",
    b"\0" * 4096,
    b"\xff" * 4096,
    b"\n" * 4096,
    b"id,a\n1,2\n",
    b"{" * 100_000,
    b"[" * 100_000,
    b"PK\x05\x06" + bytes(18),  # an empty archive
    b"\x89HDF\r\n\x1a\n" + b"\xff" * 512,
    b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
    b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(
        128
    ),
    b"\x80\x04\x95\x11\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x05mkdir\x94\x93\x94.",
    b"\x89PNG\r\n\x1a\n" + bytes(64),
    b"\xff\xd8\xff\xe0" + bytes(64),
    b"\x1f\x8b\x08" + bytes(64),
    b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"\x0f\0\0\0\xff\xff\xff\x7f",
    b"0       ".ljust(8) + b" " * 248,
)


def apply(format: Format, folder: Path, case: int) -> tuple[Path | None, str]:
    """Turn a valid folder into case `case`; returns the changed file, None for all, and a description."""
    rng = random.Random(f"{format.name}:{case}")
    if case == 0:
        return None, "unchanged"
    case -= 1
    if case < len(format.crafted):
        name, craft = list(format.crafted.items())[case]
        return craft(folder), name
    case -= len(format.crafted)
    files = sorted(f for f in folder.glob(format.files) if f.is_file())
    if case < len(files):
        files[case].unlink()
        return files[case], "deleted"
    case -= len(files)
    if case < len(_FOREIGN):
        file = files[case % len(files)]
        file.write_bytes(_FOREIGN[case])
        return file, f"other content {case}"
    file = rng.choice(files)
    data, other = file.read_bytes(), rng.choice(files).read_bytes()
    if format.repack is not None and rng.random() < 0.6:
        file.write_bytes(format.repack(data, lambda payload: mutate(payload, other, rng), rng))
        return file, "mutated inside"
    file.write_bytes(mutate(data, other, rng))
    return file, "mutated"


# The process that reads


def _read_one(format: Format, valid: Path, case: int, idle: float) -> Result:
    with tempfile.TemporaryDirectory(dir=valid.parent) as place:
        folder = Path(place) / "input"
        shutil.copytree(valid, folder)
        file, what = apply(format, folder, case)
        size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 2**20
        outcome, text = "read", ""
        Path("/proc/self/clear_refs").write_text("5")  # restarts the measurement of the peak
        resource.setrlimit(
            resource.RLIMIT_AS, (int(_memory("VmSize") * 2**20) + _GUARD, resource.RLIM_INFINITY)
        )
        began = time.monotonic()
        try:
            format.read(folder)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            names = format.names(file) if file is not None else [str(folder)]
            if not isinstance(error, ValueError):
                outcome = "error"
            else:
                outcome = "refused" if any(name in str(error) for name in names) else "unnamed"
            if any(isinstance(one, MemoryError) for one in _causes(error)):
                outcome = "memory"
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        seconds, mib = time.monotonic() - began, max(0.0, _memory("VmHWM") - idle - size)
    if mib > MIB:
        outcome = "memory"
    return Result(format.name, case, outcome, text[:600], seconds, mib, what)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _memory(field: str) -> float:
    """MiB of this process: VmHWM (peak), VmRSS or VmSize."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def _serve(module: str, jobs: Sequence[tuple[str, int, int]], pipe: int) -> None:
    """Read the cases and write a line before and after each; stops early if memory is not given back."""
    warnings.simplefilter("ignore")
    formats: dict[str, Format] = importlib.import_module(module).FORMATS
    with tempfile.TemporaryDirectory() as place, os.fdopen(pipe, "w", buffering=1) as out:
        for name, first, stop in jobs:
            format = formats[name]
            valid = Path(place) / f"valid {len(os.listdir(place))}"
            valid.mkdir()
            format.write(valid)
            _read_one(format, valid, 0, 0.0)  # imports what the format needs
            idle = _memory("VmRSS")
            for case in range(first, stop):
                out.write(json.dumps({"format": name, "case": case}) + "\n")
                out.write(json.dumps(dataclasses.asdict(_read_one(format, valid, case, idle))) + "\n")
                if _memory("VmRSS") > idle + _GROWN:
                    return


# The parent


def run(module: str, jobs: Iterable[tuple[str, int, int]]) -> Iterator[Result]:
    """The results of cases `first` to `stop` - 1 of each named format in `module.FORMATS`.

    A case over the time limit is read a second time: on a busy machine the first may have waited for others.
    """
    left = [job for job in jobs if job[1] < job[2]]
    while left:
        seen = None
        for result in _one_process(module, left):
            seen = (result.format, result.case)
            if result.outcome in ("read", "refused") and result.seconds > SECONDS:
                (again,) = _one_process(module, [(result.format, result.case, result.case + 1)])
                result = again if again.seconds <= SECONDS else dataclasses.replace(again, outcome="slow")
            yield result
        if seen is None:
            raise RuntimeError(f"the process that reads {left[0]} stopped before its first case")
        while left and left[0][0] != seen[0]:
            left.pop(0)
        name, _, stop = left.pop(0)
        if seen[1] + 1 < stop:
            left.insert(0, (name, seen[1] + 1, stop))


def _one_process(module: str, jobs: Sequence[tuple[str, int, int]]) -> Iterator[Result]:
    """Results until all cases are read or the process has ended."""
    reader, writer = os.pipe()
    command = [sys.executable, __file__, module, json.dumps(jobs), str(writer)]
    with tempfile.TemporaryFile() as errors:
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            command, pass_fds=[writer], stdout=errors, stderr=errors, env={**os.environ, "PYTHONPATH": path}
        )
        os.close(writer)
        began: dict[str, Any] | None = None
        buffer, limit = b"", _STARTUP
        try:
            while True:
                ready, _, _ = select.select([reader], [], [], limit)
                chunk = os.read(reader, 1 << 16) if ready else b""
                if not chunk:
                    break
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    found = json.loads(line)
                    began, limit = (None, _STARTUP) if "outcome" in found else (found, _HANGS)
                    if began is None:
                        yield Result(**found)
            if ready and began is None and process.wait() == 0:
                return
            outcome, text = (
                ("crash", f"exit code {process.wait()}") if ready else ("slow", "ended by the test")
            )
            errors.seek(0)
            last = errors.read().decode(errors="replace")[-600:]
            if began is None:
                raise RuntimeError(f"the process that reads {jobs} failed: {text}\n{last}")
            yield Result(**began, outcome=outcome, error=f"{text}: {last}", seconds=0.0 if ready else _HANGS)
        finally:
            os.close(reader)
            process.kill()
            process.wait()


def check(module: str, jobs: Iterable[tuple[str, int, int]], record: Callable[[str, object], None]) -> None:
    """Run the cases and add them to the table that pytest prints at its end.

    Args:
      module, jobs: as of `run`.
      record: pytest's fixture `record_property`.

    Raises:
      AssertionError: a case failed; the text lists these cases.
    """
    results = list(run(module, jobs))
    record("damaged files", [dataclasses.asdict(dataclasses.replace(r, error="", what="")) for r in results])
    unread = [r.format for r in results if r.case == 0 and r.outcome != "read"]
    assert not unread, f"valid files are refused: {unread}"
    failed = [r for r in results if r.failed]
    lines = [f"{r.format} case {r.case} ({r.what}): {r.outcome}, {r.seconds:.1f} s, {r.mib:.0f} MiB, {r.error[:300]}"
             for r in failed[:20]]  # fmt: skip
    assert not failed, f"{len(failed)} of {len(results)} cases failed\n" + "\n".join(lines)


def table(results: Iterable[Result]) -> str:
    """A Markdown table of formats and outcomes."""
    head = ("format", "cases", "read", "refused", "failed", "worst s", "worst MiB beyond the file")
    rows = [head]
    by_format: dict[str, list[Result]] = {}
    for result in results:
        by_format.setdefault(result.format, []).append(result)
    for name, found in sorted(by_format.items()):
        count = Counter(result.outcome for result in found)
        failed = ", ".join(
            f"{n} {outcome}" for outcome, n in count.items() if outcome not in ("read", "refused")
        )
        worst = max(r.seconds for r in found), max(r.mib for r in found)
        rows.append((name, f"{len(found):,}", f"{count['read']:,}", f"{count['refused']:,}", failed or "0",
                     f"{worst[0]:.1f}", f"{worst[1]:.0f}"))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


if __name__ == "__main__":
    # As `mutations`, so that formats and this process have the same classes.
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("mutations")._serve(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
