"""The two sources, each behind HTTP: Prometheus' answers, and the API server that also holds the watcher's state."""

from __future__ import annotations

import ssl
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2

from services.watcher import variables
from services.watcher.decision import LastDrain, LoadSeen, NodeSeen, ReplicaSeen
from services.watcher.settings import WatcherSettings

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MERGE = {"Content-Type": "application/merge-patch+json"}
_LONGEST_EVENT = 1000


class AwayError(Exception):
    """A source does not answer, or not as it should. source: `prometheus` or `api-server`."""

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"{source}: {why}")
        self.source = source


class NotGrantedError(AwayError):
    """The API server answers, and not with what was asked for: another request may be granted."""

    def __init__(self, why: str) -> None:
        super().__init__("api-server", why)


class PrometheusSource:
    """What DCGM reports, by one Prometheus."""

    def __init__(self, client: httpx2.Client, settings: WatcherSettings) -> None:
        self._client, self._settings = client, settings

    def faults(self) -> dict[str, list[str]]:
        """Node -> codes of its GPUs' faults, in the order of the settings. Raises AwayError."""
        order = list(self._settings.meanings)
        reported: dict[str, set[str]] = defaultdict(set)
        for labels, _ in self._ask(self._settings.faults):
            reported[labels.get("node", "")].add(labels.get("fault", ""))
        return {node: sorted(codes & {*order}, key=order.index) for node, codes in reported.items()}

    def measured(self) -> dict[str, int]:
        """Node -> GPUs that are reported. Raises AwayError."""
        return {labels.get("node", ""): int(value) for labels, value in self._ask(self._settings.measured)}

    def joining(self) -> dict[str, int]:
        """Node -> GPUs that have not joined its fabric. Raises AwayError."""
        return dict(Counter(labels.get("node", "") for labels, _ in self._ask(self._settings.joining)))

    def _ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        try:
            answer = self._client.post("/api/v1/query", data={"query": query})
            answer.raise_for_status()
            return [(row["metric"], float(row["value"][1])) for row in answer.json()["data"]["result"]]
        except (httpx2.HTTPError, ValueError, KeyError, TypeError, IndexError) as error:
            raise AwayError("prometheus", f"{type(error).__name__}: {error}") from None


def in_pod() -> httpx2.Client:
    """A client of the API server with the pod's own account, whose token is read for each request."""

    def identify(request: httpx2.Request) -> None:
        request.headers["Authorization"] = f"Bearer {(_ACCOUNT / 'token').read_text().strip()}"

    return httpx2.Client(
        base_url="https://kubernetes.default.svc",
        verify=ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt")),
        event_hooks={"request": [identify]},
        trust_env=False,
    )


class ApiServerSource:
    """Nodes and replicas. All that the watcher remembers is here: taints, annotations, and the Lease of its drains."""

    def __init__(self, client: httpx2.Client, settings: WatcherSettings, space: str) -> None:
        """space: the namespace of the Lease."""
        self._client, self._settings, self._space = client, settings, space
        self._versions: dict[str, str] = {}
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self._lease: dict[str, Any] | None = None

    def nodes(self) -> dict[str, NodeSeen]:
        """Those of the site that are there. Raises AwayError."""
        listed = self._ask("GET", "/api/v1/nodes")["items"]
        self._nodes = {node["metadata"]["name"]: node for node in listed}
        replicas: dict[str, list[ReplicaSeen]] = defaultdict(list)
        for pod in self._pods(self._settings.namespace, self._settings.replicas):
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                replicas[pod["spec"].get("nodeName", "")].append(_replica(pod))
        validated = None
        if self._settings.checks and self._settings.validator:
            validators = self._pods(*self._settings.validator)
            validated = {pod["spec"].get("nodeName", "") for pod in validators if _is_ready(pod)}
        loads: dict[str, LoadSeen] = {}
        if self._settings.load_tests:
            tests = self._pods(*self._settings.load_tests)
            loads = {
                pod["spec"].get("nodeName", ""): _load(pod)
                for pod in tests
                if not _is_ending(pod) and self._runs_now(pod)
            }
        return {
            name: _node(
                node,
                replicas[name],
                validated=validated is None or name in validated,
                load=loads.get(name, LoadSeen()),
            )
            for name, node in self._nodes.items()
            if name in self._settings.nodes
        }

    def _runs_now(self, pod: Mapping[str, Any]) -> bool:
        """Whether the pod is of the load test that its node's label names."""
        node = self._nodes.get(pod["spec"].get("nodeName", ""), {"metadata": {}})
        wanted = (node["metadata"].get("labels") or {}).get(variables.LOAD_TEST)
        return bool(pod["metadata"]["labels"].get(variables.LOAD_TEST) == wanted)

    def last(self) -> LastDrain | None:
        """The last drain of any node. Raises AwayError."""
        answer = self._send("GET", self._lease_path(variables.SERVICE), {}, {})
        if answer.status_code == 404:
            self._lease = None
            return None
        self._lease = _content(answer)
        try:
            spec = self._lease["spec"]
            return LastDrain(node=spec["holderIdentity"], at=datetime.fromisoformat(spec["renewTime"]).timestamp())
        except (KeyError, TypeError, ValueError) as error:
            raise AwayError("api-server", f"the Lease {variables.SERVICE} has no drain: {error!r}") from None

    def hold(self, node: str, now: float) -> bool:
        """Write the drain of a node into the Lease; False where another one has been written since it was read."""
        lease = self._lease or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": variables.SERVICE, "namespace": self._space},
        }
        body = {**lease, "spec": {"holderIdentity": node, "renewTime": _micro(now)}}
        method, path = ("PUT", variables.SERVICE) if self._lease else ("POST", "")
        answer = self._send(method, self._lease_path(path), body, {})
        if answer.status_code == 409:
            return False
        self._lease = _content(answer)
        return True

    def taint(self, node: str, key: str, value: str, annotations: Mapping[str, str | None]) -> None:
        """Add the taint that repels replicas, and set annotations with it, at once. Raises AwayError."""
        taints = [entry for entry in self._taints(node) if entry["key"] != key]
        self._patch(node, annotations, [*taints, {"key": key, "value": value, "effect": "NoSchedule"}])

    def untaint(
        self, node: str, key: str, annotations: Mapping[str, str | None], labels: Mapping[str, str | None]
    ) -> None:
        """Remove the taints with this key, and set annotations and labels with it. Raises AwayError."""
        self._patch(node, annotations, [entry for entry in self._taints(node) if entry["key"] != key], labels)

    def annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations, or remove those without a value. Raises AwayError."""
        self._patch(node, annotations, None)

    def label(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Set labels, or remove those without a value. Raises AwayError."""
        self._patch(node, {}, None, labels)

    def evict(self, replica: str) -> bool:
        """Whether the eviction is granted; a disruption budget may refuse it for now. Raises AwayError."""
        space = self._settings.namespace
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": replica, "namespace": space}}
        answer = self._send("POST", f"/api/v1/namespaces/{space}/pods/{replica}/eviction", body, {})
        if answer.status_code in (404, 429):
            return answer.status_code == 404
        _content(answer)
        return True

    def report(self, node: str, reason: str, text: str, now: float) -> None:
        """An Event about the node. Raises AwayError."""
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        uid = self._nodes[node]["metadata"]["uid"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{node}.", "namespace": "default"},
            # As the kubelet names a node in its own Events, so that `kubectl describe node` finds it.
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
            "reason": reason,
            "message": text[:_LONGEST_EVENT],
            "type": "Warning",
            "source": {"component": variables.SERVICE},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        _content(self._send("POST", "/api/v1/namespaces/default/events", event, {}))

    def _taints(self, node: str) -> list[Mapping[str, Any]]:
        return list(self._nodes[node]["spec"].get("taints") or [])

    def _patch(
        self,
        node: str,
        annotations: Mapping[str, str | None],
        taints: Sequence[Mapping[str, Any]] | None,
        labels: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        """For the version that was decided on alone, as a taint list is replaced whole."""
        version = self._nodes[node]["metadata"]["resourceVersion"]
        metadata = {"resourceVersion": version, "annotations": annotations, "labels": dict(labels)}
        body = {"metadata": metadata, **({} if taints is None else {"spec": {"taints": list(taints)}})}
        self._nodes[node] = _content(self._send("PATCH", f"/api/v1/nodes/{node}", body, _MERGE))

    def _pods(self, space: str, selector: str) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self._ask("GET", f"/api/v1/namespaces/{space}/pods?labelSelector={selector}")[
            "items"
        ]
        return pods

    def _lease_path(self, name: str) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._space}/leases"
        return f"{path}/{name}" if name else path

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        return _content(self._send(method, path, {}, {}))

    def _send(self, method: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> httpx2.Response:
        try:
            return self._client.request(method, path, json=body or None, headers=dict(headers))
        except (httpx2.HTTPError, OSError) as error:
            raise AwayError("api-server", f"{type(error).__name__}: {error}") from None


def _content(answer: httpx2.Response) -> dict[str, Any]:
    try:
        answer.raise_for_status()
        content: dict[str, Any] = answer.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise NotGrantedError(f"{error}: {answer.text[:200]}") from None
    return content


def _node(node: Mapping[str, Any], replicas: Sequence[ReplicaSeen], *, validated: bool, load: LoadSeen) -> NodeSeen:
    annotations, spec, status = node["metadata"].get("annotations") or {}, node["spec"], node["status"]
    taints = {entry["key"]: entry.get("value", "") for entry in spec.get("taints") or []}
    offered = {name: int(count) for name, count in (status.get("allocatable") or {}).items() if count.isdigit()}
    return NodeSeen(
        ready=any(held["type"] == "Ready" and held["status"] == "True" for held in status.get("conditions") or []),
        cordoned=bool(spec.get("unschedulable")),
        allocatable=offered,
        taint=taints.get(variables.FAULT, ""),
        marked=[code for code in annotations.get(variables.FAULT, "").split(",") if code],
        since=_seconds(annotations.get(variables.FAULT_SINCE, "")),
        suspect=annotations.get(variables.SUSPECT, ""),
        checking=variables.CHECK in taints,
        checked=variables.CHECKED in annotations,
        replicas=replicas,
        validated=validated,
        load_test=(node["metadata"].get("labels") or {}).get(variables.LOAD_TEST, ""),
        load=load,
    )


def _seconds(stamp: str) -> float:
    """Since 1970; 0 for what the watcher has not written."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return 0.0


def _replica(pod: Mapping[str, Any]) -> ReplicaSeen:
    return ReplicaSeen(
        name=pod["metadata"]["name"],
        ready=_is_ready(pod),
        restarted=any(entry["restartCount"] for entry in pod["status"].get("containerStatuses") or []),
        ending=_is_ending(pod),
    )


def _load(pod: Mapping[str, Any]) -> LoadSeen:
    """Its first container tests: while the pod starts it again after a failure, the last run counts."""
    states = [of for entry in pod["status"].get("initContainerStatuses") or [] for of in _runs(entry)]
    ended: Mapping[str, Any] = next((state["terminated"] for state in states if "terminated" in state), {})
    return LoadSeen(passed=_is_ready(pod), text=ended.get("message", "").strip()[-_LONGEST_EVENT:])


def _runs(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """States of a container, the latest first."""
    return [entry.get(name) or {} for name in ("state", "lastState")]


def _is_ending(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(held["type"] == "Ready" and held["status"] == "True" for held in conditions)


def _micro(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
