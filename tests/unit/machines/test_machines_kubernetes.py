"""The credentials of an emulated control plane: of the authority in the config, for the names that it gives."""

from __future__ import annotations

import base64
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from lab.machines import lab_rack
from lab.machines.cluster_hooks import ControlPlane
from lab.machines.kubernetes_pki import control_plane_pki
from lab.machines.kwok_cluster import KwokCluster, _hosts, _names
from lab.paths import Lab
from lab.site import up
from talos.secrets import bundle as secrets
from talos.secrets import pki
from tests.unit.talos.talos_examples import entropy

BUNDLE = secrets.generate(entropy(5), secrets.utc_now)
PLANE = ControlPlane(
    cluster_name="site",
    endpoint="https://10.5.0.10:6443",
    kubernetes_version="v1.36.3",
    pod_subnets=("10.244.0.0/16",),
    service_subnets=("10.96.0.0/12",),
    kubernetes_ca=BUNDLE.kubernetes,
    api_server_names=("api.site.example",),
)


def test_the_servers_certificate_is_of_the_configs_authority_and_has_each_name_once() -> None:
    made = control_plane_pki(BUNDLE.kubernetes, ("localhost", "10.5.0.10", "localhost"))
    assert made["ca.crt"] == BUNDLE.kubernetes.certificate
    certificate = pki.load_certificate(made["admin.crt"], "admin.crt")
    certificate.verify_directly_issued_by(pki.load_certificate(made["ca.crt"], "ca.crt"))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.DNSName("localhost"), x509.IPAddress(ip_address("10.5.0.10"))]
    (organization,) = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert organization.value == "system:masters"


def test_the_api_server_is_valid_for_the_endpoint_and_the_configs_names() -> None:
    assert list(_hosts(PLANE)) == ["api.site.example", "10.5.0.10"]


def test_the_api_server_is_valid_for_each_machine_that_may_be_a_control_plane(tmp_path: Path) -> None:
    """`roll` asks every control plane's API server by the address of its machine."""
    lab = Lab(home=tmp_path, cache=tmp_path)
    lab_rack.write(lab, 2)
    machines = {str(lab.network.node_address(ordinal)) for ordinal in range(3)}
    assert machines | {"10.5.0.10", "127.0.0.1"} <= set(_names(lab, PLANE))


def test_there_is_a_kubeconfig_before_there_is_a_cluster(tmp_path: Path) -> None:
    lab = Lab(home=tmp_path, cache=tmp_path)
    content = yaml.safe_load(KwokCluster(lab).kubeconfig(PLANE))
    cluster = content["clusters"][0]["cluster"]
    assert cluster["server"] == PLANE.endpoint
    assert base64.b64decode(cluster["certificate-authority-data"]).decode() == BUNDLE.kubernetes.certificate
    user = content["users"][0]["user"]
    certificate = base64.b64decode(user["client-certificate-data"]).decode()
    pki.load_certificate(certificate, "crt").verify_directly_issued_by(
        pki.load_certificate(BUNDLE.kubernetes.certificate, "ca")
    )
    assert content["current-context"] == "admin@site"


@pytest.mark.parametrize(
    ("machines", "summary"),
    [
        ([("on", "maintenance")] * 3, "3 in maintenance mode"),
        ([("on", "running"), ("on", "running"), ("off", "unknown")], "2 running, 1 off"),
    ],
)
def test_up_says_what_the_machines_are_at(machines: list[tuple[str, str]], summary: str) -> None:
    assert up.summary([{"power": power, "stage": stage} for power, stage in machines]) == summary


@pytest.mark.parametrize(
    ("machine", "late"),
    [
        ({"power": "on", "stage": "unknown", "configured": False}, True),
        ({"power": "on", "stage": "booting", "configured": False}, True),
        ({"power": "on", "stage": "booting", "configured": True}, False),
        ({"power": "on", "stage": "maintenance", "configured": False}, False),
        ({"power": "off", "stage": "unknown", "configured": True}, False),
    ],
)
def test_up_waits_for_machines_that_come_on_by_themselves(machine: dict[str, object], late: bool) -> None:
    assert up._is_late(machine) is late
