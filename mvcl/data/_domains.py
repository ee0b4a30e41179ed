"""Images of the same classes in several domains, such as DomainNet."""

import dataclasses
import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from mvcl import _buckets, _files, _progress
from mvcl.data._images import decode
from mvcl.data._prepared import Item, Preparer, blocks, data_root, is_prepared, open_prepared, write_shards
from mvcl.data._splits import CorruptExample, ExampleSpec, Outline, Split, class_draws, decoding, keep, select

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
"""The domains of DomainNet."""
# Lines of DOMAIN_train.txt of the cleaned version, 409,832 of 586,575 images.
_TRAINING_IMAGES = {
    "clipart": 33_525,
    "infograph": 36_023,
    "painting": 50_416,
    "quickdraw": 120_750,
    "real": 120_906,
    "sketch": 48_212,
}
_LISTS = ("train", "test")
_BLOCK = 1024
_IMAGE = (None, None, 3)


Encoded = Callable[[int], tuple[Path | io.BytesIO, str]]
"""Row -> an encoded image and its name."""
Images = tuple[np.ndarray, Encoded]
"""The images of a list: (n,) class numbers, and the files."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareDomains(Preparer):
    """Copy the image files of all lists into ArrayRecord files, for file systems that are slow with many small files. A
    repeated run resumes."""

    source: str = ""
    """DomainNet's folder: DOMAIN/CLASS/*.jpg and DOMAIN_train.txt, DOMAIN_test.txt."""
    domains: tuple[str, ...] = DOMAINS
    """The domains."""
    max_corrupt: int = 10
    """Stop when more images than this cannot be decoded."""

    def _kind(self) -> tuple[str, Path]:
        return "domainnet", _default()

    def _write(self, directory: Path) -> None:
        names, lists = _read_lists(Path(self.source), "--source", self.domains)
        parts = blocks({name: len(labels) for name, (labels, _) in lists.items()}, _BLOCK)

        def read(block: str) -> Item:
            name, rows = parts[block]
            labels, encoded = lists[name]
            records, kept, lost = [], [], []
            for row in rows:
                path, image = encoded(row)
                try:
                    with decoding(image):
                        raw = Path(path).read_bytes()  # type: ignore[arg-type]
                        decode(io.BytesIO(raw))
                except CorruptExample as error:
                    lost.append(str(error))
                else:
                    records.append(raw)
                    kept.append(int(labels[row]))
            return records, {"list": name, "labels": kept}, lost

        settings, limit = {"domains": self.domains, "class_names": names}, self.max_corrupt
        write_shards(
            directory, "domainnet", settings, list(parts), read, per_shard=4, unit="block", max_corrupt=limit
        )


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
    """Folder with DOMAIN/CLASS/*.jpg and DOMAIN_train.txt, DOMAIN_test.txt with lines `DOMAIN/CLASS/FILE NUMBER`; or
    the output of `mvcl data prepare domainnet`. Empty: its default output folder."""
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
        if self.held_out and self.held_out not in self.domains:
            raise ValueError(
                f"held_out must be one of {', '.join(self.domains)}, or empty; got {self.held_out!r}"
            )
        seen = tuple(domain for domain in self.domains if domain != self.held_out)
        if len(seen) < 2:
            raise ValueError(f"data.domains must have at least 2 domains for training, got {', '.join(seen)}")
        path = _buckets.local_copy(self.path or _default())
        if not self.path or is_prepared(path):
            names, lists = _open_prepared(path, self.domains)
        else:
            names, lists = _read_lists(path, "data.path", self.domains)
        kept = keep(names, self.classes)
        chosen = {name: select(labels, names, kept) for name, (labels, _) in lists.items()}

        def plain(parts: Sequence[str]) -> Split:
            rows, labels = (np.concatenate(both) for both in zip(*(chosen[part] for part in parts)))
            which = np.repeat(np.arange(len(parts)), [len(chosen[part][0]) for part in parts])
            spec = ExampleSpec((_IMAGE,))
            return Split(labels, kept, spec, lambda row, epoch: (read(parts[which[row]], int(rows[row])),))

        def read(part: str, row: int) -> np.ndarray:
            file, name = lists[part][1](row)
            with decoding(name):
                return decode(file)

        splits = {part: plain([part]) for part in lists}
        splits["test"] = plain([f"{domain}/test" for domain in ([self.held_out] if self.held_out else seen)])
        if self.held_out:
            splits["seen"] = plain([f"{domain}/train" for domain in seen])
        members = [
            [rows[labels == number] for number in range(len(kept))]
            for rows, labels in (chosen[f"{domain}/train"] for domain in seen)
        ]
        shared = [number for number in range(len(kept)) if all(len(of[number]) for of in members)]
        if not shared:
            raise ValueError(f"no class has training images in each of the domains {', '.join(seen)}")

        def drawn(number: int, row: int, epoch: int, attempt: int) -> tuple[np.ndarray, ...]:
            images = []
            for view, (domain, of) in enumerate(zip(seen, members)):
                # A hash of these four, so that the draw does not depend on process, time or order.
                order = np.random.default_rng([self.draw_seed, epoch, row, view]).permutation(of[number])
                images.append(read(f"{domain}/train", int(order[attempt % len(order)])))
            return tuple(images)

        splits["train"] = class_draws(
            shared,
            kept,
            ExampleSpec((_IMAGE,) * len(seen), seen),
            images=sum(len(of[number]) for of in members for number in shared),
            size=self.classes_per_draw,
            seed=self.draw_seed,
            read=drawn,
        )
        return splits

    def expected(self) -> Outline | None:
        """345 classes and the draws of an epoch of the cleaned lists; None for other domains or classes."""
        seen = [domain for domain in self.domains if domain != self.held_out]
        if len(self.classes) > 1 or not set(seen) <= set(_TRAINING_IMAGES) or len(seen) < 2:
            return None
        images = sum(_TRAINING_IMAGES[domain] for domain in seen)
        examples = self.classes_per_draw * (images // (len(seen) * self.classes_per_draw))
        return Outline(examples, 345, ExampleSpec((_IMAGE,) * len(seen)))


def _default() -> Path:
    return data_root(None) / "mvcl_domainnet"


def _read_lists(root: Path, field: str, domains: Sequence[str]) -> tuple[tuple[str, ...], dict[str, Images]]:
    """Class names and the lists of a folder.

    Raises:
      ValueError: the folder or a list is missing; or a line of a list is not PATH NUMBER, points outside the folder,
        names a missing image, or gives a class another number than an earlier line.
    """
    if str(root) == "." or not root.is_dir():
        raise ValueError(f"{field} must be DomainNet's folder, got {'' if str(root) == '.' else str(root)!r}")
    if len(set(domains)) != len(domains) or not domains:
        raise ValueError(f"domains must be different names, got {', '.join(domains) or 'none'}")
    numbers: dict[str, int] = {}
    lists = {f"{d}/{part}": _read_list(root, f"{d}_{part}.txt", numbers) for d in domains for part in _LISTS}
    names = tuple(sorted(numbers, key=numbers.__getitem__))
    if absent := set(range(len(names))) - set(numbers.values()):
        raise ValueError(f"the lists of {root} have no image of class {min(absent)}, but of later ones")
    return names, lists


def _read_list(root: Path, name: str, numbers: dict[str, int]) -> Images:
    """The images of a list; adds its classes to `numbers`."""
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
            if (found := re.fullmatch(r"(.*) (\d{1,9})", text.strip(), re.ASCII)) is None:
                raise ValueError(f"line {line} must be PATH NUMBER, got {text[:80]!r}")
            path, number = PurePosixPath(found[1]), int(found[2])
            if "\\" in found[1] or path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
                raise ValueError(f"line {line} must name a file in the folder, got {found[1][:80]!r}")
            folder, name_of_class = root / path.parent, path.parts[-2]
            known = numbers.setdefault(name_of_class, number), names.setdefault(number, name_of_class)
            if known != (number, name_of_class):
                raise ValueError(
                    f"line {line}: class {number} is {name_of_class}, elsewhere {name_of_class} is class {known[0]} "
                    f"and class {number} is {known[1]}"
                )
            if folder not in there:
                there[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
            if path.name not in there[folder]:
                raise ValueError(f"line {line}: there is no image {path}; use the cleaned lists")
            paths.append(root / path)
            labels.append(number)
        if not paths:
            raise ValueError("it names no image")
    return np.asarray(labels, np.int32), lambda row: (paths[row], f"image {paths[row]}")


def _open_prepared(directory: Path, domains: Sequence[str]) -> tuple[tuple[str, ...], dict[str, Images]]:
    prepared = open_prepared(directory, "domainnet")
    with _files.reading(directory / "manifest.json", "manifest of DomainNet"):
        class_names = tuple(prepared.settings["class_names"])
        of_record, labels = prepared.of_records("list"), prepared.of_records("labels").astype(np.int32)
        if not np.isin(labels, np.arange(len(class_names))).all():
            raise ValueError(f"each image must have one of {len(class_names)} classes")

        def images(name: str) -> Images:
            records = np.flatnonzero(of_record == name)
            if not len(records):
                raise ValueError(f"it lacks the list {name}; it has {', '.join(np.unique(of_record))}")

            def encoded(row: int) -> tuple[io.BytesIO, str]:
                record = int(records[row])
                return io.BytesIO(
                    prepared.read(record, None)
                ), f"image {row} of {name}, {prepared.name(record)},"

            return labels[records], encoded

        return class_names, {f"{d}/{part}": images(f"{d}/{part}") for d in domains for part in _LISTS}
