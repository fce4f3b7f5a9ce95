"""`recover`: the file for `up` has every key that the cluster has, for its owner alone, and no output shows one."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from components.gateway.gateway_controllers import ai_gateway_values
from components.minted import MCP_SEED, mint
from components.specs.access import KeySpec, TenantSpec, secret_name
from components.tenants.access import client_id
from services.directory import variables
from sitectl.commands import recovered
from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file
from tests.unit.components.test_minted import ran
from tests.unit.sitectl.sites_to_work_on import CommandResult, make_checkout, run

pytestmark = pytest.mark.row("004.11")

TENANTS = plan_file(Path(__file__).parents[3] / "Pulumi.lab.yaml").site.tenants
CLIENTS = [client_id(tenant, key) for tenant, spec in sorted(TENANTS.items()) for key in sorted(spec.keys)]
SEED = "canary-seed"


def key(client: str) -> str:
    return f"sk-canary-{client}"


def secret(tenant: str, *clients: str) -> dict[str, Any]:
    data = {client: base64.b64encode(key(client).encode()).decode() for client in clients}
    return {"metadata": {"name": secret_name(tenant, TENANTS[tenant]), "namespace": "inference-gateway"}, "data": data}


def put(folder: Path, **kinds: list[Any]) -> None:
    for kind, items in kinds.items():
        (folder / f"{kind}.json").write_text(json.dumps({"items": items}))


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose `kubectl` has the keys of the lab's tenants, a controller with its seed, and Helm's records."""
    programs = tmp_path / "bin"
    programs.mkdir()
    secrets = [
        secret(tenant, *(client_id(tenant, purpose) for purpose in spec.keys)) for tenant, spec in TENANTS.items()
    ]
    container = {"args": ["--logLevel=info", f"--mcpSessionEncryptionSeed={SEED}"]}
    helm = {"metadata": {"namespace": "envoy-gateway-system", "name": "sh.helm.v1.eg.v3", "labels": {"name": "eg"}}}
    others = {"metadata": {"namespace": "site", "name": "sh.helm.v1.other.v1", "labels": {"name": "other"}}}
    put(tmp_path, secrets=secrets, helm=[helm, others])
    put(tmp_path, deployments=[{"spec": {"template": {"spec": {"containers": [container]}}}}])
    (programs / "kubectl").write_text(
        f"""#!/bin/sh
case "$*" in
*--raw*) echo '{{"gitVersion": "v1.36.3"}}';;
*owner=helm*) cat {tmp_path}/helm.json;;
*) cat {tmp_path}/"$3".json;;
esac
"""
    )
    (programs / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    (tmp_path / "kubeconfig").write_text("kubeconfig")
    return make_checkout(tmp_path / "project", sites=("lab",))


def recover(project: Path, *words: str) -> CommandResult:
    kubeconfig = str(project.parent / "kubeconfig")
    return run(
        project,
        "recover",
        "lab",
        "--kubeconfig",
        kubeconfig,
        "--output",
        str(project / "recovered.json"),
        "--quiet",
        *words,
    )


def test_the_file_has_every_key_and_no_output_shows_one(live: Path) -> None:
    shown = recover(live)
    assert (shown.status, shown.err) == (Exit.OK, "")
    assert shown.out.splitlines() == [
        f"lab: {len(CLIENTS)} of {len(CLIENTS)} keys written to {live}/recovered.json, mode 0600",
        "   set `recovered: recovered.json` in Pulumi.lab.yaml",
        "   Helm's records, which the provider's create of a release refuses (docs/runbooks/lost-state.md):",
        "      kubectl -n envoy-gateway-system delete secrets -l owner=helm,name=eg",
    ]
    file = live / "recovered.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(json.loads(file.read_text())) == sorted([*CLIENTS, MCP_SEED])
    for client in CLIENTS:
        assert ran(mint(client, prefix="sk-", recovered=str(file))).stdout == key(client)
    assert ran(mint(MCP_SEED, recovered=str(file))).stdout == SEED


def test_a_client_without_a_key_is_named(live: Path) -> None:
    put(live.parent, secrets=[])
    shown = recover(live)
    assert shown.status == Exit.REFUSED
    assert f"   {CLIENTS[0]}: the cluster has no key; `up` makes a new one" in shown.out.splitlines()


def test_no_file_is_overwritten(live: Path) -> None:
    """It may be the only copy."""
    (live / "recovered.json").write_text("kept")
    shown = recover(live)
    assert shown.status == Exit.USAGE
    assert "recovered.json exists" in shown.err
    assert (live / "recovered.json").read_text() == "kept"


def test_a_cluster_of_the_program_needs_a_kubeconfig(live: Path) -> None:
    shown = run(live, "recover", "lab", "--output", str(live / "recovered.json"))
    assert shown.status == Exit.USAGE
    assert "python -m talos kubeconfig" in shown.err


def test_a_kubeconfig_that_is_no_text_is_reported(live: Path) -> None:
    (live.parent / "kubeconfig").write_bytes(b"\xff\xfe")
    shown = recover(live)
    assert shown.status == Exit.USAGE
    assert "is no text, so no kubeconfig" in shown.err


def test_names_in_the_file_are_those_that_the_program_reads() -> None:
    assert recovered.MCP_SEED == MCP_SEED
    assert ai_gateway_values(1, SEED)["controller"]["mcp"]["sessionEncryption"]["seed"] == SEED


def test_the_directorys_secrets_come_back_under_the_names_that_the_program_mints_them_by() -> None:
    """Without its pepper no key of the directory would work again. A key with a digest in the file is not missed."""
    held = {"metadata": {"name": variables.TOKENS_SECRET}, "data": {"pepper": base64.b64encode(b"canary").decode()}}
    tenant = TenantSpec(models=("m",), keys={"own": KeySpec(sha256="5e" * 32)})
    kept = recovered.of_cluster({"acme": tenant}, [held], [])
    assert (kept.values, kept.missing) == ({"directory-pepper": {"value": "canary", "rotation": 1}}, ())
