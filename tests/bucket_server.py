"""A local server of Google Cloud Storage, and the variables that send its clients there.

`python bucket_server.py PORT` serves until it is killed.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from http import HTTPStatus

import pytest
from etils.epath.backend import fsspec_backend

from mvcl import _buckets

BUCKET = "bucket"


def serve(port):
    """gcp-storage-emulator, and what it lacks: generations in downloads, and uploads only if a generation is as given
    (412 if not), on which tensorstore relies."""
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers import objects

    insert, download, one_at_a_time = objects.insert, objects.download, threading.Lock()

    def generation(storage, bucket, name):
        try:
            return storage.get_file_obj(bucket, name)["generation"]
        except NotFound:
            return "0"

    def checked(request, response, storage, *args, **kwargs):
        wanted = request.query.get("ifGenerationMatch")
        if wanted is None:
            return insert(request, response, storage, *args, **kwargs)
        data = request.data if isinstance(request.data, dict) else {}
        name = request.query.get("name", [data.get("meta", data).get("name")])[0]
        with one_at_a_time:
            if generation(storage, request.params["bucket_name"], name) == wanted[0]:
                return insert(request, response, storage, *args, **kwargs)
        response.status = HTTPStatus.PRECONDITION_FAILED
        return None

    def numbered(request, response, storage, *args, **kwargs):
        at = request.params["bucket_name"], request.params["object_id"]
        response["x-goog-generation"] = generation(storage, *at)
        return download(request, response, storage, *args, **kwargs)

    objects.insert, objects.download = checked, numbered  # before the server's routes name them
    from gcp_storage_emulator.server import create_server

    create_server("127.0.0.1", port, True, BUCKET).run()


@contextlib.contextmanager
def connected():
    """Start a server with an empty bucket and set the environment for its clients, without credentials.

    gcsfs, google-cloud-storage and tensorstore go to it; clients that know an earlier server are dropped.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    variables = {
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
        "GOOGLE_CLOUD_PROJECT": "test",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }
    server = subprocess.Popen(
        [sys.executable, __file__, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            _wait(server, port)
            yield variables
        finally:
            server.kill()
            server.wait()
            _buckets._reach.cache_clear()
            _buckets._client().clear_instance_cache()
            fsspec_backend._get_filesystem.cache_clear()


def _wait(server, port):
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server at port {port} did not start")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
    os._exit(0)
