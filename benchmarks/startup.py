"""How long `mvcl train` takes to its first step, part by part, and how long other commands take to answer.

    python -m benchmarks.startup [--config digits] [--repeats 5] [--before CHECKOUT]

Every start is a fresh process with an empty run folder; Python's files are in the page cache. `warm` finds all its
programs in the compilation cache, `cold` starts with an empty one. The step is the first, logged (--train.log-every 1).
With --before, another checkout is measured too, in turn with this one. Medians, in seconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PARTS = {
    "interpreter": "until Python runs this file",
    "imports": "mvcl.studies and mvcl.training, and with them jax",
    "options": "the config and the command line",
    "devices": "jax finds the devices; the compilation cache",
    "data": "the splits are opened",
    "program": "shapes of the state; mesh",
    "state": "the folder; the program of the initial state is traced, loaded or compiled, and started",
    "pictures": "the pictures of the views, if they come before the first step",
    "first batch": "readers, batch; the chance level, if it comes before the first step",
    "trace": "of the training step",
    "lower": "to StableHLO",
    "compile or load": "the training step",
    "first step": "until it is logged",
}
COMMANDS = (
    "--help",
    "configs",
    "train nothere.py",
    "train digits:nope",
    "train digits data:nope",
    "train digits objective:nope",
    "train digits --nope 3",
    "train digits --help",
    "evaluate",
    "evaluate nothere",
    "embed",
    "embed nothere",
    "export nothere",
    "finetune nothere",
    "report nothere",
    "data prepare nope",
)


def main() -> None:
    """Print a table of the parts and one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="digits")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--before", type=Path, help="another checkout of the project")
    parser.add_argument("--timed", nargs=2, help=argparse.SUPPRESS)  # in the processes that are measured
    options = parser.parse_args()
    if options.timed:
        _timed(options.config, *options.timed)
    here = Path(__file__).resolve().parents[1]
    checkouts = {"now": here} if options.before is None else {"before": options.before.resolve(), "now": here}
    with tempfile.TemporaryDirectory() as scratch:
        _print_parts(options.config, options.repeats, checkouts, Path(scratch))
    _print_commands(options.repeats, checkouts)


def _print_parts(config: str, repeats: int, checkouts: dict[str, Path], scratch: Path) -> None:
    runs: dict[str, list[dict[str, float]]] = {}
    for name, checkout in checkouts.items():
        _start(config, checkout, scratch / name, scratch / f"{name}_first")  # fills the cache
    for turn in range(repeats):
        for name, checkout in checkouts.items():
            warm = _start(config, checkout, scratch / name, scratch / f"{name}_warm_{turn}")
            cold = _start(config, checkout, scratch / f"cache_{name}_{turn}", scratch / f"{name}_cold_{turn}")
            runs.setdefault(f"{name}, warm", []).append(warm)
            runs.setdefault(f"{name}, cold", []).append(cold)
    print(f"| part | {' | '.join(runs)} | what |")
    print("| --- |" + " --- |" * (len(runs) + 1))
    for part, what in {**PARTS, "total": "", "CPU": "time of all threads"}.items():
        found = [f"{statistics.median(run[part] for run in of):.2f}" for of in runs.values()]
        print(f"| {part} | {' | '.join(found)} | {what} |")


def _print_commands(repeats: int, checkouts: dict[str, Path]) -> None:
    print(f"\n| mvcl ... | {' | '.join(checkouts)} |\n| --- |" + " --- |" * len(checkouts))
    for command in COMMANDS:
        times: dict[str, list[float]] = {name: [] for name in checkouts}
        for _ in range(repeats):
            for name, checkout in checkouts.items():
                start = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-m", "mvcl", *command.split()],
                    cwd=checkout,
                    env=os.environ | {"PYTHONPATH": str(checkout)},
                    capture_output=True,
                )
                times[name].append(time.perf_counter() - start)
        found = [f"{statistics.median(each):.2f}" for each in times.values()]
        print(f"| {command} | {' | '.join(found)} |")


def _start(config: str, checkout: Path, cache: Path, workdir: Path) -> dict[str, float]:
    """Seconds of each part of one start."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "MVCL_CACHE": str(cache)}
    started = time.time()
    command = [sys.executable, __file__, "--config", config, "--timed", str(workdir), str(started)]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _timed(config: str, workdir: str, started: str) -> None:
    """Train to the first logged step in this process; print the seconds of each part and end the process."""
    ends = {"interpreter": time.time()}
    from mvcl import cli, studies, training  # noqa: F401

    ends["imports"] = time.time()
    import jax

    from mvcl.training import _log, _pictures, _program, _train

    def marked(module: Any, name: str, before: str | None, after: str | None = None) -> None:
        """Replace a function by one that ends a part before or after each call."""
        function = getattr(module, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            if before is not None:
                ends.setdefault(before, time.time())
            result = function(*arguments, **options)
            if after is not None:
                ends.setdefault(after, time.time())
            return result

        setattr(module, name, timed)

    def compiled(event: str, seconds: float, **more: Any) -> None:
        if str(more.get("fun_name")) in ("step", "jit(step)"):
            if event.endswith("jaxpr_trace_duration"):
                ends["first batch"] = time.time() - seconds
                ends["trace"] = time.time()
            elif event.endswith("jaxpr_to_mlir_module_duration"):
                ends["lower"] = time.time()
            elif event.endswith("backend_compile_duration"):
                ends["compile or load"] = time.time()

    def line(log: Any, text: str) -> None:
        print(text, flush=True)
        if not text.startswith("step"):
            return
        ends["first step"] = time.time()
        order = sorted(ends, key=lambda part: ends[part])
        found = dict.fromkeys(PARTS, 0.0)
        found |= {
            part: ends[part] - before
            for part, before in zip(order, [float(started), *(ends[part] for part in order)])
        }
        found |= {"total": time.time() - float(started), "CPU": time.process_time()}
        print(json.dumps(found), flush=True)
        os._exit(0)

    marked(cli, "_start_jax", "options", "devices")
    marked(_program, "build", "data", "program")
    marked(_pictures, "save_views", "state", "pictures")
    marked(_train, "loop", "state")
    _log.Log.line = line  # type: ignore[method-assign]
    jax.monitoring.register_event_duration_secs_listener(compiled)
    cli.main(["train", config, "--train.log-every", "1", "--workdir", workdir])
    raise SystemExit("the run ended before its first step was logged")


if __name__ == "__main__":
    main()
