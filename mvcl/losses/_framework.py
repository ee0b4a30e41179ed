"""Koromilas 2025's framework of multi-view contrast, and the objectives that are its points."""

import dataclasses
from collections.abc import Callable
from typing import Literal, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from mvcl import _checks, _numerics
from mvcl.losses import _critics, _lse
from mvcl.losses import _embeddings as emb
from mvcl.losses._critics import Critic
from mvcl.losses._declaration import Queued, declare
from mvcl.losses._lse import Vectors, lse_union

__all__ = ["multi_view_contrast", "mv_cl1", "mv_cl2", "mv_dhel", "mv_infonce"]

Kernel = Callable[[jax.Array], jax.Array]
"""Squared distances, an array of any shape, to the values of a kernel, each positive and of its distance alone."""


@declare()
def multi_view_contrast(
    z: ArrayLike,
    temperature: ArrayLike = 0.5,
    alignment: Literal["instance", "view", "pair"] = "instance",
    energy: Literal["instance", "view", "view_sum", "pair", "positive"] = "view_sum",
    negatives: Literal["within_view", "cross_view", "all"] = "within_view",
    energy_weight: ArrayLike = 1.0,
    kernel: Literal["exponential"] | Kernel = "exponential",
    **shared: Unpack[Queued],
) -> jax.Array:
    """Alignment and energy of any number of views, each a mean of logarithms: of which sums is chosen.

        w energy - alignment

        alignment  "instance"  mean_i log Σ_{l, m != l} K(z_li, z_mi)        Eq. 8
                   "view"      mean_{l,i} log Σ_{m != l} K(z_li, z_mi)       Eq. 7
                   "pair"      mean_{l, m != l, i} log K(z_li, z_mi)         Eqs. 4, 6
        energy     "instance"  mean_i log Σ_l N_li                           Eq. 10
                   "view"      mean_{l,i} log N_li                           Eq. 9
                   "view_sum"  mean_i Σ_l log N_li                           Eq. 12
                   "pair"      mean_{l, m != l, i} log N_li, of views l and m only               Eq. 4
                   "positive"  mean_{l, m != l, i} log( K(z_li, z_mi) + N_li without instance i )  Eq. 6
        negatives  N_li = Σ_{m,j} K(z_li, z_mj) over
                   "within_view" m = l, j != i;  "cross_view" m != l, every j;  "all" both

    for instances i, j and views l, m. Koromilas 2025 (arXiv 2507.06979), Eqs. 7-10 and, as its Table I reads them,
    Eqs. 4 and 6; Eqs. 8 and 10 print 1/(kn) where Eqs. 11 and 12, and this, have 1/n. `mv_dhel` is the default,
    `mv_infonce`, `mv_cl1`, `mv_cl2`, `poly_view` and pairs of `nt_xent` or `info_nce` are others.

    Cost: k n² d multiply-adds within views, k (k-1)/2 n² d across; with a function as the kernel, k n² of its
    values within views, else k² n².

    Args:
      temperature: not for a function as the kernel.
      alignment: what has a logarithm of its own.
      energy: what has a logarithm of its own.
      negatives: the set N_li.
      energy_weight: positive w.
      kernel: K, "exponential", e^{<u, v> / temperature}, on the sphere a multiple of the Gaussian e^{-|u - v|²/(2
        temperature)}; or a function κ of |u - v|², positive from 0 to 4, with `normalize=False` at
        every distance; rounding changes these by some eps of |u|² + |v|². The paper's logarithmic kernel, -log(s x +
        β)/2 (Appendix A), is so where 4 s + β < 1.
      mask: alignment and energy are averaged separately, over the terms that are there; "pair" is a mean over pairs of
        views of means over instances, with the energy "positive" one over vectors of means over their partners.

    Returns:
      Scalar, float32 or wider. With the defaults, for coinciding unit vectors:
      (k - 1) / temperature + k log(n-1) - log(k (k-1)).
    """
    e = emb.embedded(z, **shared)
    weight = _checks.scalar("energy_weight", energy_weight, e.z.dtype, positive=True)
    own, inside, outside = energy != "positive", negatives != "cross_view", negatives != "within_view"
    if isinstance(kernel, str) and kernel == "exponential":
        s = emb.scaled(e, temperature)
        same = emb.other_views_of_instance(s)
        across = [emb.against_other_views(s, diagonal=own)] if outside else []
        rest = [*([_lse.within(s)] if inside else []), *emb.queue_energies(s)]
    elif callable(kernel):
        logs = _critics.checked(_log_kernel(kernel, e.z.dtype), temperature, multi_view_contrast, "kernel")
        same, across, within, queue = _kernels(logs, e, own, outside)
        rest = [*([within] if inside else []), *queue]
    else:
        raise ValueError(f"kernel must be 'exponential' or a function of squared distances, got {kernel!r}")
    if energy == "pair":
        terms = lse_union(*across, *(jnp.broadcast_to(a[:, None], same.shape) for a in rest))  # (k, k-1, n)
    else:
        terms = lse_union(*(_numerics.logsumexp(a, axis=1) for a in across), *rest)  # (k, n)
        if energy == "positive":
            terms = lse_union(same, jnp.broadcast_to(terms[:, None], same.shape))
    if e.keep is not None:
        terms = jnp.where(e.keep if terms.ndim == 2 else same != -jnp.inf, terms, -jnp.inf)
    if energy == "instance":
        terms = _numerics.logsumexp(terms, axis=0)
    if energy == "view_sum":
        spread = emb.mean_where(*emb.summed_energies(terms, e), e.axis_name)
    else:
        spread = _mean_of_pairs(terms, e, own) if terms.ndim == 3 else emb.mean_existing(terms, e)
    if alignment == "pair":
        return weight * spread - _mean_of_pairs(same, e, own)
    aligned = _numerics.logsumexp(same, axis=(0, 1) if alignment == "instance" else 1)
    return weight * spread - emb.mean_existing(aligned, e)


def _mean_of_pairs(terms: jax.Array, e: Vectors, by_views: bool) -> jax.Array:
    """The mean of the terms that exist, (k, k-1, n): of the means of pairs of views, or of those of vectors."""
    if e.keep is None:
        return emb.mean_existing(terms, e)
    exists = terms != -jnp.inf
    if not by_views:
        return emb.mean_where(_numerics.log_power_mean(terms, 0, 1, exists), exists.any(1), e.axis_name)
    means = emb.mean_where(terms, exists, e.axis_name, axis=-1)
    return emb.mean_where(means, _numerics.device_sum(exists.sum(-1), e.axis_name) > 0, None)


def _log_kernel(kernel: Kernel, dtype: jnp.dtype) -> Critic:
    """log K of (m, d) and (n, d) vectors."""
    at = np.linspace(0, 4, 17)
    with jax.ensure_compile_time_eval():
        values = kernel(jnp.asarray(at, dtype))
    if jnp.shape(values) != at.shape:
        what = "kernel must return an array of the shape of the distances"
        raise ValueError(f"{what}, got {jnp.shape(values)}")
    if not isinstance(values, jax.core.Tracer):  # as where the kernel closes over traced parameters
        for x, value in zip(at, np.asarray(values)):
            if not 0 < value < np.inf:
                raise ValueError(
                    f"kernel must be positive and finite in {dtype} at squared distances from 0 to 4, for Eqs. 7 to 12 "
                    f"take its logarithm, got {value:g} at {x:g}; -log(s x + β)/2 is so where 4 s + β < 1"
                )

    def logs(x: jax.Array, y: jax.Array) -> jax.Array:
        squares = jnp.sum(x * x, axis=1)[:, None] + jnp.sum(y * y, axis=1)[None]
        distances = squares - 2 * _numerics.inner("id,jd->ij", x, y)
        # Rounding makes some negative; their derivative is that of the others. The slope at 0 may be infinite.
        least = jnp.maximum(distances, jnp.finfo(distances.dtype).eps)
        return jnp.log(kernel(distances + _numerics.constant(least - distances)))

    return logs


def _kernels(
    logs: Critic, e: Vectors, own: bool, outside: bool
) -> tuple[jax.Array, list[jax.Array], jax.Array, list[jax.Array]]:
    """What the exponential kernel takes from `_lse`: the instance's other views, and the sums of negatives."""
    k, views = len(e.z), np.arange(len(e.z))
    others = np.array([[m for m in range(k) if m != l] for l in range(k)])
    same = _critics.same_instance(logs, e.z, e.z)[views[:, None], others]
    if e.keep is not None:
        same = jnp.where(e.keep[:, None] & e.keep[others], same, -jnp.inf)
    if not outside:

        def within(z: jax.Array, keep: jax.Array | None) -> jax.Array:
            view = dataclasses.replace(e, z=z[None], keep=None if keep is None else keep[None])
            return _critics.against_views(logs, view, view)[0]

        own_view, *queue = jnp.moveaxis(jax.vmap(within)(e.z, e.keep), 1, 0)
        return same, [], own_view, queue
    found = _critics.against_views(logs, e, e)
    across = found[views[:, None], others]
    queue = [] if e.queue is None else [found[:, k]]
    return same, [lse_union(across, same) if own else across], found[views, views], queue


@declare()
def mv_infonce(
    z: ArrayLike,
    temperature: ArrayLike = 0.5,
    negatives: Literal["cross_view", "all"] = "cross_view",
    **shared: Unpack[Queued],
) -> jax.Array:
    """MV-InfoNCE: one term per instance, in which all its views are aligned and contrasted at once.

        mean_i [ -LSE_{l != l'} s(z_li, z_l'i) + LSE_{l, m != l, j} s(z_li, z_mj) ],   s(u, v) = <u, v> / temperature

    over instances i, j (j may be i) and views l, l', m. Koromilas 2025 (arXiv 2507.06979), Eqs. 11 and 17.
    The released code sums over every (m, j) != (l, i), the same view's other instances too: `negatives="all"`.

    Cost: k (k-1)/2 n² d multiply-adds in the forward pass.

    Args:
      negatives: "cross_view", the printed formula, or "all", the released code.
      mask: alignment is averaged over the instances with two views or more, the energy over those with one or more.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), with "all" log((kn - 1) / (k - 1)).
    """
    return multi_view_contrast(z, temperature, "instance", "instance", negatives, **shared)


@declare()
def mv_dhel(
    z: ArrayLike, temperature: ArrayLike = 0.5, energy_weight: ArrayLike = 1.0, **shared: Unpack[Queued]
) -> jax.Array:
    """MV-DHEL: align an instance's views jointly, spread each view on its own.

        mean_i [ -LSE_{l != m} s(z_li, z_mi) + w Σ_l LSE_{j != i} s(z_li, z_lj) ],   s(u, v) = <u, v> / temperature

    over instances i, j and views l, m. Koromilas 2025 (arXiv 2507.06979), Eq. 12. Eq. 18 lets j equal i and
    the released code sums l < m only (log 2 more, same gradient). The paper has w = 1, by which the loss tends to
    alignment plus k times uniformity (Eq. 27); w = 1/k gives both the same weight, as in Eq. 15.

    Cost: k n² d multiply-adds in the forward pass.

    Args:
      energy_weight: positive w, the weight of the second sum.
      mask: alignment is averaged over the instances with two views or more; the energy, a sum over the views that the
        instance has, over those with one or more.

    Returns:
      Scalar, float32 or wider. For coinciding unit vectors:
      (w k - 1) / temperature + w k log(n-1) - log(k (k-1)).
    """
    return multi_view_contrast(z, temperature, "instance", "view_sum", "within_view", energy_weight, **shared)


@declare()
def mv_cl1(z: ArrayLike, temperature: ArrayLike = 0.5, **shared: Unpack[Queued]) -> jax.Array:
    """CL_1: each vector is aligned with its other views and contrasted with all vectors of the other views.

        mean_{l,i} [ -LSE_{l' != l} s(z_li, z_l'i) + LSE_{m != l, j} s(z_li, z_mj) ],   s(u, v) = <u, v> / temperature

    over instances i, j (j may be i) and views l, l', m. Koromilas 2025 (arXiv 2507.06979), Eq. 19, with the
    factor 1/(kn) of Eq. 7, which defines it; the second line of Eq. 19 prints 1/M.

    Cost: k (k-1)/2 n² d multiply-adds in the forward pass.

    Args:
      mask: alignment is averaged over the vectors that have a partner, the energy over all vectors that are there.

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log(n), the chance level.
    """
    return multi_view_contrast(z, temperature, "view", "view", "cross_view", **shared)


@declare()
def mv_cl2(
    z: ArrayLike,
    temperature: ArrayLike = 0.5,
    energy: Literal["mean", "sum"] = "mean",
    **shared: Unpack[Queued],
) -> jax.Array:
    """CL_2: each vector is aligned with its other views and spread within its own.

        mean_{l,i} [ -LSE_{l' != l} s(z_li, z_l'i) + LSE_{j != i} s(z_li, z_lj) ],   s(u, v) = <u, v> / temperature

    over instances i, j and views l, l'. Koromilas 2025 (arXiv 2507.06979), Eq. 20, with the factor 1/(kn) of Eq. 9,
    which defines it. The released code sums the energy over l: `energy="sum"`, at k = 2 MV-DHEL's gradient.

    Cost: k n² d multiply-adds in the forward pass.

    Args:
      energy: "mean" or "sum" of the energies over the views.
      mask: alignment is averaged over the vectors that have a partner, the energy over all vectors that are there
        ("sum": over the instances).

    Returns:
      Scalar, float32 or wider. Where all vectors coincide it is log((n-1) / (k-1)).
    """
    of_views: Literal["view", "view_sum"] = "view_sum" if energy == "sum" else "view"
    return multi_view_contrast(z, temperature, "view", of_views, "within_view", **shared)
