"""What the platform's own Prometheus has measured."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx

from tests.lab.site.replicas import Cluster, Replica, until

MONITORING = "inference-monitoring"
PORT = 9090


class Prometheus:
    """The running site's Prometheus, asked from the machine itself, as its node would."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def pod(self) -> Replica:
        (only,) = self._cluster.pods(MONITORING, "app.kubernetes.io/name=prometheus")
        return only

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        address = f"http://{self.pod.ip}:{PORT}/api/v1/{path}"
        answer = httpx.get(address, params=parameters, trust_env=False, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Samples of an instant query: labels as `metric`, and time and text as `value`."""
        samples: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return samples

    def first(self, expression: str) -> list[dict[str, Any]]:
        """The same, once there are any."""
        return until(lambda: self.query(expression), what=expression)

    def up(self) -> Counter[str]:
        """Targets that answer, by job."""
        return Counter(sample["metric"]["job"] for sample in self.query("up == 1"))
