"""What watching a run costs: steps of a config as the loop does them, with and without the watch, turn by turn.

    python -m benchmarks.watching [--config digits] [--rounds 30] [--steps 10]

Each round does as many steps bare and as many watched: batches through the watching thread, times, heartbeat, profile
hooks, words to other processes, and a row of the watch at the end. The order within a round alternates and the medians
are compared, of wall time and of the CPU time of all threads, which other programs disturb less. The parts are timed by
themselves as well.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mvcl import data, training
from mvcl._progress import Progress
from mvcl.training import _goodput, _input, _log, _processes, _watch


def main() -> None:
    """Print the cost of a step, bare and watched."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="digits")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    training.compilation_cache()
    run = training.prepare(training.load(options.config))
    program, reading = run.program, data.Reading(10)
    unwatched = data.batches(
        run.splits["train"],
        batch_size=run.config.examples,
        seed=run.config.train.seed,
        threads=run.config.train.threads,
        crop=_input.training_crop(run),
        reading=reading,
    )
    bare = data.to_devices(unwatched, program.batch_sharding)
    threaded = _input.batches(run, 0, reading)
    with tempfile.TemporaryDirectory() as folder:
        tools = _watched_tools(run, threaded, Path(folder))
        state = program.init()
        for _ in range(3):  # compiled, and the queues full
            state, values = program.step(state, next(bare))
            state, values = program.step(state, next(tools["stream"]))
        float(values["loss"])
        times: dict[str, dict[str, list[float]]] = {
            clock: {"bare": [], "watched": []} for clock in ("wall", "CPU")
        }
        step = 0
        for turn in range(options.rounds):
            for kind in ("bare", "watched") if turn % 2 else ("watched", "bare"):
                begun = time.perf_counter(), time.process_time()
                for _ in range(options.steps):
                    step += 1
                    if kind == "bare":
                        state, values = program.step(state, next(bare))
                    else:
                        state, values = _watched_step(run, state, step, tools)
                float(values["loss"])
                if kind == "watched":
                    tools["watch"].row(step)
                for clock, now, then in zip(times, (time.perf_counter(), time.process_time()), begun):
                    times[clock][kind].append((now - then) / options.steps)
        alone = _alone(tools, options.config, Path(folder))
        threaded.close()
    for clock, of in times.items():
        bare_step, watched_step = (statistics.median(of[kind]) for kind in ("bare", "watched"))
        ratio = statistics.median(w / b for w, b in zip(of["watched"], of["bare"]))
        print(
            f"{clock}: a step bare {1e3 * bare_step:.2f} ms, watched {1e3 * watched_step:.2f} ms, ratio {ratio:.4f}"
        )
    share = 100 * alone / statistics.median(times["wall"]["bare"])
    print(f"watch and logs by themselves {1e3 * alone:.3f} ms a step, {share:.2f} % of a bare step")


def _watched_tools(run: Any, stream: Iterator[Any], folder: Path) -> dict[str, Any]:
    return {
        "stream": data.to_devices(stream, run.program.batch_sharding),
        "watch": _watch.Watch(run.program.mesh.size, 1e9, 1e12),
        "heartbeat": _watch.Heartbeat(folder / "heartbeat.json", 10**6, _watch.Clock(), _goodput.Goodput()),
        "trace": _watch.Profile(folder, 0, 0),
        "flags": _processes.Flags(run.program.mesh, 1 + _processes.MAX_ROWS),
        "reading": data.Reading(10),
    }


def _watched_step(run: Any, state: Any, step: int, tools: dict[str, Any]) -> tuple[Any, Any]:
    """A step as the loop of mvcl.training does it."""
    with tools["watch"].data():
        batch = next(tools["stream"])
    with tools["trace"].step(step):
        state, values = run.program.step(state, batch)
    tools["trace"].after(step, values)
    _processes.should_stop(tools["flags"], {"signal": 0}, tools["reading"], step)
    tools["heartbeat"].beat(step)
    return state, values


def _alone(tools: dict[str, Any], config: str, folder: Path, times: int = 1000) -> float:
    """Seconds a step of all but the step and the batch; a row to both logs as often as the config says."""
    every = training.load(config).train.log_every
    log = _log.Log(
        folder, steps=10**6, first_step=0, views_per_step=1, progress=Progress(open(os.devnull, "w"))
    )
    values = {"loss": 1.0, "gradient_norm": 1.0, "effective_rank": 5.0, "chance": 2.0, "learning_rate": 0.1}
    items = iter(data.watched(iter(np.zeros(times)), 600, tools["reading"]))
    begun = time.perf_counter()
    for step in range(times):
        with tools["watch"].data():
            next(items)
        with tools["trace"].step(step):
            pass
        tools["trace"].after(step, None)
        _processes.should_stop(tools["flags"], {"signal": 0}, tools["reading"], step)
        tools["heartbeat"].beat(step)
        if step % every == every - 1:
            row = tools["watch"].row(step)
            with tools["watch"].log():
                log.row(step, values | row)
    log.close()
    return (time.perf_counter() - begun) / times


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
