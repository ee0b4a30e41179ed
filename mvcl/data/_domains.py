"""Images of the same classes in several domains, such as DomainNet."""

import dataclasses
import os
import re
from pathlib import Path, PurePosixPath

import numpy as np

from mvcl import _checks, _files, _progress
from mvcl.data._images import local, split_of_files
from mvcl.data._splits import ExampleSpec, Outline, Split, by_domain, keep, select

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
"""The domains of DomainNet."""
# Lines of DOMAIN_train.txt of the cleaned version, 409,832 of 586,575 images.
_TRAINING_IMAGES = dict(zip(DOMAINS, (33_525, 36_023, 50_416, 120_750, 120_906, 48_212)))
_IMAGE = (None, None, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DomainNet:
    """DomainNet, or any images of the same classes in several domains.

    A training example is one image of a class from each training domain, its views. Every `classes_per_draw`
    consecutive examples of a batch are a draw of as many different classes, so a batch of 512 is 32 draws of 16
    classes; compare examples within a draw, with --train.group (Piran 2024, Section 4.2 and Table A1: 16 a GPU).
    Draws and images depend on draw_seed and epoch, not on train.seed and devices. An epoch reads as many images as the
    training lists of these domains have. Classes that a training domain lacks are left out. `test` is the test list of
    the held-out domain, `seen` has the training lists of the others, and each list is a split, such as real/train.
    """

    path: str = ""
    """Folder with DOMAIN/CLASS/*.jpg and DOMAIN_train.txt, DOMAIN_test.txt with lines `DOMAIN/CLASS/FILE NUMBER`."""
    domains: tuple[str, ...] = DOMAINS
    """The domains."""
    held_out: str = "sketch"
    """Domain that is excluded from training; empty: train on all, and `test` is all test lists."""
    classes: tuple[str, ...] = ()
    """Keep these classes only, as in the tfds source. Empty keeps all."""
    classes_per_draw: int = 16
    """Different classes among as many consecutive examples; at most the number of classes."""
    draw_seed: int = 0
    """Seed for drawing classes and images; --train.seed does not change them."""

    def open(self) -> dict[str, Split]:
        """The splits `train`, `seen` and `test`, and one for each list."""
        _checks.option("data.held_out", self.held_out, (*self.domains, ""))
        seen = tuple(domain for domain in self.domains if domain != self.held_out)
        if len(seen) < 2:
            raise ValueError(f"data.domains must have at least 2 domains for training, got {', '.join(seen)}")
        root, numbers = local(self.path, "DomainNet's folder"), dict[str, int]()
        parts = [(domain, part) for domain in self.domains for part in ("train", "test")]
        lists = {f"{d}/{part}": _read_list(root, f"{d}_{part}.txt", numbers) for d, part in parts}
        names = tuple(sorted(numbers, key=numbers.__getitem__))
        if absent := set(range(len(names))) - set(numbers.values()):
            raise ValueError(f"the lists of {root} have no image of class {min(absent)}, but of later ones")
        kept, splits = keep(names, self.classes), {}
        for part, (classes, files) in lists.items():
            rows, labels = select(classes, names, kept)
            whole = split_of_files(labels, kept, [files[row] for row in rows], part, _IMAGE)
            splits[part] = dataclasses.replace(whole, files=())  # a digest would ask for the times of 600,000
        return by_domain(splits, seen, self.held_out, size=self.classes_per_draw, seed=self.draw_seed)

    def expected(self) -> Outline | None:
        """345 classes and the draws of an epoch of the cleaned lists; None for other domains or classes."""
        seen = [domain for domain in self.domains if domain != self.held_out]
        if len(self.classes) > 1 or not set(seen) <= set(_TRAINING_IMAGES) or len(seen) < 2:
            return None
        images = sum(_TRAINING_IMAGES[domain] for domain in seen)
        examples = self.classes_per_draw * (images // (len(seen) * self.classes_per_draw))
        return Outline(examples, 345, ExampleSpec((_IMAGE,) * len(seen)))


def _read_list(root: Path, name: str, numbers: dict[str, int]) -> tuple[np.ndarray, list[Path]]:
    """The class numbers and files of a list; adds its classes to `numbers`. `ValueError` if a line is not PATH NUMBER,
    points outside the folder, or gives a class another number than an earlier line."""
    if not (root / name).is_file():
        lists = ", ".join(sorted(path.name for path in root.glob("*_*.txt"))) or "no lists"
        raise ValueError(f"{root} lacks {name}; it has {lists}")
    paths, labels = [], []
    there: dict[Path, set[str]] = {}  # one listing per folder: checking each of 600,000 files takes minutes
    names = {number: class_name for class_name, number in numbers.items()}
    with _files.reading(root / name, "list of images, lines DOMAIN/CLASS/FILE NUMBER"):
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        for line, text in enumerate(_progress.track(lines, f"reading {name}", len(lines), "lines"), start=1):
            if not text.strip():
                continue
            found = re.fullmatch(r"((?:[^/\\]+/)+[^/\\]+) (\d{1,9})", text.strip(), re.ASCII)
            path = PurePosixPath(found[1] if found else "..")
            if found is None or ".." in path.parts:
                raise ValueError(f"line {line} must be DOMAIN/CLASS/FILE NUMBER, got {text[:80]!r}")
            folder, name_of_class, number = root / path.parent, path.parts[-2], int(found[2])
            known = numbers.setdefault(name_of_class, number), names.setdefault(number, name_of_class)
            if known != (number, name_of_class):
                other = f"elsewhere {name_of_class} is class {known[0]} and class {number} is {known[1]}"
                raise ValueError(f"line {line}: class {number} is {name_of_class}, {other}")
            if folder not in there:
                there[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
            if path.name not in there[folder]:
                raise ValueError(f"line {line}: there is no image {path}; use the cleaned lists")
            paths.append(root / path)
            labels.append(number)
        if not paths:
            raise ValueError("it names no image")
    return np.asarray(labels, np.int32), paths
