"""Secrets that no store could fill, that nothing reads, or that two would write; and those that are made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from components.monitoring.alertmanager import alertmanager
from components.placing import Placing
from floor.problems import Problem, SiteError
from stacks.plan.remote_secrets import remote_secrets
from stacks.plan.site_plan import plan_values
from stacks.site.secret_references import secret_references
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_bgp import site as bgp_site
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("C.01", "opening 13")

SECTION = "secrets"
VAULT = {"server": "https://vault.site.example:8200", "role": "inference-platform"}
STORE = {"vault": VAULT}
GOOD = {"system": "external_secrets", "store": STORE, "remote": {"site-ca": {"key": "inference/ca"}}}
OTHER_CLUSTER = {"namespace": "keys", "server": "https://10.5.0.9:6443"}


def remote(**entries: Any) -> dict[str, Any]:
    return {**GOOD, "remote": {name.replace("_", "-"): entry for name, entry in entries.items()}}


@pytest.mark.parametrize(
    ("section", "key", "what"),
    [
        ({**GOOD, "system": "none", "remote": {}}, f"{SECTION}.store", "is set, and system none does not read it"),
        ({"system": "none", "refresh_interval_s": 60}, f"{SECTION}.refresh_interval_s", "system none does not read it"),
        ({**GOOD, "store": None}, SECTION, "has no store: keys come from nowhere"),
        ({**GOOD, "store": {}}, SECTION, "has no store: keys come from nowhere"),
        ({**GOOD, "store": {**STORE, "existing": "own"}}, f"{SECTION}.store", "has existing and vault as its store"),
        ({**GOOD, "system": "external"}, f"{SECTION}.store.vault", "with system external it declares none"),
        (
            {**GOOD, "store": {"vault": {**VAULT, "server": "http://vault.site.example"}}},
            f"{SECTION}.store.vault.server",
            "not the https address of a server",
        ),
        (
            {**GOOD, "store": {"vault": {**VAULT, "server": "https://localhost:8200"}}},
            f"{SECTION}.store.vault.server",
            "is the pod of external-secrets itself",
        ),
        ({**GOOD, "store": {"vault": {**VAULT, "role": ""}}}, f"{SECTION}.store.vault.role", "too short"),
        (remote(site_ca={"key": ""}), f"{SECTION}.remote.site-ca.key", "too short"),
        (
            remote(site_ca={"key": "a", "properties": {"tls.key": ""}}),
            f"{SECTION}.remote.site-ca.properties.tls.key",
            "too short",
        ),
        ({**GOOD, "store": {"vault": {**VAULT, "ca": "own"}}}, f"{SECTION}.store.vault.ca", "is no certificate in PEM"),
        ({**GOOD, "store": {"existing": "a b"}}, f"{SECTION}.store.existing", "not a name of lower-case letters"),
        (
            {**GOOD, "store": {"kubernetes": {"namespace": "keys", "token_secret": "own"}}},
            f"{SECTION}.store.kubernetes.token_secret",
            "is set, and no server reads token_secret",
        ),
        (
            {**GOOD, "store": {"kubernetes": {**OTHER_CLUSTER, "token_secret": "own"}}},
            f"{SECTION}.store.kubernetes",
            "lacks ca, and has a server",
        ),
        (
            {**GOOD, "store": {"kubernetes": {"namespace": "inference-gateway"}}}
            | {"remote": {"site-ca": {"key": "site-ca"}}},
            f"{SECTION}.remote.site-ca.key",
            "is the Secret itself",
        ),
        (remote(site_co={"key": "a"}), f"{SECTION}.remote.site-co", "is no Secret that another key of this file names"),
        (remote(inference_tls={"key": "a"}), f"{SECTION}.remote.inference-tls", "which cert-manager writes: two would"),
        (
            remote(site_ca={"key": "a", "properties": {"tls.cert": "b"}}),
            f"{SECTION}.remote.site-ca.properties.tls.cert",
            "is no key that the Secret's reader knows",
        ),
    ],
)
def test_a_section_that_fills_nothing_is_refused_at_its_key(section: dict[str, Any], key: str, what: str) -> None:
    refused_and_fixed(Wrong({SECTION: section}, key, what, {SECTION: GOOD}))


def test_a_name_of_two_secrets_is_refused() -> None:
    change = {SECTION: remote(site_ca={"key": "a"}), "monitoring.alerts_secret": "site-ca"}
    what = "is the name of a Secret in inference-gateway and of one in inference-monitoring"
    refused_and_fixed(Wrong(change, f"{SECTION}.remote.site-ca", what, {"monitoring.alerts_secret": "alerts"}))


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(SiteError, match="write site-ca"):
        plan_values(changed(prod(), {SECTION: remote(site_c={"key": "a"})}), "site.yaml")


def test_a_token_in_the_place_of_its_secret_s_name_is_not_printed() -> None:
    other = {**OTHER_CLUSTER, "ca": "own", "token_secret": "c2VjcmV0a2V5=="}
    with pytest.raises(SiteError) as caught:
        plan_values(changed(prod(), {SECTION: {**GOOD, "store": {"kubernetes": other}}}), "site.yaml")
    assert "c2VjcmV0a2V5" not in str(caught.value)


def _by_hand(change: dict[str, Any]) -> list[Problem]:
    warnings = plan_values(changed(prod(), change), "site.yaml").warnings
    return [warning for warning in warnings if "secrets.remote does not have" in warning.what]


def test_what_no_store_fills_is_a_warning() -> None:
    by_hand = {warning.key: warning for warning in _by_hand({SECTION: GOOD})}
    assert by_hand.keys() == {
        "cluster.machines.etcd_backup.keys_secret",
        "monitoring.alerts_secret",
        "storage.longhorn.backup_credential_secret",
        "storage.weights.token_secret",
    }
    alerts = by_hand["monitoring.alerts_secret"].what
    assert "in inference-monitoring" in alerts
    assert "alertmanager.yaml" in alerts
    names = ("site_ca", "alertmanager_config", "hub_token", "backup_target", "etcd_bucket")
    assert not _by_hand({SECTION: remote(**{name: {"key": name} for name in names})})
    assert not _by_hand({})


def test_each_reader_gets_the_keys_that_it_reads() -> None:
    values = changed(
        prod(),
        {
            "certificates": None,
            "gateway.certificate_secret": "inference-tls",
        },
    )
    wanted = {
        "inference-tls": ("inference-gateway", ("tls.crt", "tls.key")),
        "hub-token": ("inference-models", ("token",)),
        "etcd-bucket": ("etcd-backup", ("access_key_id", "secret_access_key")),
        "backup-target": ("longhorn-system", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
        "alertmanager-config": ("inference-monitoring", ("alertmanager.yaml",)),
    }
    assert {ref.name: (ref.namespace, ref.keys) for ref in secret_references(values)} == wanted
    bucket = {"address": "https://s3.site.example/models", "keys_secret": "weights-bucket"}
    changed(values, {"storage.weights": {"source": "bucket", "bucket": bucket}})
    del wanted["hub-token"]
    wanted["weights-bucket"] = ("inference-models", ("access_key_id", "secret_access_key"))
    assert {ref.optional for ref in secret_references(values) if ref.name == "weights-bucket"} == {("session_token",)}
    assert {ref.name: (ref.namespace, ref.keys) for ref in secret_references(values)} == wanted
    registry = {"address": "https://registry.site.example/models", "login_secret": "weights-login"}
    changed(values, {"storage.weights": {"source": "oci", "oci": registry}})
    del wanted["weights-bucket"]
    wanted["weights-login"] = ("inference-models", ("username", "password"))
    assert {ref.name: (ref.namespace, ref.keys) for ref in secret_references(values)} == wanted
    mounted = alertmanager(
        "space", image="a:1", secret="own", storage_class="b", placing=Placing(node_selector={}, tolerations=())
    )
    assert "'key': 'alertmanager.yaml'" in str(mounted)


def test_a_secret_is_filled_once_with_all_that_its_readers_read() -> None:
    plan = bgp_site(
        {
            "addresses.bgp.peers.left.password_secret": "routers",
            "addresses.bgp.peers.right.password_secret": "routers",
            SECTION: {
                **GOOD,
                "remote": {
                    "routers": {"key": "bgp", "properties": {"password": "md5"}},
                    "backup-target": {"key": "s3", "properties": {"AWS_ENDPOINTS": "endpoint"}},
                },
            },
        }
    )
    passwords, copies = remote_secrets(plan.site)
    assert (passwords.namespace, passwords.data) == ("cilium-bgp-secrets", {"password": ("bgp", "md5")})
    assert copies.data == {
        "AWS_ACCESS_KEY_ID": ("s3", "AWS_ACCESS_KEY_ID"),
        "AWS_ENDPOINTS": ("s3", "endpoint"),
        "AWS_SECRET_ACCESS_KEY": ("s3", "AWS_SECRET_ACCESS_KEY"),
    }
