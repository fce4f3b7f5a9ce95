"""The pods behind the gateway: who they are, what they count, at what pace they answer, and how to kill them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from kubernetes import client

from lab.cluster.parts import name_of, spec_of
from tests.lab.waiting import PATIENCE_S, eventually

if TYPE_CHECKING:
    from tests.lab.site.running_site import Site

MODELS = "inference-models"
ENVOYS = "envoy-gateway-system"
ENGINE_PORT = 8000
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(\{.*\})? (?P<value>\S+)$")
_T = TypeVar("_T")


def until(holds: Callable[[], _T | None], *, what: str) -> _T:
    """Wait for something truthy and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (held := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.2)
    return held


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One pod."""

    name: str
    namespace: str
    uid: str
    ip: str
    ready: bool
    leaving: bool
    restarts: int

    @property
    def url(self) -> str:
        return f"http://{self.ip}:{ENGINE_PORT}"

    def counts(self) -> dict[str, float]:
        """The engine's metrics by name, summed over their labels; empty while it does not answer."""
        try:
            text = httpx.get(f"{self.url}/metrics", trust_env=False, timeout=60).text
        except httpx.HTTPError:
            return {}
        totals: dict[str, float] = {}
        for line in text.splitlines():
            if match := _SAMPLE.match(line):
                totals[match["name"]] = totals.get(match["name"], 0) + float(match["value"])
        return totals

    def served(self) -> int:
        """Requests that this process has answered to the end."""
        return int(self.counts().get("vllm:request_success_total", 0))

    def under_way(self) -> int:
        """Requests that it runs or holds in its queue; 0 while it does not answer."""
        return under_way(self.counts())


def under_way(counts: Mapping[str, float]) -> int:
    """Requests that an engine runs or holds in its queue, by its metrics."""
    return int(counts.get("vllm:num_requests_running", 0) + counts.get("vllm:num_requests_waiting", 0))


class Cluster:
    """Pods of the running site."""

    def __init__(self, site: Site) -> None:
        self._lab = site.lab
        self.core = client.CoreV1Api(site.kubernetes())
        self.custom = client.CustomObjectsApi(site.kubernetes())

    def replicas(self, model: str) -> list[Replica]:
        """Engines of a model that are not being deleted, by name."""
        chosen = f"app.kubernetes.io/name=model-server,app.kubernetes.io/instance={model}"
        return [replica for replica in self.pods(MODELS, chosen) if not replica.leaving]

    def ready_replicas(self, model: str, count: int = 2) -> list[Replica]:
        """The same, once `count` of them are ready."""

        def all_ready() -> list[Replica]:
            ready = [replica for replica in self.replicas(model) if replica.ready]
            return ready if len(ready) == count else []

        return until(all_ready, what=f"{count} ready replicas of {model}")

    def pickers(self, model: str) -> list[Replica]:
        return self.pods(MODELS, f"app.kubernetes.io/name=endpoint-picker,app.kubernetes.io/instance={model}")

    def envoys(self) -> list[Replica]:
        return self.pods(ENVOYS, "app.kubernetes.io/component=proxy,app.kubernetes.io/managed-by=envoy-gateway")

    def pods(self, namespace: str, selector: str) -> list[Replica]:
        listed = self.core.list_namespaced_pod(namespace, label_selector=selector).items
        return [_replica(pod) for pod in sorted(listed, key=name_of)]

    def requested_cores(self, pod: Replica) -> dict[str, str]:
        """What each of the pod's containers requests, sidecars too; without those that request none."""
        spec = spec_of(self.core.read_namespaced_pod(pod.name, pod.namespace))
        containers = [*(spec.init_containers or ()), *spec.containers]
        requests = {known.name: (known.resources.requests or {}).get("cpu") for known in containers if known.resources}
        return {name: cpu for name, cpu in requests.items() if cpu}

    def processes(self, pod: Replica, program: str) -> list[int]:
        """Ids of the pod's processes that run this program, on the machine itself."""
        return [pid for pid in self.all_processes(pod) if _program(pid) == program]

    def all_processes(self, pod: Replica) -> list[int]:
        """Ids of all of the pod's processes, on the machine itself."""
        pids = subprocess.run(["ip", "netns", "pids", self._network(pod)], capture_output=True, text=True, check=True)
        return [int(pid) for pid in pids.stdout.split()]

    def kill(self, pod: Replica, program: str) -> float:
        """SIGKILL to the program in the pod; the moment before, on the monotonic clock."""
        before = time.monotonic()
        assert self.keep_dead(pod, program), f"no {program} in {pod.name}"
        return before

    def keep_dead(self, pod: Replica, program: str) -> int:
        """SIGKILL to what runs of the program in the pod; how many processes that were."""
        victims = self.processes(pod, program)
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(victims)

    def run_in(self, pod: Replica, *command: str) -> str:
        """Output of a command in the pod's network."""
        argv = [*self.enter_argv(pod), *command]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout

    def enter_argv(self, pod: Replica) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._network(pod)}", "--"]

    def envoy_admin(self, envoy: Replica, path: str) -> str:
        """Answer of Envoy's admin interface, which listens on its pod's loopback alone."""
        return self.run_in(envoy, "curl", "-sS", "--fail", "--max-time", "20", f"http://127.0.0.1:19000{path}")

    @contextmanager
    def pace(self, model: str, **settings: str | float) -> Iterator[None]:
        """Let a model's simulators answer at another pace, e.g. `inter_token_latency="250ms"`.

        Requests that are under way keep theirs. Replicas that start meanwhile have the deployed one.
        """
        wanted = {name.replace("_", "-"): value for name, value in settings.items()}
        before: dict[str, dict[str, Any]] = {}
        for replica in self.ready_replicas(model):
            before[replica.url] = (
                httpx.get(f"{replica.url}/admin/config", trust_env=False, timeout=60).raise_for_status().json()
            )
            set_pace(replica, wanted)
        try:
            yield
        finally:
            # A test may have killed the API server.
            for replica in eventually(lambda: self.replicas(model)):
                if replica.url in before:
                    set_pace(replica, {name: before[replica.url][name] for name in wanted})

    def _network(self, pod: Replica) -> str:
        return f"{self._lab.prefix}-p-{pod.uid[:8]}"


def set_pace(replica: Replica, settings: dict[str, Any]) -> None:
    """New figures of a simulator, for requests that begin from now on."""
    httpx.post(f"{replica.url}/admin/config", json=settings, trust_env=False, timeout=60).raise_for_status()


def _replica(pod: Any) -> Replica:
    statuses = pod.status.container_statuses or []
    return Replica(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        ip=pod.status.pod_ip or "",
        ready=any(
            condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions or []
        ),
        leaving=pod.metadata.deletion_timestamp is not None,
        restarts=sum(status.restart_count for status in statuses),
    )


def _program(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""
