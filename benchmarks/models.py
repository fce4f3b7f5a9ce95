"""Models that exist for a benchmark only: added to the lab's site by its own program, and taken away afterwards."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from kubernetes import client

from lab import deploy, session
from lab.cluster import api
from lab.deploy import Front
from lab.paths import CHECKOUT, Lab
from stacks.loader import KEY
from stacks.platform import MODELS_NAMESPACE

_STACK_FILE = CHECKOUT / f"Pulumi.{session.STACK}.yaml"
# The smallest catalogue model on one GPU: three replicas of it fit beside the lab's own models.
_CATALOGUE = "qwen3-32b-fp8"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A running platform with the benchmark's models on it."""

    lab: Lab
    front: Front

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.front.keys[self.front.client]}"}

    def replicas(self, model: str) -> list[str]:
        """Base addresses of the model's ready replicas, sorted."""
        selector = f"app.kubernetes.io/name=model-server,app.kubernetes.io/instance={model}"
        pods = self.core().list_namespaced_pod(MODELS_NAMESPACE, label_selector=selector).items
        return sorted(f"http://{pod.status.pod_ip}:8000" for pod in pods if not pod.metadata.deletion_timestamp)

    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(api.connect(self.lab))


def simulator(*, replicas: int, arguments: tuple[str, ...]) -> dict[str, Any]:
    """A site's words for a model on the simulator; `arguments` come last, so they win over the model's figures."""
    return {
        "catalogue": _CATALOGUE,
        "server": {
            "engine": "simulator",
            "replicas": replicas,
            "longest_stream_s": 60,
            "simulated_load_scale": 0.01,
            "extra_args": list(arguments),
        },
        "pool": {"cpu": "100m", "memory": "128Mi"},
    }


@contextmanager
def served(lab: Lab, models: Mapping[str, Mapping[str, Any]]) -> Iterator[Bench]:
    """The lab's site with these models beside its own. Raises LabError when the platform does not come up."""
    document = yaml.safe_load(_STACK_FILE.read_text())
    site = document["config"][KEY]
    site["models"] |= {name: dict(body) for name, body in models.items()}
    for tenant in site["tenants"].values():
        tenant["models"] = [*tenant["models"], *models]
    with tempfile.TemporaryDirectory(prefix="bench-site-") as folder:
        file = Path(folder) / _STACK_FILE.name
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        try:
            _up(lab, "--config-file", str(file))
            front = deploy.front(lab)
            for name in models:
                # What it prints is for people who look for a first answer.
                with redirect_stdout(io.StringIO()):
                    deploy.ask(front, model=name)
            yield Bench(lab=lab, front=front)
        finally:
            _up(lab)


def counters(address: str, names: tuple[str, ...]) -> dict[str, float]:
    """Sums of Prometheus counters of one replica, over their labels."""
    text = httpx.get(f"{address}/metrics", trust_env=False, timeout=10).text
    total = dict.fromkeys(names, 0.0)
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in total:
            total[name] += float(line.rpartition(" ")[2])
    return total


def _up(lab: Lab, *more: str) -> None:
    session.run_pulumi(lab, "up", "--yes", "--skip-preview", "--stack", session.STACK, *more)
