"""The emulated cluster with its real programs, in a spare lab of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from lab.cluster import api, controlplane, down, network, nodes, status, supervisor, up
from lab.errors import LabError
from lab.paths import Lab

_SERIAL = itertools.count(1)
_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


@pytest.fixture(scope="module")
def cluster(spare_lab: Lab) -> Lab:
    up.bring_up(spare_lab, hgx=2, controllers=False)
    return spare_lab


@pytest.fixture
def core(cluster: Lab) -> Iterator[client.CoreV1Api]:
    with api.connect(cluster) as connection:
        yield client.CoreV1Api(connection)


@pytest.fixture
def namespace(core: client.CoreV1Api) -> Iterator[str]:
    name = f"test-{next(_SERIAL)}"
    core.create_namespace({"metadata": {"name": name}})
    # Its default account is made by the controller manager, and pods are refused before.
    eventually(lambda: any(a.metadata.name == "default" for a in core.list_namespaced_service_account(name).items))
    yield name
    core.delete_namespace(name)


def eventually(holds: Callable[[], Any], timeout_s: float = 20) -> Any:
    """Wait for something truthy and return it; errors of a server that is away count as not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = None
        with contextlib.suppress(client.ApiException, OSError):
            result = holds()
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.1)


def gpu_pod(name: str, gpus: int, *tolerations: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/none:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "hgx-1"},
            "tolerations": list(tolerations),
            "containers": [container],
        },
    }


def scheduling(core: client.CoreV1Api, namespace: str, pod: str) -> Any:
    """The pod's PodScheduled condition, once there is one."""

    def condition() -> Any:
        found = core.read_namespaced_pod(pod, namespace).status.conditions or ()
        return next((c for c in found if c.type == "PodScheduled"), None)

    return eventually(condition)


def test_nodes_become_ready_with_eight_gpus_each(cluster: Lab, core: client.CoreV1Api) -> None:
    def ready() -> dict[str, Any]:
        found = {node.metadata.name: node for node in core.list_node().items}
        fit = all(any(c.type == "Ready" and c.status == "True" for c in n.status.conditions) for n in found.values())
        return found if fit else {}

    found = eventually(ready)
    assert sorted(found) == ["hgx-1", "hgx-2", "infra-1"]
    assert found["hgx-1"].status.allocatable["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu" not in found["infra-1"].status.allocatable
    assert [(t.key, t.effect) for t in found["hgx-1"].spec.taints] == [("nvidia.com/gpu", "NoSchedule")]


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
    token = core.create_namespaced_service_account_token("default", namespace, {"spec": {}}).status.token
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
    addresses = [address for s in slices for endpoint in s.endpoints for address in endpoint.addresses]
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
    found = subprocess.run([*prefix, "curl", *options, url], capture_output=True, text=True, check=False)
    return found.stdout == "200"


def balanced_service(core: client.CoreV1Api, namespace: str, name: str) -> IPv4Address:
    core.create_namespaced_service(
        namespace,
        {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 8000}]}},
    )
    ingress = eventually(lambda: core.read_namespaced_service(name, namespace).status.load_balancer.ingress)
    return IPv4Address(ingress[0].ip)


def test_balanced_service_answers_on_the_host_and_to_its_own_pod(
    cluster: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    pod = cluster.network.node_pods(0)[200]
    balanced = balanced_service(core, namespace, "front")
    assert balanced in cluster.network.load_balancers
    with api.connect(cluster) as connection:
        client.DiscoveryV1Api(connection).create_namespaced_endpoint_slice(
            namespace,
            {
                "metadata": {"name": "front-1", "labels": {"kubernetes.io/service-name": "front"}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [str(pod)], "nodeName": "infra-1", "conditions": {"ready": True}}],
                "ports": [{"name": "", "port": 8000, "protocol": "TCP"}],
            },
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


def claim(name: str, mode: str = "ReadWriteMany") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "longhorn",
            "accessModes": [mode],
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }


def bound_volume(core: client.CoreV1Api, namespace: str, name: str) -> Any:
    bound = eventually(
        lambda: (c := core.read_namespaced_persistent_volume_claim(name, namespace)).status.phase == "Bound" and c
    )
    return core.read_persistent_volume(bound.spec.volume_name)


@pytest.mark.parametrize("mode", ["ReadWriteMany", "ReadWriteOnce"])
def test_claim_gets_a_folder_that_goes_with_it(cluster: Lab, core: client.CoreV1Api, namespace: str, mode: str) -> None:
    core.create_namespaced_persistent_volume_claim(namespace, claim("data", mode))
    volume = bound_volume(core, namespace, "data")
    folder = Path(volume.spec.host_path.path)
    assert folder.parent == cluster.volumes
    (folder / "weights").write_text("x")
    core.delete_namespaced_persistent_volume_claim("data", namespace)
    eventually(lambda: not folder.exists())
    eventually(lambda: volume.metadata.name not in {v.metadata.name for v in core.list_persistent_volume().items})


def test_retained_volume_keeps_its_data(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_persistent_volume_claim(namespace, claim("kept"))
    volume = bound_volume(core, namespace, "kept")
    core.patch_persistent_volume(volume.metadata.name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    core.delete_namespaced_persistent_volume_claim("kept", namespace)
    eventually(lambda: core.read_persistent_volume(volume.metadata.name).status.phase == "Released")
    core.delete_persistent_volume(volume.metadata.name)
    eventually(lambda: volume.metadata.name not in {v.metadata.name for v in core.list_persistent_volume().items})
    assert Path(volume.spec.host_path.path).is_dir()


def test_claim_grows(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_persistent_volume_claim(namespace, claim("grown"))
    bound_volume(core, namespace, "grown")
    core.patch_namespaced_persistent_volume_claim(
        "grown", namespace, {"spec": {"resources": {"requests": {"storage": "20Gi"}}}}
    )
    eventually(
        lambda: core.read_namespaced_persistent_volume_claim("grown", namespace).status.capacity["storage"] == "20Gi"
    )


def resolve(server: IPv4Address, name: str) -> tuple[int, str]:
    """DNS response code, and the last four bytes of the answer as an address, of an A query."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    query = struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(2)
        link.sendto(query, (str(server), 53))
        answer = link.recv(4096)
    return answer[3] & 0x0F, socket.inet_ntoa(answer[-4:])


def test_dns_knows_the_cluster_and_nothing_else(cluster: Lab) -> None:
    server = cluster.network.dns_address
    services = cluster.network.services
    api_name = "kubernetes.default.svc.cluster.local."
    assert eventually(lambda: resolve(server, api_name), timeout_s=60) == (0, str(services[1]))
    assert resolve(server, "kube-dns.kube-system.svc.cluster.local")[1] == str(server)
    name_error = 3
    assert resolve(server, "absent.default.svc.cluster.local")[0] == name_error
    assert resolve(server, "example.com")[0] == name_error


COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok-controller",
    "kube-proxy",
    "assigner",
)


@pytest.mark.parametrize("name", COMPONENTS)
def test_killed_component_comes_back(cluster: Lab, name: str) -> None:
    component = next(c for c in supervisor.components(cluster) if c.name == name)
    before = eventually(component.pid)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: component.pid() not in {None, before}, timeout_s=15)
    eventually(lambda: controlplane.is_ready(cluster))


def test_assigner_still_works_after_the_api_server_was_killed(
    cluster: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    component = next(c for c in supervisor.components(cluster) if c.name == "kube-apiserver")
    os.kill(eventually(component.pid), signal.SIGKILL)
    eventually(lambda: controlplane.is_ready(cluster))
    balanced_service(core, namespace, "later")


def processes_of(lab: Lab) -> dict[str, int | None]:
    return {c.name: c.pid() for c in supervisor.components(lab) if c.name in COMPONENTS}


def test_second_up_starts_nothing_anew_and_is_quick(cluster: Lab) -> None:
    eventually(lambda: None not in processes_of(cluster).values())
    before = processes_of(cluster)
    started = time.monotonic()
    up.bring_up(cluster, hgx=2, controllers=False)
    assert time.monotonic() - started < 10
    assert processes_of(cluster) == before


def test_up_replaces_a_killed_supervisor_which_takes_over(cluster: Lab) -> None:
    eventually(lambda: None not in processes_of(cluster).values())
    before = processes_of(cluster)
    killed = eventually(lambda: supervisor.pid(cluster))
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: supervisor.pid(cluster) is None)
    assert "dead" in status.rows(cluster)[0].state
    up.bring_up(cluster, hgx=2, controllers=False)
    assert supervisor.pid(cluster) not in {None, killed}
    assert processes_of(cluster) == before


@pytest.mark.parametrize("damage", ["everything killed", "namespace without its name"])
def test_up_mends_a_damaged_lab_and_keeps_its_objects(
    cluster: Lab, core: client.CoreV1Api, namespace: str, damage: str
) -> None:
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "kept"}})
    if damage == "everything killed":
        for pid in network.namespace_processes(cluster):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    else:
        subprocess.run(["ip", "netns", "del", cluster.namespace], check=True)
    up.bring_up(cluster, hgx=2, controllers=False)
    assert core.read_namespaced_config_map("kept", namespace)
    eventually(lambda: None not in processes_of(cluster).values())


def test_up_changes_the_number_of_nodes(cluster: Lab, core: client.CoreV1Api) -> None:
    nodes.ensure(cluster, nodes.machines(3))
    assert "hgx-3" in {node.metadata.name for node in core.list_node().items}
    nodes.ensure(cluster, nodes.machines(2))
    assert "hgx-3" not in {node.metadata.name for node in core.list_node().items}


def test_lab_of_another_folder_is_refused_with_its_name(cluster: Lab, tmp_path: Path) -> None:
    other = replace(cluster, home=tmp_path)
    for command in (up.bring_up, down.take_down):
        with pytest.raises(LabError, match=f"already runs on this machine, from {cluster.home}") as refused:
            command(other)
        assert f"LAB_HOME={cluster.home}" in refused.value.fix
    assert controlplane.is_ready(cluster)


def namespaces(lab: Lab) -> set[str]:
    with api.connect(lab) as connection:
        return {found.metadata.name for found in client.CoreV1Api(connection).list_namespace().items}


def test_up_starts_afresh_after_a_creation_that_was_killed(cluster: Lab) -> None:
    with api.connect(cluster) as connection:
        client.CoreV1Api(connection).create_namespace({"metadata": {"name": "of-the-first"}})
    os.kill(eventually(lambda: supervisor.pid(cluster)), signal.SIGKILL)
    (controlplane.work_folder(cluster) / "created").unlink()
    cluster.kubeconfig.unlink()
    up.bring_up(cluster, hgx=2, controllers=False)
    assert "of-the-first" not in namespaces(cluster)
    eventually(lambda: None not in processes_of(cluster).values())


def machine_state(lab: Lab) -> dict[str, set[str]]:
    """What a lab could leave on the machine."""
    commands = {
        "namespaces": "ip netns list",
        "links": "ip -brief link",
        "addresses": "ip -brief addr",
        "routes": "ip route show table all",
        "policy rules": "ip rule",
        "packet filter": "nft list ruleset",
    }
    listed = {
        what: set(subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout.splitlines())
        for what, command in commands.items()
    }
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {
        **listed,
        "processes": {str(pid) for pid in network.namespace_processes(lab)},
        "mounts": mounts,
        # The folder of namespaces is iproute2's, and another lab may have just made it.
        "run": {str(path) for path in Path("/run").iterdir() if path.name != "netns"},
    }


def left_behind(lab: Lab, before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is there now, was not there before, and is the lab's: other labs on the machine come and go meanwhile."""
    now = machine_state(lab)
    ours = (lab.prefix, str(lab.home), str(lab.network.bridge_address), str(lab.network.uplink[1]))
    new = {what: now[what] - before[what] for what in before}
    return {
        what: found
        for what, entries in new.items()
        if (found := {e for e in entries if what in {"processes", "run"} or any(mark in e for mark in ours)})
    }


@pytest.mark.parametrize(
    "ending",
    [
        "orderly",
        "supervisor killed",
        "state folder lost",
        "everything killed",
        "mount left",
        "namespace without its name",
    ],
)
def test_down_leaves_nothing(spare_lab: Lab, ending: str) -> None:
    down.take_down(spare_lab)
    before = machine_state(spare_lab)
    up.bring_up(spare_lab, hgx=1, controllers=False)
    assert left_behind(spare_lab, before), "the listing does not see a running lab"
    if ending == "supervisor killed":
        os.kill(eventually(lambda: supervisor.pid(spare_lab)), signal.SIGKILL)
    elif ending == "state folder lost":
        tools = spare_lab.bin.readlink()
        subprocess.run(["rm", "-rf", str(spare_lab.home)], check=True)
        spare_lab.home.mkdir()
        spare_lab.bin.symlink_to(tools)
    elif ending == "mount left":
        mount_point = spare_lab.pods / "left"
        mount_point.mkdir(parents=True)
        subprocess.run(["mount", "--no-mtab", "-t", "tmpfs", "none", str(mount_point)], check=True)
        assert str(mount_point) in left_behind(spare_lab, before)["mounts"]
    elif ending == "namespace without its name":
        # As when somebody deletes it by hand: its processes live on where no listing by name finds them.
        subprocess.run(["ip", "netns", "del", spare_lab.namespace], check=True)
    elif ending == "everything killed":
        for pid in network.namespace_processes(spare_lab):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    down.take_down(spare_lab)
    assert left_behind(spare_lab, before) == {}
    assert {path.name for path in spare_lab.home.iterdir()} == {"bin"}
    down.take_down(spare_lab)
