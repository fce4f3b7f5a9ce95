"""Keys that no one could check, or that nobody has: each is refused."""

from __future__ import annotations

import pytest

from tests.unit.stacks.wrong_sites import Wrong, refused_and_fixed

pytestmark = pytest.mark.row("000.34")

DIGEST = "5e" * 32
DECIDED = {"decided_by": "gatekeeper", "database_secret": "directory-database"}
PORTAL = {
    "hostname": "portal.site.example",
    "certificate_secret": "portal-tls",
    "issuer": "https://login.site.example",
    "client_secret": "login",
}
WRONG: dict[str, Wrong] = {
    "digest that Envoy Gateway cannot compare": Wrong(
        {"tenants.search.keys": {"nightly": {"sha256": DIGEST}}},
        "tenants.search.keys.nightly.sha256",
        "Envoy Gateway compares whole keys",
        {"callers": {"decided_by": "gatekeeper"}},
    ),
    "one key for two": Wrong(
        {
            "callers": {"decided_by": "gatekeeper"},
            "tenants.search.keys": {"nightly": {"sha256": DIGEST}, "laptop": {"sha256": DIGEST}},
        },
        "tenants.search.keys.nightly.sha256",
        "is the key of tenants.search.keys.laptop too",
        {"tenants.search.keys.laptop": {}},
    ),
    "digest that is none": Wrong(
        {"callers": {"decided_by": "gatekeeper"}, "tenants.search.keys": {"nightly": {"sha256": "5E"}}},
        "tenants.search.keys.nightly.sha256",
        "SHA-256 of a key that you made, 64 hexadecimal digits in lower case\n    fix: `sitectl key new` prints",
        {"tenants.search.keys.nightly.sha256": DIGEST},
    ),
    "tenant without a key, now and later": Wrong(
        {"tenants.search.keys": {}}, "tenants.search.keys", "has no key", {"tenants.search.keys": {"nightly": {}}}
    ),
    "limit that Envoy Gateway cannot hold": Wrong(
        {"plans": {"small": {"parallel_requests": 2}}},
        "plans.small.parallel_requests",
        "needs a gatekeeper",
        {"callers": {"decided_by": "gateway", "keep_both": True}},
    ),
    "prompts that nothing keeps apart": Wrong(
        {"tenants.search.prefix_cache": "own"},
        "tenants.search.prefix_cache",
        "needs a gatekeeper",
        {"callers": {"decided_by": "gatekeeper"}},
    ),
    "database that nothing reads": Wrong(
        {"callers": {"database_secret": "directory"}},
        "callers",
        "decided_by gateway reads no directory",
        {"callers.decided_by": "gatekeeper"},
    ),
    "model to order that nothing shows": Wrong(
        {"orderable": {"llama": {"catalogue": "llama-3.3-70b-fp8"}}},
        "orderable",
        "is shown by the portal",
        {"callers": DECIDED, "portal": PORTAL},
    ),
    "model to order that is served": Wrong(
        {"callers": DECIDED, "portal": PORTAL, "orderable": {"qwen3-32b": {"catalogue": "qwen3-32b-fp8"}}},
        "orderable.qwen3-32b",
        "is in models too",
        {"orderable": {}},
    ),
    "model to order that breaks a rule of models": Wrong(
        {
            "callers": DECIDED,
            "portal": PORTAL,
            "orderable": {"llama": {"catalogue": "llama-3.3-70b-fp8", "request_timeout_s": 60}},
        },
        "orderable.llama.request_timeout_s",
        "is shorter than a stream may be",
        {"orderable.llama.request_timeout_s": 3600},
    ),
    "portal without a directory": Wrong(
        {"portal": PORTAL}, "portal", "makes keys in the directory", {"callers": DECIDED}
    ),
    "people that nothing reads": Wrong(
        {"tenants.search.people": {"users": ["chemists"]}},
        "tenants.search.people",
        "is read by the portal",
        {"callers": DECIDED, "portal": PORTAL},
    ),
    "log in that others read": Wrong(
        {"callers": DECIDED, "portal": PORTAL | {"issuer": "http://login.site.example"}},
        "portal.issuer",
        "over a connection that others can read",
        {"portal.issuer": "https://login.site.example"},
    ),
    "groups in a claim that none is": Wrong(
        {"callers": DECIDED, "portal": PORTAL | {"groups_claim": "realm_access..roles"}},
        "portal.groups_claim",
        "not the name of a claim",
        {"portal.groups_claim": "realm_access.roles"},
    ),
    "pages at the name of the models": Wrong(
        {"callers": DECIDED, "portal": PORTAL | {"endpoint": "https://portal.site.example/v1"}},
        "portal.hostname",
        "is the host of portal.endpoint too",
        {"portal.hostname": "pages.site.example"},
    ),
    "pages at an address that nothing assigns": Wrong(
        {"callers": DECIDED, "portal": PORTAL | {"address": "10.5.0.200"}},
        "portal.address",
        "is not in addresses.pool",
        {"portal.address": "10.5.0.102"},
    ),
    "pages at the address of the models": Wrong(
        {"callers": DECIDED, "portal": PORTAL | {"address": "10.5.0.100"}},
        "portal.address",
        "is gateway.address too",
        {"portal.address": None},
    ),
    "pages behind the machines' firewall": Wrong(
        {"callers": DECIDED, "portal": PORTAL | {"port": 8443}},
        "cluster.machines.firewall.load_balancer_ports",
        "does not open portal.port, 8443",
        {"cluster.machines.firewall.load_balancer_ports": [443, 8443]},
    ),
    "pages and models behind it": Wrong(
        {
            "callers": DECIDED,
            "portal": PORTAL | {"port": 8443},
            "cluster.machines.firewall.load_balancer_ports": [9000],
        },
        "cluster.machines.firewall.load_balancer_ports",
        "does not open gateway.port, 443 and portal.port, 8443",
        {"cluster.machines.firewall.load_balancer_ports": [9000, 443, 8443]},
    ),
    "pages at a port of Envoy's own": Wrong(
        {"callers": DECIDED, "portal": PORTAL | {"port": 19001}},
        "portal.port",
        "is taken in each Envoy pod",
        {"portal.port": 443},
    ),
    "pages with a certificate of another name": Wrong(
        {"callers": DECIDED, "portal": PORTAL | {"certificate_secret": "inference-tls"}},
        "certificates.names",
        "lacks portal.site.example",
        {"certificates.names": ["llm.oslo.site.example", "portal.site.example"]},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_keys_that_no_one_could_check_are_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
