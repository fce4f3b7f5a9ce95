"""From `administrators` and `audit` of a site's machines to settings of API servers, and what a preview shows of them.

Talos v1.13.9 has no document for the API server's authentication (its contract of 1.14 has), so people's logins are
flags: machines take these while they run, and a file would take a reboot of each control plane.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from components.specs.administrators import PREFIX, ROOTS_FOLDER, SETTINGS_FOLDER, AdministratorsSpec, AuditSpec
from stacks.site.machines import MachinesSpec
from talos.cluster import APIServerSettings
from talos.documents.v1alpha1 import HostMount, MachineFile

# Talos's own certificates and those of `trusted_roots` in one file; its kube-proxy mounts the folder too
# (v1.13.9 k8stemplates/kube-proxy.go:130).
_ROOTS = HostMount(host_path="/etc/ssl/certs", mount_path=ROOTS_FOLDER)
# Of what an issuer may sign with, all that Go's verifier knows at the usual strength.
_ALGORITHMS = "RS256,ES256,PS256"
_FILES = "/var/lib/inference-platform/api-server"
_WEBHOOK = "audit-webhook.json"
# Talos's own size of one file of the record (control_plane_static_pod.go:371).
_FILE_MIB = 100
_CHANGES = ("create", "update", "patch", "delete", "deletecollection")
_READS = ("get", "list", "watch")
_PROGRAMS = ("system:nodes", "system:serviceaccounts")
_CONTROL_PLANE = ("system:apiserver", "system:kube-controller-manager", "system:kube-scheduler")
_MAY = {
    "viewer": "read all but Secrets, roles and logs",
    "operator": "do what viewers may, and read logs, cordon and drain nodes, restart pods",
    "admin": "do everything",
}


def api_server_settings(machines: MachinesSpec) -> APIServerSettings:
    """What the API servers get beside what every site's have."""
    people, audit = machines.administrators, machines.audit
    arguments = {**(_login(people) if people else {}), **(_record(audit) if audit else {})}
    sends = audit is not None and audit.webhook is not None
    mounts: tuple[HostMount, ...] = (_ROOTS,) if people or sends else ()
    if sends:
        mounts += (HostMount(host_path=_FILES, mount_path=SETTINGS_FOLDER),)
    roots = json.dumps(machines.trusted_roots, sort_keys=True).encode()
    settings = APIServerSettings(
        arguments=arguments,
        mounts=mounts,
        files=(_webhook(str(audit.webhook)),) if audit and sends else (),
        # A program of Go reads certificates once: it starts again where the site trusts others.
        environment={"TRUSTED_ROOTS_SHA256": hashlib.sha256(roots).hexdigest()}
        if mounts and machines.trusted_roots
        else {},
    )
    return replace(settings, audit_policy=audit_policy()) if audit else settings


def _login(people: AdministratorsSpec) -> dict[str, str]:
    return {
        "oidc-issuer-url": people.issuer,
        "oidc-client-id": people.client_id,
        "oidc-username-claim": people.username_claim,
        "oidc-username-prefix": PREFIX,
        "oidc-groups-claim": people.groups_claim,
        "oidc-groups-prefix": PREFIX,
        "oidc-signing-algs": _ALGORITHMS,
    }


def _record(audit: AuditSpec) -> dict[str, str]:
    kept = {
        "audit-log-maxage": str(audit.days),
        # Beside the one that is written.
        "audit-log-maxbackup": str(audit.most_gib * 1024 // _FILE_MIB - 1),
        "audit-log-maxsize": str(_FILE_MIB),
    }
    return {**kept, "audit-webhook-config-file": f"{SETTINGS_FOLDER}/{_WEBHOOK}"} if audit.webhook else kept


def _webhook(address: str) -> MachineFile:
    """A kubeconfig, which is the form that the API server wants; it holds no secret, and its user reads it."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "audit",
        "clusters": [{"name": "audit", "cluster": {"server": address}}],
        "contexts": [{"name": "audit", "context": {"cluster": "audit", "user": "audit"}}],
        "users": [{"name": "audit", "user": {}}],
    }
    return MachineFile(content=json.dumps(content), permissions=0o444, path=f"{_FILES}/{_WEBHOOK}")


def audit_policy() -> Mapping[str, Any]:
    """Who changed what: with the body of a person's change, and never one that holds a Secret or a token.

    The first rule that fits decides. Programs' reads and leases, which are nearly all requests, are left out.
    """
    core = {"group": ""}
    rules: list[dict[str, Any]] = [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*", "/metrics"]},
        {
            "level": "None",
            "resources": [
                {**core, "resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ],
        },
        {
            "level": "Metadata",
            "resources": [
                {**core, "resources": ["secrets", "serviceaccounts/token"]},
                {"group": "authentication.k8s.io"},
                {"group": "certificates.k8s.io"},
            ],
        },
        {"level": "None", "verbs": list(_READS), "userGroups": list(_PROGRAMS)},
        {"level": "None", "verbs": list(_READS), "users": list(_CONTROL_PLANE)},
        {"level": "Metadata", "userGroups": list(_PROGRAMS)},
        {"level": "Metadata", "users": list(_CONTROL_PLANE)},
        # Settings of programs are in ConfigMaps, and people write passwords into them.
        {"level": "Metadata", "resources": [{**core, "resources": ["configmaps"]}]},
        {"level": "Request", "verbs": list(_CHANGES)},
        {"level": "Metadata"},
    ]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": rules,
    }


def describe_administrators(machines: MachinesSpec | None) -> str:
    """Who may do what, where that is recorded, and what a change of it does; empty where a site sets neither."""
    return "\n".join(_lines(machines)) if machines else ""


def _lines(machines: MachinesSpec) -> Iterator[str]:
    people, audit = machines.administrators, machines.audit
    if people:
        yield f"administrators: by a login at {people.issuer}, by groups; the stack's own kubeconfig still works"
        for role, groups in people.groups.items():
            if groups:
                yield f"   {role}s may {_MAY[role]}: {', '.join(group.removeprefix(PREFIX) for group in groups)}"
        yield "   a changed issuer, client or claim restarts API servers, one control plane after the other"
    if audit:
        copy = f", and sent to {audit.webhook}" if audit.webhook else ""
        yield (
            f"audit: who changed what, without Secrets; kept on each control plane for {audit.days} days or "
            f"{audit.most_gib} GiB{copy}"
        )
        yield "   setting `audit` restarts kube-apiserver on one control plane after the other, without a reboot"
        yield "   setting, changing or removing `webhook` drains and reboots control planes one by one"
