"""Models that exist for a benchmark only: added to the lab's site by its own program, and taken away afterwards."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from kubernetes import client

from benchmarks.client import Connection
from components.tenants.pods import opaque_secret
from floor.namespaces import GATEWAY
from lab import deploy, session
from lab.cluster import api, operator_database
from lab.cluster.parts import metadata_of, present, spec_of, status_of
from lab.deploy import StackOutputs
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab
from stacks.plan.models import MODELS_NAMESPACE
from stacks.site.loader import KEY

_STACK_FILE = CHECKOUT / f"Pulumi.{session.STACK}.yaml"
# The smallest catalogue model on one GPU: three replicas of it fit next to the lab's own models.
_CATALOGUE = "qwen3-32b-fp8"
_READY_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A running platform with the benchmark's models on it."""

    lab: Lab
    front: StackOutputs
    file: Path
    """Of its site."""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.front.keys[self.front.client]}"}

    def connection(self, client: str | None = None) -> Connection:
        """One to the gateway, with the key of a client, or with one that may call every model."""
        headers = {"Authorization": f"Bearer {self.front.keys[client]}"} if client else self.headers
        return Connection(self.front.endpoint, headers, trust=self.front.trust)

    def replicas(self, model: str) -> list[str]:
        """Base addresses of the model's ready replicas, sorted."""
        selector = f"app.kubernetes.io/name=model-server,app.kubernetes.io/instance={model}"
        pods = self.core().list_namespaced_pod(MODELS_NAMESPACE, label_selector=selector).items
        return sorted(f"http://{status_of(pod).pod_ip}:8000" for pod in pods if not metadata_of(pod).deletion_timestamp)

    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(api.connect(self.lab))


def simulator(*, replicas: int, pickers: int = 1) -> dict[str, Any]:
    """A site's settings for a model on the simulator."""
    return {
        "catalogue": _CATALOGUE,
        "server": {
            "engine": "simulator",
            "replicas": replicas,
            "longest_stream_s": 60,
            "simulated_load_scale": 0.01,
        },
        "pool": {"pickers": pickers, "cpu": "100m", "memory": "128Mi"},
    }


def set_arguments(bench: Bench, model: str, arguments: Mapping[str, str]) -> None:
    """Start the model's replicas again with other figures than its proof's, which no site may set; `up` undoes it.

    Raises LabError when they do not come back.
    """
    apps = client.AppsV1Api(api.connect(bench.lab))
    deployed = apps.read_namespaced_deployment(model, MODELS_NAMESPACE)
    engine = spec_of(spec_of(deployed).template).containers[0]
    kept = [argument for argument in engine.args or () if argument.partition("=")[0] not in arguments]
    changed = [{"name": engine.name, "args": [*kept, *(f"{name}={value}" for name, value in arguments.items())]}]
    patch = {"spec": {"template": {"spec": {"containers": changed}}}}
    wait_for(bench, model, apps.patch_namespaced_deployment(model, MODELS_NAMESPACE, patch))


def wait_for(bench: Bench, deployment: str, changed: client.V1Deployment) -> None:
    """Wait until every replica is as changed, or of a later change, and ready. Raises LabError after two minutes."""
    generation = present(metadata_of(changed).generation)
    apps = client.AppsV1Api(api.connect(bench.lab))
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        read = apps.read_namespaced_deployment(deployment, MODELS_NAMESPACE)
        status, wanted = status_of(read), spec_of(read).replicas
        as_wanted = (status.replicas, status.updated_replicas, status.ready_replicas) == (wanted,) * 3
        if (status.observed_generation or 0) >= generation and as_wanted:
            return
        # Between two looks.
        time.sleep(1)
    raise LabError(f"{deployment} did not come back after its change", fix="python -m lab logs")


def stack_with(
    models: Mapping[str, Mapping[str, Any]],
    file: Path = _STACK_FILE,
    edit: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """The lab's stack file with these models, which every tenant may call. edit: what else changes, new tenants too."""
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    site = document["config"][KEY]
    site["models"] |= {name: dict(body) for name, body in models.items()}
    edit(site)
    for tenant in site["tenants"].values():
        tenant["models"] = [*tenant["models"], *models]
    return document


@contextmanager
def served(
    lab: Lab, models: Mapping[str, Mapping[str, Any]], edit: Callable[[dict[str, Any]], None] = lambda _: None
) -> Iterator[Bench]:
    """The lab's site with these models in addition to its own. Raises LabError when the platform does not come up.

    edit: what else changes in its site.
    """
    document = stack_with(models, session.stack_file(lab), edit)
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
            yield Bench(lab=lab, front=front, file=file)
        finally:
            _up(lab)


def give_databases(lab: Lab, *names: str) -> None:
    """The lab's site as it is, and Secrets of these names with databases' addresses, as an operator makes them."""
    _up(lab)
    operator_database.ensure(lab)
    addresses = {name: operator_database.url(lab, name) for name in names}
    with api.connect(lab) as connection:
        api.apply(connection, *(opaque_secret(GATEWAY, name, {"url": url}) for name, url in addresses.items()))


def give_secret(lab: Lab, name: str, content: Mapping[str, str]) -> None:
    """A Secret beside the gateway, as an operator makes it."""
    with api.connect(lab) as connection:
        api.apply(connection, opaque_secret(GATEWAY, name, dict(content)))


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
