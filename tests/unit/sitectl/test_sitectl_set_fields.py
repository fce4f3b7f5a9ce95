"""`explain RESOURCE FIELD`: a field that holds a value of the site's file names its key, file and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.model import Resource
from sitectl.offline import checkout
from sitectl.offline.set_fields import ROWS, KeyOfField, keys_of
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.site.loader import KEY
from tests.unit.sitectl.sites_to_work_on import make_checkout, really_declare, run

pytestmark = pytest.mark.row("opening 2")

# A value of its own for each row's key, so that a field with it can have it from nowhere else.
OWN = {
    "models.glm-5-1.server.replicas": 4,
    "models.glm-5-1.server.gpus": 8,
    "models.embed.catalogue": "qwen3-embedding-0.6b",
    "models.embed.server.gpu_slice": "1g.35gb",
    "models.embed.server.replicas": 3,
    "models.embed.server.scaling.least": 2,
    "models.glm-5-1.pool.pickers": 3,
    "models.glm-5-1.pool.cpu": "1700m",
    "models.glm-5-1.pool.memory": "1900Mi",
    "models.glm-5-1.request_timeout_s": 2222,
    "storage.storage_class": "own-class",
    "tiers.batch.priority": -77,
    "gateway.port": 8444,
    "gateway.certificate_secret": "own-certificate",
    "certificates.system": "cert_manager",
    "certificates.names": ["llm.site.example"],
    "secrets.system": "external_secrets",
    "secrets.store.vault.server": "https://vault.site.example/own",
    "secrets.store.vault.role": "own-role",
    "gateway.replicas": 7,
    "gateway.external_traffic_policy": "Cluster",
    "gateway.address": "10.5.0.109",
    "gateway.memory_mib": 3333,
    "gateway.longest_stream_s": 1111,
    "gateway.max_parallel_streams": 54321,
    "gateway.stream_idle_timeout_s": 777,
    "monitoring.retention_days": 33,
    "monitoring.volume_gib": 44,
    "monitoring.alerts_secret": "own-secret",
}
# Sites of the folder: no site has two issuers.
ISSUERS: dict[str, dict[str, Any]] = {
    "lab": {"certificates.ca_secret": "own-ca"},
    "acme": {
        "certificates.acme.server": "https://acme.site.example/own",
        "certificates.acme.email": "own@site.example",
        "certificates.acme.rfc2136": {"nameserver": "10.5.0.77", "tsig_key": "own", "tsig_secret": "own-key"},
    },
}
VALUES = {**OWN, **ISSUERS["lab"], **ISSUERS["acme"], "certificates.acme.rfc2136.nameserver": "10.5.0.77"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose sites have all these values."""
    folder = make_checkout(tmp_path_factory.mktemp("set") / "own", sites=["lab"])
    file = folder / "Pulumi.lab.yaml"
    text = file.read_text()
    for site, issuer in ISSUERS.items():
        document = yaml.safe_load(text)
        document["config"][KEY]["name"] = site
        # An existing cluster, whose nodes take what its file asks for.
        document["config"][KEY]["cluster"] = {"kubeconfig": f"kubeconfig.{site}", "gpu_stack": "external"}
        document["config"][KEY]["certificates"] = {}
        for key, value in {**OWN, **issuer}.items():
            *above, last = key.split(".")
            section = document["config"][KEY]
            for name in above:
                section = section.setdefault(name, {})
            section[last] = value
        file.with_name(f"Pulumi.{site}.yaml").write_text(yaml.safe_dump(document))
    return folder


@pytest.fixture(scope="module")
def plans(folder: Path) -> dict[str, SitePlan]:
    return {site: plan_file(folder / f"Pulumi.{site}.yaml") for site in ISSUERS}


@pytest.fixture(scope="module")
def resources(folder: Path) -> dict[str, list[Resource]]:
    declared = really_declare(folder, checkout.site_files(folder))
    return {site: declared[site].resources for site in ISSUERS}


def own_value(key: str) -> Any:
    return VALUES.get(key, "not looked up")


# Groups of pods have a test beside their objects.
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.kind != "LeaderWorkerSet"], ids=lambda row: f"{row.kind} {row.key}"
)
def test_a_changed_key_arrives_at_the_field_that_names_it(
    row: KeyOfField, plans: dict[str, SitePlan], resources: dict[str, list[Resource]]
) -> None:
    site = "acme" if row.key.startswith("certificates.acme") else "lab"
    of_embed = row.key.endswith((".gpu_slice", ".least")) or row.kind == "ScaledObject"
    key = row.key.format(model="embed" if of_embed else "glm-5-1", tier="batch")
    entries = [
        (resource.kind, entry)
        for resource in resources[site]
        for entry in keys_of(resource, plans[site], "spec", resource.body.get("spec"), own_value)
        if entry["key"] == key
    ]
    kinds = {kind for kind, _ in entries}
    assert row.kind in kinds <= {other.kind for other in ROWS if other.key == row.key}
    here = [entry for kind, entry in entries if kind == row.kind]
    assert all(re.fullmatch(row.path, entry["at"]) for entry in here)
    assert {Path(entry["origin"].partition(":")[0]).name for entry in here} == {f"Pulumi.{site}.yaml"}


@pytest.mark.parametrize("site", ISSUERS)
def test_a_field_with_another_value_names_no_key(
    site: str, plans: dict[str, SitePlan], resources: dict[str, list[Resource]]
) -> None:
    """As where a row has become wrong."""
    keys = [
        entry["key"]
        for resource in resources[site]
        for entry in keys_of(resource, plans[site], "spec", resource.body.get("spec"), lambda _: "of another kind")
    ]
    assert keys == []


@pytest.mark.slow
@pytest.mark.row("000.12", "001.08")
def test_the_name_of_a_slices_resource_holds_the_key(folder: Path) -> None:
    container = "spec.template.spec.containers.0.resources"
    asked = ("explain", "--site", "lab", "deployment/embed", container, "--json")
    shown = [(entry["at"], entry["key"], entry["value"]) for entry in run(folder, *asked).data["keys"]]
    places = [f"{container}.{part}.nvidia.com/mig-1g.35gb" for part in ("limits", "requests")]
    assert [entry for entry in shown if entry[0] in places] == [
        (place, "models.embed.server.gpu_slice", "1g.35gb") for place in places
    ]


def test_the_answer_has_key_file_and_line(folder: Path) -> None:
    out = run(folder, "explain", "--site", "lab", "deployment/glm-5-1", "spec.replicas").out
    line = next(
        number
        for number, text in enumerate((folder / "Pulumi.lab.yaml").read_text().splitlines(), start=1)
        if text.strip() == "replicas: 4"
    )
    _, key = out.split("\n\n")
    assert key.split() == [
        *("at", "spec.replicas", "key", "models.glm-5-1.server.replicas", "value", "4"),
        *("origin", f"Pulumi.lab.yaml:{line}"),
    ]
    data = run(folder, "explain", "--site", "lab", "deployment/glm-5-1-epp", "spec.replicas", "--json").data
    assert [entry["key"] for entry in data["keys"]] == ["models.glm-5-1.pool.pickers"]
