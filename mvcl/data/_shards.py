"""Convert raw files to ArrayRecord shards with counts and checksums; an interrupted conversion resumes by shard.

A prepared folder has `manifest.json` and shards of a few items each (an item is the result of one raw file). Shards
and the facts about their items are written under a temporary name and then renamed, so an interrupted folder has
complete shards only; the manifest is written last.
"""

import bisect
import dataclasses
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import grain

from mvcl import _files
from mvcl._progress import Track, untracked, write_line
from mvcl.data import _records
from mvcl.data._directories import lock
from mvcl.data._splits import CorruptExample

_FORMAT = 1
# Bytes that a record takes at least, with the header of its chunk.
_LEAST = 40
# Errors of JSON that is damaged or has other content.
_BAD_JSON = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


@dataclasses.dataclass(frozen=True)
class Item:
    """The result of one raw file, or of a block of raw files.

    Attributes:
      records: its records.
      facts: its entry in the manifest (JSON).
      skipped: (name, reason) of each file of a block that could not be read.
    """

    records: Sequence[bytes]
    facts: Mapping[str, Any]
    skipped: Sequence[tuple[str, str]] = ()


class _File(NamedTuple):
    """A file with a known number of records, as grain's data source takes it."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


@dataclasses.dataclass(frozen=True)
class Prepared:
    """An opened folder of shards.

    Attributes:
      directory: the folder.
      settings: of its preparation.
      items: facts of each item, with its `name` and `count` of records; record numbers run over all items.
      skipped: (name, reason) of each raw file that could not be read.
      read: record number -> its bytes. Thread-safe.
      name: record number -> its name in messages.
    """

    directory: Path
    settings: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]
    skipped: Sequence[tuple[str, str]]
    read: Callable[[int], bytes]
    name: Callable[[int], str]


def write(
    directory: Path,
    kind: str,
    settings: Mapping[str, Any],
    names: Sequence[str],
    read: Callable[[str], Item],
    *,
    per_shard: int,
    max_corrupt: int,
    unit: str,
    track: Track = untracked,
) -> Path:
    """Prepare a folder, or resume an interrupted preparation, and return the folder.

    Args:
      directory: the folder.
      kind: of its content, such as `eeg`; checked when it is opened.
      settings: everything that determines the records (JSON). A folder is resumed only with the same settings.
      names: the items, in order.
      read: name -> item; raises CorruptExample for a raw file to skip.
      per_shard: items per shard.
      max_corrupt: stop when more raw files than this cannot be read.
      unit: name of an item.
      track: reports the items of shards that are not there yet.

    Raises:
      ValueError: the folder has other content, there is nothing to prepare, or too many files are corrupt.
    """
    if not names:
        raise ValueError(f"there is no {unit} to prepare")
    plan = {"format": _FORMAT, "kind": kind, "settings": settings, "items": list(names)}
    plan = json.loads(json.dumps(plan))  # as after reading: tuples become lists
    parts = [names[i : i + per_shard] for i in range(0, len(names), per_shard)]
    shards: list[dict[str, Any]] = []
    skipped: list[list[str]] = []
    with lock(directory, "prepare"):
        _check_plan(directory, plan)
        paths = [
            directory / f"{kind}-{number:05d}-of-{len(parts):05d}.array_record"
            for number in range(len(parts))
        ]
        finished = [_finished(path) for path in paths]
        todo = [name for part, shard in zip(parts, finished) if shard is None for name in part]
        rest = "the rest of " if len(todo) < len(names) else ""
        tracked = track(todo, f"preparing {rest}{kind}", len(todo), f"{unit}s")
        for path, part, shard in zip(paths, parts, finished):
            if shard is None:
                mine = itertools.islice(tracked, len(part))
                shard = _write_shard(path, mine, read, before=len(skipped), max_corrupt=max_corrupt)
                _files.write_whole(path.with_suffix(".json"), json.dumps(shard))
            shards.append(shard)
            skipped += shard["skipped"]
        list(tracked)  # the last shard is written
        for _, reason in skipped:
            write_line(f"skipped: {reason}", sys.stderr)
        if not any(item["count"] for shard in shards for item in shard["items"]):
            last = skipped[-1][1] if skipped else names[-1]
            raise ValueError(
                f"{directory}: none of the {len(names)} raw files gave a record; the last: {last}"
            )
        _files.write_whole(directory / "manifest.json", json.dumps(plan | {"shards": shards}))
    return directory


def _write_shard(
    path: Path,
    names: Iterable[str],
    read: Callable[[str], Item],
    *,
    before: int,
    max_corrupt: int,
) -> dict[str, Any]:
    """Write the items of a shard, after `before` skipped files, and return the facts about them."""
    from array_record.python.array_record_module import ArrayRecordWriter

    for left in path.parent.glob(f".{path.name}.*"):  # left by a killed process
        left.unlink()
    items: list[dict[str, Any]] = []
    skipped: list[list[str]] = []
    with _files.replacing(path) as temporary:
        writer = ArrayRecordWriter(str(temporary), "group_size:1")  # one record per chunk, for random access
        try:
            for name in names:
                item = None
                try:
                    item = read(name)
                    skipped += map(list, item.skipped)
                except CorruptExample as error:
                    skipped.append([name, str(error)])
                if before + len(skipped) > max_corrupt:
                    raise ValueError(
                        f"more than max_corrupt = {max_corrupt} files cannot be read; the last: {skipped[-1][1]}. "
                        "Repair or remove them, or raise --max-corrupt; then repeat the command to resume"
                    )
                if item is not None:
                    for record in item.records:
                        writer.write(record)
                    items.append({"name": name, "count": len(item.records), **item.facts})
        finally:
            writer.close()
        size, checksum = temporary.stat().st_size, _checksum(temporary)
    return {"file": path.name, "bytes": size, "sha256": checksum, "items": items, "skipped": skipped}


def open_prepared(directory: Path, kind: str) -> Prepared:
    """Open a prepared folder. The size of each shard is checked; `verify` and reading check its content.

    Raises:
      ValueError: the folder is missing, unfinished, of another kind, or lacks a shard.
    """
    shards = _manifest(directory, kind)
    for shard in shards["shards"]:
        path = directory / shard["file"]
        if not os.path.isfile(path):
            raise ValueError(
                f"{directory} lacks the shard {path.name} of its manifest.json; prepare it again"
            )
        if path.stat().st_size != shard["bytes"]:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes instead of {shard['bytes']} as in manifest.json; remove it "
                "and its .json and prepare again"
            )
    counts = [sum(item["count"] for item in shard["items"]) for shard in shards["shards"]]
    files = [directory / shard["file"] for shard in shards["shards"]]
    ends = list(accumulate(counts))
    # With known counts, a file is opened only when one of its records is read.
    source = grain.sources.ArrayRecordDataSource(
        [_File(str(file), 0, count, count) for file, count in zip(files, counts)]
    )

    def name(row: int) -> str:
        return f"record {row} in {files[bisect.bisect_right(ends, row)]}"

    @cache
    def check(number: int) -> None:
        _records.check(files[number], counts[number])

    def read(row: int) -> bytes:
        try:
            check(bisect.bisect_right(ends, row))
            return source[row]
        except Exception as error:  # a wrong checksum is a RuntimeError, other damage may raise any
            raise CorruptExample(f"{name(row)} cannot be read: {error}") from error

    items = [item for shard in shards["shards"] for item in shard["items"]]
    lost = [(name, reason) for shard in shards["shards"] for name, reason in shard["skipped"]]
    return Prepared(directory, shards["settings"], items, lost, read, name)


@contextmanager
def facts(directory: Path) -> Iterator[None]:
    """Context for using the settings and items of a prepared folder, whose entries may be missing or of any type.

    Raises:
      ValueError: they cannot be used; the message names the manifest.
    """
    try:
        yield
    except (*_BAD_JSON, OverflowError) as error:
        reason = error if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        raise ValueError(f"{directory / 'manifest.json'} cannot be used: {str(reason)[:200]}") from error


def is_prepared(directory: Path) -> bool:
    """Whether a folder was prepared, at least in part."""
    return any((directory / name).is_file() for name in ("plan.json", "manifest.json"))


def verify(directory: Path, kind: str, track: Track = untracked) -> int:
    """Check the SHA-256 of every shard, and return how many there are.

    Raises:
      ValueError: shards are missing or damaged; the message names all of them.
    """
    shards = _manifest(directory, kind)["shards"]
    wrong = []
    for shard in track(shards, f"verifying {kind}", len(shards), "shards"):
        path = directory / shard["file"]
        if not path.is_file() or _checksum(path) != shard["sha256"]:
            wrong.append(shard["file"])
    if wrong:
        raise ValueError(
            f"{directory}: {len(wrong)} of {len(shards)} shards are missing or damaged: {', '.join(wrong)}; remove "
            "each with its .json and run the command again without --verify"
        )
    return len(shards)


def _manifest(directory: Path, kind: str) -> dict[str, Any]:
    path = directory / "manifest.json"
    if not path.is_file():
        state = "is not finished" if is_prepared(directory) else "is not a prepared folder"
        raise ValueError(
            f"{str(directory)!r} {state}; run: mvcl data prepare {kind} --help (it has no manifest.json)"
        )
    try:
        manifest = json.loads(path.read_text())
        found = manifest["kind"], manifest["format"]
        if found == (kind, _FORMAT):
            for shard in manifest["shards"]:
                _check_shard(shard)
            if not (manifest["shards"] and manifest["settings"].keys()):
                raise ValueError("it has no shards or no settings")
            return manifest
    except _BAD_JSON as error:
        raise ValueError(f"{path} is not a manifest ({error}); prepare the folder again") from error
    raise ValueError(
        f"{path} has {str(found[0])[:80]} in format {str(found[1])[:80]}, expected {kind} in format {_FORMAT}"
    )


def _check_shard(shard: Mapping[str, Any]) -> None:
    """Validate the facts of a shard, since a folder may come from elsewhere."""
    if Path(shard["file"]).name != shard["file"] or not shard["file"]:
        raise ValueError(f"its shard {shard['file']!r} is outside of the folder")
    numbers = [shard["bytes"], *(item["count"] for item in shard["items"])]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError(f"the sizes of {shard['file']} must be numbers")
    if sum(numbers[1:]) * _LEAST > shard["bytes"]:
        raise ValueError(
            f"{shard['file']} has {shard['bytes']} bytes, too few for {sum(numbers[1:])} records"
        )
    if not isinstance(shard["sha256"], str):
        raise ValueError(f"the checksum of {shard['file']} must be a string")
    if not all(len(entry) == 2 for entry in shard["skipped"]):
        raise ValueError(f"the skipped files of {shard['file']} must be a list of names and reasons")


def _check_plan(directory: Path, plan: dict[str, Any]) -> None:
    path = directory / "plan.json"
    if not path.is_file():
        _files.write_whole(path, json.dumps(plan))
        return
    try:
        before = json.loads(path.read_text())
        before["kind"], before["format"], before["items"], before["settings"].keys()
    except _BAD_JSON as error:
        raise ValueError(f"{path} is damaged ({error}); remove {directory} and prepare again") from error
    old, new = ({"kind": p["kind"], **p["settings"]} for p in (before, plan))
    differ = [
        f"{key} was {old.get(key)!r}, is {new.get(key)!r}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]
    if before["items"] != plan["items"]:
        gone, more = set(before["items"]) - set(plan["items"]), set(plan["items"]) - set(before["items"])
        differ.append(
            f"{len(more)} raw files were added and {len(gone)} removed, such as {sorted(more | gone)[:1]}"
        )
    if differ or before["format"] != plan["format"]:
        raise ValueError(
            f"{directory} has other settings ({'; '.join(differ) or 'another format'}); use another "
            "--directory, or remove this one"
        )


def _finished(path: Path) -> dict[str, Any] | None:
    """Facts of a complete shard; None if the shard or its facts must be written again."""
    facts = path.with_suffix(".json")
    if not (path.is_file() and facts.is_file()):
        return None
    try:
        shard = json.loads(facts.read_text())
        _check_shard(shard)
    except _BAD_JSON:
        return None
    return shard if (path.name, path.stat().st_size) == (shard["file"], shard["bytes"]) else None


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
