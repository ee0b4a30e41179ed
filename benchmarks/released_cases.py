"""The cases of `benchmarks.released`: objectives, released code, floors, known differences."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import loss_of
from mvcl import losses

Array = jax.Array
HIDDEN = 512  # of the critics of FactorCL
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
        loss = loss_of(self.loss)
        return lambda z: loss(self.given(z))


def without_target(z: Array) -> Array:
    """Two views, the second a target without gradient."""
    return jnp.stack([z[0], jax.lax.stop_gradient(z[1])])


def otts(z: Array) -> Array:
    """M3G from ott's solver, which holds the tensor of all tuples."""
    from benchmarks import transport  # which imports ott

    return transport.otts(z)[0]


def factor_critics(d: int) -> losses.FactorCritics:
    """MLPs of both vectors, with the weights that `released_torch.factor_cl` draws."""
    draw, made = np.random.default_rng(0), []
    for inputs in (2 * d, 4 * d, 2 * d, 2 * d, 4 * d, 2 * d):
        shapes = ((HIDDEN, inputs), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (1, HIDDEN), (1,))
        made.append([np.float32(draw.standard_normal(s) / s[-1] ** 0.5) for s in shapes])

    def critic(x: Array, y: Array, w: list[np.ndarray]) -> Array:
        h = (x @ w[0][:, : x.shape[1]].T)[:, None] + (y @ w[0][:, x.shape[1] :].T)[None] + w[1]
        return (jax.nn.relu(jax.nn.relu(h) @ w[2].T + w[3]) @ w[4].T + w[5])[..., 0]

    turned = (1, 5)  # the released upper bounds have the second view first
    return losses.FactorCritics(
        *(
            partial(lambda x, y, w: critic(y, x, w).T, w=w) if i in turned else partial(critic, w=w)
            for i, w in enumerate(made)
        )
    )


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
_EACH_TWICE = "3 n² products, forward and twice backward"
EACH_TWICE = Floor(lambda z: [inner_products(view, view) for view in z], _EACH_TWICE)
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
BYOL = "vturrisi/solo-learn, not by the authors: `byol_loss_func`"
SEM = "SubmissionsIn/SEM: `forward_feature_InfoNCE` of all ordered pairs, with weights 1"
GRAM = "ispamm/GRAM: `volume_computation3`, in both directions"
TRIANGLE = "ispamm/TRIANGLE: `area_computation`, in both directions"
PMRL = "Xiaohao-Liu/PMRL: `eigenvalue_computation_pmcl` and its two cross-entropies"
EMP_SSL = "tsb0601/EMP-SSL: `Similarity_Loss`, `TotalCodingRate`"
LEJEPA = "rbalestr-lab/lejepa: `SlicingUnivariateTest(EppsPulley)`"
DSF = "Jeon789/DSF: `MoCo_DSF.contrastive_loss` of MoCo v3"
INF_MASKING = "brightest66/InfMasking: `InfMaskingLoss`, three maskings"
FACTOR_CL = "pliang279/FactorCL: `FactorCLSSL` of MultiBench"
HALF = "the released sum over l < m is half of that over l != m: its value is log 2 more"
SIGN = "the released sign of a singular vector is what the SVD returns"
SERIES = "the released code subtracts the logarithm of the series ratio where it must be added"
info_nce = partial(losses.info_nce, temperature=0.1, symmetric=True)
of_all = losses.all_pairs(partial(losses.nt_xent, temperature=1.0), pairs="all", reduction="sum")
mv_infonce = partial(losses.mv_infonce, negatives="all")
shuffled = partial(losses.symile, negatives="shuffled")
gram = partial(losses.gram, label_smoothing=0.1, eps=1e-16)
triangle = partial(losses.triangle, squared=True, label_smoothing=0.1)
barlow_twins = partial(losses.barlow_twins, redundancy=0.0051)
factor_cl = partial(losses.factor_cl, critics=factor_critics(64), twice=1.0, normalize=False)
CASES = {
    "info_nce": Case(TWO, info_nce, PAIR, f"{CLIP}: `ClipLoss`"),
    "nt_xent": Case(TWO, losses.nt_xent, ALL_VIEWS, f"{KOROMILAS}: `NTXent`"),
    "dcl": Case(TWO, losses.dcl, ALL_VIEWS, DCL),
    "dhel": Case(TWO, losses.dhel, WITHIN, "pakoromilas/DHEL-KCL: `DHEL`"),
    "rince": Case(TWO, losses.rince, ALL_VIEWS, "chingyaoc/RINCE: `sym_loss`"),
    "siglip": Case(TWO, losses.siglip, PAIR, f"{CLIP}: `SigLipLoss`"),
    "spectral": Case(TWO, losses.spectral, PAIR, "jhaochenz/spectral_contrastive_learning: `D`"),
    "byol": Case(TWO, losses.byol, None, BYOL, given=without_target),
    "all_pairs": Case(FOUR, losses.all_pairs(losses.nt_xent), ALL_VIEWS, f"{KOROMILAS}: `NTXent(pwe=True)`"),
    "sem": Case((4, 256, 128), of_all, ALL_VIEWS, SEM),
    "one_vs_rest": Case(
        FOUR, losses.one_vs_rest(losses.nt_xent), ALL_VIEWS, f"{KOROMILAS}: `NTXent(average=True)`"
    ),
    "mv_infonce": Case(FOUR, mv_infonce, ALL_VIEWS, f"{KOROMILAS}: `MVINFONCE`"),
    "mv_dhel": Case(FOUR, losses.mv_dhel, WITHIN, f"{KOROMILAS}: `MVDHEL`", differs=HALF),
    "mv_cl1": Case(FOUR, losses.mv_cl1, BETWEEN, f"{KOROMILAS}: `CL_1`"),
    "mv_cl2": Case(FOUR, partial(losses.mv_cl2, energy="sum"), WITHIN, f"{KOROMILAS}: `CL_2`"),
    "poly_view": Case(FOUR, losses.poly_view, ALL_VIEWS, f"{KOROMILAS}: `PVCLoss`"),
    "symile_all": Case(
        (3, 256, 128), losses.symile, TRIPLES, 'rajesh-lab/symile: `Symile("n_squared")`', 2.0
    ),
    "symile_shuffled": Case(WIDE, shuffled, EACH_TWICE, 'rajesh-lab/symile: `Symile("n")`', differs=DRAWS),
    "gram": Case(WIDE, gram, ANCHOR, GRAM, 3, 5),
    "triangle": Case(WIDE, triangle, ANCHOR, TRIANGLE, 3, 5),
    "pmrl": Case(WIDE, losses.pmrl, FIRST, PMRL, differs=SIGN),
    "vicreg": Case(TWO, losses.vicreg, TWO_MOMENTS, "facebookresearch/vicreg: `VICReg`"),
    "barlow_twins": Case(TWO, barlow_twins, FEATURES, "facebookresearch/barlowtwins: `BarlowTwins`"),
    "mmcr": Case(FOUR, losses.mmcr, MEAN_MOMENTS, "ThomasYerxa/mmcr: `MMCR_Loss`"),
    "frossl": Case(FOUR, losses.frossl, FOUR_MOMENTS, "OFSkean/FroSSL: `multiview_frossl_loss_func`"),
    "emp_ssl": Case(FOUR, losses.emp_ssl, FOUR_MOMENTS, EMP_SSL),
    "lejepa": Case(FOUR, losses.lejepa, WAVES, LEJEPA, 1.5, differs=DRAWS),
    "visreg": Case(TWO, partial(losses.visreg, eps=1e-6), SORTS, "HaiyuWu/visreg: `VISReg`", differs=DRAWS),
    "m3g": Case((4, 64, 128), losses.m3g, None, OTT, beside=otts),
    "m3g_pair": Case((2, 1024, 128), losses.m3g_pair, None, OTT, beside=otts),
    "dsf": Case(FOUR, losses.dsf, GROUPS, DSF, differs=SERIES),
    "comm": Case((6, 1024, 128), losses.comm, None, "Duplums/CoMM: `CoMMLoss`"),
    "inf_masking": Case((12, 1024, 128), partial(losses.inf_masking, ratio=0.5), None, INF_MASKING),
    "factor_cl": Case((8, 128, 64), factor_cl, None, FACTOR_CL),
}


def centred(z: np.ndarray) -> np.ndarray:
    return z - z.mean(1, keepdims=True)


class Difference(NamedTuple):
    """A place where released code disagrees with its paper or with this library's defaults, and what equals what.

    Options of ours for the numbers of the paper (or of the definition that docs/reference/objectives.md gives, where
    the paper leaves it open) and of the released code; None where no option gives them.
    """

    objective: str
    what: str
    paper: dict[str, Any]
    code: dict[str, Any] | None
    shape: tuple[int, int, int] = (3, 6, 4)
    named: str = ""  # the code in released_torch, where it has another name
    prepared: Callable[[np.ndarray], np.ndarray] = lambda z: z  # what `code` is given, in words `of`
    of: str = ""

    @property
    def released(self) -> str:
        """The name of the code in released_torch."""
        return self.named or self.objective


OF_TWO, LINE = (2, 6, 4), (2, 24, 1)  # on a line all directions are the same: the draw does not matter
CENTRES = "the function for two views, of the first version, centres the columns"
KNOTS_OF_BOTH = "17 knots on [0, 3]; the paper has 17 on [-5, 5], 9 of which are not negative"
OWN = "the other instances' vectors of an anchor's own view are negatives too"
PORT = "lightly's port adds the coding rate, and so minimises it"
ROOT = "labels smoothed by 0.1; root of the determinant's absolute value, in place of max(det, 0) + eps"
SQUARED = "no root: twice the squared area; labels smoothed by 0.1"
TERMS = "log I in three terms, and for MoCo v3 the logarithm of a series ratio with the wrong sign"
WEIGHTS = "the squared distance is a mean over d, and the variance term is halved"
DIFFERENCES = [
    Difference("mv_infonce", OWN, {}, {"negatives": "all"}),
    Difference("mv_dhel", "positives are summed over l < m: log 2 more, the same gradient", {}, None),
    Difference("mv_cl1", "none", {}, {}),
    Difference("mv_cl2", "energies are summed over views", {}, {"energy": "sum"}),
    Difference("poly_view", "none, for the geometric mean", {}, {}),
    Difference("dsf", TERMS, {}, None, (4, 6, 4)),
    Difference("symile", "none", {}, {}, named="symile_all"),
    Difference("gram", ROOT, {}, {"label_smoothing": 0.1, "eps": 1e-16}),
    Difference("triangle", SQUARED, {}, {"squared": True, "label_smoothing": 0.1}),
    Difference("pmrl", "the sign of a singular vector is what the SVD returns", {}, None),
    Difference("vicreg", WEIGHTS, {"invariance": 100.0, "variance": 50.0}, {}, OF_TWO),
    Difference("barlow_twins", "redundancy 0.0051", {}, {"redundancy": 0.0051}, OF_TWO),
    Difference("mmcr", "none", {}, {}),
    Difference("frossl", "none", {}, {}),
    Difference("frossl", CENTRES, {}, {}, OF_TWO, "frossl_two_views", centred, ", of centred columns"),
    Difference("emp_ssl", "eps = 0.2, which the paper squares", {"eps": 0.04}, {}),
    Difference("emp_ssl", PORT, {"eps": 0.04}, None, named="emp_ssl_port"),
    Difference("lejepa", KNOTS_OF_BOTH, {"knots": 9, "t_max": 5.0}, {}, LINE),
    Difference("visreg", "1e-6 is added to the deviations, in the scale term too", {}, {"eps": 1e-6}, LINE),
]
