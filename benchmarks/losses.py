"""Time and memory of every objective, value and gradient, beside the bare matrix products it cannot do
without.

    python -m benchmarks.losses [--dtype bfloat16] [--only NAME ...] [--repeats 7] [--quick]

For each objective and shape: milliseconds of value and gradient; of the floor, the bare products: one forward
matrix of inner products of what the formula needs and one backward product with a matrix of that size, timed
in the same run; of the formula as plain dense JAX, written below without any of the library's rules; their
ratios; and the peak temporary memory that the compiler reports for ours and for plain. Repeats of the three
are interleaved, and the fastest of each counts, so that a busy machine disturbs all alike.
"""

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from jax.sharding import AxisType, PartitionSpec

from mvcl import losses

Array = jax.Array
SHAPES = ((2, 1024, 128), (4, 1024, 128), (8, 256, 128))
BLOCKED = (4, 8192, 128)


class Case(NamedTuple):
    loss: Callable[..., Array]
    plain: Callable[[Array], Array]
    sets: Callable[
        [Array], tuple[Array, Array]
    ]  # (b, p, d) and (b, q, d): whose inner products the formula needs
    bar: float | None


def _unit(z: Array) -> Array:
    return z / jnp.linalg.norm(z, axis=-1, keepdims=True)


def _similarities(z: Array, t: float) -> Array:
    return jnp.einsum("lid,mjd->limj", z, z, preferred_element_type=jnp.float32) / t


def _plain_info_nce(x: Array, y: Array, t: float) -> Array:
    s = x @ y.T / t
    return jnp.mean(logsumexp(s, axis=1) - jnp.diag(s))


def _plain_nt_xent(x: Array, y: Array, t: float) -> Array:
    n = x.shape[0]
    a = jnp.concatenate([x, y])
    s = jnp.where(jnp.eye(2 * n, dtype=bool), -jnp.inf, a @ a.T / t)
    positive = jnp.diag(x @ y.T / t)
    return jnp.mean(logsumexp(s, axis=1)) - jnp.mean(positive)


def _plain_all_pairs(pair: Callable[[Array, Array], Array], z: Array) -> Array:
    z = _unit(z)
    k = z.shape[0]
    return jnp.mean(jnp.stack([pair(z[l], z[m]) for l in range(k) for m in range(l + 1, k)]))


def _plain_one_vs_rest(pair: Callable[[Array, Array], Array], z: Array) -> Array:
    z = _unit(z)
    k = z.shape[0]
    return jnp.mean(jnp.stack([pair(z[l], (z.sum(0) - z[l]) / (k - 1)) for l in range(k)]))


def _plain_alignment(s: Array) -> Array:
    """(k, n, k), -inf for a view with itself."""
    k = s.shape[0]
    same = jnp.einsum("limi->lim", s)
    return jnp.where(jnp.eye(k, dtype=bool)[:, None], -jnp.inf, same)


def _plain_mv_infonce(z: Array, t: float = 0.5) -> Array:
    s = _similarities(_unit(z), t)
    other = jnp.where(jnp.eye(z.shape[0], dtype=bool)[:, None, :, None], -jnp.inf, s)
    return jnp.mean(logsumexp(other, axis=(0, 2, 3)) - logsumexp(_plain_alignment(s), axis=(0, 2)))


def _within(z: Array, t: float) -> Array:
    s = jnp.einsum("lid,ljd->lij", z, z, preferred_element_type=jnp.float32) / t
    return logsumexp(jnp.where(jnp.eye(z.shape[1], dtype=bool)[None], -jnp.inf, s), axis=2)


def _align(z: Array, t: float) -> Array:
    same = jnp.einsum("lid,mid->lim", z, z, preferred_element_type=jnp.float32) / t
    return jnp.where(jnp.eye(z.shape[0], dtype=bool)[:, None], -jnp.inf, same)


def _plain_mv_dhel(z: Array, t: float = 0.5) -> Array:
    z = _unit(z)
    return jnp.mean(_within(z, t).sum(0) - logsumexp(_align(z, t), axis=(0, 2)))


def _plain_mv_cl1(z: Array, t: float = 0.5) -> Array:
    s = _similarities(_unit(z), t)
    other = jnp.where(jnp.eye(z.shape[0], dtype=bool)[:, None, :, None], -jnp.inf, s)
    return jnp.mean(logsumexp(other, axis=(2, 3)) - logsumexp(_plain_alignment(s), axis=2))


def _plain_mv_cl2(z: Array, t: float = 0.5) -> Array:
    z = _unit(z)
    return jnp.mean(_within(z, t) - logsumexp(_align(z, t), axis=2))


def _plain_poly_view(z: Array, t: float = 0.1) -> Array:
    s = _similarities(_unit(z), t)
    k, n = z.shape[:2]
    same = jnp.einsum("limi->lmi", s)
    other = logsumexp(jnp.where(jnp.eye(n, dtype=bool)[None, :, None], -jnp.inf, s), axis=(2, 3))
    log_likelihood = same - jnp.logaddexp(same, other[None])
    off = ~jnp.eye(k, dtype=bool)[:, :, None]
    return -jnp.mean(jnp.sum(jnp.where(off, log_likelihood, 0), axis=1) / (k - 1))


def _plain_sufficient(z: Array, t: float = 0.1) -> Array:
    z = _unit(z)
    k, n = z.shape[:2]
    q = _unit((z.sum(0) - z) / (k - 1))
    s = jnp.einsum("lid,mjd->limj", z, q, preferred_element_type=jnp.float32) / t
    other = logsumexp(jnp.where(jnp.eye(n, dtype=bool)[None, :, None], -jnp.inf, s), axis=(2, 3))
    positive = jnp.sum(z * q, -1) / t
    return jnp.mean(jnp.logaddexp(positive, other) - positive)


def _flat(z: Array) -> Array:
    return z.reshape(1, -1, z.shape[-1])


def _everything(z: Array) -> tuple[Array, Array]:
    return _flat(z), _flat(z)


def _each_view(z: Array) -> tuple[Array, Array]:
    return z, z


def _with_rest(z: Array) -> tuple[Array, Array]:
    k = z.shape[0]
    rest = (z.sum(0) - z) / (k - 1)
    both = jnp.concatenate([z, rest], axis=1)
    return both, both


_info_nce = functools.partial(_plain_info_nce, t=0.1)
_nt_xent = functools.partial(_plain_nt_xent, t=0.5)
CASES: dict[str, Case] = {
    "mv_infonce": Case(losses.mv_infonce, _plain_mv_infonce, _everything, 2.0),
    "mv_dhel": Case(losses.mv_dhel, _plain_mv_dhel, _each_view, 2.0),
    "all_pairs(nt_xent)": Case(
        losses.all_pairs(losses.nt_xent), functools.partial(_plain_all_pairs, _nt_xent), _everything, 2.0
    ),
    "all_pairs(info_nce)": Case(
        losses.all_pairs(losses.info_nce), functools.partial(_plain_all_pairs, _info_nce), _everything, 2.0
    ),
    "mv_cl1": Case(losses.mv_cl1, _plain_mv_cl1, _everything, 2.0),
    "mv_cl2": Case(losses.mv_cl2, _plain_mv_cl2, _each_view, 2.0),
    "one_vs_rest(nt_xent)": Case(
        losses.one_vs_rest(losses.nt_xent), functools.partial(_plain_one_vs_rest, _nt_xent), _with_rest, 2.5
    ),
    "sufficient_statistics": Case(losses.sufficient_statistics, _plain_sufficient, _everything, 2.5),
    "poly_view": Case(losses.poly_view, _plain_poly_view, _everything, 2.5),
}


class Program(NamedTuple):
    run: Callable[[], Any]
    temporary_mb: float


def compiled(function: Callable[..., Any], *arguments: Array) -> Program:
    program = jax.jit(function).lower(*arguments).compile()
    memory = program.memory_analysis()
    return Program(lambda: program(*arguments), memory.temp_size_in_bytes / 1e6)


def fastest(programs: dict[str, Program], repeats: int) -> dict[str, float]:
    """Milliseconds of each; the repeats are interleaved."""
    best = dict.fromkeys(programs, float("inf"))
    for program in programs.values():
        jax.block_until_ready(program.run())
    for _ in range(repeats):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program.run())
            best[name] = min(best[name], (time.perf_counter() - start) * 1e3)
    return best


def floor(sets: Callable[[Array], tuple[Array, Array]], z: Array) -> dict[str, Program]:
    """The forward and the backward product, each alone."""
    x, y = sets(z)
    forward = lambda x, y: jnp.einsum("bid,bjd->bij", x, y, preferred_element_type=jnp.float32)  # noqa: E731
    gram = jax.jit(forward)(x, y)
    backward = lambda g, y: jnp.einsum("bij,bjd->bid", g, y, preferred_element_type=jnp.float32)  # noqa: E731
    return {"forward": compiled(forward, x, y), "backward": compiled(backward, gram.astype(z.dtype), y)}


def embeddings(shape: tuple[int, int, int], dtype: Any) -> Array:
    z = np.random.default_rng(0).normal(size=shape)
    return jnp.asarray(z / np.linalg.norm(z, axis=-1, keepdims=True), dtype)


def table(shape: tuple[int, int, int], names: list[str], dtype: Any, repeats: int) -> None:
    print(f"\n(k, n, d) = {shape}, {np.dtype(dtype).name}, whole blocks")
    header("ours ms", "floor ms", "ratio", "bar", "plain ms", "ours MB", "plain MB")
    z = embeddings(shape, dtype)
    for name in names:
        case = CASES[name]
        programs = {
            "ours": compiled(jax.value_and_grad(functools.partial(case.loss, block_size=shape[1])), z),
            **floor(case.sets, z),
            "plain": compiled(jax.value_and_grad(case.plain), z),
        }
        ms = fastest(programs, repeats)
        bare = ms["forward"] + ms["backward"]
        bar = case.bar if shape == SHAPES[1] and case.bar else ""
        memory = [programs[which].temporary_mb for which in ("ours", "plain")]
        row(name, ms["ours"], bare, ms["ours"] / bare, bar, ms["plain"], *memory)


def blocked_table(names: list[str], dtype: Any, repeats: int) -> None:
    """The streamed path, its time per pair beside that of the dense path at n = 1024."""
    print(f"\n(k, n, d) = {BLOCKED}, {np.dtype(dtype).name}, in blocks of 1024 rows")
    print(f"ratio: time per pair by that of the dense path at {SHAPES[1]}, timed in turns")
    header("ours ms", "dense ms", "ratio", "bar", "ours MB", "bar MB")
    small, large = embeddings(SHAPES[1], dtype), embeddings(BLOCKED, dtype)
    pairs = (BLOCKED[1] / SHAPES[1][1]) ** 2
    for name in names:
        loss = CASES[name].loss
        programs = {
            "dense": compiled(jax.value_and_grad(functools.partial(loss, block_size=SHAPES[1][1])), small),
            "blocked": compiled(jax.value_and_grad(functools.partial(loss, block_size=1024)), large),
        }
        ms = fastest(programs, repeats)
        ratio = ms["blocked"] / pairs / ms["dense"]
        row(name, ms["blocked"], ms["dense"], ratio, 1.3, programs["blocked"].temporary_mb, 256.0)


def sharded_table(names: list[str], dtype: Any) -> None:
    """Temporary memory of one device, instances split over eight, by that of one device with all."""
    devices = jax.devices()
    if len(devices) < 8:
        print("\nno eight devices: the split is not measured")
        return
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,), devices=devices[:8])
    spec = PartitionSpec(None, "data")
    z = embeddings(SHAPES[1], dtype)
    split = jax.device_put(z, jax.sharding.NamedSharding(mesh, spec))
    print(f"\n(k, n, d) = {SHAPES[1]}, temporaries in MB of one device with all, of one of eight; bar 0.17")
    header("one", "shard_map", "ratio", "jit", "ratio")
    for name in names:
        loss = functools.partial(CASES[name].loss, block_size=SHAPES[1][1])
        one = compiled(jax.value_and_grad(loss), z).temporary_mb
        inside = jax.shard_map(
            functools.partial(loss, axis_name="data"), mesh=mesh, in_specs=spec, out_specs=PartitionSpec()
        )
        mapped = compiled(jax.value_and_grad(inside), split).temporary_mb
        jitted = compiled(jax.value_and_grad(loss), split).temporary_mb
        row(name, one, mapped, mapped / one, jitted, jitted / one)


def header(*names: str) -> None:
    print(" " * 24 + "".join(f"{name:>11}" for name in names))


def row(name: str, *values: float | str) -> None:
    cells = (value if isinstance(value, str) else f"{value:.2f}" for value in values)
    print(f"{name:24}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time and memory of every objective beside its bare matrix products."
    )
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="only the shape that has bars")
    arguments = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)  # for the split over devices; the rest runs on the first
    dtype = jnp.dtype(arguments.dtype)
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, {jax.local_device_count()} devices")
    for shape in SHAPES[1:2] if arguments.quick else SHAPES:
        table(shape, arguments.only, dtype, arguments.repeats)
    sharded_table(arguments.only, dtype)
    if not arguments.quick:
        blocked_table(arguments.only, dtype, max(2, arguments.repeats // 3))


if __name__ == "__main__":
    main()
