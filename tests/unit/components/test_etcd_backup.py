"""Snapshots of etcd: what the CronJob states to talos-backup, what Talos lets it do, and keys that cannot work."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from components.addons.etcd_backup import NAME, NAMESPACE, ROLE, cron_job, service_account
from components.monitoring import rules
from components.monitoring.kube_state_metrics import CRON_JOBS, state_deployment
from components.specs.etcd_backup import EtcdBackupSpec, is_age_recipient
from components.specs.promises import SitePromise
from stacks.plan.site_plan import SitePlan, plan_values
from talos.secrets import bundle as secrets
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed
from tests.unit.talos.talos_examples import entropy

# The public key of an example in talos-backup's repository.
KEY = "age1khpnnl86pzx96ttyjmldptsl5yn2v9jgmmzcjcufvk00ttkph9zs0ytgec"
VALUES = {"address": "https://s3.site.example:9000/etcd/berlin", "keys_secret": "etcd-bucket", "age_public_key": KEY}


def spec(**changes: Any) -> EtcdBackupSpec:
    return EtcdBackupSpec.model_validate(VALUES | changes)


def pod(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = cron_job(spec(**changes), site="berlin", image="backup:v1")["spec"]["jobTemplate"]["spec"]
    template: dict[str, Any] = made["template"]["spec"]
    return template


def environment(**changes: Any) -> dict[str, Any]:
    (container,) = pod(**changes)["containers"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def test_the_bucket_is_the_one_of_the_address() -> None:
    """talos-backup v0.1.0-beta.3 has the bucket in the path where USE_PATH_STYLE is the text `false`."""
    made = environment()
    assert made["CUSTOM_S3_ENDPOINT"] == "https://s3.site.example:9000"
    assert (made["BUCKET"], made["S3_PREFIX"], made["CLUSTER_NAME"]) == ("etcd", "berlin", "berlin")
    assert made["USE_PATH_STYLE"] == "false"
    assert environment(address="http://s3.site.example/etcd")["S3_PREFIX"] == "berlin", "the site's name"


def test_every_snapshot_is_encrypted_and_no_key_is_in_the_object() -> None:
    made = environment()
    assert made["AGE_X25519_PUBLIC_KEY"] == KEY
    assert "DISABLE_ENCRYPTION" not in made
    assert made["AWS_ACCESS_KEY_ID"] == {"secretKeyRef": {"name": "etcd-bucket", "key": "access_key_id"}}
    assert made["AWS_SECRET_ACCESS_KEY"] == {"secretKeyRef": {"name": "etcd-bucket", "key": "secret_access_key"}}


def test_the_pod_has_the_credentials_that_talos_makes_and_no_others() -> None:
    made = pod()
    volumes = {volume["name"]: volume for volume in made["volumes"]}
    assert volumes["talos"]["secret"]["secretName"] == service_account()["metadata"]["name"] == NAME
    assert service_account()["spec"] == {"roles": ["os:etcd:backup"]}
    (container,) = made["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["talos"] == "/var/run/secrets/talos.dev"
    assert mounts["snapshots"] == container["workingDir"]
    assert made["automountServiceAccountToken"] is False


def test_a_ca_of_the_site_is_read_beside_the_systems() -> None:
    (container,) = pod()["containers"]
    ca = next(volume["secret"] for volume in pod()["volumes"] if volume["name"] == "bucket-ca")
    where = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "bucket-ca")
    assert environment()["SSL_CERT_DIR"].split(":") == ["/etc/ssl/certs", where]
    assert (ca["optional"], ca["items"]) == (True, [{"key": "ca.crt", "path": "ca.crt"}])


@pytest.mark.parametrize(("every_h", "schedule"), [(1, "17 * * * *"), (6, "17 */6 * * *"), (24, "17 0 * * *")])
def test_it_runs_every_so_many_hours(every_h: int, schedule: str) -> None:
    made = cron_job(spec(every_h=every_h), site="berlin", image="backup:v1")["spec"]
    assert (made["schedule"], made["timeZone"], made["concurrencyPolicy"]) == (schedule, "Etc/UTC", "Forbid")


@pytest.mark.parametrize(
    "wrong",
    [
        {"age_public_key": KEY[:-1] + "d"},
        {"age_public_key": KEY[:-1]},
        {"age_public_key": KEY.upper()},
        {"address": "https://s3.site.example"},
        {"every_h": 5},
    ],
)
def test_what_would_fail_at_night_is_refused_now(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        spec(**wrong)


def test_a_private_key_is_not_shown() -> None:
    private = "AGE-SECRET-KEY-1CANARY"
    with pytest.raises(ValidationError) as refused:
        spec(age_public_key=private)
    assert "is the private key" in str(refused.value)
    assert not is_age_recipient(private)


def test_snapshots_are_for_no_key_that_no_one_has() -> None:
    reference = plan_values(prod(), "Pulumi.prod.yaml").site.cluster.machines
    assert reference and reference.etcd_backup
    shown = reference.etcd_backup.age_public_key
    with pytest.raises(ValidationError, match="no one has its private key"):
        spec(address="https://s3.oslo.site/etcd", age_public_key=shown)
    assert spec(address="https://s3.oslo.site/etcd").age_public_key == KEY


def planned(**keys: Any) -> SitePlan:
    return plan_values(changed(prod(), {"cluster.machines.etcd_backup": dict(VALUES), **keys}), "Pulumi.prod.yaml")


def configs(plan: SitePlan) -> dict[str, list[Any]]:
    assert plan.machines is not None
    bundle, texts = secrets.generate(entropy(3)), dict.fromkeys(plan.machines.secret_names, "text")
    made = plan.machines.configs(bundle, texts, "kind: List\n")
    return {name: list(yaml.safe_load_all(text)) for name, text in made.items()}


def test_control_planes_alone_let_this_namespace_take_snapshots() -> None:
    """Talos refuses the feature on a worker."""
    for name, documents in configs(planned()).items():
        access = documents[0]["machine"]["features"].get("kubernetesTalosAPIAccess")
        expected = {"enabled": True, "allowedRoles": [ROLE], "allowedKubernetesNamespaces": [NAMESPACE]}
        assert access == (expected if name.startswith("cp-") else None), name
    without = plan_values(changed(prod(), {"cluster.machines.etcd_backup": None}), "Pulumi.prod.yaml")
    assert "kubernetesTalosAPIAccess" not in str(configs(without))


def test_a_pod_of_the_control_plane_reaches_the_talos_api() -> None:
    """It comes by its own address there, from other machines by theirs."""
    for name, documents in configs(planned()).items():
        (rule,) = [document for document in documents if document.get("name") == "talos-api"]
        subnets = [entry["subnet"] for entry in rule["ingress"]]
        assert ("10.64.0.0/16" in subnets) == name.startswith("cp-"), name


def test_its_age_is_watched() -> None:
    exported = state_deployment("m", ["etcd-backup"], image="i", more=[CRON_JOBS])
    (container,) = exported["spec"]["template"]["spec"]["containers"]
    (resources,) = [arg for arg in container["args"] if arg.startswith("--resources=")]
    assert "cronjobs" in resources
    (alert,) = rules.alerts(planned_promise(), rules.Measured(parts=(), servers=False, etcd_backup_every_h=4))["etcd"]
    assert alert.expression.endswith("> 9")


def planned_promise() -> Any:
    return SitePromise(models=(), availability_percent=99.9, jobs=("inference-engines",))
