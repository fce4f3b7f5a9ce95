"""A site with cert-manager: the gateway's certificate is of the site's own CA, and is renewed under its clients."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from cryptography import x509
from kubernetes import client

from components.addons.cert_manager import NAMESPACE
from stacks.program.platform import GATEWAY_NAMESPACE
from tests.lab.site.authority import Authority, new_authority
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("C.01", "004.11")

MODEL = "qwen3-32b"
NAME = "llm.lab.example"
# Not the Secret that the lab fills by itself.
CA, SECRET = "site-ca", "inference-tls"
CERTIFICATES = ("cert-manager.io", "v1", GATEWAY_NAMESPACE, "certificates")


@dataclass(frozen=True, kw_only=True)
class Certified:
    """The site while cert-manager certifies it."""

    endpoint: str
    address: str
    authority: Authority
    pulumi: Pulumi
    options: tuple[str, str]
    """Options of pulumi that name the site's file."""
    key: str

    def http(self) -> httpx.Client:
        """A client that trusts the site's CA alone, on a connection of its own."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(
            base_url=self.endpoint, headers=headers, verify=self.authority.trusting, trust_env=False, timeout=60
        )

    def shown(self) -> x509.Certificate:
        """The certificate that a new connection gets, of any issuer."""
        text = ssl.get_server_certificate((self.address, 443), timeout=10)
        return x509.load_pem_x509_certificate(text.encode())


@pytest.fixture(scope="module")
def certified(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    """Afterwards the site is again what its checked-in file says."""
    pulumi, authority = Pulumi(site.lab, tmp_path_factory.mktemp("edited")), new_authority("lab CA")
    address = httpx.URL(site.front.endpoint).host

    options = pulumi.edited(lambda document: _certify(document, [NAME, address]))
    _write_authority(cluster, authority, CA, GATEWAY_NAMESPACE)
    try:
        pulumi("up", "--yes", "--skip-preview", *options)
        endpoint = json.loads(pulumi("stack", "output", "--json").stdout)["endpoint"]
        yield Certified(
            endpoint=endpoint, address=address, authority=authority, pulumi=pulumi, options=options, key=site.key
        )
    finally:
        pulumi("up", "--yes", "--skip-preview")
        for name in (CA, SECRET):
            cluster.core.delete_namespaced_secret(name, GATEWAY_NAMESPACE)


def condition(cluster: Cluster, kind: str) -> str:
    """Status of a condition of the site's Certificate."""
    certificate: Any = cluster.custom.get_namespaced_custom_object(*CERTIFICATES, "inference")
    return next((entry["status"] for entry in certificate["status"]["conditions"] if entry["type"] == kind), "")


def renew(cluster: Cluster) -> None:
    """Ask for a new certificate, as `cmctl renew` does."""
    eventually(lambda: condition(cluster, "Issuing") != "True")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    asked = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "lastTransitionTime": now}

    def ask() -> bool:
        certificate: Any = cluster.custom.get_namespaced_custom_object(*CERTIFICATES, "inference")
        certificate["status"]["conditions"].append(asked)
        cluster.custom.replace_namespaced_custom_object_status(*CERTIFICATES, "inference", certificate)
        return True

    # cert-manager may write between the two.
    eventually(ask)


def test_the_gateway_answers_with_a_certificate_of_the_sites_ca(certified: Certified) -> None:
    assert certified.endpoint == f"https://{certified.address}/v1"
    with certified.http() as http:
        answer = eventually(lambda: _ok(http))
        assert answer.json()["choices"]
        named = http.get("/models", extensions={"sni_hostname": NAME})
        assert named.is_success
    shown = certified.shown()
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAME]
    assert [str(entry) for entry in names.get_values_for_type(x509.IPAddress)] == [certified.address]


def test_a_client_that_does_not_know_the_ca_is_not_served(certified: Certified) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{certified.endpoint}/models", trust_env=False, timeout=60)


@pytest.mark.exhaustive
def test_a_second_up_has_nothing_to_do(certified: Certified) -> None:
    assert certified.pulumi.changes(*certified.options) == {}


def test_no_key_of_a_certificate_is_in_the_state(certified: Certified, cluster: Cluster) -> None:
    """Not even encrypted: the program never reads either Secret."""
    shown = certified.pulumi("stack", "export", "--show-secrets").stdout
    assert f'"secretName": "{CA}"' in shown
    for name in (CA, SECRET):
        held: Any = cluster.core.read_namespaced_secret(name, GATEWAY_NAMESPACE)
        key = held.data["tls.key"]
        assert key not in shown
        assert base64.b64decode(key).decode().splitlines()[1] not in shown


def test_a_renewed_certificate_reaches_clients_without_a_restart(certified: Certified, cluster: Cluster) -> None:
    before = certified.shown()
    proxies = [(envoy.uid, envoy.restarts) for envoy in cluster.envoys()]
    with certified.http() as http, http.stream("POST", "/chat/completions", json=_long()) as stream:
        lines = stream.iter_lines()
        assert next(lines)
        renew(cluster)
        after = until(lambda: _another(certified, before), what="another certificate")
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert after.public_key() != before.public_key()
    assert [(envoy.uid, envoy.restarts) for envoy in cluster.envoys()] == proxies
    with certified.http() as http:
        assert _ok(http)


@pytest.mark.exhaustive
def test_a_killed_controller_goes_on(certified: Certified, cluster: Cluster) -> None:
    """The gateway serves meanwhile, and what is asked for in its absence is made."""
    (controller,) = cluster.pods(NAMESPACE, "app.kubernetes.io/component=controller")
    before = certified.shown()
    cluster.kill(controller, "controller")
    renew(cluster)
    with certified.http() as http:
        assert _ok(http)
    until(lambda: _another(certified, before), what="another certificate")
    eventually(lambda: condition(cluster, "Ready") == "True")


@pytest.mark.exhaustive
def test_another_issuer_is_one_that_the_cluster_has(certified: Certified, cluster: Cluster) -> None:
    """As one of an ACME server would be. Its certificate takes the place of the first, in the same Secret."""
    other = new_authority("another CA")
    _write_authority(cluster, other, "another-ca", NAMESPACE)
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer", "metadata": {"name": "another"}}
    cluster.custom.create_cluster_custom_object(
        "cert-manager.io", "v1", "clusterissuers", {**issuer, "spec": {"ca": {"secretName": "another-ca"}}}
    )

    def edit(document: Document) -> None:
        _certify(document, [NAME])
        document["certificates"] |= {"cluster_issuer": "another", "ca_secret": None}

    changed = certified.pulumi.edited(edit)
    certified.pulumi("up", "--yes", "--skip-preview", *changed)
    until(lambda: "another CA" in certified.shown().issuer.rfc4514_string() or None, what="the other CA's certificate")


def _certify(document: Document, names: list[str]) -> None:
    document["gateway"] |= {"port": 443, "certificate_secret": SECRET}
    document["certificates"] = {"system": "cert_manager", "names": names, "ca_secret": CA}


def _write_authority(cluster: Cluster, authority: Authority, name: str, namespace: str) -> None:
    """Its certificate and key, as `kubectl create secret tls` writes them."""
    body = client.V1Secret(
        metadata=client.V1ObjectMeta(name=name),
        type="kubernetes.io/tls",
        string_data={"tls.crt": authority.certificate, "tls.key": authority.key},
    )
    cluster.core.create_namespaced_secret(namespace, body)


def _ok(http: httpx.Client) -> httpx.Response | None:
    """A whole answer; None where there is another, or no listener yet."""
    try:
        answer = http.post("/chat/completions", json=chat(MODEL))
    except httpx.ConnectError:
        return None
    return answer if answer.is_success else None


def _another(certified: Certified, before: x509.Certificate) -> x509.Certificate | None:
    shown = certified.shown()
    return shown if shown.serial_number != before.serial_number else None


def _long() -> dict[str, Any]:
    return chat(MODEL, tokens=300, stream=True)
