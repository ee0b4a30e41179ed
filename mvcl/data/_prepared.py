"""Folders of ArrayRecord shards, converted from raw files once; an interrupted conversion resumes by shard.

A prepared folder has `manifest.json` and shards of a few items each (an item is the result of one raw file), with a
.json of facts about them. The manifest lists the shards when all are complete; before, it has the settings only.
"""

import bisect
import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np

from mvcl import _buckets, _files, _progress
from mvcl.data._splits import CorruptExample, decoding

_FORMAT = 1
# A file with a known number of records, as grain's data source takes it: it is opened when a record is read.
_File = namedtuple("_File", ("filename", "skip", "take", "examples_in_shard"))
Item = tuple[Sequence[bytes], Mapping[str, Any]]
"""Records of one raw file or of a block of them, and their entry in the manifest."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """An opened folder: its settings, the facts of each item, and the bytes of each record.

    Facts have the item's `name`, `count` of records and `labels`, one each; record numbers run over all items. `read`
    gets the record and its length, and is thread-safe.
    """

    settings: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]
    read: Callable[[int, int], bytes]

    @property
    def labels(self) -> np.ndarray:
        """(N,), of each record."""
        return np.asarray([label for item in self.items for label in item["labels"]])

    def of_records(self, fact: str) -> np.ndarray:
        """A fact of the item of each record."""
        return np.repeat([item[fact] for item in self.items], [item["count"] for item in self.items])


def convert(
    directory: str | None,
    name: str,
    settings: Mapping[str, Any],
    names: Sequence[str],
    read: Callable[[str], Item],
    max_corrupt: int = 0,
    per_shard: int = 4,
) -> Path:
    """Convert raw files into a folder of shards, or go on with an interrupted conversion; return the folder.

    `name` is KIND_VARIANT of what is prepared; the default folder is mvcl_NAME. `settings` (JSON) are everything that
    determines the records: a folder is resumed only with the same. `read` makes an item of each name, in order, and
    raises CorruptExample for a raw file to skip. `ValueError` if the folder has other content, or more files than
    `max_corrupt` are skipped.
    """
    place = _buckets.path(directory or data_root(None) / f"mvcl_{name}")
    if _buckets.is_remote(place):
        again = (name, settings, names, read, max_corrupt, per_shard)
        return _buckets.uploaded(place, lambda local: convert(local, *again))
    kind = name.partition("_")[0]
    plan = {"format": _FORMAT, "kind": kind, "settings": settings, "items": list(names)}
    plan = json.loads(json.dumps(plan))  # as after reading: tuples become lists
    parts = [names[i : i + per_shard] for i in range(0, len(names), per_shard)]
    shards: list[dict[str, Any]] = []
    skipped: list[str] = []
    with lock(place, "prepare"):
        _check_plan(place / "manifest.json", plan)
        for number, part in enumerate(_progress.track(parts, f"preparing {kind}", len(parts), "shards")):
            path = place / f"{kind}-{number:05d}-of-{len(parts):05d}.array_record"
            shards.append(_finished(path) or _write_shard(path, part, read, max_corrupt - len(skipped)))
            skipped += shards[-1]["skipped"]
        for reason in skipped:
            print(f"skipped: {reason}", file=sys.stderr)
        if not any(item["count"] for shard in shards for item in shard["items"]):
            raise ValueError(f"{place}: none of the {len(names)} raw files gave a record")
        _files.write_whole(place / "manifest.json", json.dumps(plan | {"shards": shards}))
    return place


def data_root(directory: str | None) -> Path:
    """The folder of prepared data sets, which may be in a bucket."""
    given = directory or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return _buckets.path(os.path.expanduser(given))


@contextlib.contextmanager
def lock(root: Path, name: str) -> Iterator[None]:
    """Context in which this process prepares; others wait."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{name.replace('/', '_')}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_plan(path: Path, plan: dict[str, Any]) -> None:
    """Write the plan of a conversion, or compare it with that of the interrupted one."""
    if not path.is_file():
        return _files.write_whole(path, json.dumps(plan))
    with _files.reading(path, "plan of a conversion"):
        before = _files.read_json(path)
        old, new = ({"kind": p["kind"], "format": p["format"], **p["settings"]} for p in (before, plan))
        differ = [f"{k} was {old.get(k)!r}, is {new.get(k)!r}" for k in old | new if old.get(k) != new.get(k)]
        if changed := sorted(set(before["items"]) ^ set(plan["items"])):
            differ.append(f"{len(changed)} raw files were added or removed, such as {changed[0]}")
        if differ:
            what = f"{path.parent} has other settings ({'; '.join(differ)})"
            raise ValueError(f"{what}; use another --directory, or remove this one")


def _finished(path: Path) -> dict[str, Any] | None:
    """Facts of a complete shard; None if the shard or its facts must be written again."""
    try:
        shard = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return shard if (path.name, path.stat().st_size) == (shard["file"], shard["bytes"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_shard(
    path: Path, names: Sequence[str], read: Callable[[str], Item], max_corrupt: int
) -> dict[str, Any]:
    """Write the items of a shard, and return the facts about them."""
    from array_record.python.array_record_module import ArrayRecordWriter

    for left in path.parent.glob(f".{path.name}.*"):  # left by a killed process
        left.unlink()
    items: list[dict[str, Any]] = []
    skipped: list[str] = []
    one = "group_size:1"  # one record per chunk, for random access
    with _files.replacing(path) as new, contextlib.closing(ArrayRecordWriter(str(new), one)) as writer:
        for name in names:
            try:
                records, facts = read(name)
            except CorruptExample as error:
                skipped.append(str(error))
                if len(skipped) > max_corrupt:
                    what = f"more files than --max-corrupt cannot be read; the last: {error}"
                    how = "Repair or remove them, or raise it; then repeat the command"
                    raise ValueError(f"{what}. {how}") from error
                continue
            items.append({"name": name, "count": len(records), **facts})
            for record in records:
                writer.write(record)
    shard = {"file": path.name, "bytes": path.stat().st_size, "items": items, "skipped": skipped}
    _files.write_whole(path.with_suffix(".json"), json.dumps(shard))
    return shard


@contextlib.contextmanager
def open_prepared(path: str | Path, name: str) -> Iterator[Prepared]:
    """Context in which errors name the manifest of an opened folder; without a path, the one that `convert` writes for
    this name by default.

    The size of each shard is checked; ArrayRecord checks its content when it is read.

    Raises:
      ValueError: the folder is missing, unfinished, of another kind, or lacks a shard.
    """
    directory, kind = _buckets.local_copy(path or data_root(None) / f"mvcl_{name}"), name.partition("_")[0]
    file, hint = directory / "manifest.json", f"; run: mvcl data prepare {kind} --help"
    if not file.is_file():
        raise ValueError(f"{str(directory)!r} is not a prepared folder{hint}")
    with _files.reading(file, "manifest"):
        manifest = _files.read_json(file)
        if (found := (manifest["kind"], manifest["format"])) != (kind, _FORMAT):
            raise ValueError(f"it has {found[0]} in format {found[1]}, expected {kind} in format {_FORMAT}")
        if "shards" not in manifest:
            raise ValueError(f"{file}: the folder is not finished{hint}")
        shards = manifest["shards"]
        files = [directory / Path(shard["file"]).name for shard in shards]
        for path, shard in zip(files, shards):
            size = path.stat().st_size if path.is_file() else "no"
            if size != shard["bytes"]:
                what = f"{path} has {size} bytes instead of {shard['bytes']} as in manifest.json"
                raise ValueError(f"{what}; remove it and its .json and prepare again")
        items = [item for shard in shards for item in shard["items"]]
        if wrong := [item["name"] for item in items if len(item["labels"]) != item["count"]]:
            raise ValueError(f"{wrong[0]} must have a label for each of its records")
        counts = [sum(int(item["count"]) for item in shard["items"]) for shard in shards]
        parts = [_File(str(file), 0, count, count) for file, count in zip(files, counts)]
        source = grain.sources.ArrayRecordDataSource(parts)
    ends = list(itertools.accumulate(counts))

    def name_of(row: int) -> str:
        return f"record {row} in {files[bisect.bisect_right(ends, row)]}"

    def read(row: int, size: int) -> bytes:
        with decoding(name_of(row), "remove the shard and its .json and prepare again"):
            raw = source[row]
        if size != len(raw):
            raise CorruptExample(f"{name_of(row)} has {len(raw)} bytes, but its manifest.json states {size}")
        return raw

    with _files.reading(file, f"manifest of {kind}"):
        yield Prepared(manifest["settings"], items, read)
