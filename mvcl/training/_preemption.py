"""Notices of preemption and maintenance from Google Cloud's metadata server."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from mvcl._progress import write_line
from mvcl.training._signals import MAINTENANCE, PREEMPTED

_PRODUCT = Path("/sys/class/dmi/id/product_name")
# Key of the metadata -> (its value when the machine will end, reason to stop). Live migration does not end it.
_KEYS = {
    "preempted": ("TRUE", PREEMPTED),
    "maintenance-event": ("TERMINATE_ON_HOST_MAINTENANCE", MAINTENANCE),
}
_POLL_SECONDS, _RETRY_SECONDS = 60, 5.0


def metadata_server(environ: Mapping[str, str], product: Path = _PRODUCT) -> str | None:
    """Host of the metadata server: GCE_METADATA_HOST, or Google's if this is one of its machines; else None.

    Nothing is sent to find out: the machine's firmware names its maker. NO_GCE_CHECK=true turns it off. Google's own
    libraries read the same variables.
    """
    if environ.get("NO_GCE_CHECK", "").lower() == "true":
        return None
    if environ.get("GCE_METADATA_HOST"):
        return environ["GCE_METADATA_HOST"]
    try:
        made_by_google = product.read_text().startswith("Google")
    except OSError:  # another system, or a container without it
        return None
    return "metadata.google.internal" if made_by_google else None


@contextmanager
def notices(stop: dict[str, int]) -> Iterator[None]:
    """Within, a notice that this machine is preempted or ends for maintenance sets `stop["signal"]` to the reason.

    Outside Google Cloud nothing is done. A notice of maintenance that is already there does not count: the run was
    started after it, on a machine that a launcher has chosen again.
    """
    host, ended = metadata_server(os.environ), threading.Event()
    for key in _KEYS if host is not None else ():
        threading.Thread(
            target=_follow, args=(host, key, stop, ended), name=f"notice of {key}", daemon=True
        ).start()
    try:
        yield
    finally:
        ended.set()


def _follow(host: str, key: str, stop: dict[str, int], ended: threading.Event) -> None:
    """Wait for changes of a key until it tells of the machine's end, or until `ended`."""
    final, reason = _KEYS[key]
    first, etag, complained = True, "0", False
    while not ended.is_set():
        try:
            value, etag = _read(host, key, etag)
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError) and error.code == 404:
                return  # this kind of machine has no such key
            if not complained and not ended.is_set():
                write_line(f"mvcl: no notices of pre-emption from {host}: {error}; trying again", sys.stderr)
            complained = True
            ended.wait(_RETRY_SECONDS)
            continue
        if value == final and not (first and reason == MAINTENANCE):
            if not ended.is_set():
                stop["signal"] = stop["signal"] or reason
            return
        first, complained = False, False


def _read(host: str, key: str, etag: str) -> tuple[str, str]:
    """Value and etag of a key, as soon as the etag is another than this."""
    query = f"wait_for_change=true&timeout_sec={_POLL_SECONDS}&last_etag={etag}"
    request = Request(
        f"http://{host}/computeMetadata/v1/instance/{key}?{query}", headers={"Metadata-Flavor": "Google"}
    )
    with _OPENER.open(request, timeout=_POLL_SECONDS + 30) as answer:
        return answer.read().decode().strip(), answer.headers.get("ETag", "0")


_OPENER = build_opener(ProxyHandler({}))  # the server is on this machine, not behind a proxy
