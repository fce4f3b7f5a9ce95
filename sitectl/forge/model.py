"""The few calls that we make to a forge, and the HTTP below them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from sitectl.shell.errors import Exit, SitectlError

_TRIES = 4
_LONGEST_WAIT_S = 60.0
_PAGE = 100


@dataclass(frozen=True, kw_only=True)
class Note:
    """A comment or an issue."""

    id: int
    """What the forge calls it in addresses: a comment's id, an issue's number."""
    author: str
    body: str


@dataclass(frozen=True, kw_only=True)
class MergeRequest:
    """A pull or merge request."""

    address: str
    number: int
    node: str = ""
    """What GitHub calls it in GraphQL."""


class Forge(Protocol):
    """One repository on a forge, as one account."""

    author: str
    """The account that writes; only its own comments and issues are ever changed."""

    def comments(self, number: int) -> Iterator[Note]: ...

    def add_comment(self, number: int, body: str) -> None: ...

    def edit_comment(self, number: int, comment: int, body: str) -> None: ...

    def open_issues(self, label: str) -> Iterator[Note]: ...

    def open_issue(self, title: str, body: str, label: str) -> None: ...

    def edit_issue(self, number: int, body: str) -> None: ...

    def close_issue(self, number: int, why: str) -> None: ...

    def open_change(self, title: str, body: str, branch: str, into: str) -> MergeRequest:
        """A new pull or merge request, of a branch that was pushed."""
        ...

    def merge_once_checked(self, change: MergeRequest, commit: str) -> None:
        """Have it merged as soon as all required checks have passed. Raises SitectlError where the forge does not.

        commit: the only one for which that holds.
        """
        ...


class Client:
    """JSON over HTTP with a token; asks again when the forge is busy. Never shows the token."""

    def __init__(
        self,
        base: str,
        headers: Mapping[str, str],
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(base)
        if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise SitectlError("a token is sent over https alone", got=base, fix="https://...", status=Exit.USAGE)
        self.base, self.sleep = base, sleep
        self._http = httpx.Client(
            base_url=base, headers=dict(headers), transport=transport, timeout=30, follow_redirects=False
        )

    def call(self, method: str, path: str, **values: Any) -> Any:
        """The decoded answer. Raises SitectlError with the forge's own message for everything but success."""
        for left in reversed(range(_TRIES)):
            try:
                answer = self._http.request(method, path, **values)
            except httpx.HTTPError as error:
                if left and method == "GET":
                    self.sleep(1.0)
                    continue
                raise SitectlError(f"{method} {path}: {error}", fix="is the forge reachable from here?") from None
            busy = answer.status_code in (429, 502, 503) or (
                answer.status_code == 403 and answer.headers.get("retry-after")
            )
            # A write that met a broken gateway may have been done; only a refusal means that it was not.
            if busy and left and (method == "GET" or answer.status_code in (403, 429)):
                self.sleep(min(_LONGEST_WAIT_S, float(answer.headers.get("retry-after", "2"))))
                continue
            if answer.status_code >= 300:
                raise SitectlError(
                    f"{method} {path}: the forge answered {answer.status_code}",
                    got=answer.text[:300],
                    fix=_FIXES.get(answer.status_code, "look at the forge's own status page and at the job's token"),
                )
            return answer.json() if answer.content else None
        raise AssertionError("the last try returns or raises")

    def pages(self, path: str, **parameters: Any) -> Iterator[Any]:
        """Every entry of a list, a page at a time."""
        number = 1
        while True:
            entries = self.call("GET", path, params={**parameters, "per_page": _PAGE, "page": number})
            yield from entries
            if len(entries) < _PAGE:
                return
            number += 1


_FIXES = {
    401: "the token is missing, wrong or expired",
    403: "the token may not do this: a comment needs write access to pull requests, an issue to issues",
    404: "is the repository's name right, and may the token see it?",
    422: "the forge does not take this text or label",
}
