"""A request's line outlives its gateway pod: in VictoriaLogs, by the collector and with the program's own values.

Both programs run as pods. What a chart would render of the values is here in short, and the folders of a node's kubelet
are written by the test, out of what the pods of the lab wrote: its nodes have no such folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from components.addons.logs import (
    COLLECTOR,
    COLLECTOR_PODS,
    NAMESPACE,
    STORE,
    STORE_PODS,
    STORE_PORT,
    collector_values,
    store_values,
)
from components.placing import ANYWHERE
from components.specs.logs import LogsSpec
from stacks.facts import chart_images
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import ENVOYS, Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.test_request_log import fresh, streamed, the_line

pytestmark = pytest.mark.row("003.20")

Object = dict[str, Any]
_SPEC = LogsSpec(system="victoria_logs")
# As values.yaml of the collector's chart has them; the program sets none of these.
_CHARTS_OWN = {
    "kubernetesCollector": "true",
    "kubernetesCollector.msgField": "message,msg,log",
    "kubernetesCollector.timeField": "time,ts,timestamp",
    "kubernetesCollector.streamFields": "kubernetes.container_name,kubernetes.pod_name,kubernetes.pod_namespace",
}
_DATA = "/var/lib/vl-collector"
_CONTAINERS = "/var/log/containers"


def arguments(values: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def image_of(chart: str) -> str:
    (image,) = chart_images.load()[chart].images["chart"]
    return image


def store() -> list[Object]:
    """As its chart has it, with an empty folder in the place of the volume."""
    server = store_values(_SPEC, "none", ANYWHERE)["server"]
    given = {
        "storageDataPath": "/storage",
        "httpListenAddr": f":{STORE_PORT}",
        "retentionPeriod": server["retentionPeriod"],
        "retention.maxDiskUsagePercent": server["retentionMaxDiskUsagePercent"],
    }
    container = {
        "name": "vlogs",
        "image": image_of("victoria_logs"),
        "args": arguments(given),
        "ports": [{"name": "http", "containerPort": STORE_PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
        "volumeMounts": [{"name": "data", "mountPath": "/storage"}],
        "resources": server["resources"],
        "env": server["env"],
    }
    ports = [{"name": "http", "port": STORE_PORT, "targetPort": "http"}]
    return [
        named("v1", "Service", STORE) | {"spec": {"selector": STORE_PODS, "ports": ports}},
        pod(STORE, STORE_PODS, {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]}),
    ]


def collector(node: str, folder: Path) -> list[Object]:
    """As its chart has it on one node. folder: what the node's /var/log/containers is."""
    values = collector_values(_SPEC)
    (target,) = values["remoteWrite"]
    sent = {f"remoteWrite.{key}": str(value) for key, value in target.items()}
    sent["remoteWrite.url"] += "/insert/native"
    container = {
        "name": "vlagent",
        "image": image_of("victoria_logs_collector"),
        "args": arguments({**_CHARTS_OWN, **sent, "tmpDataPath": _DATA}),
        "volumeMounts": [
            {"name": "links", "mountPath": _CONTAINERS, "readOnly": True},
            {"name": "data", "mountPath": _DATA},
        ],
        "resources": values["resources"],
        "env": values["env"],
    }
    volumes = [{"name": "links", "hostPath": {"path": str(folder)}}, {"name": "data", "emptyDir": {}}]
    role = {"apiGroups": [""], "resources": ["nodes", "namespaces", "pods"], "verbs": ["get", "list", "watch"]}
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": COLLECTOR, "namespace": NAMESPACE}
    spec = {"serviceAccountName": COLLECTOR, "nodeName": node, "containers": [container], "volumes": volumes}
    return [
        named("v1", "ServiceAccount", COLLECTOR),
        named(f"{rbac}/v1", "ClusterRole", COLLECTOR) | {"rules": [role]},
        named(f"{rbac}/v1", "ClusterRoleBinding", COLLECTOR)
        | {"subjects": [subject], "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": COLLECTOR}},
        pod(COLLECTOR, COLLECTOR_PODS, spec),
    ]


def named(version: str, kind: str, name: str) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}


def pod(name: str, labels: Mapping[str, str], spec: Object) -> Object:
    body = named("v1", "Pod", name)
    return {**body, "metadata": {**body["metadata"], "labels": dict(labels)}, "spec": spec}


class Kubelet:
    """The folder /var/log/containers of a node, with a file for each container in the form of containerd."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._logs, self._folder = site.lab.logs / "pods", folder

    def write(self, envoy: Replica) -> None:
        """What the pod's containers have written since the last time."""
        for log in (self._logs / f"{envoy.namespace}_{envoy.name}_{envoy.uid}").rglob("*.log"):
            # The lab's container ids have slashes, which its name of the file has too.
            container = f"{envoy.uid}/{log.parent.name}/{log.stem}"
            path = self._folder / f"{envoy.name}_{envoy.namespace}_{log.parent.name}-{container}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            lines = log.read_text().splitlines()[len(path.read_text().splitlines()) :]
            with path.open("a") as file:
                file.writelines(f"{now} stdout F {line}\n" for line in lines)

    def drop(self, envoy: Replica) -> None:
        """As once a pod is deleted."""
        for path in self._folder.rglob(f"{envoy.name}_*/**/*.log"):
            path.unlink()


def envoy_of(cluster: Cluster) -> Replica:
    """The only one; a new shape of it runs beside the old one for a while."""

    def alone() -> list[Replica]:
        envoys = cluster.envoys()
        return envoys if len(envoys) == 1 and envoys[0].ready else []

    return until(alone, what="one Envoy")[0]


@pytest.fixture
def folder(site: Site) -> Path:
    made: Path = site.lab.volumes / "log-containers"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def running(site: Site, folder: Path, tmp_path: Path) -> Iterator[str]:
    """The store's address, once it and the collector of Envoy's node run."""
    envoy = envoy_of(Cluster(site))
    Kubelet(site, folder).write(envoy)
    node = kubectl(site.lab, "-n", ENVOYS, "get", "pod", envoy.name, "-o", "jsonpath={.spec.nodeName}")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    objects = tmp_path / "objects.yaml"
    objects.write_text(yaml.safe_dump_all([space, *store(), *collector(node, folder)]))
    kubectl(site.lab, "apply", "-f", str(objects))
    try:
        kubectl(site.lab, "-n", NAMESPACE, "wait", "pod", "--all", "--for=condition=Ready", "--timeout=120s")
        address = kubectl(site.lab, "-n", NAMESPACE, "get", "pod", STORE, "-o", "jsonpath={.status.podIP}")
        yield f"http://{address}:{STORE_PORT}"
    finally:
        kubectl(site.lab, "delete", "-f", str(objects), "--wait=true")


def lines_of(address: str, query: str) -> list[Object]:
    answer = httpx.get(f"{address}/select/logsql/query", params={"query": query}, trust_env=False, timeout=30)
    return [json.loads(line) for line in answer.raise_for_status().text.splitlines()]


def test_a_request_s_line_outlives_its_gateway_pod(site: Site, running: str, folder: Path) -> None:
    cluster, kubelet, mark, prompt = Cluster(site), Kubelet(site, folder), fresh("mark"), fresh("prompt")
    envoy = envoy_of(cluster)
    streamed(site, mark, prompt)
    written = the_line(site, mark)
    kubelet.write(envoy)
    asked = f'"x-request-id":="{written["x-request-id"]}"'
    until(lambda: lines_of(running, asked), what="the line in the store")
    kubectl(site.lab, "-n", envoy.namespace, "delete", "pod", envoy.name)
    kubelet.drop(envoy)
    until(lambda: [pod for pod in cluster.envoys() if pod.ready and pod.uid != envoy.uid], what="another Envoy")
    (line,) = lines_of(running, asked)
    assert {key: line[key] for key in ("client", "model", "user-agent")} == {
        key: written[key] for key in ("client", "model", "user-agent")
    }
    assert (line["kubernetes.pod_name"], line["kubernetes.container_name"]) == (envoy.name, "envoy")
    assert float(line["ttft_ms"]) == float(written["ttft_ms"])
    assert not lines_of(running, f'"{prompt}"')
