"""A site with a private ACME server: a record that the site's key signs proves the gateway's name."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dns.exception
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.tsig
import dns.tsigkeyring
import dns.update
import httpx
import pytest
from cryptography import x509
from kubernetes import client

from stacks.program.platform import GATEWAY_NAMESPACE
from tests.lab.site import dns_server, pebble
from tests.lab.site.authority import new_authority
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat
from tests.lab.site.test_certificates import condition, renew
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("C.01", "004.11")]

ZONE, NAME = "acme.example.", "llm.acme.example"
RECORD = dns.name.from_text(f"_acme-challenge.{NAME}.")
KEY_NAME, KEY_SECRET, SECRET, ACCOUNT = "gateway-key", "acme-tsig", "inference-tls", "inference-acme"
DNS_PORT = 5353


@dataclass(frozen=True, kw_only=True)
class ByAcme:
    """The site while pebble issues its certificate."""

    address: str
    """Of the gateway."""
    dns: str
    """Address of the DNS server."""
    zone: dns_server.Zone
    root: str
    pulumi: Pulumi
    options: tuple[str, str]

    def shown(self) -> x509.Certificate:
        """The certificate that a new connection gets; it leads to pebble's root and is for the name."""
        trusting = ssl.create_default_context(cadata=self.root)
        with (
            socket.create_connection((self.address, 443), 10) as plain,
            trusting.wrap_socket(plain, server_hostname=NAME) as secured,
        ):
            return x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")


@pytest.fixture(scope="module")
def by_acme(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByAcme]:
    """Afterwards the site is again what its checked-in file says."""
    folder = tmp_path_factory.mktemp("acme")
    pulumi, authority = Pulumi(site.lab, folder), new_authority("lab ACME server")
    host = str(site.lab.network.uplink[1])
    zone = dns_server.Zone(name=dns.name.from_text(ZONE), key_name=dns.name.from_text(KEY_NAME), key=os.urandom(32))
    secret = client.V1Secret(metadata=client.V1ObjectMeta(name=KEY_SECRET), string_data={"secret": zone.key_text})
    with (
        dns_server.serving(zone, host, DNS_PORT),
        pebble.running(site.lab, folder, host, authority, DNS_PORT) as server,
    ):
        acme = {
            "server": server.directory,
            "email": "platform@acme.example",
            "ca": authority.certificate,
            "rfc2136": {"nameserver": f"{host}:{DNS_PORT}", "tsig_key": KEY_NAME, "tsig_secret": KEY_SECRET},
            "resolvers": [f"{host}:{DNS_PORT}"],
        }

        def edit(document: Document) -> None:
            document["gateway"] |= {"port": 443, "certificate_secret": SECRET}
            document["certificates"] = {"system": "cert_manager", "names": [NAME], "acme": acme}

        options = pulumi.edited(edit)
        cluster.core.create_namespaced_secret(GATEWAY_NAMESPACE, secret)
        try:
            pulumi("up", "--yes", "--skip-preview", *options)
            endpoint = json.loads(pulumi("stack", "output", "--json").stdout)["endpoint"]
            yield ByAcme(
                address=httpx.URL(endpoint).host,
                dns=host,
                zone=zone,
                root=server.root,
                pulumi=pulumi,
                options=options,
            )
        finally:
            pulumi("up", "--yes", "--skip-preview")
            for name in (KEY_SECRET, SECRET, ACCOUNT):
                cluster.core.delete_namespaced_secret(name, GATEWAY_NAMESPACE)


def test_the_gateway_answers_with_a_certificate_that_the_acme_server_issued(by_acme: ByAcme, site: Site) -> None:
    # The Gateway is Programmed before its proxy listens at the new port.
    shown = eventually(by_acme.shown)
    assert "Pebble" in shown.issuer.rfc4514_string()
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAME]
    trusting = ssl.create_default_context(cadata=by_acme.root)
    headers = {"Authorization": f"Bearer {site.key}", "Host": NAME}
    with httpx.Client(verify=trusting, trust_env=False, timeout=60, headers=headers) as http:
        url, called = f"https://{by_acme.address}/v1/chat/completions", {"sni_hostname": NAME}

        def answered() -> httpx.Response | None:
            try:
                answer = http.post(url, json=chat("qwen3-32b"), extensions=called)
            except httpx.ConnectError:
                return None
            return answer if answer.is_success else None

        answer = eventually(answered)
    assert answer.json()["choices"]


def test_a_signed_record_was_the_proof_and_is_gone(by_acme: ByAcme) -> None:
    assert ("add", RECORD) in by_acme.zone.updates
    eventually(lambda: not by_acme.zone.records[RECORD])
    assert {name for _, name in by_acme.zone.updates} == {RECORD}


def test_the_lab_s_dns_server_takes_no_update_without_the_key(by_acme: ByAcme) -> None:
    """Else the key would prove nothing here."""
    refused = by_acme.zone.refused
    update = dns.update.UpdateMessage(ZONE)
    update.add(RECORD, 60, "TXT", "forged")
    answer = dns.query.tcp(update, by_acme.dns, port=DNS_PORT, timeout=10)
    assert answer.rcode() == dns.rcode.REFUSED
    other = dns.tsigkeyring.from_text({KEY_NAME: "b3RoZXI="})
    signed = dns.update.UpdateMessage(ZONE, keyring=other, keyalgorithm=dns.tsig.HMAC_SHA256)
    signed.add(RECORD, 60, "TXT", "forged")
    # A refusal of a key that the server does not have cannot be signed.
    with pytest.raises(dns.exception.FormError, match="requires a TSIG"):
        dns.query.tcp(signed, by_acme.dns, port=DNS_PORT, timeout=10)
    assert by_acme.zone.refused == refused + 2
    assert "forged" not in by_acme.zone.records[RECORD]


def test_a_second_up_has_nothing_to_do(by_acme: ByAcme) -> None:
    assert by_acme.pulumi.changes(*by_acme.options) == {}


def test_neither_the_key_of_the_zone_nor_the_account_s_is_in_the_state(by_acme: ByAcme, cluster: Cluster) -> None:
    shown = by_acme.pulumi("stack", "export", "--show-secrets").stdout
    assert f'"name": "{KEY_SECRET}"' in shown
    assert by_acme.zone.key_text not in shown
    account: Any = cluster.core.read_namespaced_secret(ACCOUNT, GATEWAY_NAMESPACE)
    assert account.data["tls.key"] not in shown


def test_the_certificate_is_renewed_from_the_acme_server(by_acme: ByAcme, cluster: Cluster) -> None:
    before = by_acme.shown()
    renew(cluster)
    after = until(lambda: _another(by_acme, before), what="another certificate")
    assert after.public_key() != before.public_key()
    eventually(lambda: condition(cluster, "Ready") == "True")


def test_with_a_wrong_key_the_old_certificate_serves_and_the_right_one_goes_on(
    by_acme: ByAcme, cluster: Cluster
) -> None:
    """The zone refuses updates; nothing is lost while they are."""
    before, refused = by_acme.shown(), by_acme.zone.refused
    by_acme.zone.key = by_acme.zone.key[::-1]
    renew(cluster)
    eventually(lambda: by_acme.zone.refused > refused)
    assert by_acme.shown() == before
    by_acme.zone.key = by_acme.zone.key[::-1]
    until(lambda: _another(by_acme, before), what="another certificate")


def _another(by_acme: ByAcme, before: x509.Certificate) -> x509.Certificate | None:
    shown = by_acme.shown()
    return shown if shown.serial_number != before.serial_number else None
