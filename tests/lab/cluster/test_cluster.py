"""The emulated cluster with its real programs, in a spare lab of its own."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from lab.cluster import api, network
from lab.cluster.parts import name_of, present, spec_of, status_of
from lab.paths import Lab
from tests.lab.cluster.cluster_checks import balanced_service
from tests.lab.waiting import eventually

_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


def gpu_pod(name: str, gpus: int, *tolerations: dict[str, str]) -> client.V1Pod:
    container = {
        "name": "main",
        "image": "registry.example/none:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": "hgx-1"},
        "tolerations": list(tolerations),
        "containers": [container],
    }
    return client.V1Pod.model_validate({"metadata": {"name": name}, "spec": spec})


def scheduling(core: client.CoreV1Api, namespace: str, pod: str) -> Any:
    """The pod's PodScheduled condition, once there is one."""

    def condition() -> Any:
        conditions = status_of(core.read_namespaced_pod(pod, namespace)).conditions or ()
        return next((c for c in conditions if c.type == "PodScheduled"), None)

    return eventually(condition)


def test_nodes_become_ready_with_eight_gpus_each(cluster: Lab, core: client.CoreV1Api) -> None:
    def ready() -> dict[str, client.V1Node]:
        nodes = core.list_node().items
        fit = all(
            any(c.type == "Ready" and c.status == "True" for c in status_of(node).conditions or ()) for node in nodes
        )
        # The taint of a node that is not ready goes a moment after.
        clean = not any(
            taint.key.startswith("node.kubernetes.io/") for node in nodes for taint in spec_of(node).taints or ()
        )
        return {name_of(node): node for node in nodes} if fit and clean else {}

    nodes_by_name = eventually(ready)
    assert sorted(nodes_by_name) == ["cp-1", "hgx-1", "hgx-2"]
    assert nodes_by_name["hgx-1"].status.allocatable["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu" not in nodes_by_name["cp-1"].status.allocatable
    assert [(t.key, t.effect) for t in nodes_by_name["hgx-1"].spec.taints] == [("nvidia.com/gpu", "NoSchedule")]


def test_scheduler_refuses_a_ninth_gpu(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, gpu_pod("eight", 8, _TOLERATION))
    assert scheduling(core, namespace, "eight").status == "True"
    core.create_namespaced_pod(namespace, gpu_pod("ninth", 1, _TOLERATION))
    refused = scheduling(core, namespace, "ninth")
    assert (refused.status, refused.reason) == ("False", "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in refused.message


def test_scheduler_keeps_pods_without_toleration_off_gpu_nodes(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, gpu_pod("plain", 1))
    assert "untolerated taint" in scheduling(core, namespace, "plain").message


def test_service_account_token_opens_the_api_by_its_cluster_ip(
    cluster: Lab, core: client.CoreV1Api, namespace: str, tmp_path: Path
) -> None:
    request = client.AuthenticationV1TokenRequest.model_validate({"spec": {}})
    token = status_of(core.create_namespaced_service_account_token("default", namespace, request)).token
    authority = eventually(lambda: core.read_namespaced_config_map("kube-root-ca.crt", namespace)).data["ca.crt"]
    (tmp_path / "ca.crt").write_text(authority)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = eventually(
        lambda: (
            subprocess.run(
                [
                    *("curl", "--silent", "--fail", "--max-time", "3", "--cacert", str(tmp_path / "ca.crt")),
                    *("--header", f"Authorization: Bearer {token}", "--json", str(review).replace("'", '"')),
                    f"https://{cluster.network.services[1]}/apis/authentication.k8s.io/v1/selfsubjectreviews",
                ],
                capture_output=True,
                text=True,
                check=False,
            ).stdout
        )
    )
    assert f"system:serviceaccount:{namespace}:default" in answer


def test_api_endpoint_is_the_bridge(cluster: Lab, core: client.CoreV1Api) -> None:
    with api.connect(cluster) as connection:
        slices = client.DiscoveryV1Api(connection).list_namespaced_endpoint_slice("default").items
    addresses = [address for s in slices for endpoint in s.endpoints or () for address in endpoint.addresses]
    assert addresses == [str(cluster.network.bridge_address)]


@contextlib.contextmanager
def responder(cluster: Lab, address: IPv4Address) -> Iterator[str]:
    """An HTTP server in a network namespace that is connected as the pod runner connects pods; yields its name."""
    name = f"{cluster.prefix}-test"
    gateway = cluster.network.bridge_address
    for command in (
        f"ip netns add {name}",
        f"ip -n {cluster.namespace} link add {name} type veth peer name eth0 netns {name}",
        f"ip -n {cluster.namespace} link set {name} master {cluster.bridge} up",
        f"ip -n {name} addr add {address}/32 dev eth0",
        f"ip -n {name} link set lo up",
        f"ip -n {name} link set eth0 up",
        f"ip -n {name} route add {gateway} dev eth0",
        f"ip -n {name} route add default via {gateway}",
    ):
        subprocess.run(command.split(), check=True)
    server = subprocess.Popen(
        ["ip", "netns", "exec", name, "python3", "-m", "http.server", "8000", "--bind", str(address)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield name
    finally:
        server.kill()
        server.wait()
        subprocess.run(["ip", "netns", "del", name], check=True)


def answers(url: str, prefix: list[str]) -> bool:
    options = ("--silent", "--max-time", "2", "--output", "/dev/null", "--write-out", "%{http_code}")
    curl = subprocess.run([*prefix, "curl", *options, url], capture_output=True, text=True, check=False)
    return curl.stdout == "200"


def test_balanced_service_answers_on_the_host_and_to_its_own_pod(
    cluster: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    pod = cluster.network.node_pods(0)[200]
    balanced = balanced_service(core, namespace, "front")
    assert balanced in cluster.network.load_balancers
    with api.connect(cluster) as connection:
        endpoints = {
            "metadata": {"name": "front-1", "labels": {"kubernetes.io/service-name": "front"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [str(pod)], "nodeName": "cp-1", "conditions": {"ready": True}}],
            "ports": [{"name": "", "port": 8000, "protocol": "TCP"}],
        }
        client.DiscoveryV1Api(connection).create_namespaced_endpoint_slice(
            namespace, client.V1EndpointSlice.model_validate(endpoints)
        )
    with responder(cluster, pod) as pod_namespace:
        in_pod = ["ip", "netns", "exec", pod_namespace]
        for prefix in ([], network.inside(cluster, []), in_pod):
            eventually(partial(answers, f"http://{balanced}/", prefix))


def test_balanced_address_is_stable_and_never_shared(core: client.CoreV1Api, namespace: str) -> None:
    first = balanced_service(core, namespace, "stable")
    assert balanced_service(core, namespace, "other") != first
    core.delete_namespaced_service("stable", namespace)
    assert balanced_service(core, namespace, "stable") == first


def claim(name: str, mode: str = "ReadWriteMany") -> client.V1PersistentVolumeClaim:
    spec = {
        "storageClassName": "longhorn",
        "accessModes": [mode],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    return client.V1PersistentVolumeClaim.model_validate({"metadata": {"name": name}, "spec": spec})


def bound_volume(core: client.CoreV1Api, namespace: str, name: str) -> Any:
    def bound() -> str | None:
        waiting = core.read_namespaced_persistent_volume_claim(name, namespace)
        return spec_of(waiting).volume_name if status_of(waiting).phase == "Bound" else None

    return core.read_persistent_volume(eventually(bound))


@pytest.mark.parametrize("mode", ["ReadWriteMany", "ReadWriteOnce"])
def test_claim_gets_a_folder_that_goes_with_it(cluster: Lab, core: client.CoreV1Api, namespace: str, mode: str) -> None:
    core.create_namespaced_persistent_volume_claim(namespace, claim("data", mode))
    volume = bound_volume(core, namespace, "data")
    folder = Path(volume.spec.host_path.path)
    assert folder.parent == cluster.volumes
    (folder / "weights").write_text("x")
    core.delete_namespaced_persistent_volume_claim("data", namespace)
    eventually(lambda: not folder.exists())
    eventually(lambda: volume.metadata.name not in {name_of(v) for v in core.list_persistent_volume().items})


def test_retained_volume_keeps_its_data(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_persistent_volume_claim(namespace, claim("kept"))
    volume = bound_volume(core, namespace, "kept")
    core.patch_persistent_volume(volume.metadata.name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    core.delete_namespaced_persistent_volume_claim("kept", namespace)
    eventually(lambda: status_of(core.read_persistent_volume(volume.metadata.name)).phase == "Released")
    core.delete_persistent_volume(volume.metadata.name)
    eventually(lambda: volume.metadata.name not in {name_of(v) for v in core.list_persistent_volume().items})
    assert Path(volume.spec.host_path.path).is_dir()


def test_claim_grows(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_persistent_volume_claim(namespace, claim("grown"))
    bound_volume(core, namespace, "grown")
    core.patch_namespaced_persistent_volume_claim(
        "grown", namespace, {"spec": {"resources": {"requests": {"storage": "20Gi"}}}}
    )

    def capacity() -> str:
        return present(status_of(core.read_namespaced_persistent_volume_claim("grown", namespace)).capacity)["storage"]

    eventually(lambda: capacity() == "20Gi")


def resolve(server: IPv4Address, name: str) -> tuple[int, str]:
    """DNS response code, and the last four bytes of the answer as an address, of an A query."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    query = struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(10)
        link.sendto(query, (str(server), 53))
        answer = link.recv(4096)
    return answer[3] & 0x0F, socket.inet_ntoa(answer[-4:])


def test_dns_knows_the_cluster_and_nothing_else(cluster: Lab) -> None:
    server = cluster.network.dns_address
    services = cluster.network.services
    api_name = "kubernetes.default.svc.cluster.local."
    # It answers before it has read the cluster's Services.
    eventually(lambda: resolve(server, api_name) == (0, str(services[1])))
    assert resolve(server, "kube-dns.kube-system.svc.cluster.local")[1] == str(server)
    name_error = 3
    assert resolve(server, "absent.default.svc.cluster.local")[0] == name_error
    assert resolve(server, "example.com")[0] == name_error
