"""Secrets that a real external-secrets fills, as the program declares them: filled, refreshed, kept, and never seen.

Release 0.20.4, the last that is one Go module, with its own definitions: a site runs a newer one (decision 41).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.addons.external_secrets import external_secrets_values
from lab.free_ports import free_ports
from lab.install.building import module_folder
from lab.install.installer import Installation
from lab.install.parts import ModuleFolder
from lab.paths import CHECKOUT, Lab
from stacks.facts import metrics
from tests.certificates import authority
from tests.lab.plugin_kubernetes.conftest import Plane, Site
from tests.lab.plugin_kubernetes.vault_server import Vault, serving
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("C.01", "opening 13")

MODULE = "github.com/external-secrets/external-secrets"
CANARY, ROTATED = "canary-of-the-hub", "canary-after-it"
PROGRAM = """
import sys
sys.path.insert(0, {checkout!r})
from components.addons.secret_store import FilledSecrets, FilledSecretsArgs, external_secret
from components.addons.secret_store import SecretStore, SecretStoreArgs
from components.specs.secrets import RemoteSecret, StoreSpec

spec = StoreSpec.model_validate({spec!r})
store = SecretStore("store", SecretStoreArgs(store=spec, readers=["readers"], needs=[])).handle
secrets = [
    RemoteSecret(namespace="readers", name=name, type=kind, data=data)
    for name, (kind, data) in {secrets!r}.items()
]
# The controller writes its objects back: an interval in another form than its own would be a change of each preview.
bodies = [external_secret(secret, store.name, 3600 if secret.name == "tls" else 1) for secret in secrets]
FilledSecrets("filled", FilledSecretsArgs(bodies=bodies, needs=store.ready))
"""
HUB = ("Opaque", {"token": ("hub", "token")})
TLS = ("kubernetes.io/tls", {"tls.crt": ("tls", "certificate"), "tls.key": ("tls", "tls.key")})


@dataclass
class Controller:
    """External-secrets with the flags that its chart sets for the program's values."""

    program: Path
    kubeconfig: Path
    log: Path
    port: int
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        values = external_secrets_values()
        kinds = ("cluster-external-secret", "cluster-push-secret", "push-secret")
        off = [kind for kind in kinds if not values[f"process{kind.title().replace('-', '')}"]]
        command = [
            str(self.program),
            f"--metrics-addr=127.0.0.1:{self.port}",
            "--live-addr=0",
            *(f"--enable-{kind}-reconciler=false" for kind in off),
        ]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        with self.log.open("ab") as log:
            self.running = [subprocess.Popen(command, env=environment, stdout=log, stderr=log)]

    def kill(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self.running = []

    def series(self) -> set[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return {line for line in text.splitlines() if line.startswith("externalsecret_status_condition")}


@pytest.fixture(scope="module")
def controller(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    lab = Lab.from_environment()
    program = lab.bin / "external-secrets"
    if not program.exists():
        pytest.fail(f"{program.name} is not in {lab.bin}: make tools builds it")
    wanted = ModuleFolder(family="external-secrets", module=MODULE, path="deploy/crds/bundle.yaml")
    definitions = module_folder(Installation(lab, lab.bundle).builder, wanted, "tests")
    plane.kubectl("apply", "--server-side", "-f", str(definitions))
    # Without a kind, the controller asks for it again in longer and longer pauses.
    plane.kubectl("wait", "--for=condition=Established", "-f", str(definitions), "--timeout=120s")
    for name in ("external-secrets", "keys", "readers"):
        plane.kubectl("create", "namespace", name)
    plane.kubectl("-n", "keys", "create", "serviceaccount", "reader")
    plane.kubectl("-n", "keys", "create", "role", "reader", "--verb=get", "--resource=secrets")
    plane.kubectl("-n", "keys", "create", "rolebinding", "reader", "--role=reader", "--serviceaccount=keys:reader")
    token = plane.kubectl("-n", "keys", "create", "token", "reader").strip()
    plane.kubectl("-n", "external-secrets", "create", "secret", "generic", "reader", f"--from-literal=token={token}")
    folder = tmp_path_factory.mktemp("external-secrets")
    made = Controller(program, plane.kubeconfig, folder / "log", free_ports(1)[0])
    made.start()
    yield made
    made.kill()


@pytest.fixture
def entries(plane: Plane) -> Iterator[None]:
    """What the store has; it is as it was for the next test."""
    put(plane, "hub", token=CANARY)
    put(plane, "tls", **{"certificate": "CERTIFICATE", "tls.key": "canary-key"})
    yield
    plane.kubectl("-n", "keys", "delete", "secret", "hub", "tls", "--ignore-not-found")


def put(plane: Plane, name: str, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "keys"}, "stringData": data}
    plane.kubectl("apply", "-f", "-", given=body)


def declare(site: Site, **secrets: Any) -> None:
    config = yaml.safe_load(site.plane.kubeconfig.read_text())
    (cluster,) = (entry["cluster"] for entry in config["clusters"])
    ca = cluster.get("certificate-authority-data")
    text = base64.b64decode(ca).decode() if ca else Path(cluster["certificate-authority"]).read_text()
    namespace = {"namespace": "keys", "server": cluster["server"], "ca": text, "token_secret": "reader"}
    declare_from({"kubernetes": namespace}, site, **secrets)


def declare_from(store: dict[str, Any], site: Site, **secrets: Any) -> None:
    named = {name.replace("_", "-"): given for name, given in secrets.items()}
    site.write(PROGRAM.format(checkout=str(CHECKOUT), spec=store, secrets=named))


def token(plane: Plane) -> str:
    return base64.b64decode(plane.get("secret", "hub-token", "readers")["data"]["token"]).decode()


def ready(plane: Plane, name: str) -> str:
    body = json.loads(plane.kubectl("-n", "readers", "get", "externalsecret", name, "-o", "json"))
    conditions = body.get("status", {}).get("conditions", [])
    return next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "")


@pytest.mark.usefixtures("entries")
def test_secrets_are_filled_and_no_value_is_seen(site: Site, plane: Plane, controller: Controller) -> None:
    declare(site, hub_token=HUB, tls=TLS)
    printed = site.pulumi("preview", "--diff") + site.up("--diff", "--debug")
    assert token(plane) == CANARY
    tls = plane.get("secret", "tls", "readers")
    assert tls["type"] == "kubernetes.io/tls"
    assert tls["data"].keys() == {"tls.crt", "tls.key"}
    exported = site.pulumi("stack", "export", "--show-secrets")
    for value in (CANARY, "canary-key"):
        hidden = base64.b64encode(value.encode()).decode()
        assert value not in printed + exported
        assert hidden not in printed + exported
    site.unchanged()
    known = metrics.load()["external_secrets"]
    shown = {"job", *known.common_labels, *known.gauges["externalsecret_status_condition"]} - {"job"}
    named = eventually(lambda: {line for line in controller.series() if 'name="hub-token"' in line})
    assert {label.partition("=")[0] for label in next(iter(named)).partition("{")[2].split(",")} == shown


@pytest.mark.usefixtures("entries", "controller")
def test_a_changed_value_arrives_and_a_lost_entry_takes_nothing(site: Site, plane: Plane) -> None:
    declare(site, hub_token=HUB)
    site.up()
    put(plane, "hub", token=ROTATED)
    eventually(lambda: token(plane) == ROTATED)
    plane.kubectl("-n", "keys", "delete", "secret", "hub")
    eventually(lambda: ready(plane, "hub-token") == "False")
    assert token(plane) == ROTATED


@pytest.mark.usefixtures("entries")
def test_a_killed_controller_loses_nothing(site: Site, plane: Plane, controller: Controller) -> None:
    declare(site, hub_token=HUB)
    site.up()
    controller.kill()
    put(plane, "hub", token=ROTATED)
    assert token(plane) == CANARY
    controller.start()
    eventually(lambda: token(plane) == ROTATED)


@pytest.mark.usefixtures("controller")
def test_up_waits_for_an_entry_and_a_secret_goes_with_its_line(site: Site, plane: Plane) -> None:
    declare(site, hub_token=HUB)
    (site.folder / "__main__.py").open("a").write(
        'k8s.core.v1.ConfigMap("begun", metadata={"name": "begun", "namespace": "default"})\n'
    )
    engine = site.begin_up("begun")
    eventually(lambda: "externalsecret.external-secrets.io/hub-token" in plane.names("externalsecret", "readers"))
    eventually(lambda: ready(plane, "hub-token") == "False")
    assert engine.poll() is None
    put(plane, "hub", token=CANARY)
    assert engine.wait() == 0, engine.stdout.read() if engine.stdout else ""
    assert token(plane) == CANARY
    declare(site)
    site.up()
    eventually(lambda: "secret/hub-token" not in plane.names("secret", "readers"))


@pytest.mark.usefixtures("controller")
def test_vault_is_read_by_a_token_of_the_account(site: Site, plane: Plane, tmp_path: Path) -> None:
    (port,), signed_by = free_ports(1), authority("vault")
    vault = Vault(
        address=f"https://127.0.0.1:{port}",
        role="inference-platform",
        audience="vault-of-the-site",
        account="system:serviceaccount:external-secrets:inference-secrets",
        entries={"kv/data/inference/hub": {"api-token": CANARY}},
    )
    described = {
        "server": vault.address,
        "path": "kv",
        "role": vault.role,
        "auth_path": "site",
        "audience": vault.audience,
        "ca": signed_by.pem,
    }
    with serving(vault, signed_by, tmp_path, port):
        declare_from({"vault": described}, site, hub_token=("Opaque", {"token": ("inference/hub", "api-token")}))
        printed = site.up("--debug")
        assert not vault.refused
        assert token(plane) == CANARY
        assert CANARY not in printed + site.pulumi("stack", "export", "--show-secrets")
        vault.entries["kv/data/inference/hub"] = {"api-token": ROTATED}
        eventually(lambda: token(plane) == ROTATED)
        vault.entries.clear()
        eventually(lambda: ready(plane, "hub-token") == "False")
        assert token(plane) == ROTATED
        site.pulumi("destroy", "--yes", "--skip-preview")
