"""Checkpoints: the newest and the best are kept, written atomically and verified when read."""

import errno
import json
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy

from mvcl import _buckets, _progress

State = Any


class DamagedCheckpoints(ValueError):
    """No checkpoint of a run can be read."""


class UnwrittenCheckpoint(RuntimeError):
    """A checkpoint could not be written."""


class Checkpoints:
    """The checkpoints of a run folder.

    A checkpoint holds the state (parameters, statistics, optimiser, moving average, step) and a record (step,
    digest). All randomness is a function of seed and step, so no random state or data position is
    saved. Saving is asynchronous and atomic. A state may be scored after it is saved.
    """

    def __init__(
        self, folder: Path, keep: int, scores: Mapping[int, float] = {}, *, read_only: bool = False
    ) -> None:
        """Open or make a folder, where the `keep` newest checkpoints are kept, and the best.

        `scores`, step -> score, higher is better, may change: it counts when the next checkpoint is saved. `read_only`
        changes nothing, not even what a run that is going on has half written.

        Raises:
          DamagedCheckpoints: orbax cannot read what the folder says of its checkpoints.
        """
        unraisable = sys.unraisablehook

        def hook(found: Any) -> None:  # after one failure each pending read or write would print a traceback
            if str(found.exc_value) != "Event loop is closed":
                unraisable(found)

        if getattr(unraisable, "__qualname__", "") != hook.__qualname__:
            sys.unraisablehook = hook
        self._folder, self._scores = folder, scores
        self._place = folder if _buckets.is_remote(folder) else folder.absolute()
        options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation_policy.AnyPreservationPolicy(
                [preservation_policy.LatestN(keep), self]
            ),
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
        )
        try:
            self._manager = ocp.CheckpointManager(self._place, options=options)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise DamagedCheckpoints(
                f"the checkpoints in {folder} cannot be listed ({_reason(error)}): the metadata of one are damaged. "
                "Move it out of the folder, or restore the folder from a copy"
            ) from error

    def steps(self) -> list[int]:
        """Steps of the existing checkpoints, in increasing order."""
        return sorted(self._manager.all_steps())

    def best(self, steps: Iterable[int]) -> int | None:
        """Of these steps the one with the highest score, of equals the latest; None if none has one."""
        scored = [step for step in steps if step in self._scores]
        return max(scored, key=lambda step: (self._scores[step], step), default=None)

    def should_preserve(
        self, checkpoints: Sequence[Any], *, context: preservation_policy.PreservationContext
    ) -> Sequence[bool]:
        """Whether to keep each checkpoint: the best one. This makes the class a policy of orbax."""
        del context
        best = self.best(info.step for info in checkpoints)
        return [info.step == best for info in checkpoints]

    def save(self, step: int, state: State, record: dict[str, Any]) -> bool:
        """Start writing a checkpoint, with plain values as `record`; False if this step exists already.

        The state may be donated as soon as this returns.
        """
        digest = [int(word) for word in np.asarray(_digest(state))]
        whole = {**record, "step": step, "digest": digest}
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            record=ocp.args.JsonSave(whole | {"checksum": _checksum(whole)}),
        )
        with _named(self._folder):  # the error may be from the previous save
            return self._manager.save(step, args=args)

    def wait(self) -> None:
        """Wait until all checkpoints are on disk."""
        with _progress.during("writing checkpoints"), _named(self._folder):
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Finish writing and close the folder."""
        try:
            self.wait()
        finally:
            self._manager.close()

    def restore(self, like: State, step: int | None = None) -> tuple[State, dict[str, Any]] | None:
        """The newest readable state and its record, or None if there is no checkpoint.

        A checkpoint that cannot be read or fails its digest is moved to `damaged/`, and the previous one is read;
        with `step`, this one only. `like` is a tree of `jax.ShapeDtypeStruct` with shardings, which may be over other
        devices than the saved ones.

        Raises:
          DamagedCheckpoints: no checkpoint can be read, or not the one of `step`.
        """
        steps = self.steps() if step is None else [step]
        if not steps:
            return None
        for candidate in reversed(steps):
            try:
                return self._read(candidate, like)
            except Exception as error:  # a damaged file may raise anything
                reason = _reason(error)
                if step is not None:
                    raise DamagedCheckpoints(
                        f"the checkpoint of step {candidate} in {self._folder} cannot be read: {reason}"
                    ) from error
                earlier = [s for s in steps if s < candidate]
                instead = f"falling back to step {earlier[-1]}" if earlier else "there is no earlier one"
                _progress.line(f"checkpoint of step {candidate} is damaged ({reason}); {instead}")
                self._set_aside(candidate)
        raise DamagedCheckpoints(
            f"none of the checkpoints in {self._folder} can be read; they are in {self._folder / 'damaged'}. "
            "Restore the folder from a copy, or start in another --workdir"
        )

    def _read(self, step: int, like: State) -> tuple[State, dict[str, Any]]:
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(state=ocp.args.StandardRestore(like), record=ocp.args.JsonRestore()),
        )
        state, record = restored["state"], restored["record"]
        if record.pop("checksum", None) != _checksum(record):
            raise ValueError("its record differs from the one that was saved")
        if [int(word) for word in np.asarray(_digest(state))] != record["digest"]:
            raise ValueError("its arrays differ from those that were saved")
        return state, record

    def _set_aside(self, step: int) -> None:
        """Move a damaged checkpoint to `damaged/` for inspection."""
        if jax.process_index() == 0:
            damaged = self._place / "damaged"
            damaged.mkdir(exist_ok=True)
            if _buckets.is_remote(damaged):
                (damaged / ".keep").write_text("")  # a bucket has no folder without an object
            (self._place / str(step)).rename(damaged / f"{step}-{time.time_ns()}")
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices(f"damaged {step}")
        self._manager.reload()


def _checksum(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Raise errors of writing as `UnwrittenCheckpoint`, in one line with what to do."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split())
        known = map(os.strerror, (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES))
        reason = next((words for words in known if words in text), text[:300])
        raise UnwrittenCheckpoint(
            f"a checkpoint could not be written to {folder} ({reason}); earlier ones are intact. Free disk space or "
            "make the folder writable, then repeat the command to resume from the newest"
        ) from error


@jax.jit
def _digest(tree: State) -> jax.Array:
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
