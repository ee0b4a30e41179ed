"""The lock of a run folder in a bucket: an object that its owner renews."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from mvcl import _buckets

# A lock that was not renewed for so long belongs to nobody.
LEASE_SECONDS = 180.0
_RENEW_SECONDS = 20.0
# After a take-over, the time in which another process that takes over at once replaces the lock.
_SETTLE_SECONDS = 1.0
# Tokens of the locks that this process holds: its number may be that of an owner that has ended.
_HELD: set[str] = set()


@contextmanager
def held(path: Path, log: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the lock object `path`; a thread renews it.

    The lock of a killed process is taken over: at once on its machine, elsewhere when its lease has ended. If another
    process takes the lock over, because this one could not renew it, this process gets SIGTERM.

    Raises:
      ValueError: another run holds the lock, and the message says how long to wait if that run has been killed; or the
        folder is not writable.
    """
    client, token, stop = _buckets.filesystem(path), uuid4().hex, threading.Event()
    try:
        with _buckets.named(path):
            _take(client, path, token, log)
    except OSError as error:
        raise ValueError(f"--workdir {path.parent} is not writable ({error}); choose another") from error

    def renew() -> None:
        while not stop.wait(_RENEW_SECONDS):
            with suppress(Exception):  # the next turn tries again
                if _read(client, path).get("token", token) != token:  # a lock that was deleted is made again
                    log(f"another run has taken the lock {path}; this one stops")
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                client.pipe_file(str(path), _content(token))

    _HELD.add(token)
    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5.0)  # not as long as a client repeats its requests
        _HELD.discard(token)
        with suppress(Exception):  # a lock that is left ends by itself
            if _read(client, path).get("token") == token:
                client.rm_file(str(path))


def _take(client: Any, path: Path, token: str, log: Callable[[str], None]) -> None:
    if _create(client, path, token):
        return
    owner = _read(client, path)
    age = time.time() - owner.get("time", 0.0)
    host, pid = owner.get("host", "an unknown host"), owner.get("pid", 0)
    if not _is_dead(owner) and age < LEASE_SECONDS:
        raise ValueError(
            f"another run is using {path.parent}: process {pid} of {host}, seen {max(age, 0):.0f} s ago; wait until it "
            f"ends, or choose another --workdir. If it was killed, repeat the command in "
            f"{LEASE_SECONDS - age:.0f} s"
        )
    log(f"taking over the lock of process {pid} of {host}, which has ended or not renewed it for {age:.0f} s")
    with suppress(FileNotFoundError):
        client.rm_file(str(path))
    mine = _create(client, path, token)
    time.sleep(_SETTLE_SECONDS)
    if not mine or _read(client, path).get("token") != token:
        raise ValueError(f"another run is using {path.parent}; it took the lock at the same time")


def _create(client: Any, path: Path, token: str) -> bool:
    """Make the object unless it exists; the store decides between several writers."""
    try:
        client.pipe_file(str(path), _content(token), mode="create")
    except FileExistsError:
        return False
    return True


def _content(token: str) -> bytes:
    owner = {"token": token, "host": socket.gethostname(), "boot": _boot(), "pid": os.getpid()}
    return json.dumps(owner | {"time": time.time()}).encode()


def _read(client: Any, path: Path) -> dict[str, Any]:
    """The owner; empty if there is none or the object is not a lock."""
    try:
        owner = json.loads(client.cat_file(str(path)))
    except (FileNotFoundError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _is_dead(owner: dict[str, Any]) -> bool:
    """Whether the owner was a process of this machine, since its last start, that has ended."""
    if (owner.get("host"), owner.get("boot")) != (socket.gethostname(), _boot()):
        return False
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return owner["pid"] == os.getpid() and owner.get("token") not in _HELD


def _boot() -> str:
    """Identifies the machine since its last start, and the container; empty where it is unknown."""
    with suppress(OSError):
        # Containers of a machine may share its name, but not the numbers of processes.
        boot, processes = Path("/proc/sys/kernel/random/boot_id"), "/proc/self/ns/pid"
        return f"{boot.read_text().strip()} {os.readlink(processes)}"
    return ""
