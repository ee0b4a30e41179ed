"""How long `mvcl train` takes to its first step, and how long other commands take to answer.

    python -m benchmarks.startup [--config digits] [--repeats 5]

Every start is a fresh process with an empty run folder; Python's files are in the page cache. `warm` finds all its
programs in the compilation cache, `cold` starts with an empty one. The first step is the first that is logged
(--train.log-every 1). Medians, in seconds.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import parser_of, table

COMMANDS = ("--help", "configs", "train nothere.py", "train digits:nope", "train digits --nope 3")
COMMANDS += ("train digits --help", *(f"{of} nothere" for of in ("evaluate", "embed", "export", "finetune")))
COMMANDS += ("report nothere", "data prepare nope")
ROOT = Path(__file__).resolve().parents[1]


def seconds(arguments: str, cache: Path | None = None, until: str | None = None) -> float:
    """Seconds until `mvcl` has ended, or prints a line that begins with `until`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    environment |= {} if cache is None else {"MVCL_CACHE": str(cache)}
    options: Any = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    begun, said = time.perf_counter(), []
    command = [sys.executable, "-m", "mvcl", *arguments.split()]
    with subprocess.Popen(command, text=True, **options) as process:
        for line in process.stdout or ():
            said.append(line)
            if until is not None and line.startswith(until):
                process.kill()
                return time.perf_counter() - begun
    if until is not None:
        raise RuntimeError(f"the run ended before its first step was logged:\n{''.join(said)}")
    return time.perf_counter() - begun


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--config", default="digits")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)

        def start(kind: str, turn: int) -> float:
            cache = scratch / ("warm" if kind == "warm" else f"cache_{turn}")
            folder = scratch / f"{kind}_{turn}"
            return seconds(f"train {options.config} --train.log-every 1 --workdir {folder}", cache, "step")

        start("warm", -1)  # fills the cache
        rows: dict[str, Callable[[int], float]] = {
            f"train {options.config}, {kind}": partial(start, kind) for kind in ("warm", "cold")
        }
        rows |= {each: lambda _, each=each: seconds(each) for each in COMMANDS}
        cells = []
        for row, measure in rows.items():
            found = [measure(turn) for turn in range(options.repeats)]
            cells.append([f"`{row}`", f"{statistics.median(found):.2f}"])
    print(table(["command", "seconds"], cells))


if __name__ == "__main__":
    main()
