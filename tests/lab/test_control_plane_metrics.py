"""A real Prometheus reads a real API server, etcd and CoreDNS by the rendered scrapes, with the rendered permissions.

Its node is made up: it has the address of all three, and neither a kubelet nor node-exporter.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from components.monitoring import host_queries, host_scrapes
from components.monitoring.alerts import etcd, hosts
from components.monitoring.monitoring import NAMESPACE
from components.monitoring.permissions import service_account
from components.monitoring.prometheus import ACCOUNT
from lab.paths import Lab
from stacks.facts import metrics
from talos.cluster import ETCD_METRICS
from tests import exposition
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("002.09")

# Of the loopback link, since an API server gives out no address of loopback's own range.
ADDRESS = "198.18.254.1"
API, PROMETHEUS, DNS = f"https://{ADDRESS}:6443", f"http://{ADDRESS}:9090", 10053
ADMIN, NODE = "admin-of-the-test", "cp-1"
IN_POD = "/var/run/secrets/kubernetes.io/serviceaccount"
# One question, for the address of example.org.
QUESTION = bytes.fromhex("00010100000100000000000007") + b"example\x03org\x00\x00\x01\x00\x01"
# Nothing of the test runs on it.
NOWHERE = {"node-exporter", "kubelet", "cadvisor"}


@dataclass(frozen=True)
class ControlPlane:
    """The programs, and what the account of Prometheus may do there."""

    folder: Path
    trusted: ssl.SSLContext
    token: str

    def exposed(self, address: str) -> Mapping[str, exposition.Exposed]:
        """What a part answers to Prometheus's account."""
        with httpx.Client(verify=self.trusted, trust_env=False, timeout=30) as http:
            answer = http.get(address, headers={"Authorization": f"Bearer {self.token}"}).raise_for_status()
        return exposition.read(answer.text)


def query(expression: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{PROMETHEUS}/api/v1/query", params={"query": expression}, trust_env=False, timeout=30).json()
    assert answer["status"] == "success", answer
    samples: list[dict[str, Any]] = answer["data"]["result"]
    return samples


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder, programs = tmp_path_factory.mktemp("plane"), Lab.from_environment().bin
    with ExitStack() as undone:

        def run(name: str, *arguments: str) -> None:
            process = subprocess.Popen(
                [str(programs / name), *arguments],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=(folder / f"{name}.log").open("wb"),
            )
            undone.callback(process.wait)
            undone.callback(process.kill)

        subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
        undone.callback(subprocess.run, ["ip", "address", "del", f"{ADDRESS}/32", "dev", "lo"], check=True)
        run("etcd", *metrics_arguments(), "--data-dir=etcd")
        start_api_server(folder, run)
        (folder / "Corefile").write_text(
            f".:{DNS} {{\n  prometheus {ADDRESS}:9153\n  template ANY ANY {{\n    rcode NXDOMAIN\n  }}\n}}\n"
        )
        run("coredns", "-conf=Corefile")
        authority = folder / "apiserver" / "apiserver.crt"
        admin = [f"--server={API}", f"--token={ADMIN}", f"--certificate-authority={authority}"]

        def kubectl(*arguments: str, given: str = "") -> str:
            command = [str(programs / "kubectl"), *admin, *arguments]
            answer = subprocess.run(command, input=given, check=True, capture_output=True, text=True)
            return answer.stdout

        eventually(authority.is_file)
        trusted = ssl.create_default_context(cafile=authority)
        eventually(lambda: httpx.get(f"{API}/readyz", verify=trusted, trust_env=False).is_success)
        objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": made_up()})
        kubectl("apply", "-f", "-", given=objects)
        kubectl(
            "apply", "--subresource=status", "--server-side", "--force-conflicts", "-f", "-", given=objects_status()
        )
        token = kubectl("-n", NAMESPACE, "create", "token", ACCOUNT).strip()
        (folder / "token").write_text(token)
        (folder / "ca.crt").write_bytes(authority.read_bytes())
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration(folder)))
        run("prometheus", "--config.file=prometheus.yaml", f"--web.listen-address={ADDRESS}:9090")
        yield ControlPlane(folder=folder, trusted=trusted, token=token)


def metrics_arguments() -> list[str]:
    """As Talos hands over what the program puts into a machine's config."""
    return [f"--{name}={value}" for name, value in ETCD_METRICS.items()]


def start_api_server(folder: Path, run: Any) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "accounts.key").write_bytes(key.private_bytes(*form))
    (folder / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')
    run(
        "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={ADDRESS}",
        "--cert-dir=apiserver",
        "--authorization-mode=RBAC",
        "--token-auth-file=tokens.csv",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=accounts.key",
        "--service-account-signing-key-file=accounts.key",
        "--service-cluster-ip-range=10.96.0.0/16",
        # Without a controller manager no namespace has an account by default.
        "--disable-admission-plugins=ServiceAccount",
    )


def made_up() -> list[dict[str, Any]]:
    control_plane = {"node-role.kubernetes.io/control-plane": ""}
    container = {"name": "coredns", "image": "coredns", "ports": [{"containerPort": 9153}, {"containerPort": 53}]}
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (NAMESPACE, "kube-system")),
        service_account(ACCOUNT, NAMESPACE),
        *host_scrapes.host_permissions(NAMESPACE),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": control_plane}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "coredns-a", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
            "spec": {"nodeName": NODE, "containers": [container]},
        },
    ]


def objects_status() -> str:
    node = {"addresses": [{"type": "InternalIP", "address": ADDRESS}]}
    pod = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
    items: Sequence[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "status": node},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "coredns-a", "namespace": "kube-system"},
            "status": pod,
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def configuration(folder: Path) -> dict[str, Any]:
    """The scrapes of the Secret, by a Prometheus that is in no pod."""
    secret = host_scrapes.host_scrapes(NAMESPACE, etcd=True)
    text = base64.b64decode(secret["data"][host_scrapes.KEY]).decode()
    assert IN_POD in text
    scrapes = yaml.safe_load(text.replace(IN_POD, str(folder)))
    for scrape in scrapes:
        for discovery in scrape["kubernetes_sd_configs"]:
            discovery |= {
                "api_server": API,
                "authorization": {"credentials_file": str(folder / "token")},
                "tls_config": {"ca_file": str(folder / "ca.crt"), "server_name": "kubernetes.default.svc"},
            }
    # A part that a busy machine answers for later than this is down, with an alert, and without its series.
    return {"global": {"scrape_interval": "5s", "scrape_timeout": "5s"}, "scrape_configs": scrapes}


def asked() -> list[dict[str, Any]]:
    """A question to cluster DNS, which counts answers once there is one, and what Prometheus has of it by then."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(QUESTION, (ADDRESS, DNS))
    return query(f"{host_queries.dns_failed()} == 0")


def test_each_is_found_and_answers(plane: ControlPlane) -> None:
    answers = {("apiserver", None, "1"), ("etcd", NODE, "1"), ("coredns", NODE, "1")}
    # A node on which nothing answers is a target too.
    expected = answers | {(job, NODE, "0") for job in NOWHERE}

    def targets() -> set[tuple[str, str | None, str]]:
        return {(up["metric"]["job"], up["metric"].get("node"), up["value"][1]) for up in query("up")}

    # Prometheus scrapes each target at a moment of its own within the interval.
    eventually(lambda: targets() == expected)


@pytest.mark.parametrize(
    ("part", "address"),
    [
        ("api_server", f"{API}/metrics"),
        ("etcd", f"http://{ADDRESS}:2381/metrics"),
        ("coredns", f"http://{ADDRESS}:9153/metrics"),
    ],
)
def test_the_list_of_a_part_is_what_it_exposes(plane: ControlPlane, part: str, address: str) -> None:
    eventually(asked)
    assert exposition.differences(metrics.load()[part], plane.exposed(address)) == []


def test_of_the_api_server_is_kept_what_is_asked_for(plane: ControlPlane) -> None:
    series = '{job="apiserver", __name__!~"up|scrape_.+"}'
    samples = eventually(lambda: query(f"count by (__name__) ({series})"))
    assert {sample["metric"]["__name__"] for sample in samples} == set(host_scrapes.KEPT["apiserver"])


def test_a_healthy_control_plane_has_its_figures_and_no_alert(plane: ControlPlane) -> None:
    """An expression whose labels or bounds are not those of the real series would have no figure."""
    eventually(asked)
    figures = [
        host_queries.api_errors(),
        host_queries.api_slow(1),
        host_queries.etcd_full(),
        host_queries.slow_writes("etcd_disk_wal_fsync_duration_seconds", 0.128),
        host_queries.slow_writes("etcd_disk_backend_commit_duration_seconds", 0.256),
    ]
    eventually(lambda: all(query(figure) for figure in figures))
    about = {"EtcdNoLeader", "EtcdMemberDown", "EtcdNearlyFull", "ApiServerErrors", "DnsFails"}
    alerts = [alert for alert in (*hosts.control_plane(), *etcd.members()) if alert.name in about]
    assert len(alerts) == len(about)
    assert [(alert.name, fires) for alert in alerts if (fires := query(alert.expression))] == []
