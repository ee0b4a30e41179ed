"""Checkpoints in S3: orbax writes to gs:// and local folders, so they are written locally and copied."""

from contextlib import suppress
from pathlib import Path

import jax

from mvcl import _buckets

# Last object of a copied checkpoint; without it the copy is not complete.
COMPLETE = "copy_complete"


class Staging:
    """A local folder with the complete checkpoints of a folder in S3, and the way back."""

    def __init__(self, place: Path) -> None:
        """Copy the checkpoints that are there.

        Raises:
          ValueError: the run has several processes: each would have only its part of a checkpoint.
        """
        if jax.process_count() > 1:
            raise ValueError(
                f"{place.parent}: a run of {jax.process_count()} processes needs a folder that all of them write to; "
                "use gs:// or a shared folder"
            )
        self._place = place
        self.folder = _buckets.beside(self)
        for name in self._complete():
            if not name.startswith("damaged/"):
                _buckets.download(place / name, self.folder / name)
                (self.folder / name / COMPLETE).unlink()

    def push(self) -> None:
        """Make the bucket like the local folder: new checkpoints are copied, deleted or moved ones are deleted."""
        here = [path for path in (*self.folder.iterdir(), *self.folder.glob("damaged/*")) if path.is_dir()]
        names = {path.relative_to(self.folder).as_posix() for path in here} - {"damaged"}
        there = self._complete()
        client = _buckets.filesystem(self._place)
        with _buckets.named(self._place):
            for name in sorted(names - there):
                with suppress(FileNotFoundError):  # left by a kill
                    client.rm(f"{self._place}/{name}", recursive=True)
                _buckets.upload(self.folder / name, self._place / name)
                client.pipe_file(f"{self._place}/{name}/{COMPLETE}", b"")
            for name in sorted(there - names):
                if not name.startswith("damaged/"):
                    client.rm_file(f"{self._place}/{name}/{COMPLETE}")
                    client.rm(f"{self._place}/{name}", recursive=True)

    def _complete(self) -> set[str]:
        """Names of the complete checkpoints in the bucket."""
        with _buckets.named(self._place):
            files = _buckets.filesystem(self._place).find(str(self._place))
        root = str(self._place).partition("://")[2]
        ends = [file.removeprefix(root).strip("/") for file in files if file.endswith(f"/{COMPLETE}")]
        return {end.removesuffix(f"/{COMPLETE}") for end in ends}
