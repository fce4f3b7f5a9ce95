"""Administrators beside the first one, and the record of what they do: what a site may set, and what becomes of it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from components.machines.administrators import role_objects
from stacks.plan.site_plan import SitePlan, plan_values
from talos.effects import MAIN, effect_of
from tests.certificates import authority
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed
from tests.unit.talos import talos_examples

pytestmark = pytest.mark.row("000.05", "C.01")

SECTION = f"{M}.administrators"
ISSUER = "https://login.site.example/realms/platform"
PEOPLE = {"issuer": ISSUER, "viewers": ["seers"], "operators": ["hands"], "admins": ["heads"]}
COLLECTOR = "https://logs.site.example/audit"
VOLUMES = f"{M}.patches.own.cluster.apiServer.extraVolumes"


def planned(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "Pulumi.prod.yaml")


def config(change: dict[str, Any], machine: str = "cp-1") -> dict[str, Any]:
    """The v1alpha1 document of a machine."""
    plan = planned(change).machines
    assert plan
    return plan.documents(talos_examples.bundle(), defaultdict(lambda: "none"), None)[machine][0]


def mounted(folder: str) -> dict[str, Any]:
    """A patch that mounts a folder into API servers."""
    return {"own": {"cluster": {"apiServer": {"extraVolumes": [{"hostPath": "/var/own", "mountPath": folder}]}}}}


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(
            {SECTION: {**PEOPLE, "issuer": "http://login.site.example"}},
            f"{SECTION}.issuer",
            "not the https address of an issuer",
            {f"{SECTION}.issuer": ISSUER},
        ),
        Wrong(
            {SECTION: {**PEOPLE, "viewers": ["seers", "heads"]}},
            f"{SECTION}.viewers.1",
            "is in admins already",
            {f"{SECTION}.viewers": ["seers"]},
        ),
        Wrong(
            {SECTION: {**PEOPLE, "admins": [" heads"]}},
            f"{SECTION}.admins.0",
            "no issuer has a group of this name",
            {f"{SECTION}.admins": ["heads"]},
        ),
        Wrong({SECTION: {"issuer": ISSUER}}, SECTION, "names no group", {f"{SECTION}.admins": ["heads"]}),
        Wrong(
            {f"{M}.audit": {"webhook": "http://logs.site.example/audit"}},
            f"{M}.audit.webhook",
            "not the https address of a collector",
            {f"{M}.audit.webhook": COLLECTOR},
        ),
        Wrong(
            {
                SECTION: PEOPLE,
                f"{M}.patches": {"login": {"cluster": {"apiServer": {"extraArgs": {"oidc-client-id": "mine"}}}}},
            },
            f"{M}.patches.login.cluster.apiServer.extraArgs.oidc-client-id",
            "administrators",
            {f"{M}.patches": {}},
        ),
        Wrong(
            {SECTION: PEOPLE, f"{M}.patches": mounted("/etc/ssl/certs/")},
            f"{VOLUMES}.0.mountPath",
            "is mounted by administrators already",
            {f"{M}.patches": {}},
        ),
        Wrong(
            {f"{M}.audit": {"webhook": COLLECTOR}, f"{M}.patches": mounted("/etc/ssl/certs")},
            f"{VOLUMES}.0.mountPath",
            "is mounted by audit.webhook already",
            {f"{M}.audit": {}},
        ),
        Wrong(
            {f"{M}.audit": {"webhook": COLLECTOR}, f"{M}.patches": mounted("/etc/kubernetes/inference_platform")},
            f"{VOLUMES}.0.mountPath",
            "no API server starts with a mount twice",
            {f"{M}.patches": mounted("/etc/kubernetes/own")},
        ),
        Wrong(
            {
                f"{M}.audit": {},
                f"{M}.patches": {"own": {"cluster": {"apiServer": {"auditPolicy": {"kind": "Policy"}}}}},
            },
            f"{M}.patches.own.cluster.apiServer.auditPolicy",
            "which audit decides",
            {f"{M}.patches": {}},
        ),
        *(
            Wrong({SECTION: {**PEOPLE, key: value}}, f"{SECTION}.{place}", what, {f"{SECTION}.{key}": fixed})
            for key, value, place, what, fixed in (
                ("issuer", f"{ISSUER}\x07", "issuer", "not the https address of an issuer", ISSUER),
                ("admins", ["he\x07ads"], "admins.0", "no issuer has a group of this name", ["heads"]),
                ("admins", ["oidc:heads"], "admins.0", "begins with oidc:, which the program puts", ["heads"]),
                ("username_claim", "e mail", "username_claim", "no token has a field", "https://site.example/mail"),
                ("groups_claim", "groups\n", "groups_claim", "no token has a field of this name", "groups"),
                ("client_id", "my client", "client_id", "no issuer has a client of this name", "my-client"),
            )
        ),
    ],
    ids=lambda wrong: wrong.what,
)
def test_what_cannot_work_is_refused_with_its_fix(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


def test_a_site_without_an_admin_group_is_warned() -> None:
    warned = planned({SECTION: {"issuer": ISSUER, "viewers": ["seers"]}}).warnings
    assert [warning.fix for warning in warned if warning.key == f"{SECTION}.admins"]


def test_the_preview_says_who_may_do_what_and_what_a_change_does() -> None:
    shown = planned({SECTION: PEOPLE, f"{M}.audit": {"days": 90, "webhook": COLLECTOR}}).texts[-1]
    for words in (
        "the stack's own kubeconfig still works",
        "operators may do what viewers may, and read logs",
        "admins may do everything: heads",
        "restarts API servers",
        "90 days or 1 GiB",
        COLLECTOR,
        "setting `audit` restarts kube-apiserver on one control plane after the other, without a reboot",
        "setting, changing or removing `webhook` drains and reboots control planes one by one",
    ):
        assert words in shown
    assert "administrators" not in planned({}).texts[-1]


def test_a_login_is_taken_while_a_machine_runs_and_a_collector_by_a_reboot() -> None:
    """What a change of the section does is what `sitectl plan` shows of the fields that it becomes."""
    login = config({SECTION: PEOPLE})
    assert login["cluster"]["apiServer"]["extraArgs"]["oidc-issuer-url"] == ISSUER
    assert effect_of(MAIN, ("cluster", "apiServer", "extraArgs")).word == "live"
    assert "files" not in login["machine"]
    sent = config({f"{M}.audit": {"webhook": COLLECTOR}})
    assert COLLECTOR in sent["machine"]["files"][0]["content"]
    assert effect_of(MAIN, ("machine", "files")).word == "reboot"


def test_another_private_authority_restarts_api_servers() -> None:
    """A program reads the roots that it trusts once."""
    first, second = (config({SECTION: PEOPLE, f"{M}.trusted_roots": {"site": authority().pem}}) for _ in range(2))
    variables = [made["cluster"]["apiServer"]["env"] for made in (first, second)]
    assert variables[0] != variables[1]


def test_the_record_takes_what_the_site_gives_it() -> None:
    arguments = config({f"{M}.audit": {"days": 90, "most_gib": 4}})["cluster"]["apiServer"]["extraArgs"]
    files = int(arguments["audit-log-maxbackup"]) + 1
    assert 4000 <= files * int(arguments["audit-log-maxsize"]) <= 4096
    assert arguments["audit-log-maxage"] == "90"


def test_no_role_but_the_highest_reads_secrets_or_grants() -> None:
    objects = role_objects({"viewer": ("oidc:seers",), "operator": ("oidc:hands",), "admin": ()})
    assert "admins" not in objects, "no group, no binding"
    rules = [rule for name in ("viewer", "operator") for rule in objects[name]["rules"]]
    for rule in rules:
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"]
        assert not ({"*", "secrets", "pods/exec"} & set(rule["resources"]) and rule["apiGroups"] == [""])
    # Who may change a template mounts any Secret.
    changes = {(group, kind) for rule in rules if {"patch", "update", "create"} & set(rule["verbs"])
               for group in rule["apiGroups"] for kind in rule["resources"]}  # fmt: skip
    assert changes == {("", "nodes"), ("", "pods/eviction")}
