"""FGVC-Aircraft, which tfds lacks, in the layout of its official archive."""

import gzip
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy as np

from mvcl import _buckets
from mvcl._progress import Track, untracked
from mvcl.data._directories import data_root, lock
from mvcl.data._images import decode
from mvcl.data._splits import CorruptExample, ExampleSpec, Split

FOLDER = "fgvc-aircraft-2013b"
# Rows at the bottom of every image that name its owner; the data set's README asks to remove them.
_BANNER = 20
# What an archive may unpack to: bytes, and those for each byte of its own; files; and bytes that are read at once. The
# official one has 10,000 JPEG files, which gzip does not make smaller.
_UNPACKED, _RATIO, _MEMBERS, _AT_ONCE = 1 << 28, 4, 30_000, 1 << 24
_LISTS = {"train": "images_variant_trainval.txt", "test": "images_variant_test.txt"}
_WHERE = "fgvc-aircraft-2013b.tar.gz of robots.ox.ac.uk/~vgg/data/fgvc-aircraft"
_COMMAND = f"mvcl data prepare transfer --names aircraft --aircraft {FOLDER}.tar.gz"


class _Bounded(gzip.GzipFile):
    """A gzip file that gives few bytes at once, since tarfile reads the header of a member whatever its size."""

    def read(self, size: int | None = -1) -> bytes:
        """As `GzipFile.read`; raises a TarError for more bytes than a header has."""
        if size is None or not 0 <= size <= _AT_ONCE:
            raise tarfile.TarError(f"it states a header of {size} bytes")
        return super().read(size)


def open_aircraft(directory: str | None, track: Track = untracked) -> dict[str, Split]:
    """The splits `train` (training and validation images, as for the other sets) and `test`, labelled by variant.

    Args:
      directory: parent of the unpacked archive; None is TFDS_DATA_DIR or ~/tensorflow_datasets.
      track: reports the images that are looked for.

    Raises:
      ValueError: the archive is not unpacked there, or its lists are not as published; the message says what to do.
    """
    folder = _buckets.local_copy(data_root(directory) / FOLDER, track) / "data"
    if not (folder / "variants.txt").is_file():
        raise ValueError(
            f"data set 'aircraft' is not prepared in {data_root(directory)}; run: {_COMMAND} (it lacks variants.txt)"
        )
    names = tuple(_lines(folder / "variants.txt"))
    if not names or len(set(names)) < len(names) or "" in names:
        raise ValueError(f"{folder / 'variants.txt'} must have one variant in each line, all different")
    return {part: _split(folder, file, names, track) for part, file in _LISTS.items()}


def unpack_aircraft(archive: str, directory: str | None, track: Track = untracked) -> Path:
    """Unpack the official archive, unless it is there already, and check its lists; return the folder.

    Raises:
      ValueError: the archive is not given or cannot be read, or an image of its lists is missing.
    """
    root = data_root(directory)
    if _buckets.is_remote(root):
        if not (root / FOLDER / "data" / "variants.txt").is_file():
            _buckets.uploaded(root, lambda folder: unpack_aircraft(archive, folder, track), track)
        return root / FOLDER
    with lock(root, FOLDER):
        if not (root / FOLDER / "data" / "variants.txt").is_file():
            if not archive:
                raise ValueError(f"aircraft is not in tfds: download {_WHERE} (2.75 GB) and run: {_COMMAND}")
            try:
                _unpack(archive, root, track)
            # Besides errors of the disk, those of gzip and tarfile, which may be any for a damaged archive.
            except Exception as error:
                raise ValueError(
                    f"--aircraft must be {_WHERE}; {archive} cannot be unpacked: {error}"
                ) from error
    try:
        open_aircraft(directory, track)
    except ValueError as error:
        raise ValueError(f"{error}; it is unpacked from {archive}") from error
    return root / FOLDER


def _unpack(archive: str, root: Path, track: Track) -> None:
    """Write the files of the archive's data folder; the folder has its name only when it is whole."""
    unfinished = root / f"{FOLDER}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    most = _UNPACKED + _RATIO * os.stat(archive).st_size
    with _Bounded(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as file:
        for count, member in enumerate(track(file, f"unpacking {archive}", unit="files")):
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                raise tarfile.TarError(f"the path {member.name} is outside of its folder")
            if count > _MEMBERS or member.offset_data + member.size > most:
                raise tarfile.TarError(
                    f"it unpacks to more than {most} bytes or {_MEMBERS} files, at {member.name}"
                )
            inside = path.parts[:2] == (FOLDER, "data")
            content = file.extractfile(member) if inside and member.isfile() else None
            if content is not None:
                target = unfinished.joinpath(*path.parts[1:])
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as out:
                    shutil.copyfileobj(content, out)
    if not unfinished.is_dir():
        raise tarfile.TarError(f"it has no folder {FOLDER}/data")
    shutil.rmtree(root / FOLDER, ignore_errors=True)
    unfinished.rename(root / FOLDER)


def _split(folder: Path, file: str, names: tuple[str, ...], track: Track) -> Split:
    number = {name: i for i, name in enumerate(names)}
    files, labels = [], []
    for place, line in enumerate(_lines(folder / file), start=1):
        image, _, name = line.partition(" ")
        if name not in number or Path(image).name != image:
            raise ValueError(
                f"{folder / file}, line {place}: must be an image and a variant, got {line[:80]!r} (variants.txt)"
            )
        files.append(folder / "images" / f"{image}.jpg")
        labels.append(number[name])
    looked_for = track(files, f"looking for the images of {file}", len(files), "images")
    missing = [path for path in looked_for if not os.path.isfile(path)]
    if missing or not files:
        what = (
            f"{len(missing)} of {len(files)} images are missing, the first is {str(missing[0])[:300]}"
            if files
            else "no images"
        )
        raise ValueError(f"{folder / file}: {what}; unpack {_WHERE} again")
    called = lambda row: f"image {files[row]}"  # noqa: E731
    return Split(
        np.asarray(labels, np.int32),
        names,
        ExampleSpec(((None, None, 3),)),
        _reader(files, called),
        name=called,
    )


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _reader(files: list[Path], name: Callable[[int], str]) -> Callable[[int, int], tuple[np.ndarray, ...]]:
    def read(row: int, epoch: int) -> tuple[np.ndarray, ...]:
        image = decode(files[row], name(row))
        if len(image) <= _BANNER:
            raise CorruptExample(f"{name(row)} must be higher than its banner of {_BANNER} rows")
        return (image[:-_BANNER],)

    return read
