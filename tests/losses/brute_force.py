"""Every objective as loops in float64, written from the formulas; no code shared with mvcl.

All take prepared vectors `z[l][i]`, unit vectors where the objective projects, and a (k, n) mask; a vector that is not
there is never touched. Of groups the first half of the views are the queries. Extra negatives `extra` join wherever
the formula sums over other instances. `weight[i]` multiplies the terms of instance i of a pair loss.

`@reference` registers loops under the name of the objective in `mvcl.losses`; every test and the tables run
on what is registered, and an objective without a reference fails a test.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import jax
import numpy as np
from scipy import special

from tests.transport import tensors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """Loops, and what else the tests must know of an objective.

    Attributes:
      loops: `loops(z, mask, **options)`.
      options: sets of options to try; the first is used wherever one is enough.
      coinciding: (k, n, d, t) to the value, with the first set of options and temperature t if there is one, where all
        vectors are the same; None where the definition gives no closed form.
      longest: length of the longest vector that it takes without projection.
      small_temperature: is it finite in float32 at a temperature of 1e-3?
      linear_memory: does `block_size` keep memory linear in n?
      derivative: is the gradient the derivative of the value? Not where the formula holds something constant.
    """

    loops: Callable[..., float]
    options: list[dict]
    coinciding: Callable[..., float] | None
    longest: float = 3.0
    small_temperature: bool = True
    linear_memory: bool = True
    derivative: bool = True


REFERENCES: dict[str, Reference] = {}
# By higher-order function: loops(pair_loops, z, mask, **options).
OF_PAIRS: dict[str, Callable[..., float]] = {}


def reference(**properties):
    def record(loops):
        REFERENCES[loops.__name__] = Reference(loops=loops, **properties)
        return loops

    return record


def reference_of_pairs(loops):
    OF_PAIRS[loops.__name__] = loops
    return loops


def lse(values):
    values = list(values)
    if not values:
        return None
    top = max(values)
    return top + np.log(sum(np.exp(v - top) for v in values))


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else 0.0


def unit(z):
    length = np.linalg.norm(z, axis=-1, keepdims=True)
    return np.divide(z, length, out=np.zeros_like(z), where=length > 0)


def indices(mask):
    """All (view, instance) that are there."""
    return [(l, i) for l in range(mask.shape[0]) for i in range(mask.shape[1]) if mask[l, i]]


def against(v, others, extra, temperature):
    """Similarities of v with other vectors and with the extra negatives."""
    return [v @ u / temperature for u in (*others, *extra)]


def by_instance(weight, z):
    return np.ones(z.shape[1]) if weight is None else weight


@reference(options=[{}, {"symmetric": True}], coinciding=lambda k, n, d, t: np.log(n))
def info_nce(z, mask, temperature=0.1, symmetric=False, extra=(), weight=None):
    w = by_instance(weight, z)

    def one_way(a, b):
        keys = z[b][mask[b]]
        return mean(
            w[i] * (lse(against(z[a, i], keys, extra, temperature)) - z[a, i] @ z[b, i] / temperature)
            for i in np.flatnonzero(mask[a] & mask[b])
        )

    return (one_way(0, 1) + one_way(1, 0)) / 2 if symmetric else one_way(0, 1)


def _anchors(z, mask, temperature, extra, weight):
    """(weight, positive similarity, [similarities of all negatives]) by anchor that has a partner."""
    w = by_instance(weight, z)
    for l, i in indices(mask):
        if mask[1 - l, i]:
            others = [z[m, j] for m, j in indices(mask) if j != i]
            yield w[i], z[l, i] @ z[1 - l, i] / temperature, against(z[l, i], others, extra, temperature)


@reference(options=[{}], coinciding=lambda k, n, d, t: np.log(2 * n - 1))
def nt_xent(z, mask, temperature=0.5, extra=(), weight=None):
    return mean(w * (lse([p, *others]) - p) for w, p, others in _anchors(z, mask, temperature, extra, weight))


def _with_all(z, mask, temperature, weights):
    """Weighted NT-Xent of each fusion with the last one of the other augmentation, where an instance has both."""
    half = len(z) // 2
    for i in range(half):
        for pair in ([i, 2 * half - 1], [half + i, half - 1]):
            if mask[pair].all(0).any():
                yield (weights[i] if weights else 1) * nt_xent(z[pair], mask[pair], temperature)


@reference(options=[{}, {"weights": (0.3, 1.0, 2.0)}], coinciding=lambda k, n, d, t: np.log(2 * n - 1))
def comm(z, mask, temperature=0.1, weights=None):
    return mean(_with_all(z, mask, temperature, weights))


@reference(options=[{}, {"turn": "critics"}, {"twice": 1.0}], coinciding=lambda k, n, d, t: 0)
def factor_cl(z, mask, temperature=0.1, turn="embeddings", twice=2.0, f=None):
    f = f or (lambda x, y: x @ y / temperature)

    def bound(left, right, club=False):
        x, y = (np.concatenate(list(z[side]), axis=-1) for side in (left, right))
        of_x, of_y = (np.flatnonzero(mask[side].all(0)) for side in (left, right))
        both = [i for i in of_x if i in of_y]
        if club:
            return mean(f(x[i], y[i]) for i in both) - mean(f(x[i], y[j]) for i in of_x for j in of_y)
        return np.log(len(of_x)) + mean(f(x[i], y[i]) - lse(f(x[j], y[i]) for j in of_x) for i in both)

    if turn == "critics":
        return -bound([0, 2], [1, 3]) - bound([4], [5])
    unique = bound([4], [6]) + bound([5], [7]) + twice * (bound([4, 6], [5, 7]) - bound([4], [5], True))
    return -bound([0], [1]) + bound([0, 2], [1, 3], True) - unique


@reference(
    options=[{"ratio": 0.4}, {"ratio": 0.0}, {"weights": (0.3, 1.0, 2.0)}],
    coinciding=lambda k, n, d, t: (
        (k / 4 * np.log(2 * n - 1) + 2 * np.log(1 + (k / 4 + 1) * (n - 1))) / (k / 4 + 2)
    ),
)
def inf_masking(z, mask, ratio=1.0, temperature=0.1, weights=None):
    """With the covariances themselves; the masked views follow the others."""
    t, half = temperature, len(z) // 4
    given, k = z[: 2 * half], z[2 * half :].reshape(2, -1, *z.shape[1:])
    terms = list(_with_all(given, mask[: 2 * half], t, weights))
    total, count = sum(terms) / 2, len(terms) / 2
    for at, k_a in zip((half - 1, 2 * half - 1), k):
        values = []
        for i in np.flatnonzero(mask[at]):
            q, others = z[at, i], np.flatnonzero(mask[at] & (np.arange(z.shape[1]) != i))
            spread = q @ np.cov(k_a[:, i].T, bias=True) @ q
            positive = q @ k_a[:, i].mean(0) / t + ratio / (2 * t**2) * spread
            negatives = [q @ v / t for j in others for v in (*k_a[:, j], z[at, j])]
            values.append(ratio / (2 * t**2) * spread - positive + lse([positive, *negatives]))
        total, count = total + mean(values), count + 1
    return total / count


@reference(options=[{}], coinciding=lambda k, n, d, t: np.log(2 * n - 2))
def dcl(z, mask, temperature=0.1, extra=(), weight=None):
    anchors = _anchors(z, mask, temperature, extra, weight)
    return mean(w * (lse(others) - p) for w, p, others in anchors if others)


@reference(
    options=[{}, {"q": 0.9, "lam": 0.1}],
    coinciding=lambda k, n, d, t: np.exp(0.5 / t) * (np.sqrt(0.001 * (2 * n - 1)) - 1) / 0.5,
    small_temperature=False,
)
def rince(z, mask, temperature=0.5, q=0.5, lam=0.001, extra=(), weight=None):
    return mean(
        w * (-np.exp(q * p) / q + (lam * (np.exp(p) + sum(np.exp(o) for o in others))) ** q / q)
        for w, p, others in _anchors(z, mask, temperature, extra, weight)
    )


@reference(options=[{}, {"symmetric": False}], coinciding=lambda k, n, d, t: 1 / t + 2 * np.log(n - 1))
def dhel(z, mask, temperature=0.3, symmetric=True, extra=(), weight=None):
    n, w, energies = z.shape[1], by_instance(weight, z), {}
    for l, i in indices(mask[:2] if symmetric else mask[:1]):
        others = [z[l, j] for j in np.flatnonzero(mask[l]) if j != i]
        if others or len(extra):
            energies[i] = energies.get(i, 0) + w[i] * lse(against(z[l, i], others, extra, temperature))
    pairs = (w[i] * (z[0, i] @ z[1, i]) / temperature for i in range(n) if mask[:, i].all())
    return mean(energies.values()) - mean(pairs)


@reference(options=[{}], coinciding=lambda k, n, d, t: 0.0)
def byol(z, mask, weight=None):
    w = by_instance(weight, z)
    return mean(w[i] * (2 - 2 * z[0, i] @ z[1, i]) for i in range(z.shape[1]) if mask[:, i].all())


@reference(options=[{}, {"scale": 2.0, "bias": 0.5}], coinciding=lambda k, n, d, t: n * np.log(2))
def siglip(z, mask, scale=10.0, bias=-10.0, extra=(), weight=None):
    n, w = z.shape[1], by_instance(weight, z)
    both = np.flatnonzero(mask.all(0))
    positive = mean(-w[i] * special.log_expit(scale * z[0, i] @ z[1, i] + bias) for i in both)
    negative = []
    for i in np.flatnonzero(mask[0]):
        others = [*(z[1, j] for j in range(n) if j != i and mask[1, j]), *extra]
        negative.append(-w[i] * sum(special.log_expit(-(scale * z[0, i] @ v + bias)) for v in others))
    return positive + mean(negative)


@reference(options=[{}, {"radius": 0.5}], coinciding=lambda k, n, d, t: -1.0)
def spectral(z, mask, radius=None, extra=(), weight=None):
    if radius is not None:
        longest = np.sqrt(radius)
        short = lambda v: v * longest / max(np.linalg.norm(v), longest)  # noqa: E731
        z, extra = np.apply_along_axis(short, -1, z), [short(v) for v in extra]
    n, w, squares = z.shape[1], by_instance(weight, z), []
    for i in np.flatnonzero(mask[0]):
        others = [z[1, j] for j in np.flatnonzero(mask[1]) if j != i]
        squares += [w[i] * (z[0, i] @ v) ** 2 for v in (*others, *extra)]
    return mean(squares) - 2 * mean(w[i] * (z[0, i] @ z[1, i]) for i in range(n) if mask[:, i].all())


@reference(options=[{}], coinciding=lambda k, n, d, t: (k - 1) / t + k * np.log(n - 1) - np.log(k * (k - 1)))
def multi_view_contrast(
    z,
    mask,
    temperature=0.5,
    alignment="instance",
    energy="view_sum",
    negatives="within_view",
    energy_weight=1.0,
    kernel=None,
    extra=(),
):
    views, instances = range(z.shape[0]), range(z.shape[1])

    def log_k(u, v):
        return u @ v / temperature if kernel is None else np.log(kernel(np.sum((u - v) ** 2)))

    def log_n(l, i, pair=None):
        """Negatives of z_li, by the paper's set; of a pair (l, m) those of its energy."""
        found = [log_k(z[l, i], z[pair, i])] if energy == "positive" else []
        for m, j in indices(mask):
            counts = j != i if m == l else energy != "positive" or j != i
            chosen = negatives in ("all", "within_view" if m == l else "cross_view")
            if counts and chosen and (energy != "pair" or m in (l, pair)):
                found.append(log_k(z[l, i], z[m, j]))
        return lse([*found, *(log_k(z[l, i], v) for v in extra)])

    def mean_of(kind, term):
        """term(l, m, i) over the pairs of views of each instance."""
        by_pair = {(l, m): [] for l, m in itertools.permutations(views, 2)}
        by_vector = {at: [] for at in indices(mask)}
        for (l, m), i in itertools.product(by_pair, instances):
            if mask[[l, m], i].all():
                by_pair[l, m].append(term(l, m, i))
                by_vector[l, i].append(by_pair[l, m][-1])
        if kind == "pair":
            groups = (by_vector if energy == "positive" else by_pair).values()
            groups = [[t for t in group if t is not None] for group in groups]
            return mean(mean(group) for group in groups if group)
        if kind == "view":
            return mean(lse(group) for group in by_vector.values())
        return mean(lse(t for (_, j), of in by_vector.items() if j == i for t in of) for i in instances)

    aligned = mean_of(alignment, lambda l, m, i: log_k(z[l, i], z[m, i]))
    if energy in ("pair", "positive"):
        return energy_weight * mean_of("pair", lambda l, m, i: log_n(l, i, m)) - aligned
    of_instances = [[log_n(l, i) for l in views if mask[l, i]] for i in instances]
    of_instances = [[t for t in terms if t is not None] for terms in of_instances]
    if energy == "view":
        spread = mean(t for terms in of_instances for t in terms)
    else:
        spread = mean((lse if energy == "instance" else sum)(terms) for terms in of_instances if terms)
    return energy_weight * spread - aligned


@reference(options=[{}, {"negatives": "all"}], coinciding=lambda k, n, d, t: np.log(n))
def mv_infonce(z, mask, temperature=0.5, negatives="cross_view", **options):
    return multi_view_contrast(z, mask, temperature, "instance", "instance", negatives, **options)


@reference(
    options=[{}, {"energy_weight": 0.25}, {"energy_weight": 3.0}],
    coinciding=lambda k, n, d, t: (k - 1) / t + k * np.log(n - 1) - np.log(k * (k - 1)),
)
def mv_dhel(z, mask, temperature=0.5, **options):
    return multi_view_contrast(z, mask, temperature, "instance", "view_sum", "within_view", **options)


@reference(options=[{}], coinciding=lambda k, n, d, t: np.log(n))
def mv_cl1(z, mask, temperature=0.5, **options):
    return multi_view_contrast(z, mask, temperature, "view", "view", "cross_view", **options)


@reference(options=[{}, {"energy": "sum"}], coinciding=lambda k, n, d, t: np.log((n - 1) / (k - 1)))
def mv_cl2(z, mask, temperature=0.5, energy="mean", **options):
    of_views = {"mean": "view", "sum": "view_sum"}[energy]
    return multi_view_contrast(z, mask, temperature, "view", of_views, "within_view", **options)


def _aggregate(likelihood, mask, aggregation):
    """likelihood(i, α, β) -> log ℓ."""
    rho = {"arithmetic": 1, "harmonic": -1, "geometric": 0}.get(aggregation, aggregation)
    terms = []
    for a, i in indices(mask):
        logs = [likelihood(i, a, b) for b in range(len(mask)) if b != a and mask[b, i]]
        if logs and callable(aggregation):
            terms.append(aggregation(logs))
        elif logs:
            terms.append((lse([rho * x for x in logs]) - np.log(len(logs))) / rho if rho else mean(logs))
    return -mean(terms)


@reference(
    options=[
        {},
        {"aggregation": "arithmetic"},
        {"aggregation": "harmonic"},
        {"aggregation": 0.3},
        {"aggregation": -1.7, "negatives_of": "anchor"},
    ],
    coinciding=lambda k, n, d, t: np.log(k * (n - 1) + 1),
)
def poly_view(z, mask, temperature=0.1, aggregation="geometric", negatives_of="other", extra=(), critic=None):
    score = critic or (lambda u, v: u @ v / temperature)

    def likelihood(i, a, b):
        p, others = score(z[a, i], z[b, i]), [z[at] for at in indices(mask) if at[1] != i]
        pairs = [(v, z[b, i]) if negatives_of == "other" else (z[a, i], v) for v in (*others, *extra)]
        return p - lse([p, *itertools.starmap(score, pairs)])

    return _aggregate(likelihood, mask, aggregation)


@reference(
    options=[{}, {"scale": 3.0, "bias": -1.0, "aggregation": "arithmetic"}, {"aggregation": -1.0}],
    coinciding=lambda k, n, d, t: n * np.log(2),
)
def poly_siglip(z, mask, scale=10.0, bias=-10.0, aggregation="geometric"):
    def likelihood(i, a, b):
        others = [j for j in range(z.shape[1]) if j != i and mask[a, j]]
        negatives = (special.log_expit(-(scale * z[a, j] @ z[b, i] + bias)) for j in others)
        return special.log_expit(scale * z[a, i] @ z[b, i] + bias) + sum(negatives)

    return _aggregate(likelihood, mask, aggregation)


def rest_of(z, mask, l, i, rest=np.mean):
    others = z[mask[:, i] & (np.arange(len(z)) != l), i]
    return rest(others, axis=0) if len(others) else None


@reference(options=[{}, {"normalize_rest": False}], coinciding=lambda k, n, d, t: np.log(k * (n - 1) + 1))
def sufficient_statistics(z, mask, temperature=0.1, normalize_rest=True, extra=(), critic=None, rest=np.mean):
    score = critic or (lambda u, v: u @ v / temperature)
    found = {(l, i): rest_of(z, mask, l, i, rest) for l, i in indices(mask)}
    q = {at: unit(r) if normalize_rest else r for at, r in found.items() if r is not None}
    terms = []
    for l, i in q:
        p, others = score(z[l, i], q[l, i]), [q[m, j] for m, j in q if j != i]
        terms.append(lse([p, *(score(z[l, i], v) for v in (*others, *extra))]) - p)
    return mean(terms)


@reference(options=[{}, {"redundancy": 0.3, "eps": 0.1}], coinciding=lambda k, n, d, t: d)
def barlow_twins(z, mask, redundancy=5e-3, eps=1e-5):
    both, d = mask.all(0), z.shape[2]
    if not both.any():
        return float(d)
    x, y = ([(c - c.mean()) / np.sqrt(c.var() + eps) for c in view[both].T] for view in z)
    c = np.array([[np.mean(a * b) for b in y] for a in x])
    off = sum(c[a, b] ** 2 for a, b in itertools.permutations(range(d), 2))
    return np.sum((1 - np.diag(c)) ** 2) + redundancy * off


@reference(
    options=[{}, {"eps": 0.5, "invariance": 2.0}],
    coinciding=lambda k, n, d, t: -0.5 * np.log(1 + d / 0.2) - 200,
)
def emp_ssl(z, mask, eps=0.2, invariance=200.0):
    d = z.shape[2]
    rates, cosines = [], []
    for vectors in (view[here] for view, here in zip(z, mask) if here.any()):
        covariance = np.eye(d) + d / (len(vectors) * eps) * vectors.T @ vectors
        rates.append(np.log(np.linalg.eigvalsh(covariance)).sum() / 2)
    for l, i in indices(mask):
        cosines.append(unit(z[l, i]) @ unit(z[mask[:, i], i].mean(0)))
    return -mean(rates) - invariance * mean(cosines)


SOLVER = {"epsilon": 1.0, "threshold": 1e-13, "max_iterations": 2000}


@reference(
    options=[SOLVER, {"cost": "circular_standard_deviation", "cost_scale": 2.0, **SOLVER}],
    coinciding=lambda k, n, d, t: (k - 1) * np.log(n),
    linear_memory=False,
)
def m3g(z, mask, epsilon=0.2, cost="circular_variance", cost_scale=1.0, **solver):
    """h(J) - h(P) with both h summed over all tuples.

    The instances that lack a view share one point None of that view.
    """
    k = len(z)

    def cost_of(points):
        return cost_scale * COSTS[cost](points, k)

    instances = np.flatnonzero(mask.any(axis=0))
    share, here = 1 / len(instances), mask[:, instances]
    points = [[*view[there], None] for view, there in zip(z[:, instances], here)]
    weights = [share * np.append(np.ones(there.sum()), np.sum(~there)) for there in here]
    c = np.empty([len(p) for p in points])
    for index in np.ndindex(*c.shape):
        c[index] = cost_of([points[l][i] for l, i in enumerate(index) if points[l][i] is not None])
    *_, minimum = tensors.solve(c, weights, epsilon, 1e-13)
    of_truth = np.mean([cost_of([z[l, i] for l in range(k) if mask[l, i]]) for i in instances])
    of_truth += epsilon * (np.log(share) - 1)
    return of_truth - minimum


@reference(
    options=[{"cost_scale": 2.0, **SOLVER}], coinciding=lambda k, n, d, t: np.log(n), linear_memory=False
)
def m3g_pair(z, mask, **options):
    return m3g(z, mask, **options)


def _variance_of_some(points, k):
    """The terms of the circular variance of k views that belong to pairs of the points that are there."""
    pairs = itertools.combinations(points, 2)
    return sum(2 * k / (k - 1) - 2 * x @ y - (x @ x + y @ y) / (k - 1) for x, y in pairs) / k**2


def _deviation_of_some(points, k):
    return -np.log(np.sum(np.mean(points, axis=0) ** 2)) if points else 0.0


COSTS = {"circular_variance": _variance_of_some, "circular_standard_deviation": _deviation_of_some}


@reference(
    options=[
        {"mean_resultant": "exact"},
        {},
        {"normalize_concentration": False},
        {"queue_concentration": "batch_mean", "in_batch_negatives": False},
    ],
    coinciding=lambda k, n, d, t: np.log(n),
    longest=1.0,
)
def dsf(
    z,
    mask,
    temperature=1.0,
    mean_resultant="estimate",
    normalize_concentration=True,
    queue_concentration="own",
    in_batch_negatives=True,
    extra=(),
    divergence="forward",
):
    d = z.shape[2]
    fitted = queries, keys = fits(z, mask, normalize_concentration)
    mean_kappa = mean(kappa for fits in fitted for _, _, kappa in fits.values())
    mean_r = mean(r for fits in fitted for _, r, _ in fits.values())
    queue = [fit(e, normalize_concentration) for e in extra]
    terms = []
    for i, (mu, r, kappa) in queries.items():
        if i not in keys:
            continue

        def similarity(nu, other, lam):
            a, b = (
                special.ive(d / 2, c) / special.ive(d / 2 - 1, c) if mean_resultant == "exact" else own
                for c, own in ((kappa, r), (lam, other))  # noqa: B023
            )
            there, back = kl(mu, kappa, a, nu, lam), kl(nu, lam, b, mu, kappa)  # noqa: B023
            d_ij = {"forward": there, "reverse": back, "symmetric": (there + back) / 2}[divergence]
            return -d_ij / temperature

        logits = {j: similarity(*key) for j, key in keys.items()}
        others = [v for j, v in logits.items() if j != i] if in_batch_negatives else []
        for nu, other, own in queue:
            same = queue_concentration == "own"
            others.append(similarity(nu, other if same else mean_r, own if same else mean_kappa))
        terms.append(lse([logits[i], *others]) - logits[i])
    return mean(terms)


def fit(mean_vector, normalize_concentration=True):
    """μ, R and κ of a group's mean."""
    d, r = len(mean_vector), 0.95 * np.linalg.norm(mean_vector)
    kappa = r * (d - r**2) / (1 - r**2)
    return unit(mean_vector), r, kappa / d if normalize_concentration else kappa


def fits(z, mask, normalize_concentration=True):
    """By instance, of the queries and of the keys."""
    half, found = len(z) // 2, ({}, {})
    for group, side in enumerate((slice(half), slice(half, None))):
        for i in np.flatnonzero(mask[side].any(0)):
            found[group][i] = fit(z[side, i][mask[side, i]].mean(0), normalize_concentration)
    return found


def kl(mu_i, kappa_i, a_i, mu_j, kappa_j):
    """KL(i || j) of two von Mises-Fisher distributions as printed."""
    order = len(mu_i) / 2 - 1

    def log_bessel(kappa):
        return np.log(special.ive(order, kappa)) + kappa

    return (
        order * np.log(kappa_i / kappa_j)
        + log_bessel(kappa_j)
        - log_bessel(kappa_i)
        + a_i * (kappa_i - kappa_j * (mu_i @ mu_j))
    )


# ------------------------------------------------------------------ joint contrast of k modalities


def smoothed(rows, keep_rows, keep_columns, smoothing):
    """Mean over the rows with an own column of the cross-entropy with smoothed labels."""
    columns = [j for j in range(len(keep_columns)) if keep_columns[j]]
    return mean(
        lse(rows(i, j) for j in columns)
        - (1 - smoothing) * rows(i, i)
        - smoothing * mean(rows(i, j) for j in columns)
        for i in range(len(keep_rows))
        if keep_rows[i] and keep_columns[i]
    )


def both_ways(logit, rows, columns, smoothing):
    backward = smoothed(lambda j, i: logit(i, j), columns, rows, smoothing)
    return (smoothed(logit, rows, columns, smoothing) + backward) / 2


@reference(
    # Tests draw four views in three dimensions, where every volume is zero: a rounding error of 1e-16 under the root
    # counts beside 1e-8. The default eps has a test of its own.
    options=[{"eps": 1e-3}, {"anchor": 1, "label_smoothing": 0.1, "eps": 1e-2}],
    coinciding=lambda k, n, d, t: np.log(n),
)
def gram(z, mask, temperature=0.07, anchor=0, label_smoothing=0.0, eps=1e-8):
    others = [l for l in range(len(z)) if l != anchor]

    def logit(i, j):
        stack = np.array([z[anchor, i]] + [z[l, j] for l in others if mask[l, j]])
        return -np.sqrt(max(np.linalg.det(stack @ stack.T), 0) + eps) / temperature

    sides = mask[anchor], mask[others].any(0)
    return both_ways(logit, *sides, label_smoothing)


@reference(
    options=[{}, {"squared": True}, {"label_smoothing": 0.3, "eps": 1e-3}],
    coinciding=lambda k, n, d, t: np.log(n),
)
def triangle(z, mask, temperature=0.07, squared=False, eps=1e-8, label_smoothing=0.0):
    def logit(i, j):
        u, v = z[0, i] - z[1, j], z[0, i] - z[2, j]
        determinant = (u @ u) * (v @ v) - (u @ v) ** 2
        area = determinant / 2 if squared else np.sqrt(max(determinant, 0) + eps) / 2
        return -area / temperature

    sides = mask[0], mask[1] & mask[2]
    return both_ways(logit, *sides, label_smoothing)


@reference(options=[{}, {"negatives": "shuffled"}], coinciding=lambda k, n, d, t: (k - 1) * np.log(n))
def symile(z, mask, temperature=1.0, negatives="all", key=None):
    k, n, _ = z.shape
    # of view m for anchor view l, as the objective says it draws them
    keys = {at: functools.reduce(jax.random.fold_in, at, key) for at in np.ndindex(k, k)}
    drawn = {at: np.asarray(jax.random.permutation(one, n)) for at, one in keys.items()}
    anchors = [i for i in range(n) if mask[:, i].all()]
    terms = []
    for l, i in itertools.product(range(k), anchors):
        others = [m for m in range(k) if m != l]
        if negatives == "all":
            tuples = list(itertools.product(range(n), repeat=k - 1))
        else:
            tuples = [[drawn[l, m][j] for m in others] for j in range(n) if j != i] + [[i] * (k - 1)]
        products = [
            np.prod([z[l, i]] + [z[m, j] for m, j in zip(others, js)], axis=0).sum() / temperature
            for js in tuples
            if all(mask[m, j] for m, j in zip(others, js))
        ]
        terms.append(lse(products) - np.prod(z[:, i], axis=0).sum() / temperature)
    return mean(terms)


@reference(
    options=[{}, {"instance_temperature": 0.5, "weight": 0.3}],
    coinciding=lambda k, n, d, t: np.log1p((min(d, k) - 1) * np.exp(-np.sqrt(k) / t)) + np.log(n),
)
def pmrl(z, mask, temperature=0.05, instance_temperature=0.1, weight=1.0):
    within, leading = [], {}
    for i in range(z.shape[1]):
        here = z[mask[:, i], i]
        if len(here):
            left, values, _ = np.linalg.svd(here.T, full_matrices=False)
            along = left[:, 0] @ np.sum(here, axis=0)
            decides = along if abs(along) > 1e-12 else left[:, 0] @ here[0]
            leading[i] = left[:, 0] * (1 if decides >= 0 else -1)
        if len(here) > 1:
            within.append(lse(s / temperature for s in values) - values[0] / temperature)
    return mean(within) + weight * mean(
        lse(u @ v / instance_temperature for v in leading.values()) - u @ u / instance_temperature
        for u in leading.values()
    )


@reference_of_pairs
def all_pairs(pair_loss, z, mask, pairs="unordered", weights=None, reduction="mean"):
    k = len(z)
    chosen = {
        "unordered": itertools.combinations(range(k), 2),
        "ordered": itertools.permutations(range(k), 2),
        "all": itertools.product(range(k), repeat=2),
    }[pairs]
    w, terms = np.ones((k, k)) if weights is None else weights, []
    for l, m in chosen:
        if (mask[l] & mask[m]).any():
            of_pair = functools.partial(pair_loss, z[[l, m]], mask[[l, m]])
            terms.append(of_pair(weight=w[l, m]) if np.ndim(w) == 3 else w[l, m] * of_pair())
    return mean(terms) if reduction == "mean" else sum(terms)


@reference_of_pairs
def one_vs_rest(pair_loss, z, mask, normalize_rest=False):
    losses = []
    for l, (view, here) in enumerate(zip(z, mask)):
        found = [rest_of(z, mask, l, i) for i in range(z.shape[1])]
        there = np.array([r is not None for r in found])
        rest = np.stack([0 * view[0] if r is None else r for r in found])
        if (there & here).any():
            rest = unit(rest) if normalize_rest else rest
            losses.append(pair_loss(np.stack([view, rest]), np.stack([here, there])))
    return mean(losses)


@reference_of_pairs
def cross_pairs(pair_loss, z, mask):
    half = len(z) // 2
    chosen = [(a, b) for a in range(half) for b in range(half, len(z)) if (mask[a] & mask[b]).any()]
    return mean(pair_loss(z[[a, b]], mask[[a, b]]) for a, b in chosen)


@reference_of_pairs
def mean_pair(pair_loss, z, mask, renormalize=True):
    sides = mask.reshape(2, -1, *mask.shape[1:])
    sums = np.where(mask[:, :, None], z, 0).reshape(2, -1, *z.shape[1:]).sum(1)
    means = sums / np.maximum(sides.sum(1), 1)[:, :, None]
    return pair_loss(unit(means) if renormalize else means, sides.any(1))


@reference(
    options=[{}, {"invariance": 1.0, "variance": 3.0, "covariance": 0.5, "eps": 0.1}],
    coinciding=lambda k, n, d, t: 25 * (1 - 0.01),
)
def vicreg(z, mask, invariance=25.0, variance=25.0, covariance=1.0, eps=1e-4):
    d, both = z.shape[2], mask.all(0)
    value = invariance * mean((z[0, i, a] - z[1, i, a]) ** 2 for i in np.flatnonzero(both) for a in range(d))
    for view, here in zip(z, mask):
        if here.sum() < 2:
            continue
        cov = np.cov(view[here], rowvar=False).reshape(d, d)
        hinges = [max(0, 1 - np.sqrt(cov[a, a] + eps)) for a in range(d)]
        squares = sum(cov[a, b] ** 2 for a in range(d) for b in range(d) if a != b)
        value += variance * mean(hinges) / 2 + covariance * squares / d
    return value


@reference(options=[{}, {"compression": 0.3}], coinciding=lambda k, n, d, t: -np.sqrt(n))
def mmcr(z, mask, compression=0.0):
    def nuclear(rows):
        return np.linalg.svd(np.array(rows), compute_uv=False).sum()

    views = [z[here, i] for i, here in enumerate(mask.T) if here.any()]
    if not views:
        return 0.0
    return -nuclear([np.mean(v, axis=0) for v in views]) + compression * mean(nuclear(v) for v in views)


@reference(options=[{}, {"invariance": 0.3}], coinciding=lambda k, n, d, t: 0.0)
def frossl(z, mask, invariance=1.0):
    k, _, d = z.shape
    columns = [[u / np.sqrt(sum(u**2)) for u in view.T] for view in z]
    centre = np.mean(columns, axis=0)
    value = 0.0
    for view in columns:
        norm = sum((u @ v / d) ** 2 for u in view for v in view)
        value += np.log(norm) + invariance * k * d * mean(np.mean((u - c) ** 2) for u, c in zip(view, centre))
    return value


def random_directions(key, slices, d):
    """The same numbers as the objective's, the only thing that the loops share with it."""
    return unit(np.asarray(jax.random.normal(key, (slices, d), "float32"), np.float64))


def squared_distances(z, mask, global_views):
    whole = mask[:global_views]
    centres = {i: z[: len(whole)][here, i].mean(0) for i, here in enumerate(whole.T) if here.any()}
    return mean(np.mean((z[l, i] - centres[i]) ** 2) for l, i in indices(mask) if i in centres)


@reference(
    options=[{"slices": 4}, {"slices": 3, "knots": 6, "t_max": 5.0, "weight": 0.4, "global_views": 2}],
    coinciding=None,
)
def lejepa(z, mask, weight=0.05, slices=1024, knots=17, t_max=3.0, *, key, global_views=None):
    step = t_max / (knots - 1)

    def statistic(p):
        value = 0.0
        for m in range(knots):
            t = m * step
            normal = np.exp(-t * t / 2)
            w = step if m in (0, knots - 1) else 2 * step
            value += w * normal * ((np.cos(t * p).mean() - normal) ** 2 + np.sin(t * p).mean() ** 2)
        return len(p) * value

    u = random_directions(key, slices, z.shape[2])
    views = [view[here] for view, here in zip(z, mask) if here.any()]
    sigreg = mean(mean(statistic(view @ a) for a in u) for view in views)
    return (1 - weight) * squared_distances(z, mask, global_views) + weight * sigreg


SCALES = {"scale": 2.0, "shape": 3.0, "center": 5.0}


@reference(
    options=[{"slices": 5}, {"slices": 3, "weight": 0.3, **SCALES, "eps": 0.1, "global_views": 1}],
    coinciding=None,
    derivative=False,
)
def visreg(
    z,
    mask,
    weight=0.9,
    slices=4096,
    scale=1.0,
    shape=1.0,
    center=1.0,
    eps=1e-4,
    *,
    key,
    global_views=None,
    deviations=None,
):
    """`deviations`, (k, d), stand in the place of the deviations that the gradient holds constant."""
    u = random_directions(key, slices, z.shape[2])
    terms = []
    for l, (view, here) in enumerate(zip(z, mask)):
        if not here.any():
            continue
        x = view[here]
        spread = x.std(0)
        constant = spread if deviations is None else deviations[l]
        quantiles = special.ndtri([r / (len(x) + 1) for r in range(1, len(x) + 1)])
        p = (x - x.mean(0)) / (constant + eps)
        shapes = [np.mean((np.sort(p @ a) - quantiles) ** 2) for a in u]
        of_view = scale * np.mean((1 - spread) ** 2) + center * np.mean(x.mean(0) ** 2)
        terms.append(of_view + shape * mean(shapes))
    return (1 - weight) * squared_distances(z, mask, global_views) + weight * mean(terms)
