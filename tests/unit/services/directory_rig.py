"""The directory as a process beside a real PostgreSQL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from services.directory.variables import ACTOR_HEADER, FILES, TOKEN_HEADER
from tests.unit.services.postgres_rig import Server, Service, served, setting, write_files

OPERATOR, READER, PEPPER = "token-of-the-operator", "token-of-the-reader", "pepper-of-the-site"
TENANTS = {"search": ["glm-5-1", "qwen3-32b"], "sales": ["qwen3-32b"]}


class Directory(Service):
    """The service as a process."""

    def __init__(self, folder: Path) -> None:
        files = [word for option in FILES for word in (option, str(setting(folder, option)))]
        super().__init__(folder, "directory", files)

    def client(self, token: str = OPERATOR) -> httpx.Client:
        headers = {TOKEN_HEADER: token, ACTOR_HEADER: "a-test"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=40)

    def wait_for_a_reader(self, timeout_s: float = 20) -> None:
        """Until a request waits for a change."""
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            while "directory_waiting_readers 1.0" not in client.get("/metrics").text:
                assert time.monotonic() < deadline


def write_settings(folder: Path, url: str) -> None:
    """The files that a pod of the directory has mounted."""
    tenants = {"tenants": {name: {"models": models} for name, models in TENANTS.items()}}
    contents = (url, json.dumps(tenants), PEPPER, OPERATOR, READER)
    write_files(folder, dict(zip(FILES, contents, strict=True)))


@contextmanager
def running(folder: Path) -> Iterator[tuple[Server, Directory]]:
    """Both, which end with the block."""
    with served(folder, Directory(folder), partial(write_settings, folder)) as both:
        yield both


def created(client: httpx.Client, **order: Any) -> dict[str, Any]:
    answer = client.post("/v1/keys", json={"tenant": "search", "name": "ci", **order})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def chain(client: httpx.Client, limit: int = 1000) -> list[dict[str, Any]]:
    """All rows of the audit, by pages of this size."""
    acts: list[dict[str, Any]] = []
    while True:
        answer = client.get("/v1/audit", params={"after": acts[-1]["number"] if acts else 0, "limit": limit})
        assert answer.status_code == 200, answer.text
        acts += answer.json()["acts"]
        if not answer.json()["more"]:
            return acts
