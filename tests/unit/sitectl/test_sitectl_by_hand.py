"""What a site needs and the program does not make, as `validate` lists it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacks.plan.by_hand import by_hand
from stacks.plan.site_plan import plan_values
from tests.unit.sitectl.sites_to_work_on import make_checkout, run
from tests.unit.stacks.site_examples import prod, reference
from tests.unit.stacks.wrong_sites import changed


def listed(changes: dict[str, Any]) -> list[str]:
    return by_hand(plan_values(changed(prod(), changes), "site.yaml"))


def test_validate_lists_what_the_reference_site_leaves_to_its_operator(tmp_path: Path) -> None:
    result = run(make_checkout(tmp_path / "own", sites=("prod",)), "validate", "prod")
    listing = result.out.partition("  yours to make:\n")[2]
    assert listing.splitlines()[:-2] == [f"    {line}" for line in by_hand(plan_values(reference(), "site.yaml"))]
    assert "    pulumi config set --secret inference-platform:registry-password\n" in listing
    assert "    hosts of your own in the place of discovery.site.example, hub.site.example, " in listing
    assert "    Secret etcd-backup/etcd-bucket with access_key_id and secret_access_key\n" in listing
    assert "    images of own services: directory, gatekeeper, ledger, portal (sitectl bundle services)\n" in listing
    assert "    ConfigMap inference-models/hub-ca with ca.crt\n" in listing


def test_a_host_that_only_looks_like_an_example_is_the_sites_own() -> None:
    for host in ("hub.example-inc.com", "hub.example.internal", "hub.example.com"):
        assert "hub.example" not in "".join(listed({"storage.weights.mirror": f"https://{host}"}))


@pytest.mark.parametrize(("secret", "asked"), [("inference-tls", False), ("portal-tls", True)])
def test_a_certificate_that_cert_manager_writes_is_not_to_make(secret: str, asked: bool) -> None:
    site = changed(reference(), {"portal.certificate_secret": secret})
    listing = "\n".join(by_hand(plan_values(site, "site.yaml")))
    assert (f"Secret inference-gateway/{secret} with tls.crt" in listing) == asked


@pytest.mark.parametrize(
    ("changes", "gone", "new"),
    [
        (
            {"certificates": {"system": "none"}},
            "Secret inference-gateway/site-ca",
            "Secret inference-gateway/inference-tls",
        ),
        (
            {"secrets": {"system": "external", "store": {"existing": "keys"}, "remote": {"site-ca": {"key": "ca"}}}},
            "Secret inference-gateway/site-ca",
            "the ClusterSecretStore keys",
        ),
        ({"addresses": {"announced_by": "external"}}, "", "what gives the gateway's Service an address"),
        ({"cluster.gpu_stack": "external"}, "", "what makes Kubernetes offer the GPUs"),
        (
            {"storage.system": "external", "storage.longhorn": None},
            "Secret longhorn-system/",
            "the storage class longhorn",
        ),
        ({"cluster.machines.registries": {}}, "pulumi config set", ""),
        (
            {"callers": {"decided_by": "gatekeeper", "database_secret": "directory-database"}},
            "",
            "images of own services: directory, gatekeeper (sitectl bundle services)",
        ),
    ],
)
def test_what_is_to_make_follows_from_the_keys(changes: dict[str, Any], gone: str, new: str) -> None:
    before, after = "\n".join(listed({})), "\n".join(listed(changes))
    assert gone in before
    assert not gone or gone not in after
    assert new in after
    assert not new or new not in before
