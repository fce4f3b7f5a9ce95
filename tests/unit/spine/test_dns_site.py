"""Records in DNS, where a site asks for them: which names, whose address, by what right, and of whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.addons.external_dns import external_dns_values
from components.specs.dns import DnsServerSpec, host_and_port
from floor import namespaces
from stacks.plan.by_hand import by_hand
from tests.unit.spine.test_grafana_site import declared, planned
from tests.unit.stacks.test_wrong_callers import DECIDED, PORTAL
from tests.unit.stacks.test_wrong_secrets import STORE as STORED
from tests.unit.stacks.wrong_sites import Wrong, refused_and_fixed

pytestmark = pytest.mark.row("C.01")

SERVER: dict[str, Any] = {
    "nameserver": "10.5.0.2:5353",
    "zones": ["site.example"],
    "tsig_key": "platform",
    "tsig_secret": "dns-tsig",
}
D = "dns"
WRITTEN: dict[str, Any] = {D: {"system": "external_dns", "rfc2136": SERVER}}
FILLED: dict[str, Any] = {
    "system": "external_secrets",
    "store": STORED,
    "remote": {"dns-tsig": {"key": "platform/dns"}},
}
PORTAL_SITE: dict[str, Any] = {"callers": DECIDED, "portal": PORTAL}
# As external-dns reads it, by the prefix that its chart gets.
HOSTNAME = "inference-platform-dns/hostname"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    return declared(tmp_path_factory.mktemp("written"), {**WRITTEN, "secrets": FILLED})


@pytest.fixture(scope="module")
def made(both: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    return both[0]


def service_of(made: dict[str, Any], proxy: str = "gateway-proxy") -> dict[str, Any]:
    service: dict[str, Any] = made[proxy]["spec"]["provider"]["kubernetes"]["envoyService"]
    return service


@pytest.mark.slow
def test_the_gateways_service_names_what_clients_call(made: dict[str, Any], tmp_path: Path) -> None:
    """The host names of the certificate, or those that the site gives; no other external-dns reads it."""
    values = made["dns-external-dns"]["values"]
    assert f"{values['annotationPrefix']}hostname" == HOSTNAME
    assert service_of(made)["annotations"] == {HOSTNAME: "llm.oslo.site.example"}
    given = {D: {**WRITTEN[D], "names": ["llm.site.example", "ai.site.example"]}}
    named = declared(tmp_path, given)[0]
    assert service_of(named)["annotations"] == {HOSTNAME: "llm.site.example,ai.site.example"}


def test_a_zone_may_end_in_a_dot() -> None:
    """external-dns looks for zones at the end of names, which have none, and would update the root."""
    server = DnsServerSpec.model_validate({**SERVER, "zones": ["site.example."]})
    values = external_dns_values(server, "prod")
    assert values["domainFilters"] == values["extraArgs"]["rfc2136-zone"] == ["site.example"]


@pytest.mark.slow
def test_the_portals_name_is_not_the_gateways(tmp_path: Path) -> None:
    """One certificate may have both; a record with two addresses would lead half of all people to the other."""
    certified = {"certificates.names": ["llm.site.example", PORTAL["hostname"]]}
    made = declared(tmp_path, {**WRITTEN, **PORTAL_SITE, **certified})[0]
    assert service_of(made)["annotations"] == {HOSTNAME: "llm.site.example"}
    portal, models = service_of(made, "portal-proxy"), service_of(made, "gateway-proxy")
    assert portal["annotations"] == {HOSTNAME: PORTAL["hostname"]}
    # Where Cilium answers ARP, Envoy Gateway's default loses requests.
    assert portal["externalTrafficPolicy"] == models["externalTrafficPolicy"] == "Cluster"


def test_records_are_added_and_those_of_another_site_stay(made: dict[str, Any]) -> None:
    values = made["dns-external-dns"]["values"]
    assert (values["policy"], values["registry"], values["txtOwnerId"]) == ("upsert-only", "txt", "prod")
    # Without a transfer of the zone it would know no owner.
    assert values["extraArgs"]["rfc2136-tsig-axfr"] is True
    assert values["domainFilters"] == values["extraArgs"]["rfc2136-zone"] == ["site.example"]


def test_it_reads_services_of_one_namespace_and_nothing_of_the_cluster(made: dict[str, Any]) -> None:
    values = made["dns-external-dns"]["values"]
    assert (values["namespaced"], values["sourceNamespace"]) == (True, namespaces.ENVOY_GATEWAY)
    assert values["sources"] == ["service"]
    assert values["extraArgs"]["service-type-filter"] == "LoadBalancer"


def test_the_key_is_named_alone_and_there_before_it_starts(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    made, requests = both
    (variable,) = made["dns-external-dns"]["values"]["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "dns-tsig", "key": "secret"}
    after = {urn.rpartition("::")[2] for urn in requests["dns-external-dns"].dependencies}
    assert {"dns-filled-dns-tsig", "dns-network-policy-external-dns"} <= after
    # Its chart makes a Role in their namespace.
    assert any("envoy-gateway" in name for name in after)
    assert f"Secret {namespaces.DNS}/dns-tsig with secret" in by_hand(planned(WRITTEN))


@pytest.mark.slow
def test_a_site_that_does_not_ask_has_nothing_of_it(made: dict[str, Any], tmp_path: Path) -> None:
    off = declared(tmp_path, {})[0]
    assert not [name for name in off if name.startswith("dns")]
    assert "annotations" not in service_of(off)
    assert [text for text in planned({}).texts if text.startswith("dns:")] == []
    (text,) = [text for text in planned(WRITTEN).texts if text.startswith("dns:")]
    assert "at 10.5.0.2:5353, and marks them as those of prod" in text
    assert "gateway: llm.oslo.site.example" in text


@pytest.mark.parametrize(
    ("server", "parts"),
    [
        ("10.5.0.2", ("10.5.0.2", 53)),
        ("ns.site.example:5353", ("ns.site.example", 5353)),
        ("fd00::2", ("fd00::2", 53)),
        ("[fd00::2]:5353", ("fd00::2", 5353)),
        ("[fd00::2]", ("fd00::2", 53)),
    ],
)
def test_a_server_has_a_port(server: str, parts: tuple[str, int]) -> None:
    assert host_and_port(server) == parts


WRONG = {
    "no server": Wrong({D: {"system": "external_dns"}}, D, "lacks rfc2136", {f"{D}.rfc2136": SERVER}),
    "not read": Wrong(
        {D: {"names": ["llm.site.example"]}},
        D,
        "names set, and system none reads nothing of it",
        {f"{D}.names": None},
    ),
    "another zone": Wrong(
        {D: {**WRITTEN[D], "names": ["llm.elsewhere.example"]}},
        f"{D}.names.0",
        "is in no zone of dns.rfc2136.zones",
        {f"{D}.rfc2136.zones": ["site.example", "elsewhere.example"]},
    ),
    "no name": Wrong(
        {**WRITTEN, "certificates": {"system": "none"}},
        D,
        "has no name for the gateway",
        {f"{D}.names": ["llm.site.example"]},
    ),
    "the portal's": Wrong(
        {D: {**WRITTEN[D], "names": ["llm.site.example", PORTAL["hostname"]]}, **PORTAL_SITE},
        f"{D}.names.1",
        "is portal.hostname too",
        {f"{D}.names": ["llm.site.example"]},
    ),
    "no Service of ours": Wrong(
        {**WRITTEN, "gateway.controllers": "external"},
        f"{D}.system",
        "reads the addresses of Services that the program's own Envoy Gateway makes",
        {D: None},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_site_that_cannot_work_is_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
