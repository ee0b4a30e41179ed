"""Checks, choice and scaling of feature tables; and six tables of scikit-learn's digits, offline."""

import dataclasses
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from mvcl.data._splits import Split, in_memory

Scaling = Literal["minmax", "standard", "none"]


class Raw(NamedTuple):
    """Tables as read: (N, d_v) of each view, a row of NaN where an example lacks it; (N,) labels; ids of the N."""

    views: dict[str, np.ndarray]
    labels: np.ndarray | None
    ids: list[str]
    columns: Mapping[str, Sequence[str]] = {}  # the name of each column of a view, where it has one


@dataclasses.dataclass(frozen=True, kw_only=True)
class DigitsViews:
    """scikit-learn's 1,797 handwritten digits as six tables of features; offline.

    Pixels, histograms of oriented gradients, histograms of local binary patterns, Fourier magnitudes, projection
    profiles and moments. `train` and `test` are both the whole table, as usual in clustering.
    """

    views: tuple[str, ...] = ()
    """Views to use, in this order: their names, or their numbers from 1. Empty: all."""
    noise: bool = False
    """A seventh view of 64 columns of Gaussian noise, without information."""
    scaling: tuple[Scaling, ...] = ("minmax",)
    """Scaling of each column: to [0, 1], to mean 0 and deviation 1, or none; one for all views, or one per view."""
    held_out: bool = False
    """Use every fifth digit as the split `test` and exclude it from training."""

    def open(self) -> dict[str, Split]:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = digits.images / 16
        views = {"pixels": images.reshape(len(images), -1)}
        views |= {of.__name__: of(images) for of in (hog, lbp, fourier, profiles, moments)}
        # Drop border pixels that are zero in all digits.
        views = {name: view[:, np.ptp(view, axis=0) > 0] for name, view in views.items()}
        if self.noise:
            views["noise"] = np.random.default_rng(0).normal(size=(len(images), 64))
        return splits_of(Raw(views, digits.target, [str(i) for i in range(len(images))]), self)


# scikit-image has the first two and the moments, but needs eight more packages. These functions equal its
# `hog`, `local_binary_pattern` and `moments_normalized` up to rounding errors.


def hog(images: np.ndarray, bins: int = 9, cell: int = 4) -> np.ndarray:
    """Histograms of oriented gradients: (N, H, W) to (N, H/cell * W/cell * bins), rows of unit length.

    Central differences, 0 at the border; a pixel adds its gradient's length to the bin of its direction, modulo 180
    degrees. Dalal & Triggs 2005, one block, no interpolation between bins.
    """
    dy, dx = np.zeros_like(images), np.zeros_like(images)
    dy[:, 1:-1] = images[:, 2:] - images[:, :-2]
    dx[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
    angle = np.rad2deg(np.arctan2(dy, dx)) % 180
    number = (angle // (180 / bins)).astype(int) % bins
    weight = np.hypot(dy, dx)[..., None] * (number[..., None] == np.arange(bins))
    n, h, w = images.shape
    cells = weight.reshape(n, h // cell, cell, w // cell, cell, bins).mean(axis=(2, 4)).reshape(n, -1)
    return cells / np.sqrt((cells**2).sum(axis=1, keepdims=True) + 1e-5**2)


def lbp(images: np.ndarray, cell: int = 4) -> np.ndarray:
    """Histograms of local binary patterns: (N, H, W) to (N, H/cell * W/cell * 10), shares of a cell's pixels.

    Each pixel is compared with 8 points on the circle of radius 1, bilinear between pixels, 0 outside. Patterns with at
    most two changes around the circle count by their number of ones, 0 to 8, all others are number 9. Ojala 2002.
    """
    from scipy import ndimage

    n, h, w = images.shape
    angles = 2 * np.pi * np.arange(8) / 8
    places = np.stack([np.zeros(8), np.sin(angles), -np.cos(angles)], axis=1).round(5)
    points = [ndimage.shift(images, place, order=1, mode="grid-constant") for place in places]
    ring = np.stack(points, axis=-1) >= images[..., None] - 1e-12  # tolerance: interpolation rounds
    changes = (ring != np.roll(ring, 1, axis=-1)).sum(axis=-1)
    code = np.where(changes <= 2, ring.sum(axis=-1), 9)
    counted = (code[..., None] == np.arange(10)).reshape(n, h // cell, cell, w // cell, cell, 10)
    return counted.mean(axis=(2, 4)).reshape(n, -1)


def fourier(images: np.ndarray) -> np.ndarray:
    """log(1 + |F|) of the 2-D Fourier transform F: (N, H, W) to (N, H * (W/2 + 1)); invariant to shifts."""
    return np.log1p(np.abs(np.fft.rfft2(images))).reshape(len(images), -1)


def profiles(images: np.ndarray) -> np.ndarray:
    """Sums along rows, columns and both diagonals: (N, H, W) to (N, 3 (H + W) - 2)."""
    h, w = images.shape[1:]
    turns = (images, images[:, :, ::-1])
    diagonals = [np.trace(turned, i, axis1=1, axis2=2) for turned in turns for i in range(1 - h, w)]
    return np.concatenate([images.sum(2), images.sum(1), np.stack(diagonals, axis=1)], axis=1)


def moments(images: np.ndarray) -> np.ndarray:
    """Mass, centre of mass, and scale-invariant central moments of order 2 to 4: (N, H, W) to (N, 15).

    η_pq = μ_pq / μ_00^(1 + (p+q)/2),  μ_pq = Σ (y - ȳ)^p (x - x̄)^q image(y, x). Hu 1962.
    """
    h, w = images.shape[1:]
    mass = images.sum(axis=(1, 2))
    y, x = np.arange(h), np.arange(w)
    cy, cx = np.einsum("nyx,y->n", images, y) / mass, np.einsum("nyx,x->n", images, x) / mass
    dy, dx = y[None] - cy[:, None], x[None] - cx[:, None]
    orders = [(p, total - p) for total in (2, 3, 4) for p in range(total, -1, -1)]
    eta = [np.einsum("nyx,ny,nx->n", images, dy**p, dx**q) / mass ** (1 + (p + q) / 2) for p, q in orders]
    return np.stack([mass, cy, cx, *eta], axis=1)


def splits_of(raw: Raw, options: Any, skip_last: int = 0, missing: str = "error") -> dict[str, Split]:
    """The splits `train` and `test` of tables, checked, chosen and scaled by `views`, `scaling` and `held_out` of the
    options, `skip_last` and `missing`, as in `Tables`; `ValueError` if an option or a table is invalid.
    """
    tables, labels, ids, columns = raw
    wanted = {name: tables[name] for name in chosen(options.views, list(tables))}
    views = {name: view[:, : view.shape[1] - skip_last] for name, view in wanted.items()}
    training = (np.arange(len(ids)) % 5 != 4) | (not options.held_out)
    means = {n: np.nanmean(view[training], axis=0).tolist() for n, view in views.items() if missing == "mean"}
    views = {name: filled(view, means.get(name), mask=missing == "mask") for name, view in views.items()}
    present = present_in(views, ids)
    fitted = fit(options.scaling, views, present & training[:, None], columns=columns, fill=means)
    arrays = []
    for (name, view), here in zip(views.items(), present.T):
        rows = _rows(view, here)
        if len(constant := np.flatnonzero(rows.min(axis=0) == rows.max(axis=0))):
            shown = ", ".join(map(str, constant[:5])) + (", ..." if len(constant) > 5 else "")
            count = f"{len(constant)} of {view.shape[1]} columns"
            warnings.warn(f"view {name}: {count} are constant ({shown})", stacklevel=2)
        arrays.append(scaled(view, fitted[name]))
        if not np.isfinite(_rows(arrays[-1], here)).all():
            raise ValueError(f"view {name} has entries too large for float32 after scaling")
    numbers, class_names = classes_of(labels, len(ids))

    def split(rows: np.ndarray) -> Split:
        return in_memory(
            tuple(_rows(view, rows) for view in arrays),
            numbers[rows],
            class_names,
            view_names=tuple(views),
            given=True,
            present=None if present[rows].all() else present[rows],
            ids=tuple(name for name, row in zip(ids, rows) if row),
            scaling=fitted,
        )

    train = split(training)
    return {"train": train, "test": split(~training) if options.held_out else train}


def filled(view: np.ndarray, fill: Sequence[float] | None, *, mask: bool = False) -> np.ndarray:
    """A table whose NaN in rows that have other entries are `fill` of their column, or with `mask` the whole row is."""
    some = np.isnan(view).any(1) & ~np.isnan(view).all(1)
    if not some.any() or (fill is None and not mask):
        return view
    empty = some[:, None] & (np.isnan(view) | mask)
    return np.where(empty, np.nan if fill is None else np.asarray(fill), view)


def chosen(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """The wanted views, each by its name or else by its number from 1; all if none is wanted."""
    there = ", ".join(f"{number} {name}" for number, name in enumerate(names, start=1))
    known = {str(number): name for number, name in enumerate(names, start=1)} | {name: name for name in names}
    found: list[str] = []
    for view in wanted or names:
        if (name := known.get(view)) is None:
            raise ValueError(f"data.views: there is no view {view!r}; there are {there}")
        if name in found:
            raise ValueError(f"data.views: view {name} is chosen twice; there are {there}")
        found.append(name)
    if len(found) < 2:
        raise ValueError(f"data.views must choose at least 2 views, got {', '.join(found)} of {there}")
    return found


def present_in(
    views: Mapping[str, np.ndarray], ids: Sequence[str], *, new: bool = False, mask: Any = None
) -> np.ndarray:
    """(N, k) bool, True where a view is present, and `mask` if given is True; raises `ValueError` for invalid tables.

    Of `new` examples, which are encoded only, any view may be missing.
    """
    check_distinct(ids)
    present = np.stack([~np.isnan(view).reshape(len(ids), -1).all(1) for view in views.values()], axis=1)
    if mask is not None:
        if np.shape(mask) != present.shape:
            raise ValueError(f"mask must have shape (n, k) = {present.shape}, got {np.shape(mask)}")
        present &= np.asarray(mask, bool)
    for (name, view), here in zip(views.items(), present.T):
        if view.shape[1] == 0 or not (new or here.any()):
            missing = "example" if view.shape[1] else "columns of features"
            raise ValueError(f"view {name} has no {missing}")
        if view.ndim == 2 and (bad := ~np.isfinite(view) & here[:, None]).any():
            row, column = np.argwhere(bad)[0]
            what = f"view {name} has {bad.sum()} entries that are NaN, empty or infinite, the first in column"
            how = "fill them in, or make the whole row NaN if the example lacks this view"
            raise ValueError(f"{what} {column} of example {ids[row]}; {how}")
    if not present.any(axis=1).all():
        lost = int(np.argmin(present.any(axis=1)))
        raise ValueError(f"example {ids[lost]} is in no view; remove it")
    if not (new or (present.sum(axis=1) > 1).any()):
        first = ", ".join(f"{ids[i]!r} in {n}" for n, i in zip(views, present.argmax(axis=0)))
        raise ValueError(f"no example is in more than one view; the views must share ids, got {first}")
    return present


def fit(
    kinds: Sequence[Scaling], views: Mapping[str, np.ndarray], training: np.ndarray, **more: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Shift and scale of each view's columns, fitted to training examples with the view, and `more` of the view."""
    if len(kinds) not in (1, len(views)) or not set(kinds) <= {"minmax", "standard", "none"}:
        known = f"minmax, standard or none, one or one for each of {len(views)} views"
        raise ValueError(f"data.scaling must name a scaling, {known}, got {', '.join(kinds)}")
    fitted = {}
    for i, (name, view) in enumerate(views.items()):
        kind, rows = kinds[i % len(kinds)], _rows(view, training[:, i])
        if not len(rows):
            raise ValueError(f"view {name} has no example in the training split")
        shift, scale = np.zeros(view.shape[1]), np.ones(view.shape[1])
        if kind == "minmax":
            shift, scale = rows.min(axis=0), np.ptp(rows, axis=0)
        elif kind == "standard":
            shift, scale = rows.mean(axis=0), rows.std(axis=0)
            scale[rows.min(axis=0) == rows.max(axis=0)] = 0  # constant up to rounding errors
        scale = np.where(scale > 0, scale, 1)
        fitted[name] = {"kind": kind, "shift": shift.tolist(), "scale": scale.tolist()}
        fitted[name] |= {what: of[name] for what, of in more.items() if name in of}
    return fitted


def scaled(view: np.ndarray, fitted: Mapping[str, Any] | None) -> np.ndarray:
    """(N, ..., d) float32: a view, scaled if `fitted` is given."""
    if fitted is None:
        return view.astype(np.float32)
    with np.errstate(all="ignore"):
        return ((view - np.asarray(fitted["shift"])) / np.asarray(fitted["scale"])).astype(np.float32)


def check_distinct(ids: Sequence[str]) -> None:
    """Raise ValueError if an id is repeated."""
    if repeated := len(ids) - len(set(ids)):
        (most, _), *_ = Counter(ids).most_common(1)
        raise ValueError(f"ids must be distinct: {repeated} are repeated, such as {most}")


def _rows(view: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of an array; the array itself, not a copy, if these are all."""
    return view if rows.all() else view[rows]


def classes_of(labels: np.ndarray | None, n: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """(N,) int32 class numbers, and the class names in order."""
    if labels is None:
        return np.zeros(n, np.int32), ("unlabelled",)
    if labels.dtype.kind in "OUS":
        labels = np.asarray([str(label).strip() for label in labels])
    elif labels.dtype.kind == "f":
        if len(wrong := labels[(np.abs(labels) >= 2**53) | (labels != np.round(labels))]):
            raise ValueError(f"labels must be whole numbers or strings, got {wrong[0]}")
        labels = labels.astype(np.int64)
    names, numbers = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"labels must name at least 2 classes, got {', '.join(map(str, names))}")
    return numbers.reshape(-1).astype(np.int32), tuple(str(name) for name in names)
