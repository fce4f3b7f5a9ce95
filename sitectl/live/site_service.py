"""Asks a service of the platform in a site's cluster, by the API server's proxy to it, as an operator."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from floor import namespaces
from floor.kubectl import kubeconfig_option
from sitectl.live.site_cluster import SiteCluster
from sitectl.shell import temporary
from sitectl.shell.errors import Exit, SitectlError

_LIMIT_S = 30.0
_REACH = "check that its API server can be reached from here, and that the kubeconfig is of this cluster"


@dataclass(frozen=True, kw_only=True)
class PlatformService:
    """A service that operators ask."""

    name: str
    """Of the Service."""
    port: int
    called: str
    """For people, as `directory of keys`."""
    setting: str
    """Key of the site's file with which a site has it."""
    page: str
    meanwhile: str
    """What goes on while it does not answer."""
    namespace: str = namespaces.GATEWAY
    secret: str = ""
    """With the operator's token; empty for one that asks for none."""
    token_key: str = ""
    token_header: str = ""

    @property
    def secret_path(self) -> str:
        """Of the API server."""
        return f"/api/v1/namespaces/{self.namespace}/secrets/{self.secret}"

    @property
    def path(self) -> str:
        """Of the API server, in front of the service's own."""
        return f"/api/v1/namespaces/{self.namespace}/services/http:{self.name}:{self.port}/proxy"


@dataclass(frozen=True)
class SiteService:
    """One that runs on a site. Every request raises SitectlError where it is refused, or nothing answers."""

    site: str
    service: PlatformService
    _client: httpx.Client = field(repr=False)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Its answer, a JSON object."""
        given: dict[str, Any] = self._answer(method, f"{self.service.path}{path}", body).json()
        return given

    def text(self, path: str) -> str:
        """Its answer to GET, as it is."""
        return self._answer("GET", f"{self.service.path}{path}").text

    def token(self) -> str:
        """The operator's, out of the cluster."""
        record = self._answer("GET", self.service.secret_path).json()
        try:
            return base64.b64decode(record["data"][self.service.token_key]).strip().decode()
        except (KeyError, TypeError, ValueError):
            raise SitectlError(
                f"the Secret {self.service.namespace}/{self.service.secret} of {self.site} has no key "
                f"{self.service.token_key}",
                fix="run `pulumi up`, which writes it",
            ) from None

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            answer = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            what = f"the cluster of {self.site} does not answer: {type(error).__name__}"
            raise SitectlError(what, fix=_REACH) from None
        if answer.is_success:
            return answer
        raise self._failure(path, answer)

    def _failure(self, path: str, answer: httpx.Response) -> SitectlError:
        """The service's own refusal, or what stopped the request before it got there."""
        try:
            record = answer.json()
        except json.JSONDecodeError:
            record = {}
        error = record.get("error")
        if isinstance(error, dict):
            what, _, fix = str(error["message"]).partition("; fix: ")
            return SitectlError(what, fix=fix, status=Exit.UNABLE if answer.status_code >= 500 else Exit.REFUSED)
        service, site = self.service, self.site
        reason = str(record.get("message") or answer.text[:200].strip() or answer.status_code)
        if answer.status_code == httpx.codes.NOT_FOUND:
            fix = f"set {service.setting} in the file of {site}, and run pulumi up: {service.page}"
            return SitectlError(f"{site} has no {service.called}: {reason}", fix=fix, status=Exit.REFUSED)
        if answer.status_code == httpx.codes.FORBIDDEN:
            needed = "get the Secret" if path == service.secret_path else "use the Service's proxy"
            fix = f"ask for a role in {service.namespace} that lets you {needed}"
            return SitectlError(f"the cluster of {site} refuses: {reason}", fix=fix, status=Exit.REFUSED)
        fix = f"see its pods: kubectl -n {service.namespace} get pods,endpoints; {service.meanwhile}"
        return SitectlError(f"the {service.name} of {site} does not answer: {reason}", fix=fix)


@contextmanager
def of_cluster(
    cluster: SiteCluster, service: PlatformService, headers: Mapping[str, str] | None = None
) -> Iterator[SiteService]:
    """The service of a site's cluster. Raises SitectlError where the cluster does not answer, or has none.

    headers: for each request.
    """
    with (
        _proxied(cluster, service) as transport,
        httpx.Client(transport=transport, timeout=_LIMIT_S, headers=headers) as client,
    ):
        client.base_url = httpx.URL("http://localhost")
        running = SiteService(cluster.site, service, client)
        if service.secret:
            # The API server takes the header Authorization away, and passes others on.
            client.headers[service.token_header] = running.token()
        yield running


@contextmanager
def _proxied(cluster: SiteCluster, service: PlatformService) -> Iterator[httpx.HTTPTransport]:
    """The way to the API server with the credentials of its kubeconfig, whatever their sort.

    By a socket in a folder that is this user's: no other user of this machine gets through.
    """
    paths = f"^({re.escape(service.secret_path)}$|{re.escape(service.path)}/)"
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
