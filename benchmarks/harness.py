"""What the benchmarks share: inputs, programs that take turns, ratios of the same turns, Markdown tables."""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from mvcl import losses

Seconds = Callable[[int], float]  # of one call, the mean of so many in a row
MIB = 2**20
_TURN = 0.02  # seconds of a program's turn at least, if 50 calls take so long
_CALLS = 50
_BUDGET = 60.0  # seconds after which programs take no more turns than three


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser of options whose help begins with a module's docstring."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def size(text: str) -> tuple[int, int]:
    """ "n,k" of an option."""
    n, k = text.split(",")
    return int(n), int(k)


def embeddings(shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    """(k, n, d): k noisy views of n random directions."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape[1:]) + 0.5 * rng.normal(size=shape)).astype(np.float32)


def views_of(objective: losses.Loss, views: int = 4) -> int:
    """The number of views that an objective is given, where it can choose `views`."""
    takes = losses.takes(objective)
    if takes.operands in (losses.Operands.MASKED, losses.Operands.FACTORED):
        return 2 * views
    return 2 if takes.operands is losses.Operands.PAIR else takes.views or views


def loss_of(objective: losses.Loss) -> losses.Loss:
    """An objective as a function of (k, n, d) views, with a key where it draws."""
    key = {"key": jax.random.key(0)} if losses.takes(objective).key else {}
    return losses.on_views(partial(objective, **key))


def program_of(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[[], Any], float]:
    """A compiled program that has run once, as a function of nothing, and the MiB of its temporaries."""
    program = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(program(*arguments))
    memory = program.memory_analysis()
    assert memory is not None
    return lambda: jax.block_until_ready(program(*arguments)), memory.temp_size_in_bytes / MIB


def repeated(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> Seconds:
    """Time calls in a row; the last is waited for. In the time of `time.process_time` other programs have no part."""

    def seconds(calls: int) -> float:
        start = clock()
        for _ in range(calls):
            out = run()
        jax.block_until_ready(out)
        return (clock() - start) / calls

    return seconds


def turns(
    programs: Mapping[str, Seconds], rounds: int, budget: float = _BUDGET, least: float = _TURN
) -> dict[str, list[float]]:
    """Seconds of each program's calls, in so many turns; the program that begins is another in each.

    The programs have run once. A turn is as many calls as take `least` seconds, and at most 50.
    """
    calls = {name: int(min(max(least / seconds(1), 1), _CALLS)) for name, seconds in programs.items()}
    found: dict[str, list[float]] = {name: [] for name in programs}
    end = time.perf_counter() + budget
    for turn in range(rounds):
        if turn >= 3 and time.perf_counter() > end:
            break
        for name in [*programs, *programs][turn % len(programs) :][: len(programs)]:
            found[name].append(programs[name](calls[name]))
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of the ratios of the same turns."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"low": low, "median": median, "high": high}


def milliseconds(found: Sequence[float]) -> float:
    """Their median."""
    return statistics.median(found) * 1e3


def difference(ours: Any, other: Any) -> float:
    """Length of the difference, by that of the other."""
    return float(np.linalg.norm(np.asarray(ours) - np.asarray(other)) / np.linalg.norm(other))


def number(value: float | None, digits: int = 1, scale: float = 1.0) -> str:
    """With thousands marked; "-" for none."""
    return "-" if value is None else f"{value * scale:,.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
