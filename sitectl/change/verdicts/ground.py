"""Verdicts on the ground: namespaces, CRDs, providers, charts, and everything without its own rule."""

from __future__ import annotations

from components.addons import registry
from definitions.command import ApplyCommand
from sitectl.change.changes import Change
from sitectl.change.verdicts.model import Severity, Verdict, verdict


def namespace(change: Change) -> list[Verdict]:
    """With a namespace goes everything in it."""
    if change.op in ("delete", "replace"):
        cause = f" ({', '.join(change.replaced_by)} changes)" if change.replaced_by else ""
        return [
            verdict(
                change,
                Severity.IRREVERSIBLE,
                f"deletes the namespace with everything in it{cause}",
                "also what others put there; volumes and Secrets do not come back",
            )
        ]
    return [verdict(change, Severity.LIVE, "made" if change.op == "create" else "relabelled", "no pod restarts")]


def definition(change: Change) -> list[Verdict]:
    """With a custom resource definition go all objects of its kind."""
    name = (change.body.get("spec") or {}).get("names", {}).get("kind", change.name)
    if change.op in ("delete", "replace") and not change.retained:
        reason = "the API server deletes the objects with their definition, those of other programs too"
        return [verdict(change, Severity.IRREVERSIBLE, f"deletes every {name} of the cluster", reason)]
    if change.op == "update":
        reason = "objects stay; a version that is no longer served is lost to its clients"
        return [verdict(change, Severity.LIVE, f"another definition of {name}", reason)]
    return [verdict(change, Severity.LIVE, "made" if change.op == "create" else "left to others", "no object changes")]


def definitions(change: Change) -> list[Verdict] | None:
    """A command that installs the definitions of one source; None for any other command."""
    before, after = (ApplyCommand.read(body.get("create")) for body in (change.before, change.after))
    now = after or before
    if now is None:
        return None
    if change.op == "delete":
        reason = "they stay in the cluster with all objects, and no `up` changes them any more"
        return [verdict(change, Severity.LIVE, f"leaves the definitions of {now.source} to others", reason)]
    if change.op == "create":
        what = f"installs the definitions of {now.source} {now.release}"
        return [verdict(change, Severity.LIVE, what, "no object changes")]
    if before and before.release != now.release:
        reason = "objects stay; a version that is no longer served is lost to its clients"
        what = f"definitions of {now.source} {before.release} -> {now.release}"
        return [verdict(change, Severity.LIVE, what, reason)]
    return [verdict(change, Severity.LIVE, f"applies the definitions of {now.source} again", "no object changes")]


def provider(change: Change) -> list[Verdict]:
    """The connection to the cluster; replaced, it takes every object along."""
    if change.op in ("delete", "replace"):
        cause = ", ".join(change.replaced_by) or "it is removed"
        return [
            verdict(
                change,
                Severity.IRREVERSIBLE,
                "every object of this provider is deleted and created again",
                f"to the engine it is another cluster: {cause}",
            )
        ]
    return [verdict(change, Severity.LIVE, "the connection's settings change", "no object is touched by it")]


def release(change: Change) -> list[Verdict]:
    """A Helm release: its controllers restart, what they serve goes on."""
    name = str(change.body.get("name", change.name))
    chart = registry.chart_of_release(name)
    if change.op in ("delete", "replace"):
        reason = chart.uninstalled if chart else "what it installed is deleted"
        return [verdict(change, Severity.REPLACED, f"uninstalls {name}", reason)]
    old, new = change.before.get("version"), change.after.get("version")
    if change.op == "create":
        return [verdict(change, Severity.LIVE, f"installs {name} {new}", "new")]
    if old != new:
        rolled = chart.upgraded if chart else "its pods restart"
        return [verdict(change, Severity.RESTARTS, f"{name} {old} -> {new}", rolled)]
    return [verdict(change, Severity.RESTARTS, f"{name} with other values", "its controllers may restart")]


def network_policy(change: Change) -> list[Verdict]:
    """Who may reach which pods."""
    reason = "counts for new connections at once, where the CNI enforces policies"
    leaves = ", ".join(leaf.path for leaf in change.fields()[:3])
    what = {
        "create": "its pods refuse what no policy lets in",
        "delete": "its pods are open to all, unless another policy selects them",
        "replace": "its pods are open to all for a moment, unless another policy selects them",
    }.get(change.op, f"who may reach its pods changes: {leaves}")
    return [verdict(change, Severity.LIVE, what, reason)]


_ANNOUNCED = {
    "CiliumBGPClusterConfig": (
        "its machine speaks to no router any more: clients reach the gateway through other machines alone",
        "a session whose router or number changes starts again; streams through this machine may be cut",
    ),
    "CiliumBGPPeerConfig": (
        "sessions with this router go on with Cilium's defaults and announce nothing",
        "sessions with this router start again; streams that it sends through them may be cut",
    ),
    "CiliumBGPAdvertisement": ("no router knows the gateway's address any more", "routes of addresses change"),
}


def announcement(change: Change) -> list[Verdict]:
    """What machines announce by BGP, and to whom."""
    gone, again = _ANNOUNCED[change.kind]
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "made", "routers learn addresses once their sessions are up")]
    if change.op in ("delete", "replace"):
        return [verdict(change, Severity.REPLACED, "deleted", gone)]
    paths = ", ".join(leaf.path for leaf in change.fields()[:3]) or ", ".join(change.touched[:3])
    return [verdict(change, Severity.RESTARTS, f"changes {paths}", again)]


def rdma_policy(change: Change) -> list[Verdict]:
    """What offers RDMA devices."""
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "made", "nodes offer RDMA devices once the plugin runs there")]
    if change.op in ("delete", "replace"):
        reason = "nodes offer no RDMA device any more; pods that have them keep them until they end"
        return [verdict(change, Severity.REPLACED, "deleted", reason)]
    paths = ", ".join(leaf.path for leaf in change.fields()[:3]) or ", ".join(change.touched[:3])
    reason = "the plugin restarts on each node, and `up` may end before that; pods that have RDMA devices keep them"
    return [verdict(change, Severity.RESTARTS, f"changes {paths}", reason)]


def filled_secret(change: Change) -> list[Verdict]:
    """What fills a Secret. The Secret goes with it, unlike with its entry in the store."""
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "made", "a Secret of this name that is there already gets its keys")]
    if change.op in ("delete", "replace"):
        reason = "what reads it runs on with what it has read, and does not start again without it"
        return [verdict(change, Severity.REPLACED, "deletes the Secret of its name", reason)]
    paths = ", ".join(leaf.path for leaf in change.fields()[:3]) or ", ".join(change.touched[:3])
    return [
        verdict(change, Severity.LIVE, f"changes {paths}", "the Secret is filled again; it keeps its keys until then")
    ]


_HARMLESS = {
    "ConfigMap": "read by pods that a digest in their template restarts",
    "PodDisruptionBudget": "counts for the next drain",
    "PriorityClass": "pods that run keep theirs; it counts for those that are created next",
    "Service": "addresses stay",
    **dict.fromkeys(("AIServiceBackend", "Backend"), "new requests to rank take the new way; running ones finish"),
    "ServiceAccount": "no pod restarts",
    "Role": "permissions change at once",
    "RoleBinding": "permissions change at once",
    "ClusterRole": "permissions change at once",
    "ClusterRoleBinding": "permissions change at once",
    "GatewayConfig": "counts of tokens change at once",
    "Certificate": "proxies serve what its Secret has, and take another one without a restart",
    "Issuer": "certificates stay as they are; the next renewal asks it",
    "ClusterSecretStore": "Secrets keep their keys; the next refresh asks it",
    "ValidatingAdmissionPolicy": "no request for a model passes it",
    "ValidatingAdmissionPolicyBinding": "no request for a model passes it",
}


def anything(change: Change) -> list[Verdict]:
    """What has no rule of its own: as severe as its operation alone, and the row notes it."""
    known = _HARMLESS.get(change.kind, "")
    match change.op:
        case "create":
            return [verdict(change, Severity.LIVE, "made", known or "new")]
        case "delete":
            if known:
                return [verdict(change, Severity.LIVE, "deleted", "goes with what used it")]
            return [verdict(change, Severity.REPLACED, "deleted", _unknown(change))]
        case "replace":
            cause = ", ".join(change.replaced_by)
            reason = "it is gone for a moment" if known else _unknown(change)
            return [verdict(change, Severity.REPLACED, f"deleted and created again: {cause}", reason)]
    paths = ", ".join(leaf.path for leaf in change.fields()[:3]) or ", ".join(change.touched[:3])
    return [verdict(change, Severity.LIVE, f"changes {paths}", known or _unknown(change))]


def _unknown(change: Change) -> str:
    return f"what this does to {change.kind or change.type} is not known here: look at its controller"
