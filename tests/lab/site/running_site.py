"""The platform that the tests of this folder talk to."""

from __future__ import annotations

from dataclasses import dataclass

import httpx
from kubernetes import client

from lab import session
from lab.cluster import api
from lab.deploy import StackOutputs
from lab.paths import Lab


@dataclass(frozen=True, kw_only=True)
class Site:
    """A running platform: where it answers, with which keys, and the lab under it."""

    lab: Lab
    front: StackOutputs

    @property
    def key(self) -> str:
        """A key that may call every model."""
        return self.front.keys[self.front.client]

    @property
    def address(self) -> str:
        """Where the gateway listens, without OpenAI's path."""
        return self.front.endpoint.removesuffix("/v1")

    def http(self, timeout_s: float = 60, *, key: str | None = None, http2: bool = False) -> httpx.Client:
        """A client of the gateway that carries a tenant's key; `http2` speaks nothing else."""
        return httpx.Client(
            base_url=self.front.endpoint,
            headers=self._headers(key),
            verify=self.front.trust,
            trust_env=False,
            http1=not http2,
            http2=http2,
            timeout=httpx.Timeout(timeout_s, connect=5),
        )

    def http_async(self, timeout_s: float = 60, *, key: str | None = None, http2: bool = False) -> httpx.AsyncClient:
        """The same for many requests at once, without a limit of connections."""
        return httpx.AsyncClient(
            base_url=self.front.endpoint,
            headers=self._headers(key),
            verify=self.front.trust,
            trust_env=False,
            http1=not http2,
            http2=http2,
            timeout=httpx.Timeout(timeout_s, connect=30),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )

    @property
    def environment(self) -> dict[str, str]:
        """Of commands that people run in this lab, also of the lab's own."""
        return {**session.environment(self.lab), "LAB_SITE_FILE": str(self.lab.site_file)}

    def kubernetes(self) -> client.ApiClient:
        return api.connect(self.lab)

    def _headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key or self.key}"}
