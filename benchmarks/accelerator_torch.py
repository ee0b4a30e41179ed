"""The PyTorch side of `benchmarks.accelerator`, which starts it: every loss as dense PyTorch, timed on request.

Needs torch and numpy, and nothing of mvcl. The losses are the formulas of the papers with the default options of
`mvcl.losses`, written as released code writes them: whole matrices of similarities, `logsumexp` or `cross_entropy`.
With --released, losses whose released repository is in that folder are that code in their place, by
benchmarks/released_torch.py. Nothing is compiled.

The first line on stdout has the version of torch, or what is missing. A request is a line of JSON on stdin, `{"loss":
NAME, "input": FILE.npy, "calls": C, "gradient": FILE.npy or null}`, the input float32 of shape (k, n, d). The answer is
a line with the value, the mean seconds of C values and gradients, and the MiB that they took on a GPU; the gradient is
saved if a file is named.
"""

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import released_torch
import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor], Tensor]
SLICES = {"lejepa": 1024, "visreg": 4096}


def unit(z: Tensor) -> Tensor:
    return F.normalize(z, dim=-1)


def own(logits: Tensor) -> Tensor:
    """Cross-entropy of rows whose label is their number."""
    return F.cross_entropy(logits, torch.arange(len(logits)))


def without(s: Tensor, where: Tensor) -> Tensor:
    return s.masked_fill(where, -math.inf)


def same(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.bool)


def all_of(z: Tensor) -> Tensor:
    """(kn, d), view after view."""
    return z.reshape(-1, z.shape[-1])


def views_of(z: Tensor) -> Tensor:
    """(kn, kn): whether two of `all_of` are of the same view."""
    k, n, _ = z.shape
    view = torch.arange(k).repeat_interleave(n)
    return view[:, None] == view[None]


def instances_of(z: Tensor) -> Tensor:
    """(kn, kn): whether two of `all_of` are of the same instance."""
    instance = torch.arange(z.shape[1]).repeat(z.shape[0])
    return instance[:, None] == instance[None]


def anchors(x: Tensor, y: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Logits of both views' vectors, (2n, 2n) without the vectors themselves, and the place of each partner."""
    n, a = len(x), torch.cat([x, y])
    return without(a @ a.T / temperature, same(2 * n)), torch.arange(2 * n).roll(n)


def nt_xent(x: Tensor, y: Tensor, temperature: float = 0.5) -> Tensor:
    return F.cross_entropy(*anchors(x, y, temperature))


def of_partners(z: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Logits as `anchors`, and those of the partners, (2n,)."""
    logits, partner = anchors(*unit(z), temperature)
    return logits, logits[torch.arange(len(partner)), partner]


def dcl(z: Tensor) -> Tensor:
    logits, positive = of_partners(z, 0.1)
    return (without(logits, instances_of(z)).logsumexp(1) - positive).mean()


def rince(z: Tensor, q: float = 0.5, lam: float = 0.001) -> Tensor:
    logits, positive = of_partners(z, 0.5)
    return (-(q * positive).exp() / q + (lam * logits.exp().sum(1)) ** q / q).mean()


def info_nce(z: Tensor) -> Tensor:
    x, y = unit(z)
    return own(x @ y.T / 0.1)


def all_pairs(z: Tensor) -> Tensor:
    z = unit(z)
    return torch.stack([nt_xent(x, y) for x, y in itertools.combinations(z, 2)]).mean()


def cross_pairs(z: Tensor) -> Tensor:
    queries, keys = unit(z).chunk(2)
    return torch.stack([nt_xent(q, k) for q in queries for k in keys]).mean()


def mean_pair(z: Tensor) -> Tensor:
    queries, keys = unit(z).chunk(2)
    return nt_xent(unit(queries.mean(0)), unit(keys.mean(0)))


def one_vs_rest(z: Tensor) -> Tensor:
    z = unit(z)
    total = z.sum(0)
    return torch.stack([nt_xent(view, (total - view) / (len(z) - 1)) for view in z]).mean()


def energies(z: Tensor, temperature: float) -> Tensor:
    """(k, n): the log-sum-exp over the other instances of the same view."""
    s = z @ z.transpose(1, 2) / temperature
    return without(s, same(z.shape[1])[None]).logsumexp(2)


def alignments(z: Tensor, temperature: float) -> Tensor:
    """(k, n, k): similarities of an instance's views, -inf for a view with itself."""
    s = torch.einsum("lid,mid->lim", z, z) / temperature
    return without(s, same(len(z))[:, None])


def across_views(z: Tensor, temperature: float) -> Tensor:
    """(k, n, kn): similarities with all vectors of other views."""
    a = all_of(z)
    return without(a @ a.T / temperature, views_of(z)).reshape(*z.shape[:2], -1)


def dhel(z: Tensor) -> Tensor:
    z = unit(z)
    return (energies(z, 0.3).sum(0) - (z[0] * z[1]).sum(1) / 0.3).mean()


def mv_dhel(z: Tensor) -> Tensor:
    z = unit(z)
    return (energies(z, 0.5).sum(0) - alignments(z, 0.5).logsumexp((0, 2))).mean()


def mv_infonce(z: Tensor) -> Tensor:
    z = unit(z)
    return (across_views(z, 0.5).logsumexp((0, 2)) - alignments(z, 0.5).logsumexp((0, 2))).mean()


def mv_cl1(z: Tensor) -> Tensor:
    z = unit(z)
    return (across_views(z, 0.5).logsumexp(2) - alignments(z, 0.5).logsumexp(2)).mean()


def mv_cl2(z: Tensor) -> Tensor:
    z = unit(z)
    return (energies(z, 0.5) - alignments(z, 0.5).logsumexp(2)).mean()


def poly_view(z: Tensor) -> Tensor:
    z = unit(z)
    k, n, _ = z.shape
    a = all_of(z)
    negative = without(a @ a.T / 0.1, instances_of(z)).logsumexp(1).reshape(k, n)
    positive = torch.einsum("lid,mid->lmi", z, z) / 0.1
    likelihood = positive - torch.logaddexp(positive, negative[None])
    return -likelihood.masked_fill(same(k)[:, :, None], 0).sum() / (k * (k - 1) * n)


def sufficient_statistics(z: Tensor) -> Tensor:
    z = unit(z)
    q = unit((z.sum(0) - z) / (len(z) - 1))
    logits = all_of(z) @ all_of(q).T / 0.1
    positive = (z * q).sum(-1).flatten() / 0.1
    negative = without(logits, instances_of(z)).logsumexp(1)
    return (torch.logaddexp(positive, negative) - positive).mean()


def siglip(z: Tensor) -> Tensor:
    x, y = unit(z)
    logits = 10 * x @ y.T - 10
    return -F.logsigmoid(logits * (2 * same(len(x)) - 1)).sum() / len(x)


def poly_siglip(z: Tensor) -> Tensor:
    return torch.stack([siglip(torch.stack(pair)) for pair in itertools.combinations(z, 2)]).mean()


def spectral(z: Tensor) -> Tensor:
    x, y = unit(z)
    s, n = x @ y.T, len(x)
    return -2 * s.diagonal().mean() + s.masked_fill(same(n), 0).square().sum() / (n * (n - 1))


def byol(z: Tensor) -> Tensor:
    x, y = unit(z)
    return 2 - 2 * (x * y).sum(1).mean()


def log_series(order: float, x: Tensor, terms: int = 24) -> Tensor:
    """The logarithm of the power series of the Bessel function I of this order, over its first term."""
    total, term = torch.ones_like(x), torch.ones_like(x)
    for m in range(1, terms):
        term = term * (x / 2) ** 2 / (m * (order + m))
        total = total + term
    return total.log()


def dsf(z: Tensor) -> Tensor:
    d = z.shape[2]
    means = torch.stack([group.mean(0) for group in unit(z).chunk(2)])
    resultant = 0.95 * means.norm(dim=-1, keepdim=True)
    kappa = resultant * (d - resultant**2) / (1 - resultant**2) / d
    direction = unit(means)
    logits = (resultant[0] * direction[0]) @ (kappa[1] * direction[1]).T
    return own(logits - log_series(d / 2 - 1, kappa[1]).T)


def volumes(z: Tensor) -> Tensor:
    """(n, n): det of the Gram matrix of view 0 of i and the other views of j."""
    k, n, _ = z.shape
    entries = [[torch.ones(n, n)] * k for _ in range(k)]
    for l in range(k):
        for m in range(l):
            inner = z[m] @ z[l].T if m == 0 else (z[l] * z[m]).sum(1).expand(n, n)
            entries[l][m] = entries[m][l] = inner
    return torch.linalg.det(torch.stack([torch.stack(row, -1) for row in entries], -2))


def both_ways(measure: Tensor) -> Tensor:
    return (own(-measure / 0.07) + own(-measure.T / 0.07)) / 2


def gram(z: Tensor) -> Tensor:
    return both_ways((volumes(unit(z)).clamp(min=0) + 1e-8).sqrt())


def triangle(z: Tensor) -> Tensor:
    a, b, c = unit(z)
    ab, ac, bc = a @ b.T, a @ c.T, (b * c).sum(1)
    determinant = (2 - 2 * ab) * (2 - 2 * ac) - (1 - ab - ac + bc) ** 2
    return both_ways((determinant.clamp(min=0) + 1e-8).sqrt() / 2)


def symile(z: Tensor) -> Tensor:
    z = unit(z)
    n = z.shape[1]
    logits = torch.einsum("id,jd,md->ijm", *z)
    return sum(own_of(logits.movedim(view, 0).reshape(n, -1), n) for view in range(3)) / 3


def own_of(logits: Tensor, n: int) -> Tensor:
    """Cross-entropy of (n, n²) logits, the label of row i the place of (i, i)."""
    return F.cross_entropy(logits, torch.arange(n) * (n + 1))


def pmrl(z: Tensor) -> Tensor:
    z = unit(z)
    left, values, _ = torch.linalg.svd(z.permute(1, 2, 0), full_matrices=False)
    sign = (left[:, :, 0] * z.sum(0)).sum(1).sign().detach()
    u = left[:, :, 0] * sign[:, None]
    first = torch.zeros(len(values), dtype=torch.long)
    return F.cross_entropy(values / 0.05, first) + own(u @ u.T / 0.1)


def vicreg(z: Tensor) -> Tensor:
    _, n, d = z.shape
    centred = z - z.mean(1, keepdim=True)
    covariance = centred.transpose(1, 2) @ centred / (n - 1)
    deviation = (covariance.diagonal(dim1=1, dim2=2) + 1e-4).sqrt()
    off = covariance.masked_fill(same(d)[None], 0).square().sum() / d
    return 25 * (z[0] - z[1]).square().mean() + 25 * F.relu(1 - deviation).sum() / (2 * d) + off


def barlow_twins(z: Tensor) -> Tensor:
    n, d = z.shape[1:]
    centred = z - z.mean(1, keepdim=True)
    features = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
    c, on = features[0].T @ features[1] / n, same(d)
    return ((1 - c.diagonal()) ** 2).sum() + 5e-3 * c.masked_fill(on, 0).square().sum()


def mmcr(z: Tensor) -> Tensor:
    return -torch.linalg.svdvals(unit(z).mean(0)).sum()


def frossl(z: Tensor) -> Tensor:
    k, _, d = z.shape
    z = F.normalize(z, dim=1)
    moments = z.transpose(1, 2) @ z / d
    distance = (z - z.mean(0)).square().mean((1, 2))
    return (moments.square().sum((1, 2)).log() + k * d * distance).sum()


def emp_ssl(z: Tensor) -> Tensor:
    z = unit(z)
    _, n, d = z.shape
    rates = torch.logdet(torch.eye(d) + d / (n * 0.2) * z.transpose(1, 2) @ z) / 2
    return -rates.mean() - 200 * F.cosine_similarity(z, z.mean(0)[None], dim=-1).mean()


def directions(z: Tensor, name: str) -> Tensor:
    return unit(torch.randn(SLICES[name], z.shape[2]))


def lejepa(z: Tensor) -> Tensor:
    t = torch.linspace(0, 3, 17)
    normal = (-t * t / 2).exp()
    weight = torch.full((17,), 2 * 3 / 16)
    weight[[0, -1]] = 3 / 16
    waves = (z @ directions(z, "lejepa").T)[..., None] * t  # (k, n, slices, 17)
    apart = (waves.cos().mean(1) - normal).square() + waves.sin().mean(1).square()
    statistic = z.shape[1] * (apart * normal * weight).sum(-1).mean()
    return 0.95 * (z - z.mean(0)).square().mean() + 0.05 * statistic


def visreg(z: Tensor) -> Tensor:
    n, mean = z.shape[1], z.mean(1, keepdim=True)
    deviation = (z - mean).square().mean(1, keepdim=True).sqrt()
    features = (z - mean) / (deviation.detach() + 1e-4)
    ordered = (features @ directions(z, "visreg").T).sort(1).values
    quantiles = torch.special.ndtri(torch.arange(1, n + 1) / (n + 1))
    pull = (z - z.mean(0)).square().mean()
    shape = (ordered - quantiles[:, None]).square().mean()
    return 0.1 * pull + 0.9 * ((1 - deviation).square().mean() + shape + mean.square().mean())


FORMULAS: dict[str, Loss] = {
    loss.__name__: loss
    for loss in (
        *(barlow_twins, byol, dcl, dhel, dsf, emp_ssl, frossl, gram, all_pairs, cross_pairs, mean_pair),
        *(one_vs_rest, info_nce, lejepa, mmcr, mv_cl1, mv_cl2, mv_dhel, mv_infonce, pmrl, poly_siglip),
        *(poly_view, rince, siglip, spectral, sufficient_statistics, symile, triangle, vicreg, visreg),
    )
} | {"nt_xent": lambda z: nt_xent(*unit(z))}


def made(name: str, released: Path | None, shape: tuple[int, int, int]) -> tuple[Loss, str]:
    """A loss and where it is from."""
    code = {"symile": "symile_all"}.get(name, name)
    if released is not None and code in released_torch.LOSSES:
        try:
            return released_torch.LOSSES[code](released, shape), "released code"
        except (FileNotFoundError, ImportError):
            pass  # that repository is not in the folder
    return FORMULAS[name], "formula"


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def gradients(loss: Loss, z: Tensor, calls: int, device: str) -> dict[str, Any]:
    """Value, gradient, mean seconds, and on a GPU the peak of memory in MiB, of so many values and gradients."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    finish(device)
    start = time.perf_counter()
    for _ in range(calls):
        x = z.detach().requires_grad_()
        value = loss(x)
        (gradient,) = torch.autograd.grad(value, x)
    finish(device)
    seconds = (time.perf_counter() - start) / calls
    mib = (torch.cuda.max_memory_allocated() - before) / 2**20 if device == "cuda" else None
    return {"value": value.item(), "gradient": gradient, "seconds": seconds, "mib": mib}


def serve(released: Path | None, device: str) -> None:
    """Answers requests until stdin ends."""
    losses: dict[tuple[str, str], tuple[Loss, str, Tensor]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = request["loss"], request["input"]
        if key[0] not in FORMULAS:
            print(json.dumps({"missing": f"no formula of {key[0]}"}), flush=True)
            continue
        try:
            if key not in losses:
                losses.clear()  # one at a time on the device
                z = torch.from_numpy(np.load(key[1])).to(device)
                losses[key] = *made(key[0], released, tuple(z.shape)), z
            loss, source, z = losses[key]
            found = gradients(loss, z, request["calls"], device)
        except RuntimeError as error:  # memory, or released code that does not run on this device
            found = {"missing": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        else:
            gradient = found.pop("gradient").cpu().numpy()
            if request["gradient"]:
                np.save(request["gradient"], gradient)
            found["source"] = source
        print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--released", type=Path, help="folder with a checkout of each repository")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print(json.dumps({"missing": f"torch {torch.__version__} sees no GPU"}), flush=True)
        return
    torch.set_default_device(options.device)
    print(json.dumps({"torch": torch.__version__}), flush=True)
    serve(options.released, options.device)


if __name__ == "__main__":
    main()
