"""Time and memory of every objective, value and gradient, beside the bare matrix products it cannot do
without.

    python -m benchmarks.losses [--dtype bfloat16] [--only NAME ...] [--repeats 7] [--quick]

For each objective and shape: milliseconds of value and gradient; of the floor, the bare products: one forward
matrix of inner products of what the formula needs and one backward product with a matrix of that size, and the
sines or sorts of the forward products that it needs, timed in the same run; of the formula as plain dense JAX,
written below without any of the library's rules; their ratios; and the peak temporary memory that the compiler
reports for ours and for plain. Repeats of the three are interleaved, and the fastest of each counts, so that a
busy machine disturbs all alike.
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
TRIPLES = (3, 256, 128)
WIDE_TRIPLES = (3, 1024, 128)
BARRED = (SHAPES[1], TRIPLES, WIDE_TRIPLES)


class Case(NamedTuple):
    loss: Callable[..., Array]
    plain: Callable[[Array], Array]
    sets: Callable[
        [Array], tuple[Array, Array]
    ]  # (b, p, d) and (b, q, d): whose inner products the formula needs
    bar: float | None
    more: Callable[[Array], Any] | None = None  # what else it needs of the forward products
    shapes: tuple[tuple[int, int, int], ...] = SHAPES


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


def _features(z: Array) -> tuple[Array, Array]:
    columns = z.swapaxes(1, 2)
    return columns, columns


def _plain_vicreg(z: Array) -> Array:
    n, d = z.shape[1:]
    centred = z[:2] - z[:2].mean(1, keepdims=True)
    cov = jnp.einsum("lia,lib->lab", centred, centred) / (n - 1)
    hinge = jnp.maximum(0, 1 - jnp.sqrt(jnp.diagonal(cov, axis1=1, axis2=2) + 1e-4))
    off = jnp.where(jnp.eye(d, dtype=bool)[None], 0, cov)
    return 25 * jnp.mean((z[0] - z[1]) ** 2) + 25 * jnp.sum(hinge) / (2 * d) + jnp.sum(off**2) / d


def _plain_mmcr(z: Array) -> Array:
    return -jnp.sum(jnp.linalg.svd(_unit(z).mean(0), full_matrices=False, compute_uv=False))


def _plain_frossl(z: Array) -> Array:
    k, _, d = z.shape
    z = z / jnp.linalg.norm(z, axis=1, keepdims=True)
    gram = jnp.einsum("lia,lib->lab", z, z) / d
    distances = jnp.mean((z - z.mean(0, keepdims=True)) ** 2, axis=(1, 2))
    return jnp.sum(jnp.log(jnp.sum(gram**2, axis=(1, 2))) + k * d * distances)


def _directions(d: int, slices: int) -> Array:
    return _unit(jax.random.normal(jax.random.key(0), (slices, d)))


def _projected(slices: int, z: Array) -> tuple[Array, Array]:
    """Of each view's vectors with the directions."""
    a = _directions(z.shape[2], slices).astype(z.dtype)
    return z, jnp.broadcast_to(a[None], (z.shape[0], *a.shape))


def _waves(p: Array) -> list[Array]:
    """Sums of the cosines and sines at the points of LeJEPA but 0."""
    return [wave(3 / 16 * m * p).sum(1) for m in range(1, 17) for wave in (jnp.cos, jnp.sin)]


def _plain_lejepa(z: Array) -> Array:
    p = jnp.einsum("lid,sd->lis", z, _directions(z.shape[2], 1024), preferred_element_type=jnp.float32)
    t = np.linspace(0, 3, 17)
    normal = np.exp(-t * t / 2)
    factors = z.shape[1] * normal * np.where(np.arange(17) % 16 == 0, 1, 2) * 3 / 16
    statistic = jnp.zeros(())
    for m in range(17):
        cos, sin = jnp.cos(t[m] * p).mean(1), jnp.sin(t[m] * p).mean(1)
        statistic += factors[m] * jnp.mean((cos - normal[m]) ** 2 + sin**2)
    return 0.95 * jnp.mean((z - z.mean(0, keepdims=True)) ** 2) + 0.05 * statistic


def _plain_visreg(z: Array) -> Array:
    n, d = z.shape[1:]
    mean = z.mean(1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean((z - mean) ** 2, axis=1, keepdims=True))
    features = (z - mean) / (jax.lax.stop_gradient(deviation) + 1e-4)
    ordered = jnp.sort(jnp.einsum("lid,sd->lsi", features, _directions(d, 4096)), axis=2)
    quantiles = jax.scipy.special.ndtri(jnp.arange(1, n + 1) / (n + 1))
    pull = jnp.mean((z - z.mean(0, keepdims=True)) ** 2)
    shapes = jnp.mean((ordered - quantiles[None, None]) ** 2)
    return 0.1 * pull + 0.9 * (jnp.mean((1 - deviation) ** 2) + shapes + jnp.mean(mean**2))


def _two_way(logits: Array) -> Array:
    own = jnp.mean(jnp.diag(logits))
    return (jnp.mean(logsumexp(logits, axis=1)) + jnp.mean(logsumexp(logits, axis=0))) / 2 - own


def _plain_gram(z: Array) -> Array:
    z = _unit(z)
    k, n = z.shape[:2]
    entries = [[jnp.ones((n, n))] * k for _ in range(k)]
    for l in range(k):
        for m in range(l):
            inner = z[m] @ z[l].T if m == 0 else jnp.broadcast_to(jnp.sum(z[l] * z[m], axis=1), (n, n))
            entries[l][m] = entries[m][l] = inner
    determinant = jnp.linalg.det(jnp.moveaxis(jnp.asarray(entries), (0, 1), (2, 3)))
    return _two_way(-jnp.sqrt(jnp.maximum(determinant, 0) + 1e-8) / 0.07)


def _plain_triangle(z: Array) -> Array:
    a, b, c = _unit(z)
    ab, ac, bc = a @ b.T, a @ c.T, jnp.sum(b * c, axis=1)
    determinant = (2 - 2 * ab) * (2 - 2 * ac) - (1 - ab - ac + bc) ** 2
    return _two_way(-0.5 * jnp.sqrt(jnp.maximum(determinant, 0) + 1e-8) / 0.07)


def _plain_symile(z: Array) -> Array:
    z = _unit(z)
    products = jnp.einsum("ijd,md->ijm", z[0][:, None] * z[1][None], z[2])
    levels = [logsumexp(products, axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
    return jnp.mean(jnp.stack(levels)) - jnp.mean(jnp.sum(jnp.prod(z, axis=0), axis=1))


def _plain_pmrl(z: Array) -> Array:
    left, values, _ = jnp.linalg.svd(_unit(z).transpose(1, 2, 0), full_matrices=False)
    sign = jnp.where(jnp.sum(left[:, :, 0] * z.sum(0), axis=1) >= 0, 1, -1)
    u = left[:, :, 0] * sign[:, None]
    within = jnp.mean(logsumexp(values / 0.05, axis=1) - values[:, 0] / 0.05)
    return within + _plain_info_nce(u, u, 0.1)


def _with_anchor(z: Array) -> tuple[Array, Array]:
    return z[:1], _flat(z[1:])


def _triples(z: Array) -> tuple[Array, Array]:
    return _flat(z[0][:, None] * z[1][None]), z[2:]


def _drawing(loss: Callable[..., Array]) -> Callable[..., Array]:
    return lambda z, **options: loss(z, key=jax.random.key(0), **options)


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
    "vicreg": Case(losses.on_views(losses.vicreg), _plain_vicreg, lambda z: _features(z[:2]), None),
    "mmcr": Case(losses.mmcr, _plain_mmcr, lambda z: _features(z.mean(0, keepdims=True)), None),
    "frossl": Case(losses.frossl, _plain_frossl, _features, None),
    "lejepa": Case(
        _drawing(losses.lejepa),
        _plain_lejepa,
        functools.partial(_projected, 1024),
        1.5,
        _waves,
    ),
    "visreg": Case(
        _drawing(losses.visreg),
        _plain_visreg,
        functools.partial(_projected, 4096),
        None,
        functools.partial(jnp.sort, axis=1),
    ),
    "gram": Case(losses.gram, _plain_gram, _with_anchor, 3.0, shapes=(WIDE_TRIPLES,)),
    "triangle": Case(losses.triangle, _plain_triangle, _with_anchor, 3.0, shapes=(WIDE_TRIPLES,)),
    "symile": Case(losses.symile, _plain_symile, _triples, 2.0, shapes=(TRIPLES,)),
    "pmrl": Case(losses.pmrl, _plain_pmrl, lambda z: (z[:1], z[:1]), None, shapes=(WIDE_TRIPLES,)),
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


def floor(case: Case, z: Array) -> dict[str, Program]:
    """The forward product, the backward product and what else there is, each alone."""
    x, y = case.sets(z)
    forward = lambda x, y: jnp.einsum("bid,bjd->bij", x, y, preferred_element_type=jnp.float32)  # noqa: E731
    gram = jax.jit(forward)(x, y)
    backward = lambda g, y: jnp.einsum("bij,bjd->bid", g, y, preferred_element_type=jnp.float32)  # noqa: E731
    bare = {"forward": compiled(forward, x, y), "backward": compiled(backward, gram.astype(z.dtype), y)}
    return bare if case.more is None else bare | {"more": compiled(case.more, gram)}


def blocks(case: Case, rows: int) -> dict[str, int]:
    """The option of so many rows at once, for an objective that has it."""
    return {"block_size": rows} if losses.takes(case.loss).block_size else {}


def embeddings(shape: tuple[int, int, int], dtype: Any) -> Array:
    z = np.random.default_rng(0).normal(size=shape)
    return jnp.asarray(z / np.linalg.norm(z, axis=-1, keepdims=True), dtype)


def table(shape: tuple[int, int, int], names: list[str], dtype: Any, repeats: int) -> None:
    names = [name for name in names if shape in CASES[name].shapes]
    if not names:
        return
    print(f"\n(k, n, d) = {shape}, {np.dtype(dtype).name}, whole blocks")
    header("ours ms", "floor ms", "ratio", "bar", "plain ms", "ours MB", "plain MB")
    z = embeddings(shape, dtype)
    for name in names:
        case = CASES[name]
        programs = {
            "ours": compiled(jax.value_and_grad(functools.partial(case.loss, **blocks(case, shape[1]))), z),
            **floor(case, z),
            "plain": compiled(jax.value_and_grad(case.plain), z),
        }
        ms = fastest(programs, repeats)
        bare = ms["forward"] + ms["backward"] + ms.get("more", 0.0)
        bar = case.bar if shape in BARRED and case.bar else ""
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
        if not blocks(CASES[name], 1024):
            continue
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
        loss = functools.partial(CASES[name].loss, **blocks(CASES[name], SHAPES[1][1]))
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
    parser.add_argument("--quick", action="store_true", help="only the shapes that have bars")
    arguments = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)  # for the split over devices; the rest runs on the first
    dtype = jnp.dtype(arguments.dtype)
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}, {jax.local_device_count()} devices")
    for shape in BARRED if arguments.quick else dict.fromkeys((*SHAPES, *BARRED)):
        table(shape, arguments.only, dtype, arguments.repeats)
    of_any_shape = [name for name in arguments.only if CASES[name].shapes == SHAPES]
    sharded_table(of_any_shape, dtype)
    if not arguments.quick:
        blocked_table(of_any_shape, dtype, max(2, arguments.repeats // 3))


if __name__ == "__main__":
    main()
