"""Losses, M3G and training steps on an accelerator, in slices of minutes that resume.

    python -m benchmarks.accelerator --list                      # what is done and what is left
    python -m benchmarks.accelerator                             # one slice
    python -m benchmarks.accelerator --write docs/design         # accelerator.md and .json of what was measured
    python -m benchmarks.accelerator --size small                # tiny shapes: a check of the code on a CPU

A slice takes at most --minutes. It measures whole pieces in a fixed order, keeps each in OUT/SIZE.json as soon as it
ends, and begins none that would not end in time; the same command goes on with the next. The pieces: value and gradient
of every objective beside the bare products that it needs and released code; M3G up to n = 1024 instances of k = 4
views; the training step of ResNet-50 and ViT-B/16 with every objective. docs/design/accelerator.md describes the
numbers.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from benchmarks import accelerator_cases as cases
from benchmarks import accelerator_measure as measure
from benchmarks import accelerator_page as pages
from benchmarks import released, transport
from benchmarks.harness import parser_of
from mvcl import _files, training

PARTS = tuple(pages.TABLES)
# Starts of a piece that never ended, after which it counts as failed: it was too long for a slice, or too large.
_STARTS = 2
Record = dict[str, Any]


def names(size: cases.Size) -> list[str]:
    """The pieces in the order in which they are measured."""
    return [
        *(f"losses {name} {n}" for n in size.rows for name in size.objectives),
        *(f"m3g {n} {k}" for n, k in size.transport),
        *(f"steps {encoder} {name}" for encoder in size.encoders for name in size.steps),
    ]


def read(path: Path, size: str) -> Record:
    """What was measured so far; of a file that is not there, nothing. `ValueError` names a damaged file."""
    if not path.is_file():
        return {"size": size, "device": None, "pieces": {}}
    with _files.reading(path, "record of this benchmark"):
        return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(path, json.dumps(record, indent=1) + "\n")


def commit() -> str:
    """Of this checkout, with a mark if files differ from it; "" without git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty= with changes"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def device() -> str:
    first = jax.devices()[0]
    return f"{first.device_kind}, {first.platform}, one of {jax.device_count()}"


@dataclass(frozen=True)
class Slice:
    """One call: what it measures, with what, and until when."""

    path: Path
    record: Record
    size: cases.Size
    end: float  # by time.monotonic
    torch: released.Torch

    def keep(self, name: str, found: Record) -> None:
        """Write a piece into the record."""
        self.record["pieces"][name] = found
        write(self.path, self.record)

    def expected(self, name: str) -> float:
        """Seconds: those that the size allows, or the longest piece of the same part so far."""
        part, pieces = name.split()[0], self.record["pieces"].items()
        known = [p["seconds"] for n, p in pieces if n.startswith(part) and "result" in p]
        return max([self.size.seconds[part], *known])

    def measured(self, name: str) -> Record:
        """The result of a piece."""
        part, first, second = name.split()
        if part == "losses":
            return measure.of_loss(first, int(second), self.size, self.torch)
        if part == "m3g":
            n, k = int(first), int(second)
            dense, rounds = (n, k) in self.size.dense, self.size.rounds
            return transport.measure_case(n, k, with_ott=dense, rounds=rounds, budget=60.0)
        return measure.of_step(second, first, self.size)

    def run(self, name: str) -> None:
        """Measure a piece."""
        starts = self.record["pieces"].get(name, {}).get("starts", 0)
        if starts >= _STARTS:
            self.keep(name, {"failed": f"did not end when it was begun {starts} times"})
            return
        self.keep(name, {"starts": starts + 1})
        begun = time.monotonic()
        try:
            result = self.measured(name)
        except RuntimeError as error:  # of XLA: memory, mostly
            self.keep(name, {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"})
            return
        made = {"jax": jax.__version__, "torch": self.torch.version, "commit": commit()}
        self.keep(name, {"seconds": time.monotonic() - begun, "result": result, **made})


def run_slice(slice_: Slice, chosen: Sequence[str]) -> None:
    """Measure what is left of these pieces, until the time is over; the first has all of it."""
    left = [name for name in chosen if pages.state(slice_.record["pieces"].get(name, {})) == "left"]
    for number, name in enumerate(left):
        if number and time.monotonic() + slice_.expected(name) > slice_.end:
            print(f"{name} may take {slice_.expected(name):.0f} s: it is for the next slice", flush=True)
            break
        print(f"piece {chosen.index(name) + 1} of {len(chosen)}: {name}", flush=True)
        slice_.run(name)
    print(pages.listed(slice_.record, chosen).splitlines()[-1], flush=True)


def page(record: Record, size_name: str) -> str:
    size = cases.SIZES[size_name]
    return pages.page(record, names(size), rounds=size.rounds, views=size.views, product=size.product)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--size", choices=tuple(cases.SIZES), default="full")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/accelerator"), help="folder of record and runs"
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="time of the slice")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--again", nargs="+", metavar="PIECE", default=(), help="forget these pieces first")
    parser.add_argument("--released", type=Path, help="folder with checkouts of released code")
    parser.add_argument("--torch-python", help="a Python that has torch and numpy, which runs that code")
    parser.add_argument(
        "--list", action="store_true", help="print what is done and left, and measure nothing"
    )
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the page there, and measure nothing")
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error(f"--minutes must be positive, got {options.minutes:g}")
    return options


def run(options: argparse.Namespace) -> int:
    """Carry out the command; 1 if a piece has failed."""
    begun = time.monotonic()
    path, all_names = options.out / f"{options.size}.json", names(cases.SIZES[options.size])
    record = read(path, options.size)
    chosen = [name for name in all_names if name.split()[0] in options.only]
    if unknown := set(options.again) - set(all_names):
        raise ValueError(f"--again must name pieces of --list, got {sorted(unknown)[0]!r}")
    if options.list:
        print(pages.listed(record, chosen))
        return 0
    if options.write:
        write(options.write / "accelerator.json", record)
        _files.write_whole(options.write / "accelerator.md", page(record, options.size))
        return 0
    # Two processes share the device: jax would take three quarters of its memory when it finds it.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    training.compilation_cache()
    if record["device"] not in (None, device()):
        raise ValueError(
            f"{path} was measured on {record['device']}, and this is {device()}: choose another --out, since ratios of "
            "two devices do not belong on one page"
        )
    record["device"] = device()
    for name in options.again:
        record["pieces"].pop(name, None)
    device_of_torch = "cuda" if jax.default_backend() == "gpu" else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        torch = released.Torch(options.torch_python, options.released, Path(folder), device_of_torch)
        end = begun + 60 * options.minutes
        run_slice(Slice(path, record, cases.SIZES[options.size], end, torch), chosen)
    return int(any(pages.state(record["pieces"].get(name, {})) == "failed" for name in chosen))


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out the command; 2 if it cannot be."""
    options = parsed(arguments)
    try:
        return run(options)
    except ValueError as error:
        print(f"benchmarks.accelerator: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
