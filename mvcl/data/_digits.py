"""scikit-learn's handwritten digits, as images and as six feature tables; offline."""

import dataclasses
import hashlib

import numpy as np

from mvcl.data._scaling import RawTables, Scaling
from mvcl.data._splits import ExampleSpec, Outline, Split, in_memory

_NOISE_COLUMNS, _NOISE_SEED = 64, 0
_EXAMPLES = 1797
# Columns of each view that are not zero in all digits.
_WIDTHS = {"pixels": 61, "hog": 36, "lbp": 40, "fourier": 40, "profiles": 45, "moments": 15, "noise": 64}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits:
    """scikit-learn's handwritten digits: 1,437 training and 360 test images, 8x8 grey; offline.

    Stratified by class, split seed 0; 17 grey levels stretched to 0..255.
    """

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        digits = load_digits()
        images = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
        rows = np.arange(len(images))
        train, test = train_test_split(rows, test_size=360, stratify=digits.target, random_state=0)
        names = tuple(map(str, range(10)))
        splits = {}
        for part, chosen in (("train", train), ("test", test)):
            # In the order of tfds, which sorts examples by a hash: runs of earlier versions saw this order.
            order = sorted(chosen.tolist(), key=lambda row: hashlib.md5(f"{part}{row}".encode()).hexdigest())
            splits[part] = in_memory((images[order],), digits.target[order].astype(np.int32), names)
        return splits


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
        """The splits `train` and `test`."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = digits.images / 16
        views = {
            "pixels": images.reshape(len(images), -1),
            "hog": hog(images),
            "lbp": lbp(images),
            "fourier": fourier(images),
            "profiles": profiles(images),
            "moments": moments(images),
        }
        # Drop border pixels that are zero in all digits.
        views = {name: view[:, np.ptp(view, axis=0) > 0] for name, view in views.items()}
        if self.noise:
            views["noise"] = np.random.default_rng(_NOISE_SEED).normal(size=(len(images), _NOISE_COLUMNS))
        ids = [str(i) for i in range(len(images))]
        tables = RawTables(list(views), list(views.values()), digits.target, ids)
        tables.choose(self.views)
        return tables.splits(self.scaling, held_out=self.held_out)

    def expected(self) -> Outline:
        """The outline of the training split, without computing it."""
        widths = _WIDTHS if self.noise else {name: _WIDTHS[name] for name in _WIDTHS if name != "noise"}
        tables = RawTables(list(widths), [np.empty((0, width)) for width in widths.values()], None, [])
        tables.choose(self.views)
        shapes = tuple((view.shape[1],) for view in tables.views)
        examples = _EXAMPLES - _EXAMPLES // 5 if self.held_out else _EXAMPLES
        return Outline(examples, 10, ExampleSpec(shapes, tuple(tables.names), given=True))


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
    cells = weight.reshape(n, h // cell, cell, w // cell, cell, bins).sum(axis=(2, 4)).reshape(n, -1)
    cells = cells / cell**2
    return cells / np.sqrt((cells**2).sum(axis=1, keepdims=True) + 1e-5**2)


def lbp(images: np.ndarray, cell: int = 4) -> np.ndarray:
    """Histograms of local binary patterns: (N, H, W) to (N, H/cell * W/cell * 10), shares of a cell's pixels.

    Each pixel is compared with 8 points on the circle of radius 1, bilinear between pixels, 0 outside. Patterns with at
    most two changes around the circle count by their number of ones, 0 to 8, all others are number 9. Ojala 2002.
    """
    n, h, w = images.shape
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    signs = []
    for p in range(8):
        y, x = (np.round(f(2 * np.pi * p / 8), 5) for f in (lambda a: -np.sin(a), np.cos))
        y0, x0 = int(np.floor(y)), int(np.floor(x))
        fy, fx = y - y0, x - x0
        point = sum(
            wy * wx * padded[:, 2 + y0 + i : 2 + y0 + i + h, 2 + x0 + j : 2 + x0 + j + w]
            for i, wy in ((0, 1 - fy), (1, fy))
            for j, wx in ((0, 1 - fx), (1, fx))
        )
        signs.append(point >= images - 1e-12)  # tolerance for the rounding of the interpolation
    ring = np.stack(signs, axis=-1)
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
    diagonals = [
        np.trace(turned, offset, axis1=1, axis2=2)
        for turned in (images, images[:, :, ::-1])
        for offset in range(1 - h, w)
    ]
    return np.concatenate([images.sum(2), images.sum(1), np.stack(diagonals, axis=1)], axis=1)


def moments(images: np.ndarray, order: int = 4) -> np.ndarray:
    """Mass, centre of mass, and scale-invariant central moments of order 2 to 4: (N, H, W) to (N, 15).

    η_pq = μ_pq / μ_00^(1 + (p+q)/2),  μ_pq = Σ (y - ȳ)^p (x - x̄)^q image(y, x). Hu 1962.
    """
    h, w = images.shape[1:]
    mass = images.sum(axis=(1, 2))
    y, x = np.arange(h), np.arange(w)
    cy, cx = np.einsum("nyx,y->n", images, y) / mass, np.einsum("nyx,x->n", images, x) / mass
    dy, dx = y[None] - cy[:, None], x[None] - cx[:, None]
    found = [mass, cy, cx]
    for total in range(2, order + 1):
        for p in range(total, -1, -1):
            mu = np.einsum("nyx,ny,nx->n", images, dy**p, dx ** (total - p))
            found.append(mu / mass ** (1 + total / 2))
    return np.stack(found, axis=1)
