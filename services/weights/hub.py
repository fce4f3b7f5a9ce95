"""A server with the hub's API: what a revision consists of, and its files from any byte on."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from urllib.parse import SplitResult, quote, urlsplit

from services.weights.failure import Exit, WeightsError
from services.weights.manifest import Entry, Manifest, chosen, is_inside
from services.weights.retrying import RetryableError

CHUNK = 1 << 20
_RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


class Hub:
    """Answers of one server. A token goes to its own host alone, not to the stores that it redirects to."""

    _OTHERS = "the store that it redirects to"
    """Servers that are asked besides, for messages."""

    def __init__(
        self,
        endpoint: str,
        *,
        token: str = "",
        token_from: str = "",
        stall_s: float = 60.0,
        trust: ssl.SSLContext | None = None,
        trust_from: str = "",
    ) -> None:
        """token_from, trust_from: how messages call the place of the token and of the site's own authorities; empty
        where the site names none. trust: None for the authorities of this machine.
        """
        self.endpoint = endpoint.rstrip("/")
        self._token = token
        self._token_from = token_from
        self._stall_s = stall_s
        self._trust, self._trust_from = trust, trust_from
        self._opener = self._opened_by(_Redirects(self._authorize_redirected))

    def _opened_by(self, redirects: urllib.request.HTTPRedirectHandler) -> urllib.request.OpenerDirector:
        return urllib.request.build_opener(redirects, urllib.request.HTTPSHandler(context=self._trust))

    def manifest(self, repository: str, revision: str) -> Manifest:
        """What the server states that the revision consists of, as far as the engine reads it."""
        url = f"{self.endpoint}/api/models/{quote(repository)}/revision/{revision}?blobs=true"
        with self._get(url, f"{repository} at {revision}") as answer:
            try:
                stated: dict[str, Any] = json.load(answer)
                files = {entry["rfilename"]: entry for entry in stated["siblings"]}
            except (ValueError, KeyError, TypeError) as error:
                raise self._no_manifest(repository, f"an answer without its files ({error})") from None
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from None
        if stated.get("sha") != revision:
            raise WeightsError(
                Exit.NOT_FOUND,
                f"{self.endpoint} answers with another revision of {repository}",
                got=str(stated.get("sha")),
                allowed=revision,
                fix="set models.NAME.server.revision to a commit of the repository, 40 digits of 0-9 and a-f",
            )
        entries = {path: self._entry(repository, path, files[path]) for path in chosen(filter(is_inside, files))}
        return Manifest(repository, revision, entries)

    def _entry(self, repository: str, path: str, stated: dict[str, Any]) -> Entry:
        large = stated.get("lfs") or {}
        size, sha256, sha1 = large.get("size", stated.get("size")), large.get("sha256", ""), stated.get("blobId", "")
        if size is None or not (sha256 or sha1):
            raise self._no_manifest(repository, f"{path} without size or digest")
        return Entry(int(size), str(sha256), "" if sha256 else str(sha1))

    def _no_manifest(self, repository: str, got: str) -> WeightsError:
        return WeightsError(
            Exit.NOT_FOUND,
            f"{self.endpoint} does not state what {repository} consists of",
            got=got,
            fix="lock the model (sitectl weights lock): a lock needs nothing but the files of the server",
        )

    def read(self, manifest: Manifest, path: str, begin: int) -> Iterator[tuple[int, bytes]]:
        """The file from byte `begin` on: (where it goes, bytes). A server that knows no ranges begins at 0.

        Raises RetryableError when the transfer stalls or ends early.
        """
        url = self._address(manifest, path)
        headers = {"Range": f"bytes={begin}-"} if begin else {}
        expected = manifest.files[path].size
        with self._get(url, f"{path} of {manifest.repository} at {manifest.revision}", headers) as answer:
            at = begin if answer.status == http.client.PARTIAL_CONTENT else 0
            _same_size(answer, at, expected)
            while True:
                try:
                    # What is there, up to so much: a byte that came counts, whatever comes after it.
                    data = answer.read1(CHUNK)
                except (OSError, http.client.HTTPException) as error:
                    raise self._broken(error) from None
                if not data:
                    break
                yield at, data
                at += len(data)
        if at < expected:
            raise RetryableError(f"the server ended the file at byte {at} of {expected}")

    def _broken(self, error: Exception) -> RetryableError:
        """An answer that had begun."""
        if isinstance(error, TimeoutError):
            return RetryableError(f"no byte for {self._stall_s:.0f} s")
        return RetryableError(f"the connection broke: {error or type(error).__name__}")

    def _address(self, manifest: Manifest, path: str) -> str:
        return f"{self.endpoint}/{quote(manifest.repository)}/resolve/{manifest.revision}/{quote(path)}"

    def _authorize(self, request: urllib.request.Request) -> None:
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")

    def _authorize_redirected(self, request: urllib.request.Request, before: urllib.request.Request) -> None:  # noqa: ARG002 - other sources read it
        """before: the request that was answered by a redirect."""
        if self._is_own(request.full_url):
            self._authorize(request)

    def _is_own(self, url: str) -> bool:
        """Whether an address is of this server, by scheme, host and port."""
        return urlsplit(url)[:2] == urlsplit(self.endpoint)[:2]

    def _get(self, url: str, what: str, headers: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **(headers or {})})  # noqa: S310 - the site's own address, of a checked form
        self._authorize(request)
        return self._open(self._opener, request, lambda error: self._refused(error, what, url))

    def _open(
        self,
        opener: urllib.request.OpenerDirector,
        request: urllib.request.Request,
        refused: Callable[[urllib.error.HTTPError], NoReturn],
    ) -> Any:
        """The answer to a request. Raises RetryableError, WeightsError, and what `refused` makes of a status."""
        try:
            return opener.open(request, timeout=self._stall_s)
        except urllib.error.HTTPError as error:
            with error:
                refused(error)
        except TimeoutError:
            raise RetryableError(f"no answer for {self._stall_s:.0f} s") from None
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError | socket.timeout):
                raise RetryableError(f"no answer for {self._stall_s:.0f} s") from None
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise self._not_trusted(reason.verify_message) from None
            raise RetryableError(f"{urlsplit(request.full_url).netloc} cannot be reached: {reason}") from None

    def _not_trusted(self, reason: str) -> WeightsError:
        own = self._trust_from
        return WeightsError(
            Exit.UNREACHABLE,
            f"the certificate of {self.endpoint}, or of {self._OTHERS}, is not trusted: {reason}",
            allowed=f"one of an authority that {own + ' or ' if own else ''}the engine's image has",
            fix=f"put its authority into {own}, then call pulumi up again"
            if own
            else "name a ConfigMap that has its authority under its key `ca.crt`, as storage.weights.ca_config_map",
        )

    def _refused(self, error: urllib.error.HTTPError, what: str, asked: str) -> NoReturn:
        status, code = error.code, error.headers.get("X-Error-Code", "")
        store = urlsplit(error.geturl() or asked)
        if status == http.client.FORBIDDEN and _is_link(store, asked):
            # The link that the hub gave has run out, as one that something between has kept. Its next one is new.
            raise RetryableError(f"the store {store.netloc} refuses the link of {self.endpoint} with {status}")
        if is_later(error):
            raise later(error, self.endpoint)
        if status in (401, 403):
            raise self._no_access(error, what)
        if status in (404, 410):
            kind = {"RepoNotFound": "repository", "RevisionNotFound": "revision"}.get(code, "file or revision")
            raise WeightsError(
                Exit.NOT_FOUND,
                f"{self.endpoint} has no such {kind}: {what}",
                got=f"status {status} {code}".rstrip(),
                fix="correct the commit in models.NAME.server.revision, or have the mirror hold this one",
            )
        if status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise RangeError
        raise WeightsError(
            Exit.OTHER, f"{self.endpoint} refuses {what}", got=f"status {status}", fix="see the server's own log"
        )

    def _no_access(self, error: urllib.error.HTTPError, what: str) -> WeightsError:
        got = f"status {error.code} {error.headers.get('X-Error-Code', '')} from {self.endpoint}"
        if self._token:
            wrong = f"the token in {self._token_from} does not open {what}: it is expired, or its owner has no access"
            fix = f"put a token with access into {self._token_from}, then call pulumi up again"
        elif self._token_from:
            wrong, fix = f"there is no token in {self._token_from}, and {what} needs one", "create that Secret"
        else:
            wrong = f"{what} needs a token: it is gated, private, or not there"
            fix = "name a Secret that has one under its key `token`, as storage.weights.token_secret"
        return WeightsError(Exit.TOKEN, wrong, got=got, fix=fix)


def is_later(error: urllib.error.HTTPError) -> bool:
    """Whether the same request may be answered later."""
    return error.code in _RETRY_STATUSES


def later(error: urllib.error.HTTPError, server: str) -> RetryableError:
    """How to wait for that, as far as the server states it."""
    after = error.headers.get("Retry-After", "")
    after_s = float(after) if after.isdigit() else 0.0
    return RetryableError(f"{server} answers {error.code}", after_s, busy=error.code == http.client.TOO_MANY_REQUESTS)


class RangeError(Exception):
    """The file has no such byte."""


class OtherFileError(Exception):
    """The server has a file of another size under this name."""


def _same_size(answer: Any, begin: int, expected: int) -> None:
    """Raise OtherFileError where the answer states another size. One without a length states none."""
    total = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if not total.isdigit():
        length = answer.headers.get("Content-Length", "")
        total = str(begin + int(length)) if length.isdigit() else ""
    if total and int(total) != expected:
        raise OtherFileError(f"{total} bytes")


def _is_link(answered: SplitResult, asked: str) -> bool:
    """Whether the answer is to a signed link that the hub redirected to, and not the hub's own."""
    hub = urlsplit(asked)
    return answered.netloc != hub.netloc or (answered.path != hub.path and bool(answered.query))


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, each with what its server may have of the caller's."""

    def __init__(self, authorize: Callable[[urllib.request.Request, urllib.request.Request], None]) -> None:
        """authorize: given the next request, and the one before it."""
        self._authorize = authorize

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            self._authorize(request, req)
        return request
