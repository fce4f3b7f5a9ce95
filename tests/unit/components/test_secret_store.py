"""External-secrets, the store, and what fills Secrets: values, fields, order, and that no key passes through."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.stack import wait_for_rpcs

from components.addons.addon import AddonSite
from components.addons.charts import Chart
from components.addons.external_secrets import (
    EXTERNAL_SECRETS,
    external_secrets_values,
    network_policies,
)
from components.addons.installed import InstalledAddon
from components.addons.secret_store import (
    FilledSecrets,
    FilledSecretsArgs,
    SecretStore,
    SecretStoreArgs,
    account,
    cluster_secret_store,
    external_secret,
)
from components.addons.webhooks import answering
from components.network_policies import peer
from components.specs.secrets import KubernetesStoreSpec, RemoteSecret, StoreSpec, VaultStoreSpec
from lab.plugins.kubernetes.awaiting.expressions import parse
from stacks.facts import versions
from stacks.plan.charts import installed_charts
from stacks.plan.site_plan import plan_values
from stacks.program.addons import charts_of, check_values, releases_of
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime
from tests.unit.spine.test_platform import Recorder as Engine
from tests.unit.spine.test_platform import requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_bgp import site as bgp_site
from tests.unit.stacks.test_wrong_secrets import GOOD
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01")

CHART = Chart(chart="external-secrets", version="1.0.0")
VAULT = StoreSpec(
    vault=VaultStoreSpec(server="https://vault.site.example:8200", role="platform", audience="vault", ca="PEM")
)
HERE = StoreSpec(kubernetes=KubernetesStoreSpec(namespace="keys"))
THERE = StoreSpec(
    kubernetes=KubernetesStoreSpec(namespace="keys", server="https://10.5.0.9:6443", ca="PEM", token_secret="other")
)
OWN = StoreSpec(existing="site-store")
TLS = RemoteSecret(
    namespace="inference-gateway",
    name="inference-tls",
    type="kubernetes.io/tls",
    data={"tls.crt": ("gateway/tls", "certificate"), "tls.key": ("gateway/tls", "tls.key")},
)


def _store(spec: StoreSpec) -> dict[str, Any]:
    body = cluster_secret_store(spec, ["b", "a"])
    assert body is not None
    return body


def test_vault_knows_the_platform_by_a_token_of_one_account() -> None:
    (own,) = account(VAULT)
    vault = _store(VAULT)["spec"]["provider"]["vault"]
    (login,) = vault["auth"].values()
    reference = login["serviceAccountRef"]
    assert (reference["name"], reference["namespace"]) == (own["metadata"]["name"], own["metadata"]["namespace"])
    assert reference["audiences"] == ["vault"]
    assert (login["role"], login["mountPath"]) == ("platform", "kubernetes")
    assert (vault["server"], vault["path"], vault["version"]) == ("https://vault.site.example:8200", "secret", "v2")
    assert base64.b64decode(vault["caBundle"]) == b"PEM"
    bare = VAULT.vault.model_copy(update={"ca": None, "audience": None})  # type: ignore[union-attr]
    less = _store(StoreSpec(vault=bare))["spec"]["provider"]["vault"]
    assert "caBundle" not in less
    assert "audiences" not in less["auth"]["kubernetes"]["serviceAccountRef"]


def test_only_namespaces_with_secrets_of_the_site_may_read_the_store() -> None:
    """ClusterSecretStores are open to every namespace otherwise."""
    assert _store(VAULT)["spec"]["conditions"] == [{"namespaces": ["a", "b"]}]


def test_in_this_cluster_the_account_reads_secrets_of_one_namespace() -> None:
    own, role, binding = account(HERE)
    provider = _store(HERE)["spec"]["provider"]["kubernetes"]
    assert provider["remoteNamespace"] == role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "keys"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    assert binding["subjects"][0]["name"] == provider["auth"]["serviceAccount"]["name"] == own["metadata"]["name"]
    assert provider["server"]["caProvider"]["name"] == "kube-root-ca.crt"


def test_another_cluster_is_read_by_a_token_that_the_site_makes() -> None:
    assert account(THERE) == []
    provider = _store(THERE)["spec"]["provider"]["kubernetes"]
    assert provider["server"] == {"url": "https://10.5.0.9:6443", "caBundle": base64.b64encode(b"PEM").decode()}
    assert provider["auth"] == {
        "token": {"bearerToken": {"name": "other", "namespace": "external-secrets", "key": "token"}}
    }


def test_a_store_of_the_site_is_named_and_not_declared() -> None:
    assert cluster_secret_store(OWN, []) is None
    assert account(OWN) == []


def test_a_secret_has_the_type_and_the_keys_of_its_reader() -> None:
    spec = external_secret(TLS, "own", 60)["spec"]
    assert spec["target"]["template"] == {"type": "kubernetes.io/tls"}
    assert spec["data"] == [
        {"secretKey": "tls.crt", "remoteRef": {"key": "gateway/tls", "property": "certificate"}},
        {"secretKey": "tls.key", "remoteRef": {"key": "gateway/tls", "property": "tls.key"}},
    ]
    assert spec["secretStoreRef"] == {"kind": "ClusterSecretStore", "name": "own"}
    assert spec["refreshInterval"] == "1m0s"


def test_an_entry_that_the_store_lost_takes_no_key_from_the_platform() -> None:
    target = external_secret(TLS, "own", 60)["spec"]["target"]
    assert target["deletionPolicy"] == "Retain"
    assert target["creationPolicy"] == "Owner", "`destroy` leaves no key behind"


@pytest.mark.parametrize("body", [_store(VAULT), _store(HERE), external_secret(TLS, "own", 60)])
def test_each_is_waited_for(body: dict[str, Any]) -> None:
    (holds,) = parse(body["metadata"]["annotations"]["pulumi.com/waitFor"])
    refused = {"type": "Ready", "status": "False", "reason": "SecretSyncedError", "message": "could not get secret"}
    assert "could not get secret" in holds({"status": {"conditions": [refused]}}).message
    assert holds({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).ready


def test_stores_are_let_in_once_the_webhook_can_be_trusted() -> None:
    (holds,) = parse(
        answering("secretstore-validate", "external-secrets", "a-1")["metadata"]["annotations"]["pulumi.com/waitFor"]
    )
    assert not holds({"webhooks": [{"clientConfig": {"service": {}}}]}).ready
    assert holds({"webhooks": [{"clientConfig": {"caBundle": "LS0t"}}]}).ready


def test_pods_of_others_reach_the_webhook_and_no_metrics() -> None:
    (webhook,) = network_policies()
    assert webhook["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 10250}]}]
    _, measured = network_policies([peer({"app": "prometheus"}, "watch")])
    assert [rule["ports"][0]["port"] for rule in measured["spec"]["ingress"]] == [8080]
    assert all(rule["from"] for rule in measured["spec"]["ingress"])


def test_nothing_is_installed_that_writes_to_a_store() -> None:
    values = external_secrets_values()
    for kind in ("ClusterExternalSecret", "ClusterPushSecret", "PushSecret", "ClusterGenerator"):
        assert values["crds"][f"create{kind}"] is False
        assert values[f"process{kind}"] is False, "without its definition the controller would not start"


def test_the_clusters_usual_roles_for_people_do_not_read_the_store() -> None:
    """Kubernetes adds rules so labelled to `edit` and `admin`, and these then read every entry."""
    assert external_secrets_values()["rbac"] == {"aggregateToEdit": False, "aggregateToAdmin": False}


def test_every_value_is_one_that_the_chart_documents() -> None:
    plan = plan_values(changed(prod(), {"secrets": GOOD}), "site.yaml")
    charts = charts_of(plan)
    check_values(plan, charts)
    values = releases_of(plan, charts)["external_secrets"].values
    assert all(part["resources"]["limits"] for part in (values, values["webhook"], values["certController"]))


def test_a_site_whose_external_secrets_is_its_own_gets_no_chart() -> None:
    others = {"secrets": {**GOOD, "system": "external", "store": {"existing": "own"}}}
    assert "external_secrets" not in installed_charts(plan_values(changed(prod(), others), "site.yaml").site)
    assert "external_secrets" in installed_charts(plan_values(changed(prod(), {"secrets": GOOD}), "site.yaml").site)


def test_secrets_leave_before_their_store_and_stores_before_what_reads_them() -> None:
    """An ExternalSecret has a finalizer, which the controller alone removes."""
    recorder = Recorder()

    async def run() -> None:
        installed = InstalledAddon(EXTERNAL_SECRETS, AddonSite(charts={"external_secrets": CHART})).ready
        store = SecretStore("store", SecretStoreArgs(store=HERE, readers=["a"], needs=installed)).handle
        FilledSecrets("filled", FilledSecretsArgs(bodies=[external_secret(TLS, store.name, 60)], needs=store.ready))
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), run, monitor=recorder)

    def after(name: str) -> set[str]:
        return {urn.rpartition("::")[2] for urn in recorder.requests[name].dependencies}

    marks = {"secrets-answering-stores", "secrets-answering-secrets"}
    assert all("secrets-external-secrets" in after(mark) for mark in marks)
    assert marks | {"store-account-rolebinding", "secrets-external-secrets"} <= after("store-store")
    assert {"store-store", "secrets-external-secrets"} <= after("filled-inference-tls")


KEYS = {
    "inference-tls": {"key": "tls"},
    "hub-token": {"key": "hub"},
    "backup-target": {"key": "s3"},
    "alertmanager-config": {"key": "alerts"},
    "tor": {"key": "bgp"},
}
# What waits for the Secret; Longhorn's is read once a backup is written.
READERS = {
    "secrets-inference-gateway-inference-tls": ["gateway-listener"],
    "secrets-inference-models-hub-token": ["glm-5-1-bring"],
    "secrets-longhorn-system-backup-target": [],
    "monitoring-filled-alertmanager-config": ["monitoring-alertmanager"],
    "secrets-cilium-bgp-secrets-tor": ["load-balancer-addresses-peer-left"],
}


@pytest.mark.slow
def test_what_reads_a_secret_waits_until_it_is_filled(tmp_path: Path) -> None:
    plan = bgp_site(
        {
            "certificates": None,
            "addresses.bgp.peers.left.password_secret": "tor",
            "secrets": {**GOOD, "remote": KEYS},
        }
    )
    engine = Engine()
    _, requests = requested(plan.site, tmp_path, engine)
    waiting = {name: {urn.rpartition("::")[2] for urn in request.dependencies} for name, request in requests.items()}

    def waits(reader: str, filled: str) -> bool:
        return filled in waiting[reader] or any(waits(name, filled) for name in waiting[reader] if name in waiting)

    for filled, readers in READERS.items():
        assert filled in requests, sorted(name for name in requests if "secret" in name or "filled" in name)
        for reader in readers:
            assert waits(reader, filled), f"{reader} does not wait for {filled}"
    declared = {made.inputs["metadata"]["name"] for made in engine.resources.values() if made.typ.endswith(":Secret")}
    assert declared, "the tenants' keys are"
    assert not declared & set(KEYS), "the program would hold the values"


# Fields of external-secrets.io/v1 that the program sets, by the schemas of the release that versions.yaml pins
# (deploy/crds/bundle.yaml of external-secrets/external-secrets@v2.9.0): the values of those with an enumeration, `text`
# for other strings. The lab runs another release, so no API server reads these there.
_STORE_FIELDS = {
    "spec.conditions[].namespaces[]": "text",
    "spec.provider.vault.server": "text",
    "spec.provider.vault.path": "text",
    "spec.provider.vault.version": ("v1", "v2"),
    "spec.provider.vault.caBundle": "base64",
    "spec.provider.vault.auth.kubernetes.mountPath": "text",
    "spec.provider.vault.auth.kubernetes.role": "text",
    "spec.provider.vault.auth.kubernetes.serviceAccountRef.name": "text",
    "spec.provider.vault.auth.kubernetes.serviceAccountRef.namespace": "text",
    "spec.provider.vault.auth.kubernetes.serviceAccountRef.audiences[]": "text",
    "spec.provider.kubernetes.server.url": "text",
    "spec.provider.kubernetes.server.caBundle": "base64",
    "spec.provider.kubernetes.server.caProvider.type": ("Secret", "ConfigMap"),
    "spec.provider.kubernetes.server.caProvider.name": "text",
    "spec.provider.kubernetes.server.caProvider.namespace": "text",
    "spec.provider.kubernetes.server.caProvider.key": "text",
    "spec.provider.kubernetes.remoteNamespace": "text",
    "spec.provider.kubernetes.auth.serviceAccount.name": "text",
    "spec.provider.kubernetes.auth.serviceAccount.namespace": "text",
    "spec.provider.kubernetes.auth.token.bearerToken.name": "text",
    "spec.provider.kubernetes.auth.token.bearerToken.namespace": "text",
    "spec.provider.kubernetes.auth.token.bearerToken.key": "text",
}
_SECRET_FIELDS = {
    "spec.refreshInterval": "text",
    "spec.secretStoreRef.kind": ("SecretStore", "ClusterSecretStore"),
    "spec.secretStoreRef.name": "text",
    "spec.target.name": "text",
    "spec.target.creationPolicy": ("Owner", "Orphan", "Merge", "None", "CreateOrMerge"),
    "spec.target.deletionPolicy": ("Delete", "Merge", "Retain"),
    "spec.target.template.type": "text",
    "spec.data[].secretKey": "text",
    "spec.data[].remoteRef.key": "text",
    "spec.data[].remoteRef.property": "text",
}


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, f"{path}.{key}")]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in _leaves(inner, f"{path}[]")]
    return [(path, value)]


def test_every_field_is_one_of_the_pinned_definitions() -> None:
    assert versions.load().charts["external_secrets"].version == "2.9.0", "compare the fields with the new definitions"
    for body, fields in (
        *((_store(spec), _STORE_FIELDS) for spec in (VAULT, HERE, THERE)),
        (external_secret(TLS, "own", 60), _SECRET_FIELDS),
    ):
        assert body["apiVersion"] == "external-secrets.io/v1"
        for path, value in _leaves(body["spec"], "spec"):
            known = fields[path]
            assert isinstance(value, str), path
            if known == "base64":
                assert base64.b64decode(value, validate=True)
            else:
                assert known == "text" or value in known, path
