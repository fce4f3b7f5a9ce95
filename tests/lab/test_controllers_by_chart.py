"""The gateway controllers installed by our component and the charts' own hooks, and nothing else of the program.

In a spare lab; their pods run for real, the certificates' Job among them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, dynamic
from kubernetes.client.exceptions import ApiException

from definitions.applying import read
from lab import session
from lab.cluster import api
from lab.cluster.parts import metadata_of, name_of, present, spec_of, status_of
from lab.paths import CHECKOUT, Lab
from lab.site import logs
from stacks.facts import versions
from tests.lab.cluster_by_hand import bring_up_cluster
from tests.lab.waiting import eventually
from tests.program_folders import FOLDERS

pytestmark = pytest.mark.row("000.30")

PROGRAM = """
import json
import os
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from components.addons.charts import chart_of
from components.addons.crd_bundle import CrdBundle, CrdBundleArgs, read_bundle
from components.gateway.gateway_controllers import GatewayControllers, GatewayControllersArgs
from components.objects import declare
from stacks.facts import versions as pins

versions = pins.load()
provider = kubernetes.Provider("cluster", enable_server_side_apply=True, upsert_existing_objects=True)
top = pulumi.ResourceOptions(providers=[provider])
files = read_bundle(Path("crds"), versions.crds_with(), versions.crd_versions, "make lab")
kubeconfig = os.environ["KUBECONFIG"]
needs = CrdBundle("crds", CrdBundleArgs(files=files, kubeconfig=None, kubeconfig_file=kubeconfig), top).handle.ready
charts = versions.charts
args = GatewayControllersArgs(
    envoy_gateway=chart_of(charts["envoy_gateway"].chart, charts["envoy_gateway"].version, "charts"),
    ai_gateway=chart_of(charts["ai_gateway"].chart, charts["ai_gateway"].version, "charts"),
    needs=needs,
    **json.loads(Path("settings.json").read_text()),
)
ready = GatewayControllers("gateway-controllers", args, top).handle.ready
declare(
    "class",
    {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "inference", "annotations": {"pulumi.com/waitFor": "condition=Accepted"}},
        "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
    },
    pulumi.ResourceOptions(provider=provider, depends_on=ready),
)
"""
WEBHOOK_CERTIFICATE = ("webhook-certificate-1", "envoy-ai-gateway-system")


class Project:
    """A program of the component and the definitions alone, on its own lab."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder

    def configure(self, *, webhook_certificate_rotation: int = 1, patience_s: int = 600) -> None:
        """What the program gives to the component from now on."""
        settings = {"webhook_certificate_rotation": webhook_certificate_rotation, "patience_s": patience_s}
        (self.folder / "settings.json").write_text(json.dumps(settings))

    def pulumi(self, *arguments: str) -> str:
        return session.run_pulumi(self.lab, *arguments, project=self.folder).stdout

    def up(self) -> str:
        return self.pulumi("up", "--yes", "--skip-preview", "--non-interactive")

    def secret(self, name: str, namespace: str) -> dict[str, bytes | str]:
        with api.connect(self.lab) as connection:
            return present(client.CoreV1Api(connection).read_namespaced_secret(name, namespace).data)


def rolled_out(lab: Lab) -> bool:
    """Whether both controllers run their newest version, and every replica of it is ready."""
    controllers = (("envoy-gateway-system", "envoy-gateway"), ("envoy-ai-gateway-system", "ai-gateway-controller"))
    with api.connect(lab) as connection:
        apps = client.AppsV1Api(connection)
        deployments = [apps.read_namespaced_deployment(name, namespace) for namespace, name in controllers]
    return all(
        (status.observed_generation or 0) >= present(metadata_of(deployment).generation)
        and {status.replicas, status.updated_replicas, status.ready_replicas} == {spec_of(deployment).replicas}
        for deployment in deployments
        for status in (status_of(deployment),)
    )


@pytest.fixture(scope="module")
def project(spare_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The program, installed once; the cluster had no controllers before."""
    own = Lab.from_environment()
    folder = tmp_path_factory.mktemp("controllers")
    (folder / "Pulumi.yaml").write_text("name: controllers\nruntime: python\n")
    (folder / "__main__.py").write_text(PROGRAM)
    for name in ("crds", "charts"):
        (folder / name).symlink_to(own.bundle / name)
    for name in FOLDERS:
        (folder / name).symlink_to(CHECKOUT / name)
    # The program's commands run out of the project's environment.
    (folder / ".venv").symlink_to(sys.prefix)
    bring_up_cluster(spare_lab, hgx=0)
    made = Project(spare_lab, folder)
    made.configure()
    made.up()
    return made


def test_both_controllers_run_and_the_class_is_accepted(project: Project) -> None:
    eventually(lambda: rolled_out(project.lab))
    with api.connect(project.lab) as connection:
        classes = dynamic.DynamicClient(connection).resources.get(
            api_version="gateway.networking.k8s.io/v1", kind="GatewayClass"
        )
        gateway_class: dict[str, Any] = classes.get(name="inference").to_dict()
    accepted = next(entry for entry in gateway_class["status"]["conditions"] if entry["type"] == "Accepted")
    assert accepted["status"] == "True"


def test_no_kind_was_missing_when_the_gateway_started(project: Project) -> None:
    # It looks for kinds once, at its start; one that is not served yet would never be watched.
    log = logs.find(project.lab, "envoy-gateway-system/envoy-gateway-").read_text()
    # Services of other clusters are no part of the platform.
    assert set(re.findall(r"(\w+) CRD not found", log)) == {"ServiceImport"}


def test_certificates_come_from_the_hook(project: Project) -> None:
    assert project.secret("envoy-gateway", "envoy-gateway-system").keys() == {"ca.crt", "tls.crt", "tls.key"}


def test_a_second_up_changes_nothing(project: Project) -> None:
    project.pulumi("preview", "--expect-no-changes", "--non-interactive")


def test_an_upgrade_keeps_the_certificate_of_the_webhook(project: Project) -> None:
    before = project.secret(*WEBHOOK_CERTIFICATE)
    project.configure(patience_s=599)
    preview = json.loads(project.pulumi("preview", "--json"))
    changed = {
        step["newState"]["urn"].rpartition("::")[2]: set(step["detailedDiff"] or {})
        for step in preview["steps"]
        if step["op"] == "update"
    }
    assert changed == {f"gateway-controllers-{which}": {"timeout"} for which in ("ai-gateway", "envoy-gateway")}
    project.up()
    assert project.secret(*WEBHOOK_CERTIFICATE) == before
    eventually(lambda: rolled_out(project.lab))


def test_counting_the_rotation_up_renews_the_certificate_of_the_webhook(project: Project) -> None:
    before = project.secret(*WEBHOOK_CERTIFICATE)
    project.configure(webhook_certificate_rotation=2, patience_s=599)
    project.up()
    renewed = project.secret("webhook-certificate-2", "envoy-ai-gateway-system")
    assert not set(before.values()) & set(renewed.values())
    with api.connect(project.lab) as connection:
        with pytest.raises(ApiException, match="Not Found"):
            project.secret(*WEBHOOK_CERTIFICATE)
        configurations = client.AdmissionregistrationV1Api(connection).list_mutating_webhook_configuration().items
        [hook] = present(configurations[0].webhooks)
        assert hook.client_config.ca_bundle == renewed["ca.crt"]
    eventually(lambda: rolled_out(project.lab))


def test_destroying_it_leaves_definitions_and_no_controller(project: Project) -> None:
    """With a definition would go every object of its kind, those of others too."""
    bundle, pins = Lab.from_environment().bundle / "crds", versions.load().crds_with()
    installed = {body["metadata"]["name"] for file, sha256 in pins.items() for body in read(bundle / file, sha256)}
    project.pulumi("destroy", "--yes", "--skip-preview", "--non-interactive")
    with api.connect(project.lab) as connection:
        roles, hooks = client.RbacAuthorizationV1Api(connection), client.AdmissionregistrationV1Api(connection)
        left = [
            name_of(item)
            for items in (
                client.AppsV1Api(connection).list_deployment_for_all_namespaces(),
                roles.list_cluster_role(label_selector="app.kubernetes.io/managed-by=Helm"),
                roles.list_cluster_role_binding(label_selector="app.kubernetes.io/managed-by=Helm"),
                hooks.list_mutating_webhook_configuration(),
            )
            for item in items.items
        ]
        kept = {name_of(item) for item in client.ApiextensionsV1Api(connection).list_custom_resource_definition().items}
    assert left == ["coredns"]
    assert kept == installed
