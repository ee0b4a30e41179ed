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
_LOOK_SECONDS = 5.0
# After a take-over, the time in which another process that takes over at once replaces the lock.
_SETTLE_SECONDS = 1.0
# Tokens of the locks that this process holds: its number may be that of an owner that has ended.
_HELD: set[str] = set()


class Locked(ValueError):
    """Another run is using the folder."""


@contextmanager
def held(path: Path, log: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the lock object `path`; a thread renews it.

    The lock of a killed process is taken over: at once on its machine, elsewhere after a wait of LEASE_SECONDS in which
    nobody renews it, so that a run goes on by itself on the machine that replaces a lost one. If another process takes
    the lock over, because this one could not renew it, this process gets SIGTERM.

    Raises:
      Locked: another run holds the lock and is alive.
      ValueError: the folder is not writable.
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
    named = f"process {owner.get('pid', 0)} of {owner.get('host', 'an unknown host')}"
    gone = not owner or _is_dead(owner)
    if not gone and (_is_here(owner) or _is_renewed(client, path, owner, named, log)):
        raise Locked(
            f"another run is using {path.parent}: {named}; wait until it ends, or choose another --workdir"
        )
    log(f"taking over the lock of {named}, which has ended or does not renew it")
    with suppress(FileNotFoundError):
        client.rm_file(str(path))
    mine = _create(client, path, token)
    time.sleep(_SETTLE_SECONDS)
    if not mine or _read(client, path).get("token") != token:
        raise Locked(f"another run is using {path.parent}; it took the lock at the same time")


def _is_renewed(
    client: Any, path: Path, owner: dict[str, Any], named: str, log: Callable[[str], None]
) -> bool:
    """Whether the owner is alive: False if the lock stays as it is for the lease, or is released.

    The clocks of two machines are not compared.
    """
    log(f"{path.parent} is locked by {named}; waiting for a sign of it, at most {LEASE_SECONDS:.0f} s")
    started = time.monotonic()
    while time.monotonic() - started < LEASE_SECONDS:
        time.sleep(_LOOK_SECONDS)
        now = _read(client, path)
        if now != owner:
            return bool(now)
    return False


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


def _is_here(owner: dict[str, Any]) -> bool:
    """Whether the owner was a process of this machine, since its last start."""
    return (owner.get("host"), owner.get("boot")) == (socket.gethostname(), _boot())


def _is_dead(owner: dict[str, Any]) -> bool:
    """Whether the owner was a process of this machine that has ended."""
    if not _is_here(owner):
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
