"""Asks the directory of keys in a site's cluster, by the API server's proxy to its Service, as an operator."""

from __future__ import annotations

import base64
import getpass
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx

from floor import namespaces
from floor.kubectl import kubeconfig_option
from services.directory import variables
from sitectl.live.site_cluster import SiteCluster
from sitectl.shell import temporary
from sitectl.shell.errors import Exit, SitectlError

PAGE = "docs/how-to/keys-for-tenants.md"
_NAMESPACE = f"/api/v1/namespaces/{namespaces.GATEWAY}"
_SECRET = f"{_NAMESPACE}/secrets/{variables.TOKENS_SECRET}"
_SERVICE = f"{_NAMESPACE}/services/http:{variables.SERVICE}:{variables.DEFAULT_PORT}/proxy"
_LIMIT_S = 30.0
_REACH = "check that its API server can be reached from here, and that the kubeconfig is of this cluster"
_LONGEST_ACTOR = 60


@dataclass(frozen=True)
class KeyDirectory:
    """Of one site. Every request raises SitectlError where it is refused, or nothing answers."""

    site: str
    _client: httpx.Client = field(repr=False)

    def create(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """A new key, with its text."""
        return self._ask("POST", "/v1/keys", order)

    def keys(self, tenant: str | None) -> list[dict[str, Any]]:
        """What was ever made, of one tenant or of all."""
        keys: list[dict[str, Any]] = self._ask("GET", f"/v1/keys?{urlencode({'tenant': tenant or ''})}")["keys"]
        return keys

    def rotate(self, key_id: str, overlap_s: int) -> dict[str, Any]:
        """A new key in the place of this one, with its text."""
        return self._ask("POST", f"/v1/keys/{key_id}/rotate", {"overlap_s": overlap_s})

    def revoke(self, key_id: str) -> dict[str, Any]:
        """The key, which works no more."""
        return self._ask("DELETE", f"/v1/keys/{key_id}")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return _answer(self._client, self.site, method, f"{_SERVICE}{path}", body)


@contextmanager
def of_cluster(cluster: SiteCluster) -> Iterator[KeyDirectory]:
    """The directory of a site's cluster. Raises SitectlError where the cluster does not answer, or has none."""
    with _proxied(cluster) as transport, httpx.Client(transport=transport, timeout=_LIMIT_S) as client:
        client.base_url = httpx.URL("http://localhost")
        secret = _answer(client, cluster.site, "GET", _SECRET)
        try:
            token = base64.b64decode(secret["data"][variables.OPERATOR_KEY]).strip()
        except (KeyError, TypeError, ValueError):
            raise SitectlError(
                f"the Secret {namespaces.GATEWAY}/{variables.TOKENS_SECRET} of {cluster.site} has no key "
                f"{variables.OPERATOR_KEY}",
                fix="run `pulumi up`, which writes it",
            ) from None
        # The API server takes the header Authorization away, and passes others on.
        client.headers[variables.TOKEN_HEADER] = token.decode()
        client.headers[variables.ACTOR_HEADER] = _actor()
        yield KeyDirectory(cluster.site, client)


@contextmanager
def _proxied(cluster: SiteCluster) -> Iterator[httpx.HTTPTransport]:
    """The way to the API server with the credentials of its kubeconfig, whatever their sort.

    By a socket in a folder that is this user's: no other user of this machine gets through.
    """
    paths = f"^({re.escape(_SECRET)}$|{re.escape(_SERVICE)}/)"
    with temporary.folder() as folder, kubeconfig_option(cluster.kubeconfig) as (option, file):
        socket_ = folder / "api"
        words = ["kubectl", option, "proxy", f"--unix-socket={socket_}", f"--accept-paths={paths}"]
        try:
            proxy = subprocess.Popen(
                words,
                cwd=cluster.project,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(file,),
            )
        except OSError as error:
            what = (
                "there is no kubectl on PATH" if isinstance(error, FileNotFoundError) else f"kubectl: {error.strerror}"
            )
            raise SitectlError(what, fix="install kubectl where pulumi runs, in the version of the cluster") from None
        with proxy:
            try:
                # It prints a line once it listens.
                if not (proxy.stdout and proxy.stdout.readline()):
                    lines = (proxy.stderr.read() if proxy.stderr else b"").decode(errors="replace").splitlines()[-3:]
                    raise SitectlError(f"kubectl does not reach {cluster.site}: " + " ".join(lines), fix=_REACH)
                yield httpx.HTTPTransport(uds=str(socket_))
            finally:
                proxy.terminate()


def _answer(
    client: httpx.Client, site: str, method: str, path: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    try:
        answer = client.request(method, path, json=body)
    except httpx.HTTPError as error:
        what = f"the cluster of {site} does not answer: {type(error).__name__}"
        raise SitectlError(what, fix=_REACH) from None
    if answer.is_success:
        given: dict[str, Any] = answer.json()
        return given
    raise _failure(site, path, answer)


def _failure(site: str, path: str, answer: httpx.Response) -> SitectlError:
    """The directory's own refusal, or what stopped the request before it got there."""
    try:
        record = answer.json()
    except json.JSONDecodeError:
        record = {}
    if error := record.get("error"):
        what, _, fix = str(error["message"]).partition("; fix: ")
        return SitectlError(what, fix=fix, status=Exit.UNABLE if answer.status_code >= 500 else Exit.REFUSED)
    reason = str(record.get("message") or answer.text[:200].strip() or answer.status_code)
    if answer.status_code == httpx.codes.NOT_FOUND:
        fix = f"set callers.database_secret in the file of {site}, and run pulumi up: {PAGE}"
        return SitectlError(f"{site} has no directory of keys: {reason}", fix=fix, status=Exit.REFUSED)
    if answer.status_code == httpx.codes.FORBIDDEN:
        needed = "get the Secret" if path == _SECRET else "use the Service's proxy"
        fix = f"ask for a role in {namespaces.GATEWAY} that lets you {needed}"
        return SitectlError(f"the cluster of {site} refuses: {reason}", fix=fix, status=Exit.REFUSED)
    fix = f"see its pods: kubectl -n {namespaces.GATEWAY} get pods,endpoints; keys that exist go on working"
    return SitectlError(f"the directory of {site} does not answer: {reason}", fix=fix)


def _actor() -> str:
    """Who calls, for the directory's audit: the user of this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return re.sub(r"[^\x21-\x7e]", "?", f"{user}@{socket.gethostname()}")[:_LONGEST_ACTOR]
