"""Our objectives beside released PyTorch code, and beside bare products: time, memory, values.

    python -m benchmarks.released --released DIR --torch-python PATH [--only NAME ...] [--write docs/design/released.md]
    python -m benchmarks.released --values [--released DIR --torch-python PATH] [--write docs/reference/objectives.md]

DIR holds a checkout of each repository; one that is not there is left out, with a line that says so. PATH is a
Python that has torch, numpy and einops (docs/design/released.md has the commands); it runs
benchmarks/released_torch.py. Without it the columns of released code are empty. Both sides get the same CPU.

Times are CPU times of value and gradient in float32 on one thread, medians of rounds in which ours, the floor and
the released code take turns. The floor is what the formula needs, forward and backward, and nothing else: each inner
product once forward and twice backward (once for a symmetric matrix), sines and cosines (one of each projection: the
addition theorem gives those of its multiples), sorting. `--values` prints where released code and paper disagree, on
one small input, and the gradients at inputs where a root, a norm or a decomposition has no derivative.
"""

import argparse
import hashlib
import inspect
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import MIB, difference, number, program_of, table
from mvcl import losses

Array = jax.Array
SLICES = {"lejepa": 1024, "visreg": 4096}
KNOTS, STEP = 16, 3 / 16  # without the knot 0, where nothing depends on the projections
BLOCK = 128  # directions


def inner_products(x: Array, y: Array) -> tuple[Array, Array]:
    """All inner products of rows, and the products of their gradient."""
    g = x @ y.T
    return g @ y, g.T @ x


def between_views(z: Array) -> list[Any]:
    """The inner products of each pair of views."""
    return [inner_products(x, y) for x, y in itertools.combinations(z, 2)]


def within_views(z: Array) -> list[Array]:
    """The inner products of each view with itself, a symmetric matrix, and the one product of its gradient."""
    return [(view @ view.T) @ view for view in z]


def all_views(z: Array) -> list[Any]:
    return between_views(z) + within_views(z)


def with_anchor(z: Array) -> list[Any]:
    """The anchor's inner products with each other view."""
    return [inner_products(z[0], other) for other in z[1:]]


def triples(z: Array) -> tuple[Array, Array]:
    """All sums over d of products of three views, a row of the second at a time."""
    x, y, w = z

    def of_row(total: Array, row: Array) -> tuple[Array, Array]:
        xy = x * row[None]
        g = xy @ w.T
        return total + g.T @ xy, g @ w

    return jax.lax.scan(of_row, jnp.zeros_like(w), y)


def second_moments(z: Array) -> list[Array]:
    """The d x d matrix of each view, and the product of its gradient."""
    return [view @ (view.T @ view) for view in z]


def slices(z: Array, name: str) -> tuple[Array, Array]:
    """Projections on directions, and the product of their gradient."""
    a = unit_directions(z, name)
    p = z @ a.T
    return p, p @ a


def unit_directions(z: Array, name: str) -> Array:
    a = jax.random.normal(jax.random.key(0), (SLICES[name], z.shape[-1]))
    return a / jnp.linalg.norm(a, axis=1, keepdims=True)  # a sine of a large number takes longer


def sines(z: Array) -> tuple[Array, Array]:
    """Sums of the sines and cosines of `m step p`: those of p by series, the others by the addition theorem.

    As many directions at a time as a processor's cache has room for.
    """

    def block(gradient: Array, a: Array) -> tuple[Array, Array]:
        p = z @ a.T
        cos, sin = jnp.cos(STEP * p), jnp.sin(STEP * p)

        def turn(powers: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            x, y = powers
            return (x * cos - y * sin, y * cos + x * sin), jnp.stack([x.sum(1), y.sum(1)])

        _, waves = jax.lax.scan(turn, (cos, sin), None, length=KNOTS)
        return gradient + p @ a, waves

    a = unit_directions(z, "lejepa")
    gradient, waves = jax.lax.scan(block, jnp.zeros_like(z), a.reshape(-1, BLOCK, z.shape[-1]))
    return waves, gradient


def sorts(z: Array) -> tuple[Array, Array]:
    p, gradient = slices(z, "visreg")
    return jnp.sort(p, axis=1), gradient


class Floor(NamedTuple):
    """The products that a formula needs, and nothing else."""

    run: Callable[[Array], Any]
    needs: str  # in words


class Case(NamedTuple):
    shape: tuple[int, int, int]
    loss: Callable[..., Array]  # a declared objective, with the options of the released code
    floor: Floor | None
    code: str  # what it is timed beside
    over_floor: float = math.inf  # bars
    over_released: float = 0.0
    differs: str = ""  # why the values differ
    given: Callable[[Array], Array] = lambda z: z  # what ours gets of the input
    beside: Callable[[Array], Array] | None = None  # what it is timed beside, where that is a function of JAX

    def function(self) -> Callable[[Array], Array]:
        """The loss of a (k, n, d) array."""
        key = {"key": jax.random.key(0)} if losses.takes(self.loss).key else {}
        loss = losses.on_views(partial(self.loss, **key))
        return lambda z: loss(self.given(z))


def without_target(z: Array) -> Array:
    """Two views, the second a target without gradient."""
    return jnp.stack([z[0], jax.lax.stop_gradient(z[1])])


def otts(z: Array) -> Array:
    """M3G from ott's solver, which holds the tensor of all tuples."""
    from benchmarks import transport  # which imports ott

    return transport.otts(z)[0]


OTT = "ott-jax: `MMSinkhorn`, which holds the tensor"
DRAWS = "other random draws"
TWO, WIDE, FOUR = (2, 1024, 128), (3, 1024, 128), (4, 1024, 128)
_PRODUCTS = "n² products, forward and twice backward"
_BETWEEN = "n² products of each pair of views, forward and twice backward"
_WITHIN = "n² products of each view with itself, forward and backward"
_WAVES = (
    "projections, forward and backward; a sine and cosine of each, and 15 multiples by the addition theorem"
)
PAIR = Floor(lambda z: inner_products(z[0], z[1]), _PRODUCTS)
FIRST = Floor(lambda z: inner_products(z[0], z[0]), _PRODUCTS)
GROUPS = Floor(lambda z: inner_products(z[:2].mean(0), z[2:].mean(0)), _PRODUCTS)
BETWEEN = Floor(between_views, _BETWEEN)
WITHIN = Floor(within_views, _WITHIN)
ALL_VIEWS = Floor(all_views, f"{_BETWEEN}; {_WITHIN}")
TRIPLES = Floor(triples, "n³ products, forward and twice backward")
EACH_TWICE = Floor(
    lambda z: [inner_products(view, view) for view in z], "3 n² products, forward and twice backward"
)
ANCHOR = Floor(with_anchor, "2 n² products, forward and twice backward")
TWO_MOMENTS = Floor(second_moments, "2 d² products, forward and backward")
FOUR_MOMENTS = Floor(second_moments, "4 d² products, forward and backward")
MEAN_MOMENTS = Floor(lambda z: second_moments(z.mean(0, keepdims=True)), "d² products, forward and backward")
FEATURES = Floor(lambda z: inner_products(z[0].T, z[1].T), "d² products, forward and twice backward")
WAVES = Floor(sines, _WAVES)
SORTS = Floor(sorts, "projections, forward and backward, and sorted")
KOROMILAS = "pakoromilas/Multi-View-CL"
CLIP = "mlfoundations/open_clip, not by the authors"
DCL = "raminnakhli/Decoupled-Contrastive-Learning, not by the authors: `DCL` in both directions"
SEM = "SubmissionsIn/SEM: `forward_feature_InfoNCE` of all ordered pairs, with weights 1"
HALF = "the released sum over l < m is half of that over l != m: its value is log 2 more"
SIGN = "the released sign of a singular vector is what the SVD returns"
SERIES = "the released code subtracts the logarithm of the series ratio where it must be added"
CASES = {
    "info_nce": Case(
        TWO, partial(losses.info_nce, temperature=0.1, symmetric=True), PAIR, f"{CLIP}: `ClipLoss`"
    ),
    "nt_xent": Case(TWO, losses.nt_xent, ALL_VIEWS, f"{KOROMILAS}: `NTXent`"),
    "dcl": Case(TWO, losses.dcl, ALL_VIEWS, DCL),
    "dhel": Case(TWO, losses.dhel, WITHIN, "pakoromilas/DHEL-KCL: `DHEL`"),
    "rince": Case(TWO, losses.rince, ALL_VIEWS, "chingyaoc/RINCE: `sym_loss`"),
    "siglip": Case(TWO, losses.siglip, PAIR, f"{CLIP}: `SigLipLoss`"),
    "spectral": Case(TWO, losses.spectral, PAIR, "jhaochenz/spectral_contrastive_learning: `D`"),
    "byol": Case(
        TWO,
        losses.byol,
        None,
        "vturrisi/solo-learn, not by the authors: `byol_loss_func`",
        given=without_target,
    ),
    "all_pairs": Case(FOUR, losses.all_pairs(losses.nt_xent), ALL_VIEWS, f"{KOROMILAS}: `NTXent(pwe=True)`"),
    "sem": Case(
        (4, 256, 128),
        losses.all_pairs(partial(losses.nt_xent, temperature=1.0), pairs="all", reduction="sum"),
        ALL_VIEWS,
        SEM,
    ),
    "one_vs_rest": Case(
        FOUR, losses.one_vs_rest(losses.nt_xent), ALL_VIEWS, f"{KOROMILAS}: `NTXent(average=True)`"
    ),
    "mv_infonce": Case(
        FOUR, partial(losses.mv_infonce, negatives="all"), ALL_VIEWS, f"{KOROMILAS}: `MVINFONCE`"
    ),
    "mv_dhel": Case(FOUR, losses.mv_dhel, WITHIN, f"{KOROMILAS}: `MVDHEL`", differs=HALF),
    "mv_cl1": Case(FOUR, losses.mv_cl1, BETWEEN, f"{KOROMILAS}: `CL_1`"),
    "mv_cl2": Case(FOUR, partial(losses.mv_cl2, energy="sum"), WITHIN, f"{KOROMILAS}: `CL_2`"),
    "poly_view": Case(FOUR, losses.poly_view, ALL_VIEWS, f"{KOROMILAS}: `PVCLoss`"),
    "symile_all": Case(
        (3, 256, 128), losses.symile, TRIPLES, 'rajesh-lab/symile: `Symile("n_squared")`', 2.0
    ),
    "symile_shuffled": Case(
        WIDE,
        partial(losses.symile, negatives="shuffled"),
        EACH_TWICE,
        'rajesh-lab/symile: `Symile("n")`',
        differs=DRAWS,
    ),
    "gram": Case(
        WIDE,
        partial(losses.gram, label_smoothing=0.1, eps=1e-16),
        ANCHOR,
        "ispamm/GRAM: `volume_computation3`, in both directions",
        3,
        5,
    ),
    "triangle": Case(
        WIDE,
        partial(losses.triangle, squared=True, label_smoothing=0.1),
        ANCHOR,
        "ispamm/TRIANGLE: `area_computation`, in both directions",
        3,
        5,
    ),
    "pmrl": Case(
        WIDE,
        losses.pmrl,
        FIRST,
        "Xiaohao-Liu/PMRL: `eigenvalue_computation_pmcl` and its two cross-entropies",
        differs=SIGN,
    ),
    "vicreg": Case(TWO, losses.vicreg, TWO_MOMENTS, "facebookresearch/vicreg: `VICReg`"),
    "barlow_twins": Case(
        TWO,
        partial(losses.barlow_twins, redundancy=0.0051),
        FEATURES,
        "facebookresearch/barlowtwins: `BarlowTwins`",
    ),
    "mmcr": Case(FOUR, losses.mmcr, MEAN_MOMENTS, "ThomasYerxa/mmcr: `MMCR_Loss`"),
    "frossl": Case(FOUR, losses.frossl, FOUR_MOMENTS, "OFSkean/FroSSL: `multiview_frossl_loss_func`"),
    "emp_ssl": Case(
        FOUR, losses.emp_ssl, FOUR_MOMENTS, "tsb0601/EMP-SSL: `Similarity_Loss`, `TotalCodingRate`"
    ),
    "lejepa": Case(
        FOUR,
        losses.lejepa,
        WAVES,
        "rbalestr-lab/lejepa: `SlicingUnivariateTest(EppsPulley)`",
        1.5,
        differs=DRAWS,
    ),
    "visreg": Case(TWO, partial(losses.visreg, eps=1e-6), SORTS, "HaiyuWu/visreg: `VISReg`", differs=DRAWS),
    "m3g": Case((4, 64, 128), losses.m3g, None, OTT, beside=otts),
    "m3g_pair": Case((2, 1024, 128), losses.m3g_pair, None, OTT, beside=otts),
    "dsf": Case(
        FOUR, losses.dsf, GROUPS, "Jeon789/DSF: `MoCo_DSF.contrastive_loss` of MoCo v3", differs=SERIES
    ),
}


class Difference(NamedTuple):
    """A place where released code disagrees with its paper or with this library's defaults, and what equals what.

    Options of ours for the numbers of the paper (or of the definition that docs/reference/objectives.md gives, where
    the paper leaves it open) and of the released code; None where no option gives them.
    """

    objective: str
    released: str  # the name of the code, in released_torch
    what: str
    paper: dict[str, Any]
    code: dict[str, Any] | None
    shape: tuple[int, int, int] = (3, 6, 4)
    prepared: Callable[[np.ndarray], np.ndarray] = lambda z: z  # what `code` is given, in words `of`
    of: str = ""


OF_TWO, LINE = (2, 6, 4), (2, 24, 1)  # on a line all directions are the same: the draw does not matter
DIFFERENCES = [
    Difference(
        "mv_infonce",
        "mv_infonce",
        "the other instances' vectors of an anchor's own view are negatives too",
        {},
        {"negatives": "all"},
    ),
    Difference(
        "mv_dhel", "mv_dhel", "positives are summed over l < m: log 2 more, the same gradient", {}, None
    ),
    Difference("mv_cl1", "mv_cl1", "none", {}, {}),
    Difference("mv_cl2", "mv_cl2", "energies are summed over views", {}, {"energy": "sum"}),
    Difference("poly_view", "poly_view", "none, for the geometric mean", {}, {}),
    Difference(
        "dsf",
        "dsf",
        "log I in three terms, and for MoCo v3 the logarithm of a series ratio with the wrong sign",
        {},
        None,
        (4, 6, 4),
    ),
    Difference("symile", "symile_all", "none", {}, {}),
    Difference(
        "gram",
        "gram",
        "labels smoothed by 0.1; root of the determinant's absolute value, in place of max(det, 0) + eps",
        {},
        {"label_smoothing": 0.1, "eps": 1e-16},
    ),
    Difference(
        "triangle",
        "triangle",
        "no root: twice the squared area; labels smoothed by 0.1",
        {},
        {"squared": True, "label_smoothing": 0.1},
    ),
    Difference("pmrl", "pmrl", "the sign of a singular vector is what the SVD returns", {}, None),
    Difference(
        "vicreg",
        "vicreg",
        "the squared distance is a mean over d, and the variance term is halved",
        {"invariance": 100.0, "variance": 50.0},
        {},
        OF_TWO,
    ),
    Difference("barlow_twins", "barlow_twins", "redundancy 0.0051", {}, {"redundancy": 0.0051}, OF_TWO),
    Difference("mmcr", "mmcr", "none", {}, {}),
    Difference("frossl", "frossl", "none", {}, {}),
    Difference(
        "frossl",
        "frossl_two_views",
        "the function for two views, of the first version, centres the columns",
        {},
        {},
        OF_TWO,
        lambda z: z - z.mean(1, keepdims=True),
        ", of centred columns",
    ),
    Difference("emp_ssl", "emp_ssl", "eps = 0.2, which the paper squares", {"eps": 0.04}, {}),
    Difference(
        "emp_ssl",
        "emp_ssl_port",
        "lightly's port adds the coding rate, and so minimises it",
        {"eps": 0.04},
        None,
    ),
    Difference(
        "lejepa",
        "lejepa",
        "17 knots on [0, 3]; the paper has 17 on [-5, 5], 9 of which are not negative",
        {"knots": 9, "t_max": 5.0},
        {},
        LINE,
    ),
    Difference(
        "visreg", "visreg", "1e-6 is added to the deviations, in the scale term too", {}, {"eps": 1e-6}, LINE
    ),
]


def small_input(shape: tuple[int, int, int]) -> np.ndarray:
    i = np.arange(math.prod(shape), dtype=np.float64)
    return np.sin(1 + i * i / 7).reshape(shape)


class Torch:
    """The released code, in a process of its own; None in place of an answer where there is none."""

    def __init__(self, python: str | None, released: Path | None, folder: Path, device: str = "cpu") -> None:
        """Starts the process, if there is a Python and a folder of checkouts."""
        self.folder, self.process = folder, None
        self.missing: dict[str, str] = {}
        self.version = ""
        if python and released:
            script = str(Path(__file__).with_name("released_torch.py"))
            command = [python, script, "--released", str(released), "--device", device]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.version = self._read()["torch"]

    def _read(self) -> dict[str, Any]:
        assert self.process is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process of the released code ended; its message is above")
        return json.loads(line)

    def ask(self, name: str, z: np.ndarray, calls: int = 1) -> dict[str, Any] | None:
        """Value, mean seconds, MB and gradient of a loss; None where its code is not there."""
        if self.process is None or name in self.missing:
            return None
        request = json.dumps({"loss": name, "input": str(self._saved(z)), "calls": calls})
        print(request, file=self.process.stdin, flush=True)
        found = self._read()
        if "missing" in found:
            self.missing[name] = found["missing"]
            print(f"{name}: no released code ({found['missing']})", file=sys.stderr)
            return None
        return found | {"gradient": np.load(found["gradient"])}

    def _saved(self, z: np.ndarray) -> Path:
        z = np.ascontiguousarray(z, np.float32)
        file = self.folder / f"{hashlib.sha256(z.tobytes()).hexdigest()}-{z.shape}.npy"
        if not file.exists():
            np.save(file, z)
        return file


def embeddings(shape: tuple[int, int, int]) -> np.ndarray:
    """Noisy views of n random directions."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=shape[1:]) + 0.5 * rng.normal(size=shape)).astype(np.float32)


def timed(program: Callable[[], Any]) -> float:
    """CPU seconds of a call, in which other programs have no part."""
    start = time.process_time()
    program()
    return time.process_time() - start


def measure(name: str, torch: Torch, repeats: int) -> dict[str, Any]:
    """Median CPU ms of ours, the floor and the released code, their memory in MB, values and how gradients differ."""
    case = CASES[name]
    z = embeddings(case.shape)
    programs = {"ours": program_of(jax.value_and_grad(case.function()), jnp.asarray(z))}
    if case.floor:
        programs["floor"] = program_of(case.floor.run, jnp.asarray(z))
    if case.beside:
        programs["released"] = program_of(jax.value_and_grad(case.beside), jnp.asarray(z))
    seconds: dict[str, list[float]] = {"ours": [], "floor": [], "released": []}
    peak, found = 0.0, None
    for turn in range(repeats + 1):
        now = {which: timed(program) for which, (program, _) in programs.items()}
        found = None if case.beside else torch.ask(name, z)
        if found is not None:
            now["released"] = found["seconds"]
            peak = max(peak, found["mb"])
        for which in now if turn else ():  # the first turn allocates
            seconds[which].append(now[which])
    value, gradient = programs["ours"][0]()
    if case.beside:
        peak = programs["released"][1] * MIB / 1e6
        found = dict(zip(("value", "gradient"), programs["released"][0]()))
    return {
        "name": name,
        "objective": losses.name(case.loss).split("(")[0],
        "loss": expression(case.loss),
        "shape": list(case.shape),
        **{f"{which}_ms": statistics.median(s) * 1e3 if s else None for which, s in seconds.items()},
        "ours_mb": programs["ours"][1] * MIB / 1e6,
        "released_mb": peak if found else None,
        "value": float(value),
        "released_value": float(found["value"]) if found else None,
        "gradient_difference": difference(gradient, found["gradient"]) if found else None,
    }


def expression(objective: Callable[..., Any]) -> str:
    """An objective as code: `all_pairs(nt_xent)`, `mv_infonce(negatives='all')`."""
    function, options = losses.unwrap(objective)
    made_by = losses.higher_order(function)
    arguments = [expression(options["pair"])] if made_by else []
    defaults = inspect.signature(made_by or function).parameters
    arguments += [
        f"{name}={value!r}"
        for name, value in options.items()
        if name != "pair" and value != defaults[name].default
    ]
    return losses.name(objective).split("(")[0] + (f"({', '.join(arguments)})" if arguments else "")


def bar(ratio: float | None, limit: float, at_most: bool) -> str:
    """A ratio beside its bar, if there is one."""
    if ratio is None or limit in (0, math.inf):
        return number(ratio)
    return f"{ratio:.1f} ({'at most' if at_most else 'at least'} {limit:g})"


def times_cells(row: dict[str, Any]) -> list[str]:
    case, ours, floor, released = CASES[row["name"]], row["ours_ms"], row["floor_ms"], row["released_ms"]
    return [
        f"`{row['loss']}`",
        str(tuple(row["shape"])),
        number(ours),
        number(floor),
        bar(floor and ours / floor, case.over_floor, at_most=True),
        number(released),
        bar(released and released / ours, case.over_released, at_most=False),
        number(row["ours_mb"], 0),
        number(row["released_mb"], 0),
    ]


def times_table(rows: Sequence[dict[str, Any]]) -> str:
    head = [
        "objective",
        "(k, n, d)",
        "ours, ms",
        "floor, ms",
        "ours / floor",
        "released, ms",
        "released / ours",
    ]
    return table([*head, "ours, MB", "released, MB"], [times_cells(row) for row in rows])


def agreement_table(rows: Sequence[dict[str, Any]]) -> str:
    """What is timed beside what, and whether both compute the same."""
    cells = [
        [
            f"`{row['loss']}`",
            CASES[row["name"]].code,
            number(row["value"], 5),
            number(row["released_value"], 5),
            "-" if row["gradient_difference"] is None else f"{row['gradient_difference']:.0e}",
            CASES[row["name"]].differs,
        ]
        for row in rows
    ]
    head = ["objective", "released code", "our value", "its value", "gradients differ by", "why"]
    return table(head, cells)


def value_of(objective: str, options: dict[str, Any], z: np.ndarray) -> float:
    """Our value in float64; objectives that draw get a key."""
    with jax.enable_x64(True):
        function = losses.objectives()[objective]
        takes = losses.takes(function)
        if takes.key:
            options = options | {"key": jax.random.key(0)}
        return float(jax.jit(losses.on_views(partial(function, **options)))(jnp.asarray(z)))


def written(options: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in options.items()) or "defaults"


def values(torch: Torch) -> list[list[str]]:
    """Each difference as cells: objective, what differs, our value by the paper, as released, and the released one."""
    rows = []
    for case in DIFFERENCES:
        z = small_input(case.shape)
        found = torch.ask(case.released, z)
        code = "no option"
        if case.code is not None:
            code = (
                f"{value_of(case.objective, case.code, case.prepared(z)):.6f} ({written(case.code)}{case.of})"
            )
        paper = f"{value_of(case.objective, case.paper, z):.6f} ({written(case.paper)})"
        rows.append(
            [f"`{case.objective}`", case.what, paper, code, f"{found['value']:.6f}" if found else "-"]
        )
    return rows


def values_table(rows: list[list[str]]) -> str:
    head = ["objective", "what the released code does otherwise", "ours, by the paper", "ours, as released"]
    return table([*head, "released code"], rows)


def edges() -> dict[str, tuple[str, np.ndarray]]:
    """Inputs at which a root, a norm or a decomposition has no derivative: loss, what is special, input."""
    z = small_input((3, 6, 4))
    coinciding = np.broadcast_to(z[:1], z.shape).copy()
    orthogonal = np.broadcast_to(np.eye(4)[:3, None], z.shape).copy()
    constant, zero = z[:2].copy(), z[:2].copy()
    constant[:, :, 1] = 0.5
    zero[:, :, 1] = 0
    same_rows = np.broadcast_to(z[:, :1], z.shape).copy()
    return {
        "gram": ("views coincide: volume 0", coinciding),
        "triangle": ("views coincide: area 0", coinciding),
        "pmrl": ("views are orthogonal: equal singular values", orthogonal),
        "mmcr": ("instances coincide: singular values 0", same_rows),
        "vicreg": ("a constant column", constant),
        "barlow_twins": ("a constant column", constant),
        "frossl": ("a column of zeros", zero),
        "emp_ssl": ("views coincide", coinciding),
        "lejepa": ("views coincide", coinciding),
        "visreg": ("a constant column", constant),
    }


def gradient_of(objective: str, z: np.ndarray) -> np.ndarray:
    """Our gradient in float32 with default options."""
    function = losses.objectives()[objective]
    options = {"key": jax.random.key(0)} if losses.takes(function).key else {}
    loss = losses.on_views(partial(function, **options))
    return np.asarray(jax.jit(jax.grad(loss))(jnp.asarray(z, jnp.float32)))


def largest(gradient: np.ndarray | None) -> str:
    """The largest entry of a gradient, or how many entries are not finite."""
    if gradient is None:
        return "-"
    lost = int(np.sum(~np.isfinite(gradient)))
    return f"{lost} of {gradient.size} not finite" if lost else f"{np.abs(gradient).max():.3g}"


def edges_table(torch: Torch) -> str:
    rows = []
    for name, (what, z) in edges().items():
        found = torch.ask(name, z)
        rows.append([f"`{name}`", what, largest(gradient_of(name, z)), largest(found and found["gradient"])])
    return table(["objective", "input", "ours, largest entry", "released code"], rows)


def page(results: dict[str, Any]) -> str:
    """docs/design/released.md."""
    rows = results["rows"]
    clones = [
        f"git clone https://github.com/{repository} released/{repository.split('/')[1]}  # {commit}"
        for repository, commit in REPOSITORIES.items()
    ]
    needs: dict[str, list[str]] = {}
    for row in rows:
        if row["floor_ms"] is not None:
            needs.setdefault(CASES[row["name"]].floor.needs, []).append(f"`{row['name']}`")
    loads = [row["load"] for row in rows]
    return PAGE.format(
        clones="\n".join(clones),
        times=times_table(rows),
        agreement=agreement_table(rows),
        needs="\n".join(f"- {', '.join(names)}: {what}" for what, names in needs.items()),
        load=" to ".join(f"{load:.1f}" for load in sorted({min(loads), max(loads)})),
        **{name: results[name] for name in ("torch", "jax", "streamed_mb")},
    )


REPOSITORIES = {
    "pakoromilas/Multi-View-CL": "c26ae77",
    "pakoromilas/DHEL-KCL": "dc5a477",
    "Jeon789/DSF": "0aa38a8",
    "SubmissionsIn/SEM": "5ccaa63",
    "mlfoundations/open_clip": "89fb801",
    "raminnakhli/Decoupled-Contrastive-Learning": "0b9b76d",
    "chingyaoc/RINCE": "c7f8534",
    "jhaochenz/spectral_contrastive_learning": "ee431bd",
    "vturrisi/solo-learn": "9187ea3",
    "rajesh-lab/symile": "d12e2c8",
    "ispamm/GRAM": "b70c5c2",
    "ispamm/TRIANGLE": "6951d49",
    "Xiaohao-Liu/PMRL": "c3997e9",
    "facebookresearch/vicreg": "4e12602",
    "facebookresearch/barlowtwins": "8e8d284",
    "ThomasYerxa/mmcr": "fafd3a9",
    "OFSkean/FroSSL": "e841c57",
    "tsb0601/EMP-SSL": "8fc3758",
    "lightly-ai/lightly": "e8d317f",
    "rbalestr-lab/lejepa": "eddffdd",
    "HaiyuWu/visreg": "074fb51",
}

PAGE = """# Beside released code

This page compares the time and memory of the objectives with released PyTorch code, the authors' own where it exists, and
with the bare products, sines and sorts that they need. Value and gradient in float32 of the same random embeddings, on one
thread of one CPU: jax {jax} compiled, torch {torch} as released, not compiled. The three take turns in each round, and the table has
medians of CPU time, which leaves out other programs (load average when the run began: {load}).
[The objectives' page](../reference/objectives.md#where-a-released-implementation-disagrees-with-its-paper) compares
released code with the papers.

{times}

- "ours, MB" are the temporaries that the compiler reserves, "released, MB" the growth of the process at its peak.
- The released steps of GRAM and TRIANGLE compute their matrix twice, once for its rows and once for its columns, which
  with several devices are of different instances. Both are timed, as they are in training.
- RINCE and SEM make their masks of negatives by a loop over instances in each step. NT-Xent of Koromilas 2025 ranks
  all vectors for an accuracy. Both are timed.
- At (3, 1024, 128) `symile(z)` takes {streamed_mb:.0f} MB for its 1,024³ products; the released code would hold three
  matrices of 1,024 x 1,024² logits, 4.3 GB each.
- M3G has no released code. It is timed beside ott's `MMSinkhorn` at the same tolerance, both compiled by JAX.
- torch sorts with all threads and XLA with one: on several CPUs the released `visreg` gains, ours does not.
- We found no released code of `poly_siglip`, `sufficient_statistics`, `cross_pairs` and `mean_pair`.

## The same numbers

Both sides get the same options. The table has both values, and the length of the difference of the gradients over the
length of the released one. `PVCLoss` is from the code of Koromilas 2025; Shidani 2024 released no code. Its "arithmetic"
method averages over instances first, where the paper averages within each instance; ours has no such option.

{agreement}

## The floor

The floor is the time of these operations alone:

{needs}

An inner product of all pairs takes one matrix product forward and two backward; a d x d matrix of second moments and
the products of a view with itself, which are symmetric, one and one.

## Running it again

This package does not depend on torch. Install torch in an environment of its own and clone the repositories beside each
other. The benchmark installs and imports none of them; it reads the definitions of their losses:

```sh
python3 -m venv torch-env && torch-env/bin/pip install torch einops numpy  # torch for CPUs is enough
{clones}
beside="--released released --torch-python torch-env/bin/python"
python -m benchmarks.released $beside --write docs/design/released.md
python -m benchmarks.released $beside --values --write docs/reference/objectives.md
```

The comments name the commits that were measured. A missing repository is skipped. `released.json` has the same numbers, and
`python -m docs.readme` writes the table of README.md from it. `--only NAME` measures some objectives again and keeps the
other rows.
"""


def comparisons(torch: Torch) -> dict[str, str]:
    """The tables of `--values`, by the name of their place in docs/reference/objectives.md."""
    return {
        "released values": values_table(values(torch)),
        "released edges": edges_table(torch),
    }


def replaced(text: str, tables: dict[str, str]) -> str:
    """A page with the tables in their places, from `<!-- NAME -->` to `<!-- end -->`.

    Raises:
      ValueError: a place is not there, or there are two.
    """
    for name, part in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda m, t=part: f"{m[1]}\n{t}\n\n{m[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page must have one part '<!-- {name} -->', got {count}")
    return text


def write(file: Path, rows: list[dict[str, Any]], made_by: dict[str, Any]) -> None:
    """Writes the page and, beside it, its JSON, of which rows of other names are kept."""
    numbers = file.with_suffix(".json")
    old = json.loads(numbers.read_text(encoding="utf-8"))["rows"] if numbers.exists() else []
    found = {row["name"]: row for row in [*old, *rows]}
    results = made_by | {"rows": [found[name] for name in CASES if name in found]}
    numbers.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    file.write_text(page(results), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--released", type=Path, help="folder with a checkout of each repository")
    parser.add_argument("--torch-python", help="a Python that has torch, numpy and einops")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--values", action="store_true", help="only the table of values")
    parser.add_argument("--write", type=Path, help="Markdown file")
    options = parser.parse_args()
    if options.write and not (options.released and options.torch_python):
        parser.error("--write needs --released and --torch-python: a page has the numbers of both")
    # Before JAX starts its threads, which are as many as there are CPUs; the process of torch inherits it.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    jax.config.update("jax_platforms", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        torch = Torch(options.torch_python, options.released, Path(folder))
        if options.values:
            tables = comparisons(torch)
            print("\n\n".join(tables.values()))
            if options.write:
                text = options.write.read_text(encoding="utf-8")
                options.write.write_text(replaced(text, tables), encoding="utf-8")
            return
        rows, load = [], os.getloadavg()[0]
        _, streamed = program_of(jax.value_and_grad(CASES["symile_all"].function()), jnp.zeros(WIDE))
        made_by = {"torch": torch.version, "jax": jax.__version__, "streamed_mb": streamed * MIB / 1e6}
        for name in options.only:
            rows.append(measure(name, torch, options.repeats) | {"load": load})
            print(times_table(rows[-1:]).splitlines()[-1], flush=True)
            if options.write:
                write(options.write, rows, made_by)


if __name__ == "__main__":
    main()
