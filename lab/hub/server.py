"""The emulated hub on an address. Paths, headers and errors are those that huggingface_hub 2.4 asks for and reads.

A tester makes it do something wrong: see `HubFaults`.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lab.errors import LabError
from lab.hub import made_up

_INFO = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+)(/revision/(?P<revision>[^/]+))?")
_TREE = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)")
_FILE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_STORE = "/emulated-store"
# The hub keeps what is larger in its store, and knows its sha256; of the rest it knows git's digest.
_LARGE = 64 * 1024
_PIECE = 16 * 1024

LIST = "list-of-files"

Content = Callable[[str, str], Mapping[str, bytes]]


@dataclass(frozen=True, kw_only=True)
class HubFaults:
    """What goes wrong with files whose path contains `path`; the default is nothing.

    The list of a revision's files has the path `LIST`, which is never corrupt.
    """

    path: str = ""
    corrupt: bool = False
    """One byte of the content is another one."""
    stall_at: int | None = None
    """After so many bytes of an answer nothing comes any more, and the connection stays open."""
    end_at: int | None = None
    """After so many bytes of an answer the connection is closed in order."""
    reset_at: int | None = None
    """After so many bytes of an answer the connection is reset."""
    status: int | None = None
    """This, in place of the file. Large ones are the store's: it refuses a link that has run out with 403."""
    retry_after: str = ""
    """With this header."""
    times: int | None = None
    """So many answers are spoilt, then all is well; None for all of them."""
    ranges: bool = True
    """Whether a part of a file can be asked for."""


def read_faults(file: Path) -> tuple[HubFaults, ...]:
    """What a JSON file lists; nothing goes wrong without one."""
    try:
        return tuple(HubFaults(**entry) for entry in json.loads(file.read_text()))
    except FileNotFoundError:
        return ()


@dataclass
class Hub:
    """What the hub has, and what has been asked of it."""

    content: Content = made_up.files
    faults: Sequence[HubFaults] = ()
    """The first that is about a request decides its answer."""
    faults_file: Path | None = None
    """Read before each answer, so that another process can set the faults."""
    token: str = ""
    """What every request must carry; empty for a hub that asks for none."""
    store: str = ""
    """Address of the server that large files are redirected to; empty for the hub's own."""
    log: Callable[[str], None] = lambda _: None
    """Gets a line per file that is sent: its commit, path and Range."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Path and Range of each request for a file, in order."""
    seen_by_store: list[str] = field(default_factory=list)
    """Authorization of each request for a large file."""
    sent: int = 0
    """Bytes of files."""
    _links: int = 0
    _spoilt: Counter[HubFaults] = field(default_factory=Counter)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def fault_of(self, path: str, range_: str) -> HubFaults:
        """The faults of this request, which is written down."""
        with self._changed:
            self.requests.append((path, range_))
            self._changed.notify_all()
            return self._first(path)

    def fault_of_list(self) -> HubFaults:
        """Those of a list of files, which a fault of all files is not about."""
        with self._changed:
            return self._first(LIST, named=True)

    def _first(self, path: str, *, named: bool = False) -> HubFaults:
        known = read_faults(self.faults_file) if self.faults_file else self.faults
        for faults in known:
            is_about = faults.path in path and (bool(faults.path) or not named)
            if is_about and (faults.times is None or self._spoilt[faults] < faults.times):
                self._spoilt[faults] += 1
                return faults
        return HubFaults()

    def signed(self) -> str:
        """The query of a link to the store; each is another one."""
        with self._changed:
            self._links += 1
            return f"Expires=3600&Signature={self._links}"

    def count(self, sent: int) -> None:
        """So many bytes went out."""
        with self._changed:
            self.sent += sent

    def wait_for_request(self, path: str, range_: str, timeout_s: float) -> bool:
        """Whether a file was asked for from a byte on, by then."""
        with self._changed:
            return self._changed.wait_for(lambda: (path, range_) in self.requests, timeout_s)


class EmulatedHubServer:
    """The hub on an address, in threads of its own."""

    def __init__(
        self, hub: Hub, host: str = "127.0.0.1", port: int = 0, *, identity: tuple[Path, Path] | None = None
    ) -> None:
        """`port` 0 takes a free one; LabError where it cannot listen. identity: certificate chain and key, for TLS."""
        self.hub = hub
        self._scheme = "https" if identity else "http"
        handler = type("Handler", (_Handler,), {"hub": hub, "scheme": self._scheme})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise LabError(
                f"the emulated hub cannot listen on {host}:{port}: {error.strerror}", fix="choose another address"
            ) from None
        self._server.daemon_threads = True
        if identity:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*identity)
            # The handshake is for the connection's own thread: a client that refuses the certificate stops no other.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{self._scheme}://{host!s}:{port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    scheme: str
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith(_STORE):
            self.hub.seen_by_store.append(self.headers.get("authorization", ""))
            self._store(path.removeprefix(_STORE))
            return
        if self.hub.token and self.headers.get("authorization") != f"Bearer {self.hub.token}":
            self._refuse(401, "GatedRepo", "Access to this model is restricted")
        elif match := _FILE.fullmatch(path):
            self._file(match["repository"], match["revision"], match["path"])
        elif match := _INFO.fullmatch(path):
            self._info(match["repository"], match["revision"] or "main")
        elif match := _TREE.fullmatch(path):
            self._tree(match["repository"], match["revision"])
        else:
            self._refuse(404, "", "not found")

    def _revision(self, repository: str, revision: str) -> tuple[str, Mapping[str, bytes]]:
        """The commit of a revision, and its files; none, with an answer, where it does not exist."""
        if repository.startswith(f"{made_up.NOBODY}/"):
            self._refuse(404 if self.headers.get("authorization") else 401, "RepoNotFound", "Repository not found")
            return "", {}
        commit = made_up.newest(repository) if revision == "main" else revision
        known = made_up.REVISION.fullmatch(commit) and commit != "0" * 40
        files = self.hub.content(repository, commit) if known else {}
        if not files:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, files

    def _info(self, repository: str, revision: str) -> None:
        commit, files = self._revision(repository, revision)
        if not files:
            return
        faults = self.hub.fault_of_list()
        if faults.status is not None:
            self._refuse_by(faults)
        else:
            body = {
                "id": repository,
                "modelId": repository,
                "sha": commit,
                "private": False,
                "gated": bool(self.hub.token),
                "tags": ["emulated-by-the-lab"],
                "siblings": [_sibling(path, data) for path, data in files.items()],
            }
            content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
            if {faults.stall_at, faults.end_at, faults.reset_at} == {None}:
                self._say(200, content, headers)
            else:
                self._part(content, "", headers, faults)

    def _tree(self, repository: str, revision: str) -> None:
        """All files on one page, those of folders too."""
        _, files = self._revision(repository, revision)
        if files:
            siblings = [_sibling(path, data) for path, data in files.items()]
            entries = [
                {
                    "type": "file",
                    "oid": stated["blobId"],
                    "size": stated["size"],
                    "path": stated["rfilename"],
                    **({"lfs": {**stated["lfs"], "oid": stated["lfs"]["sha256"]}} if "lfs" in stated else {}),
                }
                for stated in siblings
            ]
            self._say(200, json.dumps(entries).encode(), {"Content-Type": "application/json"})

    def _file(self, repository: str, revision: str, path: str) -> None:
        commit, files = self._revision(repository, revision)
        if not files:
            return
        data = files.get(path)
        if data is None:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
            return
        if len(data) > _LARGE:
            headers = {
                "X-Repo-Commit": commit,
                "X-Linked-Etag": f'"{_sha256(data)}"',
                "X-Linked-Size": str(len(data)),
                "Location": f"{self.hub.store or self._own}{_STORE}/{repository}/{commit}/{path}?{self.hub.signed()}",
                "ETag": '"of-the-redirect"',
            }
            self._say(302, b"", headers)
            return
        self._send(path, data, {"X-Repo-Commit": commit, "ETag": f'"{_git_sha1(data)}"'})

    @property
    def _own(self) -> str:
        return f"{self.scheme}://{self.headers['host']}"

    def _store(self, path: str) -> None:
        owner, name, commit, file = path.strip("/").split("/", 3)
        data = self.hub.content(f"{owner}/{name}", commit)[file]
        # A client that stays on the hub's host finds here what the hub's redirect states otherwise.
        self._send(file, data, {"X-Repo-Commit": commit, "ETag": f'"{_sha256(data)}"'})

    def _send(self, path: str, data: bytes, headers: Mapping[str, str]) -> None:
        if self.command == "HEAD":
            self._say(200, data, headers)
            return
        range_ = self.headers.get("range", "")
        self.hub.log(f"sends {headers['X-Repo-Commit']}/{path} {range_}".rstrip())
        faults = self.hub.fault_of(path, range_)
        if faults.status is not None:
            self._refuse_by(faults)
            return
        if faults.corrupt:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        self._part(data, range_ if faults.ranges else "", headers, faults)

    def _part(self, data: bytes, range_: str, headers: Mapping[str, str], faults: HubFaults) -> None:
        begin, whole = int(range_[6:].rstrip("-") or 0) if range_ else 0, len(data)
        if begin and begin >= whole:
            self._refuse(416, "", "", {"Content-Range": f"bytes */{whole}"})
            return
        more = {"Content-Range": f"bytes {begin}-{whole - 1}/{whole}"} if begin else {}
        self.send_response(206 if begin else 200)
        for name, value in {**headers, **more, "Content-Length": str(whole - begin)}.items():
            self.send_header(name, value)
        self.end_headers()
        end = min((at for at in (faults.stall_at, faults.end_at, faults.reset_at) if at is not None), default=whole)
        for at in range(begin, min(whole, begin + end), _PIECE):
            piece = data[at : min(at + _PIECE, begin + end)]
            self.wfile.write(piece)
            self.hub.count(len(piece))
        if faults.stall_at is not None:
            # Until the client gives up.
            self.connection.recv(1)
            self.close_connection = True
        elif faults.end_at is not None:
            self.close_connection = True
        elif faults.reset_at is not None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

    def _refuse_by(self, faults: HubFaults) -> None:
        headers = {"Retry-After": faults.retry_after} if faults.retry_after else {}
        self._refuse(faults.status or 500, "", "a fault of the tester's", headers)

    def _refuse(self, status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> None:
        known = {"X-Error-Code": code, "X-Error-Message": text} if code else {}
        body = json.dumps({"error": text}).encode()
        self._say(status, body, {"Content-Type": "application/json", **known, **(headers or {})})

    def _say(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle(self) -> None:
        """A client that leaves is no error of the hub."""
        try:
            super().handle()
        except (ConnectionError, ValueError):
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing: the client sees the answer."""


def _sibling(path: str, data: bytes) -> dict[str, Any]:
    stated: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": _git_sha1(data)}
    if len(data) > _LARGE:
        digest = _sha256(data)
        stated["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
    return stated


# To hash a large file takes as long as to send it, and several requests need it.
@lru_cache(maxsize=32)
def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@lru_cache(maxsize=32)
def _git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
