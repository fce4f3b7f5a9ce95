"""When objects of a cluster were removed, by the API server's own order: the revision of each removal."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from lab.cluster import api
from lab.paths import Lab
from lab.watching import chunks_of

_ASKED_FOR_S = 1800


class Removals:
    """Filled while `watched` lasts."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        """Revision by `resource.group namespace/name`, of the last removal."""

    def of(self, resource: str) -> dict[str, int]:
        """Those of one resource, such as `deployments.apps`, by `namespace/name`."""
        return {key.partition(" ")[2]: at for key, at in self.at.items() if key.partition(" ")[0] == resource}

    def feed(self, resource: str, line: bytes) -> None:
        """Take one event of a watch."""
        event: dict[str, Any] = json.loads(line)
        if event["type"] == "DELETED":
            meta = event["object"]["metadata"]
            self.at[f"{resource} {meta.get('namespace', '-')}/{meta['name']}"] = int(meta["resourceVersion"])


@contextmanager
def watched(lab: Lab, paths: Sequence[str]) -> Iterator[Removals]:
    """Removals of these collections, such as `/apis/apps/v1/deployments`, until the block ends.

    A watch that ends because its definition is gone has seen every removal before.
    """
    removals = Removals()
    with api.connect(lab) as connection:
        answers = [_watch(connection, path) for path in paths]
        threads = [
            threading.Thread(target=_follow, args=(removals, _resource(path), answer), daemon=True)
            for path, answer in zip(paths, answers, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            yield removals
        finally:
            for answer, thread in zip(answers, threads, strict=True):
                # To close what a thread still reads would wait for the next event.
                with suppress(OSError, HTTPError, ValueError, RuntimeError):
                    answer.shutdown()
                thread.join()
                answer.close()


def _watch(connection: client.ApiClient, path: str) -> Any:
    """The answer to a watch that begins with what is there now."""
    url = f"{connection.configuration.host}{path}?watch=true&timeoutSeconds={_ASKED_FOR_S}"
    answer: Any = connection.call_api("GET", url)
    assert answer.status == 200, f"{path}: {answer.status}"
    return answer.response


def _follow(removals: Removals, resource: str, answer: Any) -> None:
    pending = b""
    with suppress(OSError, HTTPError, ValueError, AttributeError):
        for chunk in chunks_of(answer):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    removals.feed(resource, line)


def _resource(path: str) -> str:
    """`deployments.apps` of `/apis/apps/v1/deployments`."""
    parts = path.strip("/").split("/")
    return f"{parts[-1]}.{parts[1]}" if parts[0] == "apis" else parts[-1]
