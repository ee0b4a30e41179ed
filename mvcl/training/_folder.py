"""The files of a run folder: its lock, config and logs; and its checkpoints, written atomically, verified when read."""

import dataclasses
import errno
import fcntl
import json
import logging
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy

from mvcl import _buckets, _files, _progress, data, methods
from mvcl.training import _optimizers, _serialise
from mvcl.training._config import Config, free

LOG = "metrics.jsonl"
SCORE = "score"
"""A row of metrics.jsonl with this key is a score; its value is the name of the entry with the number."""


class Locked(ValueError):
    """Another run is using the folder."""


@contextmanager
def locked(workdir: Path, name: str = ".lock") -> Iterator[None]:
    """Make the folder, if it is missing, and lock it by `flock`; `Locked` if another run has. A bucket has no lock."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = None if _buckets.is_remote(workdir) else open(workdir / name, "w")
    except OSError as error:
        raise ValueError(f"--workdir {workdir} is not writable ({error}); choose another") from error
    with file or nullcontext():
        for wait in (0.01, 0.1, None):  # a report that looks whether a run is alive holds it for less
            try:
                if file is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if wait is None:
                    why = f"another run is using {workdir}; wait until it ends, or choose another --workdir"
                    raise Locked(why) from error
                time.sleep(wait)
        yield


def claim(workdir: Path, config: Config, splits: Mapping[str, data.Split]) -> None:
    """Write the config, and what the run keeps of its data, or check that those of the folder are the same; log which
    user code has changed. A folder whose run has neither logged nor saved a step is taken over.

    `ValueError` if the folder belongs to another config or other data, or holds other files.
    """
    path, kept = workdir / "config.json", workdir / "data.json"
    if path.is_file() and not (read_log(workdir / LOG) or any((workdir / "checkpoints").glob("[0-9]*"))):
        for file in (path, kept, workdir / "views.npz"):
            file.unlink(missing_ok=True)
    elif not path.is_file():
        there = workdir.iterdir() if workdir.is_dir() else ()  # a new folder in a bucket is not there yet
        if unexpected := sorted(p.name for p in there if not p.name.startswith(".")):
            some = ", ".join(unexpected[:3])
            raise ValueError(f"--workdir {workdir} has files ({some}) but no run; choose an empty folder")
    train = splits["train"]
    digests = {name: of.digest() for name, of in splits.items() if of is not train or name == "train"}
    if path.is_file():
        _check_same(path, config)
    before = _files.read_json(kept)["digests"] if kept.is_file() else digests
    if changed := [name for name, digest in before.items() if digest != digests.get(name)]:
        what = f"split {changed[0]} differs in its contents, or its files in size or time"
        how = f"Choose another --workdir; if these are copies of the same files, remove {kept}"
        raise ValueError(f"--workdir {workdir} was trained on other data: {what}. {how}")
    _files.write_whole(path, _serialise.to_json(config))
    if not kept.is_file():
        outline = dataclasses.asdict(train.outline) | {"class_names": train.class_names}
        record = {"digests": digests, **outline, "scaling": train.scaling, "folder": str(Path.cwd())}
        _files.write_whole(kept, json.dumps(record) + "\n")


def _check_same(file: Path, config: Config) -> None:
    """Raise `ValueError` if the config may not resume the run of this one; log which user code has changed."""
    with _files.reading(file, "config"):
        saved = _files.read_json(file)
        old, before = _serialise.flatten(saved), _serialise.digests(saved)
    given = _serialise.tree(config)
    new, now = _serialise.flatten(given), _serialise.digests(given)
    differing = differences(old, new, free("resume"))
    longer = [name for name in ("train.epochs", "train.steps") if 0 < (old[name] or 0) < (new[name] or 0)]
    steps = all(line.partition(" ")[0] in longer for line in differing)
    scheduled = isinstance(config.method, (methods.Following, methods.Fused))  # by the share of the steps
    if differing and not (steps and not scheduled and _optimizers.constant(config.optimizer)):
        more = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
        why = "; its learning rate or method is scheduled to the run's end, which stays where it is" * steps
        what = f"--workdir {file.parent} belongs to another config: {'; '.join(differing[:3])}{more}{why}"
        raise ValueError(f"{what}. Choose another --workdir, or pass the same options to resume it")
    for name, digest in before.items():
        if digest != now.get(name):
            since = f"has changed since this run started (digest {digest}, now {now.get(name)})"
            _progress.line(f"{name} {since}; the run resumes with the new code")


def differences(old: dict[str, Any], new: dict[str, Any], free: tuple[str, ...] = ()) -> list[str]:
    """The leaves that differ between two flat trees, in words; names that begin with one of `free` may."""
    changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    shown = [name for name in changed if not name.startswith(free)]
    return [f"{name} was {old.get(name)!r} and is {new.get(name)!r}" for name in shown]


def read_log(file: Path) -> list[dict[str, Any]]:
    """The rows of a log file; an incomplete last line and damaged ones are skipped."""
    rows = []
    for line in file.read_bytes().decode(errors="replace").splitlines() if file.is_file() else []:
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            known = isinstance(row, dict) and type(row.get("step", 0)) is int
            if known and isinstance(row.get("time", 0.0), (int, float)):
                rows.append(row)
    return rows


def rewind_log(workdir: Path, step: int, *, done: bool = False) -> None:
    """Remove the rows after this step, which will be logged again; `done`: it is the last of the run. A refresh
    precedes its step, which is not done yet."""
    for file, end in ((workdir / LOG, step + 1), (workdir / "refresh.jsonl", step + done)):
        if file.name == LOG or file.is_file():
            rows = [row for row in read_log(file) if row.get("step", 0) < end]
            _files.write_whole(file, "".join(json.dumps(row) + "\n" for row in rows))


class Checkpoints:
    """The checkpoints of a run folder: the state, and a record with its step and digest.

    All randomness is a function of seed and step, so no random state or data position is saved. Saving is asynchronous
    and atomic. A state may be scored after it is saved.
    """

    def __init__(self, folder: Path, keep: int, *, read_only: bool = False) -> None:
        """Open or make a folder, where the `keep` newest checkpoints are kept, and the best.

        `scores`, step -> score, higher is better, are those of the log beside the folder; they count when the next
        checkpoint is saved. `read_only` changes nothing, not even what a run that is going on has half written.
        """
        rows = [row for row in read_log(folder.parent / LOG) if SCORE in row]
        found = [(row.get("step"), row.get(str(row[SCORE]))) for row in rows]
        self.scores = {step: x for step, x in found if isinstance(step, int) and isinstance(x, float)}
        unraisable = sys.unraisablehook

        def hook(found: Any) -> None:  # after one failure each pending read or write would print a traceback
            if str(found.exc_value) != "Event loop is closed":
                unraisable(found)

        if getattr(unraisable, "__qualname__", "") != hook.__qualname__:
            sys.unraisablehook = hook
        self._folder = folder
        self._place = folder if _buckets.is_remote(folder) else folder.absolute()
        logger = logging.getLogger("absl")
        level = logger.level
        logger.setLevel(logging.ERROR)  # orbax warns of what `read_only` means
        kept = preservation_policy.AnyPreservationPolicy([preservation_policy.LatestN(keep), self])
        writes = {"cleanup_tmp_directories": not read_only, "read_only": read_only}
        options = ocp.CheckpointManagerOptions(preservation_policy=kept, **writes)
        try:
            self._manager = ocp.CheckpointManager(self._place, options=options)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            what = f"the checkpoints in {folder} cannot be listed ({_buckets.reason(error)})"
            raise ValueError(f"{what}: move a damaged one out, or restore from a copy") from error
        finally:
            logger.setLevel(level)

    def steps(self) -> list[int]:
        """Steps of the existing checkpoints, in increasing order."""
        return sorted(self._manager.all_steps())

    def best(self, steps: Iterable[int]) -> int | None:
        """Of these steps the one with the highest score, of equals the latest; None if none has one."""
        scored = [step for step in steps if step in self.scores]
        return max(scored, key=lambda step: (self.scores[step], step), default=None)

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: preservation_policy.PreservationContext
    ) -> Sequence[bool]:
        """Whether to keep each checkpoint: the best one. This makes the class a policy of orbax."""
        best = self.best(info.step for info in checkpoints)
        return [info.step == best for info in checkpoints]

    def save(self, step: int, state: Any, record: dict[str, Any]) -> bool:
        """Start writing a checkpoint, with plain values as `record`; False if it exists. The state may be donated."""
        whole = {**record, "step": step, "digest": np.asarray(_digest(state)).tolist()}
        checksum = zlib.crc32(json.dumps(whole, sort_keys=True).encode())
        saved = ocp.args.JsonSave(whole | {"checksum": checksum})
        with _named(self._folder):  # the error may be from the previous save
            args = ocp.args.Composite(state=ocp.args.StandardSave(state), record=saved)
            return self._manager.save(step, args=args)

    def wait(self) -> None:
        """Wait until all checkpoints are on disk."""
        with _progress.during("writing checkpoints"), _named(self._folder):
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Finish writing and close the folder."""
        with closing(self._manager):
            self.wait()

    def restore(self, like: Any, step: int | None = None) -> tuple[Any, dict[str, Any]] | None:
        """The newest readable state and its record, or None if there is no checkpoint.

        A checkpoint that cannot be read or fails its digest is moved to `damaged/`, and the previous one is read;
        with `step`, this one only; `ValueError` if none can be read. `like` is a tree of `jax.ShapeDtypeStruct`
        with shardings, which may be over other devices than the saved ones.
        """
        damaged = self._place / "damaged"
        if not (steps := self.steps() if step is None else [step]):
            return None
        for candidate in reversed(steps):
            try:
                return self._read(candidate, like)
            except Exception as error:  # a damaged file may raise anything
                reason = _buckets.reason(error)
                if step is not None:
                    what = f"the checkpoint of step {candidate} in {self._folder} cannot be read: {reason}"
                    raise ValueError(what) from error
                earlier = [s for s in steps if s < candidate]
                instead = f"falling back to step {earlier[-1]}" if earlier else "there is no earlier one"
                _progress.line(f"checkpoint of step {candidate} is damaged ({reason}); {instead}")
                if jax.process_index() == 0:
                    damaged.mkdir(exist_ok=True)
                    if _buckets.is_remote(damaged):
                        (damaged / ".keep").write_text("")  # a bucket has no folder without an object
                    (self._place / str(candidate)).rename(damaged / f"{candidate}-{time.time_ns()}")
                if jax.process_count() > 1:
                    multihost_utils.sync_global_devices(f"damaged {candidate}")
                self._manager.reload()
        what = f"none of the checkpoints in {self._folder} can be read; they are in {damaged}"
        raise ValueError(f"{what}. Restore the folder from a copy, or start in another --workdir")

    def _read(self, step: int, like: Any) -> tuple[Any, dict[str, Any]]:
        args = ocp.args.Composite(state=ocp.args.StandardRestore(like), record=ocp.args.JsonRestore())
        restored = self._manager.restore(step, args=args)
        state, record = restored["state"], restored["record"]
        checksum = record.pop("checksum", None)
        if checksum != zlib.crc32(json.dumps(record, sort_keys=True).encode()):
            raise ValueError("its record differs from the one that was saved")
        if np.asarray(_digest(state)).tolist() != record["digest"]:
            raise ValueError("its arrays differ from those that were saved")
        return state, record


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Raise errors of writing as `RuntimeError`, in one line with what to do."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split())
        known = map(os.strerror, (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES))
        reason = next((words for words in known if words in text), text[:300])
        what = f"a checkpoint could not be written to {folder} ({reason}); earlier ones are intact"
        how = "Free disk space or make the folder writable, then repeat the command to resume from the newest"
        raise RuntimeError(f"{what}. {how}") from error


@jax.jit
def _digest(tree: Any) -> jax.Array:
    """A 32-bit checksum of each array, independent of its sharding."""
    words = []
    for leaf in jax.tree.leaves(tree):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if leaf.dtype == jnp.bool_:
            leaf = leaf.astype(jnp.uint8)
        unsigned = jnp.dtype(f"uint{min(8 * leaf.dtype.itemsize, 32)}")
        bits = jax.lax.bitcast_convert_type(leaf, unsigned).astype(jnp.uint32).reshape(-1)
        # Different odd factors for each position, so that flipped bits and swapped entries change the sum.
        places = 2 * jnp.arange(bits.size, dtype=jnp.uint32) + 1
        words.append(jnp.sum(bits * (places * jnp.uint32(2654435761) | 1), dtype=jnp.uint32))
    return jnp.stack(words)
