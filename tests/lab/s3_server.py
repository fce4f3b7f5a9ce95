"""A real S3 server for tests, Versity's gateway in front of a folder: it checks each signature itself."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import httpx

from lab.free_ports import free_address
from lab.paths import Lab
from services.weights import bucket
from tests.lab.waiting import eventually

REGION = "eu-1"
KEY_ID, SECRET = "site", "bucket-secret"


@contextmanager
def serving(lab: Lab, folder: Path) -> Iterator[str]:
    """The server, in which each folder of `folder` is a bucket; its address. Its output is beside the folder."""
    address = free_address()
    command = [str(lab.bin / "versitygw"), "--port", address, "--region", REGION, "--quiet", "posix", "--nometa"]
    # The names that it has for them.
    keys = {"ROOT_ACCESS_KEY_ID": KEY_ID, "ROOT_SECRET_ACCESS_KEY": SECRET}
    with (
        (folder.parent / "s3.log").open("w") as log,
        subprocess.Popen(
            [*command, str(folder)], env={**os.environ, **keys}, stdout=log, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            eventually(lambda: _answers(f"http://{address}"))
            yield f"http://{address}"
        finally:
            process.terminate()


def call(method: str, url: str, *, key_id: str, secret: str, region: str, body: bytes = b"") -> bytes:
    """The server's answer to a signed request. urllib's HTTPError where it refuses."""
    request = urllib.request.Request(url, data=body or None, method=method)  # noqa: S310 - the server of a test
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    # The platform only reads, so what it signs has no body.
    with mock.patch.object(bucket, "_NO_BODY", hashlib.sha256(body).hexdigest()):
        headers = bucket.signed_headers(request, bucket.BucketKeys(key_id, secret), region, at)
    for name, value in headers.items():
        request.add_header(name, value)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        content: bytes = answer.read()
        return content


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == httpx.codes.FORBIDDEN
    except httpx.TransportError:
        return False
