"""How long `mvcl train` takes to its first step, and how long other commands take to answer.

    python -m benchmarks.startup [--config digits] [--repeats 5] [--before CHECKOUT]

Every start is a fresh process with an empty run folder; Python's files are in the page cache. `warm` finds all its
programs in the compilation cache, `cold` starts with an empty one. The first step is the first that is logged
(--train.log-every 1). With --before, another checkout is measured too, in turn with this one. Medians, in seconds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import table

COMMANDS = (
    "--help",
    "configs",
    "train nothere.py",
    "train digits:nope",
    "train digits --nope 3",
    "train digits --help",
    "evaluate nothere",
    "embed nothere",
    "export nothere",
    "finetune nothere",
    "report nothere",
    "data prepare nope",
)


def command(checkout: Path, *arguments: str, cache: Path | None = None) -> subprocess.Popen[str]:
    """`mvcl` of a checkout, as it was started."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONUNBUFFERED": "1"}
    environment |= {} if cache is None else {"MVCL_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-m", "mvcl", *arguments],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def first_step(checkout: Path, config: str, cache: Path, workdir: Path) -> float:
    """Seconds until the first step is logged."""
    begun, said = time.perf_counter(), []
    options = ("--train.log-every", "1", "--workdir", str(workdir))
    with command(checkout, "train", config, *options, cache=cache) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if line.startswith("step"):
                seconds = time.perf_counter() - begun
                process.kill()
                return seconds
    raise RuntimeError(f"the run ended before its first step was logged:\n{''.join(said)}")


def answered(checkout: Path, arguments: str) -> float:
    """Seconds until a command has ended."""
    begun = time.perf_counter()
    with command(checkout, *arguments.split()) as process:
        process.communicate()
    return time.perf_counter() - begun


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="digits")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--before", type=Path, help="another checkout of the project")
    options = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    checkouts = {"now": here} if options.before is None else {"before": options.before.resolve(), "now": here}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)

        def start(name: str, checkout: Path, turn: int, kind: str) -> float:
            cache = scratch / name if kind == "warm" else scratch / f"cache_{name}_{turn}"
            return first_step(checkout, options.config, cache, scratch / f"{name}_{kind}_{turn}")

        for name, checkout in checkouts.items():
            start(name, checkout, -1, "warm")  # fills the cache
        rows: dict[str, Callable[[str, Path, int], float]] = {
            f"train {options.config}, {kind}": lambda name, checkout, turn, kind=kind: start(
                name, checkout, turn, kind
            )
            for kind in ("warm", "cold")
        }
        rows |= {each: lambda name, checkout, turn, each=each: answered(checkout, each) for each in COMMANDS}
        cells = []
        for row, measure in rows.items():
            found: dict[str, list[float]] = {name: [] for name in checkouts}
            for turn in range(options.repeats):
                for name, checkout in checkouts.items():
                    found[name].append(measure(name, checkout, turn))
            cells.append([f"`{row}`", *(f"{statistics.median(each):.2f}" for each in found.values())])
    print(table(["command", *checkouts], cells))


if __name__ == "__main__":
    main()
