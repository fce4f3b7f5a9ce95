"""The runner's calls to the API server: plain dicts over the kubernetes client, so a small idle runner stays cheap."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from lab import kubeconfigs, watching
from lab.runner.state import Object, timestamp

COMPONENT = "lab pod runner"
# Failures after which a call is worth repeating: the API server is away or restarts.
TRANSIENT = (aiohttp.ClientError, TimeoutError, OSError)

_TIMEOUT_S = 15.0
_REPLACED_LISTS = ("podIPs", "hostIPs")
# The server ends a watch after this long; the client's own limit is a little later and catches a dead connection.
_WATCH_S = 240


class ApiRefusedError(watching.RefusedError):
    """The API server answered with an error; `code` is the HTTP status."""


class KubeApi:
    """One connection pool to the API server."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._host = str(api.configuration.host)

    @classmethod
    async def connect(cls, kubeconfig: Path) -> KubeApi:
        """A client from a kubeconfig file.

        Raises kubernetes' ConfigException when the file is no kubeconfig.
        """
        return cls(await config.new_client_from_config_dict(kubeconfigs.read(kubeconfig)))

    async def close(self) -> None:
        await self._api.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """One call; the answer's JSON.

        Raises ApiRefusedError for an HTTP error, one of TRANSIENT when there is no answer.
        """
        response = await self._open(method, path, body, query, content_type, _TIMEOUT_S)
        try:
            data = await response.read()
        finally:
            response.release()
        if response.status >= 400:
            raise _refused(response.status, data)
        answer: Object = json.loads(data) if data else {}
        return answer

    async def _open(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, Any] | None,
        content_type: str,
        timeout_s: float,
    ) -> aiohttp.ClientResponse:
        url = self._host + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            answer = await self._api.call_api(method, url, headers, body, _request_timeout=timeout_s)
        except ApiException as error:
            raise ApiRefusedError(error.status or 0, str(error.reason)) from error
        response: aiohttp.ClientResponse = answer.response
        return response

    async def watch(self, path: str, resource_version: str) -> AsyncGenerator[bytes]:
        """What the server sends of a collection's changes from a version on, until it ends the watch."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": _WATCH_S,
        }
        response = await self._open("GET", path, None, query, "application/json", _WATCH_S + 15)
        try:
            if response.status >= 400:
                raise _refused(response.status, await response.read())
            async for chunk in response.content.iter_any():
                yield chunk
        finally:
            response.close()

    async def patch_pod_status(self, pod: Object, status: Object) -> Object:
        """Merge the runner's part of the status; the uid makes it fail (409) for another pod of the same name."""
        # Addresses would be merged by their value: a pod that moved would seem to have two.
        whole = {field: [*status[field], {"$patch": "replace"}] for field in _REPLACED_LISTS if field in status}
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {**status, **whole}}
        path = f"{pod_path(pod)}/status"
        return await self.request("PATCH", path, body=body, content_type="application/strategic-merge-patch+json")

    async def remove_pod(self, pod: Object) -> None:
        """Delete the Pod object for good, now that nothing of it runs.

        Raises ApiRefusedError: 404 when it is gone, 409 when the name belongs to another pod by now.
        """
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self.request("DELETE", pod_path(pod), body=body)

    async def service_account_token(self, pod: Object, audience: str, lifetime_s: int) -> tuple[str, str]:
        """A token bound to the pod, and when it expires (RFC 3339)."""
        metadata = pod["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
        spec: Object = {"expirationSeconds": lifetime_s, "boundObjectRef": bound}
        if audience:
            spec["audiences"] = [audience]
        account = pod["spec"].get("serviceAccountName", "default")
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self.request("POST", path, body=body)
        return answer["status"]["token"], answer["status"]["expirationTimestamp"]

    async def claim_volume(self, namespace: str, claim: str) -> Object:
        """The PersistentVolume that a claim is bound to.

        Raises ApiRefusedError (404 or 409) when the claim is absent or not bound yet.
        """
        claim_object = await self.request("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
        volume = claim_object["spec"].get("volumeName")
        if not volume or claim_object.get("status", {}).get("phase") != "Bound":
            raise ApiRefusedError(409, f'persistentvolumeclaim "{claim}" is not bound')
        return await self.request("GET", f"/api/v1/persistentvolumes/{volume}")

    async def event(self, pod: Object, *, kind: str, reason: str, message: str) -> None:
        """Write an Event about the pod; `kind` is Normal or Warning."""
        metadata, now = pod["metadata"], timestamp()
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name'][:50]}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": COMPONENT, "host": pod["spec"].get("nodeName", "")},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self.request("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", body=body)


def pod_path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _refused(code: int, data: bytes) -> ApiRefusedError:
    try:
        message = str(json.loads(data).get("message", ""))
    except ValueError:
        message = data[:200].decode(errors="replace")
    return ApiRefusedError(code, message)
