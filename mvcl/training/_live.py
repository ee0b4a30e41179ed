"""The page of a run, written while the run trains."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

# Seconds before the first page, of which runs of seconds have none, and between two where none is asked for earlier.
_FIRST, _EVERY = 5.0, 60.0
# Processor time of the pages, as a share of the wall time.
_SHARE = 0.05


class LivePage:
    """Writes a page in a thread: when it is asked for, and about every minute.

    The thread waits after a page until its processor time is 5 % of the time since, so that the pages of a long log,
    which take longer, are written less often. A page that cannot be written is logged and does not stop the run.
    """

    def __init__(self, write: Callable[[], Path] | None, log: Callable[[str], None]) -> None:
        """Write with `write`, which returns the path of the page; None: no pages."""
        self._write, self._log = write, log
        self._asked, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: set[tuple[type, int | None]] = set()
        self._written = False

    def ask(self) -> None:
        """Write the page soon; the first call starts the thread."""
        self._asked.set()
        if self._write is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread, then write the page once more, if it was written before.

        A page that is being written is waited for, however long it takes: it must not replace a later one.
        """
        self._ended.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join()
            if self._written:
                self._once()

    def _run(self) -> None:
        self._ended.wait(_FIRST)
        while not self._ended.is_set():
            self._asked.clear()
            self._ended.wait(self._once() / _SHARE)
            self._asked.wait(_EVERY)

    def _once(self) -> float:
        """Write the page; the processor time that this thread took, in seconds."""
        assert self._write is not None
        start = time.thread_time()
        text = ""
        try:
            path = self._write()
        except Exception as error:  # a run must not end for its page: the log names each reason once
            reason = (type(error), getattr(error, "errno", None))
            if reason not in self._failed:
                self._failed.add(reason)
                text = f"warning: the report was not written: {type(error).__name__}: {error}"
        else:
            if not self._written and not self._ended.is_set():
                text = f"report: {path} (renewed while the run trains)"
            self._written = True
        if text:
            with contextlib.suppress(OSError, ValueError):  # a log that is closed
                self._log(text)
        return time.thread_time() - start
