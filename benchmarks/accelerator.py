"""Losses, M3G, training steps and a full recipe on an accelerator, in slices of minutes that resume.

    python -m benchmarks.accelerator --list                      # what is done and what is left
    python -m benchmarks.accelerator --data cifar10.npz          # one slice
    python -m benchmarks.accelerator --write docs/design         # accelerator.md and .json of what was measured
    python -m benchmarks.accelerator --size small                # tiny shapes: a check of the code on a CPU

A slice takes at most --minutes. It measures whole pieces in a fixed order, keeps each in OUT/SIZE.json as soon as it
ends, and begins none that would not end in time; the same command goes on with the next. The pieces: value and gradient
of every objective beside the bare products that it needs and released code; M3G up to n = 1024 instances of k = 4
views; the training step of ResNet-50 and ViT-B/16 with every objective; the CIFAR-10 recipe of Koromilas 2025 at k = 2
and 4, a run that is saved at the end of a slice and goes on in the next. docs/design/accelerator.md describes the
numbers.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from benchmarks import accelerator_cases as cases
from benchmarks import accelerator_measure as measure
from benchmarks import accelerator_page as pages
from benchmarks import released
from mvcl import _files, training

PARTS = tuple(pages.TABLES)
# Starts of a piece that never ended, after which it counts as failed: it was too long for a slice, or too large.
_STARTS = 2
Record = dict[str, Any]


class OutOfTime(Exception):
    """The slice has ended; what was trained is saved."""


def names(size: cases.Size) -> list[str]:
    """The pieces in the order in which they are measured."""
    return [
        *(f"losses {name} {n}" for n in size.rows for name in size.objectives),
        *(f"m3g {n} {k}" for n, k in size.transport),
        *(f"steps {encoder} {name}" for encoder in size.encoders for name in size.steps),
        *(f"recipe {k}" for k in size.recipe_views),
    ]


def read(path: Path, size: str) -> Record:
    """What was measured so far; of a file that is not there, nothing.

    Raises:
      ValueError: the file is damaged, or not a record.
    """
    if not path.is_file():
        return {"size": size, "device": None, "pieces": {}}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        whole = record["size"] == size and all(isinstance(piece, dict) for piece in record["pieces"].values())
        whole = whole and (record["device"] is None or isinstance(record["device"], str))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        whole, reason = False, f"{type(error).__name__}: {error}"
    else:
        reason = f"it is not of size {size!r}, or its pieces are not objects"
    if not whole:
        raise ValueError(
            f"{path} must be a record of this benchmark, got a damaged or another file ({reason}); put it back from a "
            "copy, or delete it or choose another --out to measure everything again"
        )
    return record


def write(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(path, json.dumps(record, indent=1) + "\n")


def commit() -> str:
    """Of this checkout, with a mark if files differ from it."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
        return "unknown"


def device() -> str:
    first = jax.devices()[0]
    return f"{first.device_kind}, {first.platform}, one of {jax.device_count()}"


@contextlib.contextmanager
def stopped_at(end: float) -> Iterator[None]:
    """SIGTERM for this process at a time of `time.monotonic`: training that is under way saves and stops.

    Raises:
      OutOfTime: it was stopped so, or it had not begun.
      Interrupted: training was stopped by another signal.
    """
    rang = False

    def ring(*_: Any) -> None:
        nonlocal rang
        rang = True
        os.kill(os.getpid(), signal.SIGTERM)

    def too_early(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGTERM, too_early)
    alarm = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 1e-3))
    try:
        yield
    except training.Interrupted as error:
        raise OutOfTime if rang else error from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Slice:
    """One call: what it measures, with what, and until when."""

    path: Path
    record: Record
    size_name: str
    end: float  # by time.monotonic
    minutes: float
    data: Path | None
    torch: released.Torch

    @property
    def size(self) -> cases.Size:
        return cases.SIZES[self.size_name]

    @property
    def folder(self) -> Path:
        """Of the recipe's runs."""
        return self.path.with_suffix("")

    def keep(self, name: str, found: Record) -> None:
        """Write a piece into the record."""
        self.record["pieces"][name] = found
        write(self.path, self.record)

    def expected(self, name: str) -> float:
        """Seconds: those that the size allows, or the longest piece of the same part so far."""
        part = name.split()[0]
        known = [
            p["seconds"] for n, p in self.record["pieces"].items() if n.startswith(part) and "result" in p
        ]
        return max([self.size.seconds[part], *known]) if part != "recipe" else self.size.seconds[part]

    def measured(self, name: str) -> Record:
        """The result of a piece."""
        part, *arguments = name.split()
        if part == "losses":
            return measure.of_loss(arguments[0], int(arguments[1]), self.size, self.torch)
        if part == "m3g":
            return measure.of_transport(int(arguments[0]), int(arguments[1]), self.size)
        if part == "steps":
            return measure.of_step(arguments[1], arguments[0], self.size)
        k = int(arguments[0])
        margin = min(30.0, 6.0 * self.minutes)  # a tenth of the slice, for the checkpoint
        with stopped_at(self.end - margin):
            return measure.of_recipe(
                cases.recipe(self.size_name, k, self.data, self.folder), self.folder / f"k{k}"
            )

    def progress(self, name: str) -> str:
        """How far the recipe of a piece is: its last logged step."""
        try:
            rows = (self.folder / f"k{name.split()[1]}" / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return "not begun"
        return f"step {max((json.loads(row).get('step', 0) for row in rows), default=0):,}"

    def run(self, name: str) -> bool:
        """Measure a piece; False where the slice ends with it."""
        starts = self.record["pieces"].get(name, {}).get("starts", 0)
        resumes = name.startswith("recipe")
        if starts >= _STARTS and not resumes:
            self.keep(name, {"failed": f"did not end when it was begun {starts} times"})
            return True
        before = {"progress": self.progress(name)} if resumes else {"starts": starts + 1}
        self.keep(name, before)
        begun = time.monotonic()
        try:
            result = self.measured(name)
        except (OutOfTime, training.Interrupted) as error:
            self.keep(name, {"progress": self.progress(name)})
            if isinstance(error, training.Interrupted):
                raise
            return False
        except (RuntimeError, training.Diverged) as error:  # of XLA: memory, mostly
            self.keep(name, {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"})
            return True
        made = {"jax": jax.__version__, "torch": self.torch.version, "commit": commit()}
        self.keep(name, {"seconds": time.monotonic() - begun, "result": result, **made})
        return True


def run_slice(slice_: Slice, chosen: Sequence[str]) -> None:
    """Measure what is left of these pieces, until the time is over."""
    pieces = slice_.record["pieces"]
    left = [name for name in chosen if pages.state(pieces.get(name, {})) in ("left", "under way")]
    begun = 0
    for name in left:
        if name.startswith("recipe") and slice_.data is None and slice_.size_name == "full":
            print(f"{name}: needs --data, CIFAR-10 as .npz; left out", flush=True)
            continue
        # The first has all of the slice.
        if begun and time.monotonic() + slice_.expected(name) > slice_.end:
            print(f"{name} may take {slice_.expected(name):.0f} s: it is for the next slice", flush=True)
            break
        begun += 1
        print(f"piece {chosen.index(name) + 1} of {len(chosen)}: {name}", flush=True)
        if not slice_.run(name):
            break
    print(pages.listed(slice_.record, chosen).splitlines()[-1], flush=True)


def write_page(record: Record, size_name: str, folder: Path) -> None:
    """accelerator.md and accelerator.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "accelerator.json", record)
    _files.write_whole(folder / "accelerator.md", page(record, size_name))


def page(record: Record, size_name: str) -> str:
    size = cases.SIZES[size_name]
    return pages.page(record, names(size), rounds=size.rounds, views=size.views, product=size.product)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=tuple(cases.SIZES), default="full")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/accelerator"), help="folder of record and runs"
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="time of the slice")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--again", nargs="+", metavar="PIECE", default=(), help="forget these pieces first")
    parser.add_argument("--data", type=Path, help="CIFAR-10 as .npz, as data:arrays reads it; for the recipe")
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
        write_page(record, options.size, options.write)
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
        slice_ = Slice(path, record, options.size, end, options.minutes, options.data, torch)
        run_slice(slice_, chosen)
    return int(any(pages.state(record["pieces"].get(name, {})) == "failed" for name in chosen))


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out the command; 2 if it cannot be."""
    options = parsed(arguments)
    try:
        return run(options)
    except ValueError as error:
        print(f"benchmarks.accelerator: {error}", file=sys.stderr)
        return 2
    except training.Interrupted as error:
        print(f"benchmarks.accelerator: {error}", file=sys.stderr)
        return 128 + error.signal


if __name__ == "__main__":
    sys.exit(main())
