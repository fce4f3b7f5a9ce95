"""One cluster behind the kubernetes library's dynamic client: pooled connections, kinds looked up once, retries."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final

import urllib3
from kubernetes import config as kubernetes_config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.resource import Resource

from lab import kubeconfigs, watching
from lab.plugins.kubernetes.errors import ApiError, CancelledError, KindNotFoundError, UnreachableError
from lab.plugins.kubernetes.objects import GroupVersionKind
from lab.plugins.kubernetes.properties import Tree

# More connections at once than the engine's default parallelism; idle ones cost nothing.
_CONNECTIONS: Final = 64
_CONNECT_TIMEOUT_S: Final = 10.0
_READ_TIMEOUT_S: Final = 65.0
_MISS_KEPT_S: Final = 0.2

RETRY_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0

# A server error with one of these texts heals by itself: an API server or an etcd member that is still starting.
_PASSING: Final = (
    "etcdserver",
    "leader changed",
    "connection refused",
    "connection reset",
    "no endpoints available",
    "context deadline exceeded",
    "storage is (re)initializing",
    "apiserver is shutting down",
    # An API server that has just started reports "range is full" for a range that it has not read yet.
    "failed to allocate a serviceIP",
)

logging.getLogger("urllib3").setLevel(logging.ERROR)


class _Kinds:
    """Kinds by API version, asked once per process and again on a miss; nothing is written to disk."""

    def __init__(self, client: DynamicClient, _cache_file: str | None = None) -> None:
        self._client = client
        self._served: dict[str, dict[str, Resource]] = {}
        self._asked_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def find(self, gvk: GroupVersionKind) -> Resource | None:
        """The resource that serves this kind, or None. Raises ApiException and urllib3 errors of the request."""
        version = gvk.api_version
        resource = self._served.get(version, {}).get(gvk.kind)
        if resource is not None:
            return resource
        with self._lock:
            resource = self._served.get(version, {}).get(gvk.kind)
            # A crowd of objects whose CRD is missing must not ask once each.
            if resource is None and time.monotonic() - self._asked_at.get(version, -_MISS_KEPT_S) >= _MISS_KEPT_S:
                self._served[version] = self._fetch(gvk.group, gvk.version)
                self._asked_at[version] = time.monotonic()
                resource = self._served[version].get(gvk.kind)
            return resource

    def forget_misses(self) -> None:
        """Ask again at the next miss: a CRD was just created."""
        with self._lock:
            self._asked_at.clear()

    def _fetch(self, group: str, version: str) -> dict[str, Resource]:
        prefix = "apis" if group else "api"
        path = "/".join(part for part in ("", prefix, group, version) if part or not prefix)
        try:
            answer = self._client.request("get", f"/{path.strip('/')}", serialize=False)
        except ApiException as error:
            if error.status in (404, 503):
                return {}
            raise
        return {
            item["kind"]: Resource(
                prefix=prefix,
                group=group,
                api_version=version,
                kind=item["kind"],
                name=item["name"],
                namespaced=item["namespaced"],
                verbs=item.get("verbs"),
                client=self._client,
            )
            for item in json.loads(answer.data)["resources"]
            if "/" not in item["name"]
        }


class Cluster:
    """Requests to one API server. Methods raise ApiError, KindNotFoundError, UnreachableError or CancelledError.

    What fails for now is asked again after `first_pause_s`, then after twice as long each time, up to 5 s.
    """

    def __init__(
        self,
        kubeconfig: Tree,
        cancelled: threading.Event,
        request_timeout_s: float | None = None,
        *,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        api_client = kubernetes_config.new_client_from_config_dict(
            kubeconfigs.in_memory(kubeconfig), persist_config=False
        )
        api_client.configuration.connection_pool_maxsize = _CONNECTIONS
        # Retries are ours: the library's own would repeat without a pause.
        api_client.configuration.retries = False
        api_client.rest_client = type(api_client.rest_client)(api_client.configuration)
        self.host: str = api_client.configuration.host
        self._client = DynamicClient(api_client, discoverer=_Kinds)
        self._kinds: _Kinds = self._client.resources
        self._cancelled = cancelled
        self._timeout = (_CONNECT_TIMEOUT_S, request_timeout_s or _READ_TIMEOUT_S)
        self._first_pause_s = first_pause_s

    def version(self) -> Tree:
        """The API server's version: major, minor, gitVersion."""
        answer: Tree = json.loads(self._client.request("get", "/version", serialize=False).data)
        return answer

    def knows(self, gvk: GroupVersionKind) -> bool:
        """Whether the API server serves this kind now."""
        return self._find(gvk) is not None

    def namespaced(self, gvk: GroupVersionKind) -> bool | None:
        """Whether objects of this kind live in namespaces; None if the API server does not serve it."""
        resource = self._find(gvk)
        return None if resource is None else bool(resource.namespaced)

    def kinds_changed(self) -> None:
        """Call after a CRD was created or changed."""
        self._kinds.forget_misses()

    def get(self, gvk: GroupVersionKind, name: str, namespace: str = "") -> Tree:
        return self._request("get", self.path(gvk, name, namespace))

    def items_of(self, gvk: GroupVersionKind, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Tree]:
        """Items of a kind in a namespace, filtered by label and field selectors."""
        query = [("labelSelector", labels)] * bool(labels) + [("fieldSelector", fields)] * bool(fields)
        items: list[Tree] = self._request("get", self.path(gvk, None, namespace), query=query)["items"]
        return items

    def create(
        self,
        gvk: GroupVersionKind,
        body: Tree,
        namespace: str,
        *,
        manager: str,
        dry_run: bool,
        retry_s: float = RETRY_S,
    ) -> Tree:
        query = [("fieldManager", manager)] + [("dryRun", "All")] * dry_run
        path = self.path(gvk, None, namespace)
        return self._request("post", path, body, query=query, retry_s=retry_s)

    def replace(self, gvk: GroupVersionKind, body: Tree, name: str, *, manager: str, dry_run: bool) -> Tree:
        query = [("fieldManager", manager)] + [("dryRun", "All")] * dry_run
        return self._request("put", self.path(gvk, name, ""), body, query=query)

    def apply(
        self,
        gvk: GroupVersionKind,
        body: Tree,
        name: str,
        namespace: str,
        *,
        manager: str,
        force: bool,
        dry_run: bool,
        retry_s: float = RETRY_S,
    ) -> Tree:
        """Server-side apply."""
        query = [("fieldManager", manager), ("force", "true" if force else "false")]
        query += [("dryRun", "All")] * dry_run
        content = "application/apply-patch+yaml"
        return self._request("patch", self.path(gvk, name, namespace), body, content, query=query, retry_s=retry_s)

    def patch(
        self,
        gvk: GroupVersionKind,
        body: Any,
        name: str,
        namespace: str,
        *,
        content: str,
        manager: str = "",
        dry_run: bool = False,
    ) -> Tree:
        """A patch of the given content type; a JSON patch is a list of operations."""
        query = [("fieldManager", manager)] * bool(manager) + [("dryRun", "All")] * dry_run
        return self._request("patch", self.path(gvk, name, namespace), body, content, query=query)

    def delete(self, gvk: GroupVersionKind, name: str, namespace: str, *, propagation: str) -> Tree:
        """The object as it is on its way out, or a Status if it is gone at once."""
        body: Tree = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        return self._request("delete", self.path(gvk, name, namespace), body)

    def list_one(self, gvk: GroupVersionKind, name: str, namespace: str) -> Tree:
        """The list of a kind's objects of this name: one, or none."""
        return self._request("get", self.path(gvk, None, namespace), query=[_only(name)])

    def watch_one(
        self, gvk: GroupVersionKind, name: str, namespace: str, *, since: str, seconds: int
    ) -> Generator[bytes]:
        """What the API server sends of one object after resource version `since`, for at most `seconds`.

        Raises urllib3's HTTPError when the connection breaks.
        """
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            _only(name),
            ("resourceVersion", since),
            ("timeoutSeconds", str(seconds)),
        ]
        timeout = (_CONNECT_TIMEOUT_S, seconds + 5)
        path = self.path(gvk, None, namespace)
        try:
            response = self._client.request("get", path, query_params=query, serialize=False, _request_timeout=timeout)
        except ApiException as error:
            raise ApiError.of(error) from None
        yield from watching.chunks_of(response)

    def path(self, gvk: GroupVersionKind, name: str | None, namespace: str) -> str:
        """URL path of a kind's collection, or of one object. Raises KindNotFoundError if it is not served."""
        resource = self._find(gvk)
        if resource is None:
            raise KindNotFoundError(f"the API server serves no {gvk.kind} of {gvk.api_version}")
        path: str = resource.path(name=name, namespace=(namespace or "default") if resource.namespaced else None)
        return path

    def pause(self, seconds: float) -> None:
        """Sleep, unless the engine cancels. Raises CancelledError."""
        if self._cancelled.wait(seconds):
            raise CancelledError("the operation was cancelled")

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _find(self, gvk: GroupVersionKind) -> Resource | None:
        resource: Resource | None = self._retry(lambda: self._kinds.find(gvk), "GET", gvk.api_version, RETRY_S)
        return resource

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content: str = "application/json",
        *,
        query: list[tuple[str, str]] | None = None,
        retry_s: float = RETRY_S,
    ) -> Tree:
        def once() -> Any:
            answer = self._client.request(
                method,
                path,
                body=body,
                content_type=content,
                query_params=list(query or ()),
                serialize=False,
                _request_timeout=self._timeout,
            )
            return json.loads(answer.data)

        result: Tree = self._retry(once, method.upper(), path, retry_s)
        return result

    def _retry(self, once: Callable[[], Any], method: str, what: str, retry_s: float) -> Any:
        deadline = time.monotonic() + retry_s
        pause = self._first_pause_s
        while True:
            if self._cancelled.is_set():
                raise CancelledError("the operation was cancelled")
            try:
                return once()
            except ApiException as error:
                failure: Exception = ApiError.of(error)
                if not _passes(failure):
                    raise failure from None
            except urllib3.exceptions.HTTPError as error:
                failure = error
            if time.monotonic() + pause > deadline:
                if isinstance(failure, ApiError):
                    raise failure
                raise UnreachableError(
                    f"the cluster is unreachable: {method} {what} at {self.host} got no answer for {retry_s:.0f} s: "
                    f"{_short(failure)}"
                ) from failure
            self.pause(pause * random.uniform(0.7, 1.3))  # noqa: S311 - spreads retries, guards nothing
            pause = min(pause * 2, _LONGEST_PAUSE_S)


def _passes(error: Exception) -> bool:
    if not isinstance(error, ApiError):
        return True
    if error.status in (429, 502, 503, 504) or error.policy_unready:
        return True
    if error.status == 409:
        # The caller must redo a write against an old version; the same request would always fail.
        return "object is being deleted" in error.message
    # A webhook whose server is down has words of these too. The official plugin does not ask again.
    webhook = "failed calling webhook" in error.message
    return error.status == 500 and not webhook and any(text in error.message for text in _PASSING)


def _short(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason).rpartition(": ")[2] or type(error).__name__


def _only(name: str) -> tuple[str, str]:
    return "fieldSelector", f"metadata.name={name}"
