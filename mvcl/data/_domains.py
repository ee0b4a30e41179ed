"""Images of the same classes in several domains, such as DomainNet."""

import dataclasses
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from mvcl import _buckets
from mvcl._progress import Track, untracked
from mvcl.data import _shards
from mvcl.data._classes import keep, select
from mvcl.data._directories import data_root
from mvcl.data._draws import class_draws
from mvcl.data._images import check, decode
from mvcl.data._splits import CorruptExample, ExampleSpec, Outline, Split

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


@dataclasses.dataclass(frozen=True)
class _List:
    """Images of one list: class numbers, encoded images and names."""

    labels: np.ndarray
    encoded: Callable[[int], tuple[Path | io.BytesIO, str]]

    def read(self, row: int) -> np.ndarray:
        """The decoded image."""
        return decode(*self.encoded(row))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareDomains:
    """Copy the image files of all lists into ArrayRecord files, for file systems that are slow with many small files. A
    repeated run resumes."""

    source: str = ""
    """DomainNet's folder: DOMAIN/CLASS/*.jpg and DOMAIN_train.txt, DOMAIN_test.txt."""
    domains: tuple[str, ...] = DOMAINS
    """The domains."""
    max_corrupt: int = 10
    """Stop when more images than this cannot be decoded."""
    directory: str | None = None
    """Folder to write; None: mvcl_domainnet under TFDS_DATA_DIR or ~/tensorflow_datasets."""
    verify: bool = False
    """Verify the checksums of the prepared folder and exit."""

    def run(self, track: Track = untracked) -> Path:
        """Write the folder and return it."""
        directory = _buckets.path(self.directory or _default())
        if self.verify:
            _shards.verify(_buckets.local_copy(directory, track), "domainnet", track)
            return directory
        if _buckets.is_remote(directory):
            return _buckets.uploaded(
                directory, lambda folder: dataclasses.replace(self, directory=folder).run(track), track
            )
        names, lists = _read_lists(Path(self.source), "--source", self.domains, track)
        blocks = [
            f"{name}-{start:06d}"
            for name, part in lists.items()
            for start in range(0, len(part.labels), _BLOCK)
        ]

        def read(block: str) -> _shards.Item:
            name, _, start = block.rpartition("-")
            part = lists[name]
            records, labels, lost = [], [], []
            for row in range(int(start), min(int(start) + _BLOCK, len(part.labels))):
                path, _ = part.encoded(row)
                assert isinstance(path, Path)
                try:
                    raw = path.read_bytes()
                    check(io.BytesIO(raw), f"image {path}")
                except (OSError, CorruptExample) as error:
                    lost.append((str(path), str(error)))
                    continue
                records.append(raw)
                labels.append(int(part.labels[row]))
            return _shards.Item(records, {"list": name, "labels": labels}, lost)

        settings = {"domains": self.domains, "class_names": names}
        return _shards.write(
            directory,
            "domainnet",
            settings,
            blocks,
            read,
            per_shard=4,
            max_corrupt=self.max_corrupt,
            unit="block",
            track=track,
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

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train`, `seen` and `test`, and one for each list."""
        if self.held_out and self.held_out not in self.domains:
            raise ValueError(
                f"data.held_out must be one of {', '.join(self.domains)}, or empty; got {self.held_out!r}"
            )
        seen = tuple(domain for domain in self.domains if domain != self.held_out)
        if len(seen) < 2:
            raise ValueError(
                f"data.domains must have at least 2 domains for training, got {', '.join(seen) or 'none'}"
            )
        path = _buckets.local_copy(self.path or _default(), track)
        if not self.path or _shards.is_prepared(path):
            names, lists = _open_prepared(path, self.domains)
        else:
            names, lists = _read_lists(path, "data.path", self.domains, track)
        kept = keep(names, self.classes)
        rows = {}
        for name, part in lists.items():
            chosen, labels = select(part.labels, names, kept)
            rows[name] = (chosen, labels)
        splits: dict[str, Split] = {
            name: _plain([(lists[name], chosen)], labels, kept) for name, (chosen, labels) in rows.items()
        }
        held = [self.held_out] if self.held_out else list(seen)
        splits["test"] = _plain(
            [(lists[f"{domain}/test"], rows[f"{domain}/test"][0]) for domain in held],
            np.concatenate([rows[f"{domain}/test"][1] for domain in held]),
            kept,
        )
        if self.held_out:
            splits["seen"] = _plain(
                [(lists[f"{domain}/train"], rows[f"{domain}/train"][0]) for domain in seen],
                np.concatenate([rows[f"{domain}/train"][1] for domain in seen]),
                kept,
            )
        splits["train"] = _train(
            [(lists[f"{domain}/train"], *rows[f"{domain}/train"]) for domain in seen],
            kept,
            seen,
            self.classes_per_draw,
            self.draw_seed,
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


def _plain(parts: Sequence[tuple[_List, np.ndarray]], labels: np.ndarray, names: tuple[str, ...]) -> Split:
    """A split of the chosen rows of several lists."""
    ends = np.cumsum([len(rows) for _, rows in parts])

    def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
        which = int(np.searchsorted(ends, row, side="right"))
        source, rows = parts[which]
        return (source.read(int(rows[row - (ends[which - 1] if which else 0)])),)

    return Split(labels, names, ExampleSpec((_IMAGE,)), read)


def _train(
    parts: Sequence[tuple[_List, np.ndarray, np.ndarray]],
    names: tuple[str, ...],
    domains: tuple[str, ...],
    size: int,
    seed: int,
) -> Split:
    """Draws of the classes that every part has."""
    members = [[rows[labels == number] for number in range(len(names))] for _, rows, labels in parts]
    shared = [number for number in range(len(names)) if all(len(of[number]) for of in members)]
    lists = f"{', '.join(f'{domain}_train.txt' for domain in domains)} or manifest.json"
    if not shared:
        raise ValueError(f"no class has training images in each of {', '.join(domains)} ({lists})")
    if len(shared) < size:
        raise ValueError(
            f"data.classes_per_draw must be at least 2 and at most the {len(shared)} classes that every training "
            f"domain has ({lists}), got {size}"
        )

    def read(number: int, row: int, epoch: int, attempt: int) -> tuple[np.ndarray, ...]:
        images = []
        for view, ((source, _, _), of) in enumerate(zip(parts, members)):
            rows = of[number]
            # A hash of these four, so that the draw does not depend on process, time or order.
            order = np.random.default_rng([seed, epoch, row, view]).permutation(rows)
            images.append(source.read(int(order[attempt % len(order)])))
        return tuple(images)

    return class_draws(
        shared,
        names,
        ExampleSpec((_IMAGE,) * len(domains), domains),
        images=sum(len(of[number]) for of in members for number in shared),
        size=size,
        seed=seed,
        read=read,
    )


def _read_lists(
    root: Path, field: str, domains: Sequence[str], track: Track
) -> tuple[tuple[str, ...], dict[str, _List]]:
    """Class names and the lists of a folder.

    Raises:
      ValueError: the folder or a list is missing; or a line of a list is not PATH NUMBER, points outside the folder,
        names a missing image, or gives a class another number than an earlier line.
    """
    if str(root) == "." or not root.is_dir():
        raise ValueError(f"{field} must be DomainNet's folder, got {'' if str(root) == '.' else str(root)!r}")
    if len(set(domains)) != len(domains) or not domains:
        raise ValueError(f"domains must be different names, got {', '.join(domains) or 'none'}")
    number_of: dict[str, int] = {}
    name_of: dict[int, str] = {}
    there: dict[str, set[str]] = {}
    found: dict[str, tuple[list[str], list[int]]] = {}
    for domain in domains:
        for name in _LISTS:
            file = root / f"{domain}_{name}.txt"
            if not file.is_file():
                lists = ", ".join(sorted(path.name for path in root.glob("*_*.txt"))) or "no lists"
                raise ValueError(f"{root} lacks {file.name}; it has {lists}")
            paths, labels = [], []
            missing = []
            lines = _lines(file)
            for line, text in enumerate(track(lines, f"reading {file.name}", len(lines), "lines"), start=1):
                path, number = _entry(text, f"{file.name}, line {line}")
                folder, _, image = path.rpartition("/")
                class_name = folder.rpartition("/")[2]
                if number_of.setdefault(class_name, number) != number or (
                    name_of.setdefault(number, class_name) != class_name
                ):
                    raise ValueError(
                        f"{file.name}, line {line}: class {number} is {class_name}, elsewhere class "
                        f"{number_of[class_name]} is {class_name} and class {number} is {name_of.get(number)}"
                    )
                # One listing per folder: checking each of 600,000 files takes minutes on a network.
                if folder not in there:
                    there[folder] = _file_names(root / folder)
                if image not in there[folder]:
                    missing.append(path)
                paths.append(path)
                labels.append(number)
            if missing:
                raise ValueError(
                    f"{file.name} names {len(missing)} images that are not in {root}, such as {missing[0]}; "
                    "unpack the domain's archive there, or use the cleaned lists"
                )
            if not paths:
                raise ValueError(f"{root / file.name} names no image")
            found[f"{domain}/{name}"] = (paths, labels)
    numbers = sorted(name_of)
    if numbers != list(range(len(numbers))):
        absent = next(i for i, number in enumerate(numbers) if i != number)
        lists = ", ".join(f"{name.replace('/', '_')}.txt" for name in found)
        raise ValueError(
            f"the lists {lists} of {root} number classes up to {numbers[-1]}, and class {absent} has no image"
        )

    def opened(paths: list[str], labels: list[int]) -> _List:
        return _List(
            np.asarray(labels, np.int32), lambda row: (root / paths[row], f"image {root / paths[row]}")
        )

    return tuple(name_of[i] for i in numbers), {name: opened(*part) for name, part in found.items()}


def _file_names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (OSError, ValueError):  # it is missing, or a list has bytes that no path has
        return set()


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not a text file: {error}") from error


def _entry(text: str, where: str) -> tuple[str, int]:
    """(path, class number) of a line."""
    path, _, number = text.strip().rpartition(" ")
    if not path or not number.isdecimal() or len(number) > 9:
        raise ValueError(f"{where} must be PATH NUMBER, got {text[:80]!r}")
    parts = PurePosixPath(path).parts
    if "\\" in path or path.startswith("/") or ".." in parts or len(parts) < 2:
        raise ValueError(f"{where} must name a file DOMAIN/CLASS/FILE in the folder, got {path[:80]!r}")
    return str(PurePosixPath(path)), int(number)


def _open_prepared(directory: Path, domains: Sequence[str]) -> tuple[tuple[str, ...], dict[str, _List]]:
    prepared = _shards.open_prepared(directory, "domainnet")
    with _shards.facts(directory):
        there = [str(domain) for domain in prepared.settings["domains"]]
        class_names = tuple(str(name) for name in prepared.settings["class_names"])
        starts = np.concatenate([[0], np.cumsum([item["count"] for item in prepared.items])])
        found: dict[str, tuple[list[np.ndarray], list[int]]] = {}
        for start, item in zip(starts, prepared.items):
            rows, labels = found.setdefault(str(item["list"]), ([], []))
            rows.append(start + np.arange(item["count"]))
            labels += item["labels"]
        lists = {
            name: (np.concatenate(rows), np.asarray(labels, np.int32))
            for name, (rows, labels) in found.items()
        }
        for name, (numbers, classes) in lists.items():
            if classes.shape != numbers.shape or np.any((classes < 0) | (classes >= len(class_names))):
                raise ValueError(f"each image of {name} must have one of {len(class_names)} classes")
        lacking = [
            f"{domain}/{name}" for domain in there for name in _LISTS if f"{domain}/{name}" not in lists
        ]
        if lacking or len(set(class_names)) < len(class_names):
            raise ValueError(f"it lacks the list {lacking[0]}" if lacking else "two classes have one name")
    unknown = [domain for domain in domains if domain not in there]
    if unknown:
        raise ValueError(
            f"{directory / 'manifest.json'} lacks the domain {unknown[0]!r}; it has {', '.join(there)}"
        )

    def opened(name: str, rows: np.ndarray, labels: np.ndarray) -> _List:
        def encoded(row: int) -> tuple[io.BytesIO, str]:
            record = int(rows[row])
            return io.BytesIO(prepared.read(record)), f"image {row} of {name}, {prepared.name(record)},"

        return _List(labels, encoded)

    return class_names, {
        name: opened(name, *part) for name, part in lists.items() if name.rpartition("/")[0] in domains
    }
