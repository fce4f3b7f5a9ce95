"""Verdicts on the front door: listener, proxies, policies, keys, routes and pools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from components.gateway.envoy_names import CLIENT_POLICY, MODEL_NAMES_FILTER, PICKER_FILTERS
from components.specs.access import tenant_of
from sitectl.change.changes import Change
from sitectl.change.verdicts.known_callers import known
from sitectl.change.verdicts.model import Severity, Verdict, verdict


def access(policy: Mapping[str, Any]) -> dict[str, set[str]]:
    """Tenant -> models that it may call, out of the inputs of a SecurityPolicy or of a gatekeeper's ConfigMap."""
    models: dict[str, set[str]] = {tenant: set(spec.get("models") or ()) for tenant, spec in known(policy).items()}
    for rule in ((policy.get("spec") or {}).get("authorization") or {}).get("rules") or ():
        headers: list[Any] = (rule.get("principal") or {}).get("headers") or []
        if len(headers) > 1:
            models[str(rule.get("name"))] = {str(value) for value in headers[1].get("values") or ()}
    return models


def answering(policy: Mapping[str, Any]) -> dict[str, set[str]]:
    """The same with dedicated replicas by their revision's name, in the place of the models that they are of."""
    dedicated = {tenant: spec.get("dedicated") or {} for tenant, spec in known(policy).items()}
    return {
        tenant: {dedicated.get(tenant, {}).get(model, {}).get("revision", model) for model in models}
        for tenant, models in access(policy).items()
    }


def security_policy(change: Change) -> list[Verdict]:
    """Who may call what: each tenant that gains or loses something by name."""
    if change.op in ("delete", "replace"):
        reason = "every request gets 401 while it is gone"
        return [verdict(change, Severity.REPLACED, "the gateway's keys are taken away", reason)]
    verdicts = moved_models(change)
    return verdicts or [verdict(change, Severity.LIVE, "rules change, and no tenant's models do", "in place")]


def moved_models(change: Change) -> list[Verdict]:
    """One for each tenant that may call more, or less, from then on."""
    before, after = access(change.before), access(change.after)
    verdicts = []
    for tenant in sorted({*before, *after}):
        had, has = before.get(tenant, set()), after.get(tenant, set())
        if lost := sorted(had - has):
            what = f"tenant {tenant} loses {', '.join(lost)}"
            verdicts.append(
                verdict(change, Severity.REPLACED, what, "its requests get 403 from then on", tenants=[tenant])
            )
        if won := sorted(has - had):
            verdicts.append(
                verdict(
                    change, Severity.LIVE, f"tenant {tenant} may call {', '.join(won)}", "granted", tenants=[tenant]
                )
            )
    return verdicts


# The Secret of `components.tenants.callers` with digests of keys.
_DIGESTS = "callers-keys"


def secret(change: Change) -> list[Verdict]:
    """Keys of a tenant, and other Secrets."""
    name = str((change.body.get("metadata") or {}).get("name", ""))
    tenant = tenant_of(name)
    tenants = [tenant] if tenant else []
    if tenants and change.op == "replace" and name != (change.before.get("metadata") or {}).get("name"):
        reason = "a Secret of the new set, then the old one goes; keys that stay in the set go on"
        return [verdict(change, Severity.LIVE, "the set of keys changes", reason, tenants=tenants)]
    match change.op:
        case "create":
            return [verdict(change, Severity.LIVE, "made", "new", tenants=tenants)]
        case "delete" | "replace":
            what = f"all keys of tenant {tenants[0]} stop working" if tenants else "its values are gone"
            severity = Severity.IRREVERSIBLE if change.op == "delete" else Severity.REPLACED
            return [verdict(change, severity, what, "callers get 401 from then on", tenants=tenants)]
    reason = "gatekeepers read them again" if name == _DIGESTS else "Envoy reads them again"
    return [verdict(change, Severity.LIVE, "values change in place", reason, tenants=tenants)]


def command(change: Change) -> list[Verdict]:
    """A key that a command minted. The report knows its tenant, which may have dashes as the key may."""
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "mints a key", "new")]
    if change.op == "delete":
        reason = "a key that is minted again is another one"
        return [verdict(change, Severity.IRREVERSIBLE, "forgets the key", reason)]
    if change.op == "replace":
        reason = f"{', '.join(change.replaced_by)} changes; callers with the old key get 401 once up is through"
        return [verdict(change, Severity.IRREVERSIBLE, "replaces the key by another one", reason)]
    return [verdict(change, Severity.LIVE, "worded differently", "the key stays")]


def keys_of(policy: Mapping[str, Any]) -> dict[str, str]:
    """Name of each key's command -> its tenant, out of a SecurityPolicy's inputs."""
    tenants = {}
    for rule in ((policy.get("spec") or {}).get("authorization") or {}).get("rules") or ():
        headers: list[Any] = (rule.get("principal") or {}).get("headers") or []
        for client in (headers[0].get("values") or ()) if headers else ():
            tenant, _, key = str(client).partition(".")
            tenants[command_name(tenant, key)] = tenant
    return tenants


def keys_by_name(names: Iterable[str], tenants: Iterable[str]) -> dict[str, str]:
    """Of the names of resources, those of keys' commands -> the tenant: the longest one that the name begins with."""
    longest_first = sorted(tenants, key=len, reverse=True)
    owners = {}
    for name in names:
        tenant = next((tenant for tenant in longest_first if name.startswith(command_name(tenant, ""))), None)
        if tenant is not None:
            owners[name] = tenant
    return owners


def command_name(tenant: str, key: str) -> str:
    """As the program names the command that mints a key."""
    return f"access-{tenant}-{key}"


def gateway(change: Change) -> list[Verdict]:
    """The listener: where and how clients connect."""
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "opens the listener", "new")]
    if change.op in ("delete", "replace"):
        reason = "the load balancer may give it another address, and no stream survives"
        return [verdict(change, Severity.IRREVERSIBLE, "the front door and its address go", reason)]
    verdicts = []
    before, after = _listener(change.before), _listener(change.after)
    if (before.get("port"), before.get("protocol")) != (after.get("port"), after.get("protocol")):
        what = f"{before.get('protocol')} {before.get('port')} -> {after.get('protocol')} {after.get('port')}"
        reason = "every client has to change its base URL, and running streams are cut"
        verdicts.append(verdict(change, Severity.REPLACED, what, reason))
    old, new = _certificates(before), _certificates(after)
    if old and new and old != new:
        reason = "clients that do not trust the new issuer are turned away; streams that run go on"
        verdicts.append(verdict(change, Severity.LIVE, f"certificate {', '.join(old)} -> {', '.join(new)}", reason))
    return verdicts or [verdict(change, Severity.LIVE, "changed in place", "port, protocol and certificate stay")]


def _listener(body: Mapping[str, Any]) -> Mapping[str, Any]:
    listeners = (body.get("spec") or {}).get("listeners") or [{}]
    first: Mapping[str, Any] = listeners[0]
    return first


def _certificates(listener: Mapping[str, Any]) -> list[str]:
    return [str(certificate.get("name")) for certificate in (listener.get("tls") or {}).get("certificateRefs") or ()]


_DEPLOYMENT = "spec.provider.kubernetes.envoyDeployment"
# What a pod of Envoy is made of.
_ROLLS = ("spec.bootstrap", "spec.extraArgs", "spec.shutdown", "spec.logging", _DEPLOYMENT)


def proxy(change: Change) -> list[Verdict]:
    """Shape of the Envoy pods: a changed bootstrap, shutdown or pod rolls them, a count does not."""
    paths = [leaf.path for leaf in change.fields()]
    if change.op in ("delete", "replace"):
        return [verdict(change, Severity.REPLACED, "Envoy falls back to its defaults", "limits and drain times go")]
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "shapes the Envoy pods", "new")]
    verdicts = []
    old, new = _envoys(change.before), _envoys(change.after)
    rolling = [path for path in paths if path.startswith(_ROLLS) and path != f"{_DEPLOYMENT}.replicas"]
    if rolling:
        drain = str(((change.after.get("spec") or {}).get("shutdown") or {}).get("drainTimeout", "their drain time"))
        verdicts.append(
            verdict(
                change,
                Severity.RESTARTS,
                f"restarts Envoy ({old} of them)",
                f"{_sections(rolling)} changes; streams that outlast {drain} are cut",
                restarts=old,
            )
        )
    if old != new:
        reason = "streams of pods that go have their drain time" if new < old else "more of them"
        severity = Severity.RESTARTS if new < old else Severity.LIVE
        verdicts.append(verdict(change, severity, f"{old} -> {new} Envoy pods", reason, restarts=max(0, old - new)))
    if telemetry := [path for path in paths if path.startswith("spec.telemetry")]:
        verdicts.append(_new_listener(change, telemetry))
    return verdicts or [verdict(change, Severity.LIVE, "changed in place", "the Envoy pods stay")]


def _new_listener(change: Change, paths: list[str]) -> Verdict:
    reason = f"{_sections(paths)} is part of the listener; streams older than the drain time are cut"
    return verdict(change, Severity.RESTARTS, "Envoy replaces its listener", reason)


def _envoys(body: Mapping[str, Any]) -> int:
    kubernetes = ((body.get("spec") or {}).get("provider") or {}).get("kubernetes") or {}
    return int((kubernetes.get("envoyDeployment") or {}).get("replicas", 1))


def _sections(paths: list[str]) -> str:
    return ", ".join(dict.fromkeys(".".join(path.split("[")[0].split(".")[:2]) for path in paths))


# Policies have the name of what they attach to.
_PORTAL = "portal"


def traffic_policy(change: Change) -> list[Verdict]:
    """Limits and timeouts: those of the client side are the listener's own, and a changed listener is a new one."""
    paths = [leaf.path for leaf in change.fields()]
    if change.op in ("delete", "replace"):
        of_portal = str((change.body.get("metadata") or {}).get("name")) == _PORTAL
        reason = "no client of the portal is limited" if of_portal else "long prompts and streams fail"
        return [verdict(change, Severity.REPLACED, "Envoy's defaults hold instead", reason)]
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "sets limits and timeouts", "new")]
    if change.kind in ("ClientTrafficPolicy", "EnvoyPatchPolicy"):
        return [_new_listener(change, paths)]
    return [verdict(change, Severity.LIVE, f"{_sections(paths)} changes", "for requests that begin from then on")]


# The front door's patches by name: what one does, and what is so and why that is felt while it is gone.
_PATCHES = {
    "front-door": (
        "closes the front door to requests without a key",
        ("the front door's filters go", "keys are checked all the same; what no engine should see is passed on"),
    ),
    "listed-models": (
        "gives Envoy each tenant's models and all aliases",
        ("no alias is known", "requests for one get 404, and lists of models are empty"),
    ),
    "openai-errors": (
        "gives errors OpenAI's form",
        ("errors are Envoy's own text", "clients of OpenAI's API cannot read them"),
    ),
}
_OTHER_PATCH = ("patches Envoy's configuration", ("a patch of Envoy goes", "what it did is not known here"))


def patch_policy(change: Change) -> list[Verdict]:
    """What the front door adds to Envoy: by name, because a patch may hold anything."""
    name = str((change.body.get("metadata") or {}).get("name", ""))
    if does := placed_filter(change):
        return _placed(change, does)
    does, (gone, felt) = _PATCHES.get(name, _OTHER_PATCH)
    if change.op == "create":
        return [verdict(change, Severity.LIVE, does, "new")]
    if change.op in ("delete", "replace"):
        return [verdict(change, Severity.REPLACED, gone, felt)]
    if not _patches_the_listener(change):
        return _changed_aliases(change) or [
            verdict(change, Severity.LIVE, "Envoy changes its routes", "for requests that begin from then on")
        ]
    return traffic_policy(change)


def placed_filter(change: Change) -> str | None:
    """What Envoy does by the one filter that a policy is there for; None of every other object."""
    if change.kind != "EnvoyPatchPolicy":
        return None
    operations = [patch.get("operation") or {} for patch in (change.body.get("spec") or {}).get("jsonPatches") or ()]
    values = [operation.get("value") for operation in operations]
    filters = {str(value.get("name")) for value in values if isinstance(value, Mapping)}
    name = str((change.body.get("metadata") or {}).get("name", ""))
    if name == CLIENT_POLICY:
        return "gives engines the client where tenants share turns"
    # The front door of an older program asks all of them.
    of_one = name.endswith("-picker") and any(asked.startswith(PICKER_FILTERS) for asked in filters)
    return f"asks the picker of {name.removesuffix('-picker')}" if of_one else None


def _placed(change: Change, does: str) -> list[Verdict]:
    what, reason = "Envoy replaces its listener", "streams older than the drain time are cut"
    if change.op in ("create", "delete"):
        then = ", too" if change.op == "create" else " no more"
        return [verdict(change, Severity.RESTARTS, what, f"it {does}{then}; {reason}")]
    return traffic_policy(change)


def _changed_aliases(change: Change) -> list[Verdict]:
    """Aliases of models that clients may be using, and that lead elsewhere from then on."""
    before, after = _aliases(change.before), _aliases(change.after)
    moved = [alias for alias, model in before.items() if after.get(alias, model) != model]
    verdicts = [
        verdict(
            change,
            Severity.REPLACED,
            f"another model answers under {alias}: {after[alias]} instead of {before[alias]}",
            "clients notice by the answers alone",
        )
        for alias in moved
    ]
    if gone := [alias for alias in before if alias not in after]:
        what, reason = f"no model is called {', '.join(gone)} any more", "requests for it get 404 from then on"
        verdicts.append(verdict(change, Severity.REPLACED, what, reason))
    return verdicts


def _aliases(policy: Mapping[str, Any]) -> dict[str, str]:
    """Alias -> model, out of the policy that patches the routes."""
    aliases: dict[str, str] = {}
    for patch in (policy.get("spec") or {}).get("jsonPatches") or ():
        value = (patch.get("operation") or {}).get("value")
        if isinstance(value, Mapping) and isinstance(script := value.get(MODEL_NAMES_FILTER), Mapping):
            models = (script.get("filter_context") or {}).get("models") or {}
            # Of a gatekeeper's site, a model's own name is among them.
            aliases |= {str(alias): str(model) for alias, model in models.items() if alias != model}
    return aliases


def _patches_the_listener(change: Change) -> bool:
    specs = [body.get("spec") or {} for body in (change.before, change.after)]
    kinds = {str(patch.get("type")) for spec in specs for patch in spec.get("jsonPatches") or ()}
    return any(not kind.endswith(".RouteConfiguration") for kind in kinds)


def route(change: Change) -> list[Verdict]:
    """The name that clients call."""
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "the model can be called", "new")]
    if change.op == "delete":
        return [verdict(change, Severity.REPLACED, "the model can no longer be called", "requests get 404")]
    if change.op == "replace":
        return [verdict(change, Severity.REPLACED, "the route is created again", "requests get 404 in between")]
    paths = ", ".join(dict.fromkeys(leaf.path for leaf in change.fields()))
    return [verdict(change, Severity.LIVE, "the route changes", f"{paths}, for requests that begin from then on")]


def pool(change: Change) -> list[Verdict]:
    """The replicas that a route leads to."""
    if change.op in ("delete", "replace"):
        return [verdict(change, Severity.REPLACED, "the pool goes", "its route leads nowhere until there is another")]
    return [verdict(change, Severity.LIVE, "made" if change.op == "create" else "changed in place", "no pod restarts")]
