"""How much each tenant may use: Envoy asks the limit service before a request, and reports afterwards what it used.

Counters are kept in one store beside the gateway. A tenant's limits are data that a script hands on with its requests,
so a thousand tenants with limits of their own are four rules of the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.addons.gateways import COUNTERS, LIMIT_SERVICE_PODS
from components.component import Component
from components.gateway.envoy_names import DECISIONS
from components.gateway.request_log import COUNTED, METERED
from components.namespace import NamespaceHandle
from components.network_policies import Peer, allow_ingress, peer
from components.objects import declare
from components.placing import Placing, placed, spread
from components.pod_security import CONTAINER_SECURITY, pod_security
from components.specs.limits import LIMITS, MOST_COUNTED, CountedUse, CountersSpec, limit_of, scope_of
from floor import namespaces
from floor.headers import CLIENT_HEADER, MODEL_HEADER, TENANT_HEADER
from floor.metadata import DISPOSABLE
from floor.stateful import VOLUME

PORT = 6379
_LABELS = {"app.kubernetes.io/name": COUNTERS}
_USER = 999
_DATA = "/data"

_USED = "llm_total_token"
# Few tokens of a prompt in JSON are shorter. No part counts the prompt of a stream that its client leaves.
_BYTES_OF_A_TOKEN = 4

# As with tiers, no name of a site is in here. A tenant without a limit gets the largest: a rule without one would fall
# back to its own. The metadata is where a gatekeeper's decision is, too: a listener that goes and the one that comes
# have the same routes.
_HAND_ON_LIMITS = f"""\
local units = {{{", ".join(f'{limit.key} = "{limit.unit.upper()}"' for limit in LIMITS)}}}
function envoy_on_request(request)
  local headers = request:headers()
  local client = headers:get("{CLIENT_HEADER}")
  local tenant = client and string.match(client, "^[^.]+")
  headers:remove("{TENANT_HEADER}")
  if not tenant then
    return
  end
  headers:add("{TENANT_HEADER}", tenant)
  local limits = request:filterContext():get(tenant)
  -- Envoy Gateway tries a script on a request whose context is text, and answers 500 everywhere if it fails.
  if type(limits) ~= "table" then
    limits = {{}}
  end
  local metadata = request:streamInfo():dynamicMetadata()
  for key, unit in pairs(units) do
    metadata:set("{DECISIONS}", key, {{requests_per_unit = limits[key] or {MOST_COUNTED}, unit = unit}})
  end
  local own = "keys." .. string.sub(client, #tenant + 2) .. "."
  for limit, most in pairs(limits) do
    local unit = units[string.match(limit, "[^.]+$")]
    if string.sub(limit, 1, #own) == own then
      metadata:set("{DECISIONS}", "key." .. string.sub(limit, #own + 1), {{requests_per_unit = most, unit = unit}})
    elseif string.find(limit, "models.", 1, true) == 1 then
      metadata:set("{DECISIONS}", limit, {{requests_per_unit = most, unit = unit}})
    end
  end
  local bytes = tonumber(headers:get("content-length")) or 0
  metadata:set("{DECISIONS}", "prompt", math.floor(bytes / {_BYTES_OF_A_TOKEN}))
end
"""

# The AI gateway counts a stream's tokens when it ends, and nothing if its client leaves before: until then, what has
# gone by is counted here, an event for a token.
_COUNT_STREAMS = f"""\
function envoy_on_response(response)
  local kind = response:headers():get("content-type")
  local own = response:streamInfo():dynamicMetadata():get("{DECISIONS}")
  if not own or not kind or not string.find(kind, "event-stream", 1, true) then
    return
  end
  local used, last = own["prompt"] or 0, nil
  for chunk in response:bodyChunks() do
    local metadata = response:streamInfo():dynamicMetadata()
    local counted = (metadata:get("{COUNTED}") or {{}})["{_USED}"]
    if counted ~= last then
      return
    end
    local _, events = string.gsub(chunk:getBytes(0, chunk:length()), "data:", "")
    used = used + events
    metadata:set("{COUNTED}", "{_USED}", used)
    last = used
  end
end
"""
# The same for a ledger, which bills by kind, and by this count where the AI gateway has none (front-door.lua.j2).
_METER_STREAMS = f"""\
local function note(metadata, where, prompt, answer)
  metadata:set(where, "llm_input_token", prompt)
  metadata:set(where, "llm_output_token", answer)
  metadata:set(where, "{_USED}", prompt + answer)
end
function envoy_on_response(response)
  local kind = response:headers():get("content-type")
  local own = response:streamInfo():dynamicMetadata():get("{DECISIONS}")
  if not own or not kind or not string.find(kind, "event-stream", 1, true) then
    return
  end
  local prompt, answer = own["prompt"] or 0, 0
  for chunk in response:bodyChunks() do
    local _, events = string.gsub(chunk:getBytes(0, chunk:length()), "data:%s*{{", "")
    answer = answer + events
    local metadata = response:streamInfo():dynamicMetadata()
    note(metadata, "{COUNTED}", prompt, answer)
    note(metadata, "{METERED}", prompt, answer)
  end
end
"""
_COUNT_PROMPT = f"""\
function envoy_on_request(request)
  local bytes = tonumber(request:headers():get("content-length")) or 0
  local metadata = request:streamInfo():dynamicMetadata()
  metadata:set("{DECISIONS}", "prompt", math.floor(bytes / {_BYTES_OF_A_TOKEN}))
end
"""


def limits_script(limits: Mapping[str, Mapping[str, int]], *, metered: bool = False) -> dict[str, Any]:
    """Script of an EnvoyExtensionPolicy that names each request's tenant and hands on its limits.

    limits: tenant -> key of each limit that it has -> most of it. metered: whether a ledger gets what streams used.
    """
    context = {tenant: dict(sorted(most.items())) for tenant, most in sorted(limits.items())}
    return {"type": "Inline", "inline": _HAND_ON_LIMITS + _count_streams(metered=metered), "filterContext": context}


def streams_script(*, metered: bool = False) -> dict[str, Any]:
    """Script of an EnvoyExtensionPolicy that counts streams, where a gatekeeper hands on each tenant's limits.

    metered: as of `limits_script`.
    """
    return {"type": "Inline", "inline": _count_streams(metered=metered)}


def metered_script() -> dict[str, Any]:
    """Script that counts streams for a ledger, where neither limits nor a gatekeeper know a prompt's length."""
    return {"type": "Inline", "inline": _COUNT_PROMPT + _count_streams(metered=True)}


def _count_streams(*, metered: bool) -> str:
    return _METER_STREAMS if metered else _COUNT_STREAMS


def rate_limit(limits: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """`rateLimit` of the Gateway's BackendTrafficPolicy: a rule for each sort of limit that any tenant has.

    A counter is shared by all routes, so a tenant's models draw on one. Where the script's metadata is missing, the
    rule's own number holds: the largest of any tenant. Behind these come rules for limits of keys, and for each model
    that is limited for itself: they refuse no one without metadata, as most have no such limit. The cost of a request
    in tokens is known when its answer ends; at its beginning it is refused if the counter is past the limit already.
    """
    given = [(limit, most) for of_tenant in limits.values() for limit, most in of_tenant.items()]
    scopes = {scope_of(limit) for limit, _ in given}
    of_tenant, of_key = [{"name": TENANT_HEADER, "type": "Distinct"}], [{"name": CLIENT_HEADER, "type": "Distinct"}]
    rules = [
        _rule(limit, of_tenant, limit.key, max(most for key, most in given if key == limit.key))
        for limit in LIMITS
        if ("", "", limit.key) in scopes
    ]
    in_keys = {key for scope, _, key in scopes if scope == "keys"}
    rules += [_rule(limit, of_key, f"key.{limit.key}", MOST_COUNTED) for limit in LIMITS if limit.key in in_keys]
    for model in sorted({name for scope, name, _ in scopes if scope == "models"}):
        of_model = [*of_tenant, {"name": MODEL_HEADER, "type": "Exact", "value": model}]
        rules += [
            _rule(limit, of_model, limit_of("models", model, limit.key), MOST_COUNTED)
            for limit in LIMITS
            if ("models", model, limit.key) in scopes
        ]
    return {"type": "Global", "global": {"rules": rules}}


def counters_address(namespace: str) -> str:
    """Host and port of the store of the counters."""
    return f"{COUNTERS}.{namespace}.svc:{PORT}"


def _rule(limit: CountedUse, headers: Sequence[Mapping[str, str]], key: str, most: int) -> dict[str, Any]:
    """key: of the metadata with a request's own number. most: without it."""
    rule: dict[str, Any] = {
        "clientSelectors": [{"headers": [dict(header) for header in headers]}],
        "shared": True,
        "limit": {"requests": most, "unit": limit.unit, "fromMetadata": {"namespace": DECISIONS, "key": key}},
    }
    if limit.counts_tokens:
        used = {"namespace": COUNTED, "key": _USED}
        rule["cost"] = {
            "request": {"from": "Number", "number": 0},
            "response": {"from": "Metadata", "metadata": used},
        }
    return rule


def limit_service(namespace: str, dns_domain: str, spec: CountersSpec, image: str) -> dict[str, Any]:
    """Fields of Envoy Gateway's configuration by which it starts the limit service, with counters in this namespace.

    Its own timeout of 20 ms would be a refusal whenever a node is busy; nothing waits longer in a service that answers.
    """
    return {
        "provider": {
            "type": "Kubernetes",
            "kubernetes": {
                "rateLimitDeployment": {
                    "replicas": 2,
                    "container": {"image": image},
                    "pod": spread(LIMIT_SERVICE_PODS),
                },
                "rateLimitPDB": {"maxUnavailable": 1},
            },
        },
        "rateLimit": {
            "backend": {"type": "Redis", "redis": {"url": f"{COUNTERS}.{namespace}.svc.{dns_domain}:{PORT}"}},
            "timeout": "250ms",
            "failClosed": spec.when_away == "refuse",
        },
    }


def counters(
    namespace: str,
    spec: CountersSpec,
    *,
    image: str,
    storage_class: str,
    placing: Placing,
    readers: Sequence[Peer] = (),
) -> list[dict[str, Any]]:
    """The store of the counters: each change is on its volume within a second, so that a restart refills no one.

    placing: nodes that can mount a volume of the class. readers: pods that count in it, beside the limit service.
    """
    server = [
        "valkey-server",
        *("--dir", _DATA, "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        # Full memory counts as counters that are away, and forgets none that still holds.
        *("--maxmemory", "384mb", "--maxmemory-policy", "noeviction"),
        # Who reaches it is the network policy's.
        *("--protected-mode", "no"),
    ]
    probe = {"tcpSocket": {"port": "store"}, "periodSeconds": 5, "timeoutSeconds": 3}
    pod = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": pod_security(_USER),
        "containers": [
            {
                "name": COUNTERS,
                "image": image,
                "command": server,
                "ports": [{"name": "store", "containerPort": PORT, "protocol": "TCP"}],
                "readinessProbe": probe,
                "livenessProbe": {**probe, "failureThreshold": 6},
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
                "securityContext": dict(CONTAINER_SECURITY),
                "volumeMounts": [{"name": "counters", "mountPath": _DATA}],
            }
        ],
        **placed(placing),
    }
    # Of another class it is another volume; the fields of a claim by template could not change.
    claim = f"{COUNTERS}-{storage_class}"
    pod["volumes"] = [{"name": "counters", "persistentVolumeClaim": {"claimName": claim}}]
    # Without it every window begins again, which is no loss that a site must be kept from.
    disposable = {"annotations": {DISPOSABLE: "true"}}
    named = {"name": COUNTERS, "namespace": namespace, "labels": _LABELS}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**named, "name": claim, **disposable},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": storage_class,
                "resources": {"requests": {"storage": f"{spec.volume_gib}Gi"}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": named,
            "spec": {"selector": _LABELS, "ports": [{"name": "store", "port": PORT, "targetPort": "store"}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {**named, **disposable},
            "spec": {
                "serviceName": COUNTERS,
                "replicas": 1,
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": pod},
            },
        },
        allow_ingress(
            COUNTERS,
            namespace,
            _LABELS,
            [([peer(LIMIT_SERVICE_PODS, namespaces.ENVOY_GATEWAY), *readers], [PORT])],
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class LimitCountersArgs:
    """The store of the counters, and where its volume comes from."""

    spec: CountersSpec
    namespace: NamespaceHandle
    """Of the gateway."""
    image: str
    storage_class: str
    placing: Placing
    """Nodes that can mount a volume of the class."""
    readers: Sequence[Peer]
    """Pods that count in it, beside the limit service."""
    needs: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class LimitCountersHandle:
    """Counters that answer."""

    ready: list[pulumi.Resource]


class LimitCounters(Component, token="limits:LimitCounters"):
    """Service, store and who reaches it."""

    def __init__(self, name: str, args: LimitCountersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        bodies = counters(
            args.namespace.name,
            args.spec,
            image=args.image,
            storage_class=args.storage_class,
            placing=args.placing,
            readers=args.readers,
        )
        needs = [args.namespace.ready, *args.needs]
        volume, service, store, policy = bodies
        claim = self.stateful(
            "volume",
            VOLUME,
            lambda logical_name, options: declare(logical_name, volume, options),
            keeping="disposable",
            depends_on=needs,
        )
        made = [
            self.child("service", service, depends_on=needs),
            self.child("store", store, depends_on=[*needs, claim]),
            self.child("network-policy", policy, depends_on=needs),
        ]
        self.handle = LimitCountersHandle(ready=list(made))
        self.finish(service=COUNTERS)
