"""How far every way to compute an objective is from one device with whole blocks.

    python -m benchmarks.agreement [--write docs/design/agreement.md] [--only NAME ...]

Each cell is the larger of two errors in float32: of the value, by its size, and of the gradient, by its
largest entry. Wrong gradients across devices at a right value are the most common silent fault of contrastive
losses, so both count. The reference itself is the same program on one device, dense. Runs on eight virtual
CPU devices, and once more in two processes of two devices each.
"""

import argparse
import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.harness import loss_of, parser_of, table, views_of
from docs import objectives
from mvcl import losses, training

LAUNCHER = Path(__file__).parents[1] / "launch" / "local.py"
VIEWS, INSTANCES, FEATURES, INPUTS = 4, 64, 16, 24
Loss = Callable[..., jax.Array]
Pair = tuple[np.ndarray, np.ndarray]


def _objectives() -> dict[str, Loss]:
    """Every objective, and every higher-order function of `nt_xent`, by name."""
    made = losses.higher_order_functions()
    chosen = [f for name, f in losses.objectives().items() if name not in made]
    chosen += [of_pair(losses.nt_xent) for of_pair in made.values()]
    return {losses.name(f): f for f in chosen}


OBJECTIVES = _objectives()
COLUMNS = (
    "8 devices, jit",
    "8, shard_map, gradient outside",
    "8, shard_map, gradient inside",
    "2 processes",
    "blockwise",
    "micro-batched",
    "masked, all present",
)
# A column to the property that an objective must have declared.
NEEDS: dict[str, Callable[[losses.Takes], bool]] = {
    COLUMNS[1]: lambda takes: takes.axis_name,
    COLUMNS[2]: lambda takes: takes.axis_name,
    COLUMNS[4]: lambda takes: takes.block_size,
    COLUMNS[6]: lambda takes: takes.mask,
}


def inputs(views: int) -> np.ndarray:
    """(n, k, INPUTS) raw inputs: what a batch is before an encoder."""
    x = np.random.default_rng(0).normal(size=(INSTANCES, max(views, VIEWS), INPUTS)).astype(np.float32)
    return x[:, :views]


def weights() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(INPUTS, FEATURES)).astype(np.float32) / 5


def encode(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


def embeddings(views: int) -> np.ndarray:
    """(k, n, d)"""
    return np.swapaxes(np.asarray(encode(weights(), inputs(views))), 0, 1)


def data_mesh() -> Mesh:
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def gradient(loss: Loss, **options: Any) -> Callable[[jax.Array], Any]:
    return jax.jit(jax.value_and_grad(lambda z: loss(z, **options)))


def error(found: Any, expected: Any) -> float:
    value = abs(float(found[0]) - float(expected[0])) / max(abs(float(expected[0])), 1e-6)
    slope = np.abs(np.asarray(found[1]) - np.asarray(expected[1])).max() / np.abs(expected[1]).max()
    return max(value, float(slope))


def micro_batched(loss: Loss, pieces: int) -> Callable[..., Any]:
    """Embeds the batch piece by piece with rematerialisation; the loss is still that of the whole batch."""

    def total(w: jax.Array, x: jax.Array) -> jax.Array:
        parts = x.reshape(pieces, -1, *x.shape[1:])
        z = lax.map(jax.checkpoint(functools.partial(encode, w)), parts)
        return loss(jnp.swapaxes(z.reshape(*x.shape[:2], FEATURES), 0, 1))

    return jax.jit(jax.value_and_grad(total))


def errors(name: str, two_processes: Pair) -> dict[str, float | None]:
    objective = OBJECTIVES[name]
    takes, loss, k = losses.takes(objective), loss_of(objective), views_of(objective, VIEWS)
    z, x = jnp.asarray(embeddings(k)), inputs(k)
    expected = gradient(loss)(z)
    mesh, split = data_mesh(), P(None, "data")
    sharded = jax.device_put(z, NamedSharding(mesh, split))
    local = functools.partial(loss, axis_name="data")
    outside = jax.value_and_grad(jax.shard_map(local, mesh=mesh, in_specs=split, out_specs=P()))
    inside = jax.shard_map(jax.value_and_grad(local), mesh=mesh, in_specs=split, out_specs=(P(), split))
    mask = np.ones((k, INSTANCES), bool)
    by_weight = jax.jit(jax.value_and_grad(lambda w, x: loss(jnp.swapaxes(encode(w, x), 0, 1))))
    ways: dict[str, Callable[[], float]] = {
        COLUMNS[0]: lambda: error(gradient(loss)(sharded), expected),
        COLUMNS[1]: lambda: error(jax.jit(outside)(sharded), expected),
        COLUMNS[2]: lambda: error(jax.jit(inside)(sharded), expected),
        COLUMNS[3]: lambda: error(two_processes, expected),
        COLUMNS[4]: lambda: error(gradient(loss, block_size=24)(z), expected),
        COLUMNS[5]: lambda: error(micro_batched(loss, 8)(weights(), x), by_weight(weights(), x)),
        COLUMNS[6]: lambda: error(gradient(loss, mask=mask)(z), expected),
    }
    return {c: way() if NEEDS.get(c, bool)(takes) else None for c, way in ways.items()}


def in_two_processes(names: list[str]) -> dict[str, Pair]:
    """Value and gradient of each, computed by two processes that hold half of the instances each."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.npz"
        command = [sys.executable, str(LAUNCHER), "--processes", "2", "--devices", "2", "--", sys.executable]
        command += ["-m", "benchmarks.agreement", "--worker", str(out), "--only", *names]
        if subprocess.run(command).returncode:
            raise SystemExit("a process of the two failed; its message is above")
        with np.load(out) as results:
            return {name: (results[f"{name} value"], results[f"{name} gradient"]) for name in names}


def work(out: str, names: list[str]) -> None:
    """What a process of the two computes, and the first writes."""
    training.join()
    sharding = NamedSharding(data_mesh(), P(None, "data"))
    rank, half = jax.process_index(), INSTANCES // 2
    results = {}
    for name in names:
        rows = embeddings(views_of(OBJECTIVES[name], VIEWS))[:, rank * half : (rank + 1) * half]
        z = jax.make_array_from_process_local_data(sharding, rows)
        value, slope = gradient(loss_of(OBJECTIVES[name]))(z)
        results[f"{name} value"] = np.asarray(value)
        gathered = multihost_utils.process_allgather(jnp.swapaxes(slope, 0, 1), tiled=True)
        results[f"{name} gradient"] = np.swapaxes(np.asarray(gathered), 0, 1)
    if rank == 0:
        np.savez(out, **results)
    multihost_utils.sync_global_devices("done")


def markdown(rows: dict[str, dict[str, float | None]], earlier: str) -> str:
    """The table, with the rows of an earlier page for objectives that were not computed again."""
    written = re.findall(r"^\| `(.*?)` \| (.*) \|$", earlier, re.M)
    every = {name: cells.split(" | ") for name, cells in written}
    for name, row in rows.items():
        every[name] = ["no such option" if row[c] is None else f"{row[c]:.0e}" for c in COLUMNS]
    cells = [[f"`{name}`", *every[name]] for name in OBJECTIVES if name in every]
    return table(["objective", *COLUMNS], cells)


def main() -> None:
    parser = parser_of(__doc__)
    keeps = "page; keeps the rows of objectives that --only leaves out"
    parser.add_argument("--write", type=Path, help=keeps)
    parser.add_argument("--only", nargs="*", default=list(OBJECTIVES), choices=list(OBJECTIVES))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        work(arguments.worker, arguments.only)
        return
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_platforms", "cpu")
    results = in_two_processes(arguments.only)
    rows = {}
    for name in arguments.only:
        rows[name] = errors(name, results[name])
        print(name, *(f"{e:.0e}" if e is not None else "-" for e in rows[name].values()), flush=True)
    worst = max(e for row in rows.values() for e in row.values() if e is not None)
    print(f"largest: {worst:.1e}")
    if arguments.write:
        made = markdown(rows, arguments.write.read_text(encoding="utf-8"))
        page = objectives.written(arguments.write, {"agreement": f"{made}\n"})
        arguments.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
