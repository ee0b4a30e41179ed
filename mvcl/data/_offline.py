"""Data without files: scikit-learn's digits, and random data of chosen shapes with a class signal."""

import dataclasses
import hashlib
import itertools
from typing import Literal

import numpy as np

from mvcl import _checks
from mvcl.data._splits import ExampleSpec, Split, by_domain, in_memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits:
    """scikit-learn's handwritten digits: 1,437 training and 360 test images, 8x8 grey; offline.

    Stratified by class, split seed 0; 17 grey levels stretched to 0..255.
    """

    def open(self) -> dict[str, Split]:
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
class Synthetic:
    """Random examples of chosen shapes; offline and deterministic.

    Every example has a class (with `regression`, a target), which shifts each view along a pattern of that view, so
    that a probe exceeds chance. The examples are images, given views, or, with `domains`, images of the same classes
    in several domains. Scores on these data only show that a config runs.
    """

    examples: int = 64
    """Training examples; other splits have half as many, at least 2 per class."""
    classes: int = 4
    """Number of classes."""
    regression: bool = False
    """The label is a number in [-1, 1] instead of a class, and there is a split `valid`."""
    image_size: int = 32
    """Height and width of images, without `view_shapes`."""
    channels: int = 3
    """Channels of images, 1 or 3."""
    sizes: Literal["one", "different"] = "one"
    """All images have `image_size`; otherwise they are up to 8 pixels larger and are cropped on the host."""
    view_shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of given views, one each: (d,) of a table or a signal, (time, d) of a sequence. Empty: images."""
    padded: bool = False
    """Sequences have different lengths and are padded to (time, d) with rows of NaN."""
    missing: float = 0.0
    """Share of the given views that are missing; every example keeps at least one."""
    groups: int = 0
    """Number of subjects or speakers per split; none is in two splits. 0: none."""
    domains: tuple[str, ...] = ()
    """Names of image domains: a training example is then one image of a class from each domain except the last;
    `test` is the last domain, `seen` the training images of the others; DOMAIN/train and DOMAIN/test are splits too."""
    classes_per_draw: int | None = None
    """With `domains`, different classes among as many consecutive training examples, drawn every epoch, as in the
    source `domainnet`; None: all classes."""
    transfer: bool = False
    """Also provide the splits transfer/train and transfer/test, drawn independently."""
    seed: int = 0
    """Seed of all random numbers."""

    def open(self) -> dict[str, Split]:
        least = {"examples": "[2, inf)", "classes": "[1, inf)", "image_size": "[4, inf)"}
        _checks.fields("data", self, missing="[0, 1)", **least)
        if self.channels not in (1, 3):
            raise ValueError(f"data.channels must be 1 or 3, got {self.channels}")
        if len(self.domains) in (1, 2) or (self.domains and (self.view_shapes or self.regression)):
            raise ValueError(f"data.domains must be at least 3 names, of images, got {len(self.domains)}")
        if (self.padded or self.missing) and not self.view_shapes:
            raise ValueError("data.padded and data.missing need data.view_shapes, got none")
        if self.domains:
            parts = enumerate(itertools.product(self.domains, ("train", "test")))
            splits = {f"{domain}/{part}": self._split(i, part, i // 2) for i, (domain, part) in parts}
            seen, held_out = self.domains[:-1], self.domains[-1]
            return by_domain(splits, seen, held_out, size=self.classes_per_draw, seed=self.seed)
        names = ["train", "valid", "test"] if self.regression else ["train", "test"]
        names += ["transfer/train", "transfer/test"] if self.transfer else []
        return {name: self._split(number, name) for number, name in enumerate(names)}

    def _split(self, number: int, name: str, domain: int = 0) -> Split:
        """One split; `number` seeds its noise, not the patterns, which are those of images of the domain."""
        rng = np.random.default_rng([self.seed, 1, number])
        training = name.endswith("train")
        n = self.examples if training else self.examples // 2
        if self.domains or not training:
            n = max(n, 2 * self.classes)
        classes = np.arange(n, dtype=np.int32) % self.classes
        label = rng.uniform(-1, 1, n).astype(np.float32) if self.regression else classes
        names = () if self.regression else tuple(f"class {c}" for c in range(self.classes))
        groups = None
        if self.groups:
            groups = (number * self.groups + rng.integers(self.groups, size=n)).astype(np.int32)
        if not self.view_shapes:
            # Images whose 4x4 blocks show the label's pattern of the domain.
            beyond = 8 if self.sizes == "different" else 0
            side = -(-(self.image_size + beyond) // 4)
            coarse = self._signal(rng, label, (4, 4, self.channels), domain)
            pixels = np.empty((n, 4 * side, 4 * side, self.channels), np.uint8)
            for image, blocks in zip(pixels, coarse):  # all at once take eight times the memory
                whole = blocks.repeat(side, axis=0).repeat(side, axis=1)
                image[:] = np.clip(128 + 48 * (whole + rng.normal(scale=0.25, size=whole.shape)), 0, 255)
            more = self.image_size + rng.integers(beyond + 1, size=(n, 2))
            images = [image[:high, :wide] for image, (high, wide) in zip(pixels, more)]
            if not beyond:
                return in_memory((np.stack(images),), label, names, groups=groups)
            spec = ExampleSpec(((None, None, self.channels),))
            return Split(label, names, spec, lambda row, epoch: (images[row],), groups=groups)
        views = tuple(self._signal(rng, label, shape, v) for v, shape in enumerate(self.view_shapes))
        for view in views:
            if self.padded and view.ndim == 3:
                view[np.arange(view.shape[1]) >= rng.integers(1, view.shape[1] + 1, (n, 1))] = np.nan
        present = None
        if self.missing:
            present = rng.uniform(size=(n, len(views))) >= self.missing
            present[np.arange(n), rng.integers(len(views), size=n)] = True
            for v, view in enumerate(views):
                view[~present[:, v]] = np.nan
        given = tuple(f"view{v + 1}" for v in range(len(views)))
        return in_memory(views, label, names, view_names=given, given=True, present=present, groups=groups)

    def _signal(
        self, rng: np.random.Generator, label: np.ndarray, shape: tuple[int, ...], view: int
    ) -> np.ndarray:
        """(N, *shape) float32: unit noise plus the view's pattern for the label."""
        kinds = 1 if self.regression else self.classes
        patterns = np.random.default_rng([self.seed, 0, view]).normal(size=(kinds, *shape))
        shift = np.multiply.outer(label, patterns[0]) if self.regression else patterns[label]
        return (rng.normal(size=(len(label), *shape)) + shift).astype(np.float32)
