"""Every objective as loops in float64, written from the formulas; no code shared with mvcl.

All take unit vectors, `z[l][i]`, and a (k, n) mask; a vector that is not there is never touched. Extra
negatives `extra` join wherever the formula sums over other instances.
"""

import numpy as np


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


def full(z):
    return np.ones(z.shape[:2], bool)


def indices(mask):
    """All (view, instance) that are there."""
    return [(l, i) for l in range(mask.shape[0]) for i in range(mask.shape[1]) if mask[l, i]]


def info_nce(z, mask, temperature=0.1, symmetric=False, extra=()):
    def one_way(a, b):
        n = z.shape[1]
        return mean(
            lse(
                [z[a, i] @ z[b, j] / temperature for j in range(n) if mask[b, j]]
                + [z[a, i] @ e / temperature for e in extra]
            )
            - z[a, i] @ z[b, i] / temperature
            for i in range(n)
            if mask[a, i] and mask[b, i]
        )

    return (one_way(0, 1) + one_way(1, 0)) / 2 if symmetric else one_way(0, 1)


def _anchors(z, mask, temperature, extra):
    """(positive similarity, [similarities of all negatives]) by anchor that has a partner."""
    for l, i in indices(mask):
        if mask[1 - l, i]:
            others = [z[l, i] @ z[m, j] / temperature for m, j in indices(mask) if j != i]
            yield z[l, i] @ z[1 - l, i] / temperature, others + [z[l, i] @ e / temperature for e in extra]


def nt_xent(z, mask, temperature=0.5, extra=()):
    return mean(lse([p, *others]) - p for p, others in _anchors(z, mask, temperature, extra))


def dcl(z, mask, temperature=0.1, extra=()):
    return mean(lse(others) - p for p, others in _anchors(z, mask, temperature, extra) if others)


def rince(z, mask, temperature=0.5, q=0.5, lam=0.001, extra=()):
    return mean(
        -np.exp(q * p) / q + (lam * (np.exp(p) + sum(np.exp(o) for o in others))) ** q / q
        for p, others in _anchors(z, mask, temperature, extra)
    )


def _spread(z, mask, l, i, temperature, extra):
    """LSE over the other instances of the same view; None where nothing is there."""
    n = z.shape[1]
    return lse(
        [z[l, i] @ z[l, j] / temperature for j in range(n) if j != i and mask[l, j]]
        + [z[l, i] @ e / temperature for e in extra]
    )


def _sum_of_views(values):
    values = [v for v in values if v is not None]
    return sum(values) if values else None


def dhel(z, mask, temperature=0.3, symmetric=True, extra=()):
    n = z.shape[1]
    views = (0, 1) if symmetric else (0,)
    energy = mean(
        _sum_of_views(_spread(z, mask, l, i, temperature, extra) for l in views if mask[l, i])
        for i in range(n)
    )
    return energy - mean(z[0, i] @ z[1, i] / temperature for i in range(n) if mask[:, i].all())


def byol(z, mask):
    return 2 - 2 * mean(z[0, i] @ z[1, i] for i in range(z.shape[1]) if mask[:, i].all())


def _log_sigmoid(a):
    return -np.logaddexp(0, -a)


def siglip(z, mask, scale=10.0, bias=-10.0, extra=()):
    n = z.shape[1]
    positive = mean(-_log_sigmoid(scale * z[0, i] @ z[1, i] + bias) for i in range(n) if mask[:, i].all())
    negative = mean(
        -sum(_log_sigmoid(-(scale * z[0, i] @ z[1, j] + bias)) for j in range(n) if j != i and mask[1, j])
        - sum(_log_sigmoid(-(scale * z[0, i] @ e + bias)) for e in extra)
        for i in range(n)
        if mask[0, i]
    )
    return positive + negative


def spectral(z, mask, radius=None, extra=()):
    if radius is not None:
        length = np.linalg.norm(z, axis=-1, keepdims=True)
        z = np.where(length > np.sqrt(radius), z * np.sqrt(radius) / np.where(length > 0, length, 1), z)
    n = z.shape[1]
    squares = [
        (z[0, i] @ z[1, j]) ** 2 for i in range(n) for j in range(n) if i != j and mask[0, i] and mask[1, j]
    ]
    squares += [(z[0, i] @ e) ** 2 for i in range(n) for e in extra if mask[0, i]]
    return mean(squares) - 2 * mean(z[0, i] @ z[1, i] for i in range(n) if mask[:, i].all())


def mv_infonce(z, mask, temperature=0.5, negatives="cross_view", extra=()):
    k, n, _ = z.shape
    alignment, energy = [], []
    for i in range(n):
        here = [l for l in range(k) if mask[l, i]]
        alignment.append(lse(z[l, i] @ z[m, i] / temperature for l in here for m in here if l != m))
        energy.append(
            lse(
                [
                    z[l, i] @ z[m, j] / temperature
                    for l in here
                    for m, j in indices(mask)
                    if (m != l if negatives == "cross_view" else (m, j) != (l, i))
                ]
                + [z[l, i] @ e / temperature for l in here for e in extra]
            )
        )
    return mean(energy) - mean(alignment)


def mv_dhel(z, mask, temperature=0.5, extra=()):
    k, n, _ = z.shape
    alignment, energy = [], []
    for i in range(n):
        here = [l for l in range(k) if mask[l, i]]
        alignment.append(lse(z[l, i] @ z[m, i] / temperature for l in here for m in here if l != m))
        energy.append(_sum_of_views(_spread(z, mask, l, i, temperature, extra) for l in here))
    return mean(energy) - mean(alignment)


def _align_one(z, mask, l, i, temperature):
    return lse(z[l, i] @ z[m, i] / temperature for m in range(len(z)) if m != l and mask[m, i])


def mv_cl1(z, mask, temperature=0.5, extra=()):
    energy = mean(
        lse(
            [z[l, i] @ z[m, j] / temperature for m, j in indices(mask) if m != l]
            + [z[l, i] @ e / temperature for e in extra]
        )
        for l, i in indices(mask)
    )
    return energy - mean(_align_one(z, mask, l, i, temperature) for l, i in indices(mask))


def mv_cl2(z, mask, temperature=0.5, energy="mean", extra=()):
    alignment = mean(_align_one(z, mask, l, i, temperature) for l, i in indices(mask))
    if energy == "mean":
        return mean(_spread(z, mask, l, i, temperature, extra) for l, i in indices(mask)) - alignment
    k, n, _ = z.shape
    return (
        mean(
            _sum_of_views(_spread(z, mask, l, i, temperature, extra) for l in range(k) if mask[l, i])
            for i in range(n)
        )
        - alignment
    )


def _aggregate(likelihood, mask, aggregation):
    """likelihood(i, α, β) -> log ℓ."""
    terms = []
    for a, i in indices(mask):
        logs = [likelihood(i, a, b) for b in range(len(mask)) if b != a and mask[b, i]]
        if logs:
            terms.append(mean(logs) if aggregation == "geometric" else lse(logs) - np.log(len(logs)))
    return -mean(terms)


def poly_view(z, mask, temperature=0.1, aggregation="geometric", extra=()):
    def likelihood(i, a, b):
        p = z[a, i] @ z[b, i] / temperature
        others = [z[g, j] @ z[b, i] / temperature for g, j in indices(mask) if j != i]
        return p - lse([p, *others] + [e @ z[b, i] / temperature for e in extra])

    return _aggregate(likelihood, mask, aggregation)


def poly_siglip(z, mask, scale=10.0, bias=-10.0, aggregation="geometric"):
    def likelihood(i, a, b):
        others = [j for j in range(z.shape[1]) if j != i and mask[a, j]]
        return _log_sigmoid(scale * z[a, i] @ z[b, i] + bias) + sum(
            _log_sigmoid(-(scale * z[a, j] @ z[b, i] + bias)) for j in others
        )

    return _aggregate(likelihood, mask, aggregation)


def rest_of(z, mask, l, i):
    others = [z[m, i] for m in range(len(z)) if m != l and mask[m, i]]
    return sum(others) / len(others) if others else None


def sufficient_statistics(z, mask, temperature=0.1, normalize_rest=True, extra=()):
    q = {}
    for l, i in indices(mask):
        r = rest_of(z, mask, l, i)
        if r is not None:
            q[l, i] = r / np.linalg.norm(r) if normalize_rest else r
    terms = []
    for l, i in q:
        p = z[l, i] @ q[l, i] / temperature
        others = [z[l, i] @ q[m, j] / temperature for m, j in q if j != i]
        terms.append(lse([p, *others] + [z[l, i] @ e / temperature for e in extra]) - p)
    return mean(terms)


def all_pairs(pair_loss, z, mask, pairs="unordered", weights=None, reduction="mean"):
    k = len(z)
    chosen = {
        "unordered": [(l, m) for l in range(k) for m in range(l + 1, k)],
        "ordered": [(l, m) for l in range(k) for m in range(k) if l != m],
        "all": [(l, m) for l in range(k) for m in range(k)],
    }[pairs]
    chosen = [(l, m) for l, m in chosen if (mask[l] & mask[m]).any()]
    w = np.ones((k, k)) if weights is None else weights
    total = sum(w[l, m] * pair_loss(z[[l, m]], mask[[l, m]]) for l, m in chosen)
    return total / len(chosen) if reduction == "mean" else total


def one_vs_rest(pair_loss, z, mask, normalize_rest=False):
    k, n, d = z.shape
    losses = []
    for l in range(k):
        rest = np.zeros((n, d))
        there = np.zeros(n, bool)
        for i in range(n):
            r = rest_of(z, mask, l, i)
            if r is not None:
                rest[i], there[i] = (r / np.linalg.norm(r) if normalize_rest else r), True
        if (there & mask[l]).any():
            losses.append(pair_loss(np.stack([z[l], rest]), np.stack([mask[l], there])))
    return mean(losses)
