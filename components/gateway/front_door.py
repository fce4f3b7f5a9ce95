"""What every request passes first: the key check, the body limit, and the script that refuses what no engine may see.

Envoy Gateway makes the first two out of its policies, off by default and on for each route. Here they are on by default
and know no key, so a policy that is gone or refused leaves nothing but 401.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pulumi

from components.component import Component
from components.gateway.connections import Connection, asked, cluster
from components.gateway.door_scripts import REQUEST_METADATA, model_names_script, script
from components.gateway.envoy_names import (
    BODY_LIMIT_FILTER,
    CHECKED,
    DECISIONS,
    KEY_FILTER,
    MODEL_NAMES_FILTER,
    http_manager,
)
from components.gateway.envoy_patches import (
    BEFORE_ROUTING,
    CLUSTER,
    LISTENER,
    ROUTES,
    patch,
    patch_policy,
    where_filter,
)
from components.gateway.pickers import Picker, client_policy, picker_policy, shares_by_tenant
from components.gateway.request_log import PROMPT_ID
from components.namespace import NamespaceHandle
from floor.metadata import PROTECTED

# The AI gateway puts its processor before the first filter whose name it knows, so this one must not be like those.
_SCRIPT = "inference-platform.front-door"
_GATEKEEPER = "inference-platform.gatekeeper"
_BODIES = "inference-platform.bodies"
_NO_KEY_CHECK = "inference-platform.no-key-check"
# The method, for the script's work on the answer.
_METHOD_FILTER = "inference-platform.method"
_TYPE = "type.googleapis.com/envoy."
# The endpoint picker takes no larger message.
_MOST_BYTES = 4 * 2**20
# Envoy's default of 100 is below what proxies and tracing add to one another.
_MOST_HEADERS = 200
# Far beyond a decision, which is a look into a table, and below any client's patience.
_DECISION_S = 5


def first_filters(
    gatekeeper: Connection | None = None,
    *,
    metered: bool = False,
    revisions: bool = False,
    adapters: bool = False,
    prompts: bool = False,
    overflows: bool = False,
    ranks_charged: bool = False,
) -> list[dict[str, Any]]:
    """The filters in front of all others, in their order; the AI gateway's processor goes before the last of them.

    That one leaves nothing of an alias to those who decide by the model: routes, tenants' lists, tiers and limits.
    gatekeeper: who decides about callers; None for Envoy itself, out of the keys that it has. prompts: whether it has
    prompts of tenants, whose names the log gets. overflows: whether it sends requests to another model than theirs.
    ranks_charged: whether tokens count, and a model ranks documents.
    """
    method = {"metadata_namespace": REQUEST_METADATA, "key": "method"}
    decided = gatekeeper is not None
    own = script(decided=decided, metered=metered, overflows=overflows, ranks_charged=ranks_charged)
    names = model_names_script(decided=decided, revisions=revisions, adapters=adapters)
    return [
        _filter(
            _METHOD_FILTER,
            "header_to_metadata.v3.Config",
            {"request_rules": [{"header": ":method", "on_header_present": method}]},
        ),
        _filter(_GATEKEEPER, "ext_authz.v3.ExtAuthz", _asking_who(gatekeeper))
        if gatekeeper
        else _filter(KEY_FILTER, "api_key_auth.v3.ApiKeyAuth", {"key_sources": [{"header": "Authorization"}]}),
        _filter(BODY_LIMIT_FILTER, "buffer.v3.Buffer", {"max_request_bytes": _MOST_BYTES}),
        _filter(_SCRIPT, "lua.v3.Lua", {"default_source_code": {"inline_string": own}}),
        *([_handing_bodies(gatekeeper, prompts=prompts)] if gatekeeper else []),
        _filter(
            MODEL_NAMES_FILTER,
            "lua.v3.Lua",
            {"default_source_code": {"inline_string": names}},
        ),
    ]


def _asking_who(gatekeeper: Connection) -> dict[str, Any]:
    """Settings of the filter that asks the gatekeeper: without an answer, no request passes."""
    read = ("authorization", "x-api-key")
    return {
        "transport_api_version": "V3",
        "grpc_service": {**asked(gatekeeper), "timeout": f"{_DECISION_S}s"},
        "status_on_error": {"code": "ServiceUnavailable"},
        "allowed_headers": {"patterns": [{"exact": header} for header in read]},
    }


def _handing_bodies(gatekeeper: Connection, *, prompts: bool) -> dict[str, Any]:
    """The filter that gives each body to the gatekeeper, in front of all that read it.

    A request whose body was not read is refused by the script behind the AI gateway, which misses the mark in its
    metadata. The filter itself lets it pass, as what it lets pass goes on, too, when a gatekeeper dies: it stays
    connected for as long as a counted request is under way, for which it asks for trailers. Headers go on at once, up
    to the AI gateway, which waits for the body.

    The tenant is named before the body, as bodies of each wait for one another (services/gatekeeper/turns.go).
    """
    tenant = {"key": "tenant", "value": f"%DYNAMIC_METADATA({DECISIONS}:body:tenant)%"}
    settings = {
        "grpc_service": {**asked(gatekeeper), "initial_metadata": [tenant]},
        "failure_mode_allow": True,
        "processing_mode": {
            "request_header_mode": "SKIP",
            "request_body_mode": "BUFFERED",
            "request_trailer_mode": "SKIP",
            "response_header_mode": "SKIP",
            "response_body_mode": "NONE",
            "response_trailer_mode": "SEND",
        },
        "message_timeout": f"{_DECISION_S}s",
        "metadata_options": {
            "forwarding_namespaces": {"untyped": [DECISIONS]},
            "receiving_namespaces": {"untyped": [CHECKED, *([PROMPT_ID[0]] if prompts else [])]},
        },
    }
    return _filter(_BODIES, "ext_proc.v3.ExternalProcessor", settings)


def front_door(
    namespace: str,
    gateway: Mapping[str, str],
    *,
    listener: str,
    port: int,
    tls: bool,
    gatekeeper: Connection | None = None,
    decided: bool = False,
    shared: bool = False,
    metered: bool = False,
    revisions: bool = False,
    adapters: bool = False,
    prompts: bool = False,
    overflows: bool = False,
    ranks_charged: bool = False,
) -> dict[str, Any]:
    """EnvoyPatchPolicy that puts these filters into the listener.

    listener: `NAMESPACE/GATEWAY/LISTENER`, as Envoy Gateway names listener and routes.
    gatekeeper, decided: how Envoy reaches one, and whether it is asked. Connections that are older than a change may
    still ask it. port: where the Service leads. Without this policy the listener is at another one, so no client
    reaches it. shared: whether pickers queue requests, and tenants share their turns. revisions: whether any model
    has a further one. adapters: whether any model has one. prompts, overflows, ranks_charged: as of `first_filters`.

    Keys are on routes alone: a changed listener is replaced, and what it carries is closed after its drain time.
    """
    manager = f"/{http_manager(tls=tls)}"
    # Pickers' own filters come behind it (picker_policy), and what takes the tenant away again (client_policy).
    before_pickers = [shares_by_tenant()] if shared else []
    patches = [
        *(_no_key_check(listener, manager) if decided else [_removed(listener, KEY_FILTER)]),
        _removed(listener, BODY_LIMIT_FILTER),
        *(
            patch(LISTENER, listener, op="add", path=f"{manager}/http_filters/{place}", value=body)
            for place, body in enumerate(
                first_filters(
                    gatekeeper if decided else None,
                    metered=metered,
                    revisions=revisions,
                    adapters=adapters,
                    prompts=prompts,
                    overflows=overflows,
                    ranks_charged=ranks_charged,
                )
            )
        ),
        *([patch(CLUSTER, gatekeeper.name, op="add", path="", value=cluster(gatekeeper))] if gatekeeper else []),
        *(patch(LISTENER, listener, op="add", jsonPath=BEFORE_ROUTING, value=body) for body in before_pickers),
        patch(
            LISTENER,
            listener,
            op="add",
            path=f"{manager}/common_http_protocol_options/max_headers_count",
            value=_MOST_HEADERS,
        ),
        patch(LISTENER, listener, op="replace", path="/address/socket_address/port_value", value=port),
    ]
    return patch_policy("front-door", namespace, gateway, patches, labels=PROTECTED)


def _removed(listener: str, name: str) -> dict[str, Any]:
    return patch(LISTENER, listener, op="remove", jsonPath=where_filter(name))


def _no_key_check(listener: str, manager: str) -> list[dict[str, Any]]:
    """Leaves Envoy Gateway's key check off, which is there as long as a policy of it is: on a site that has just begun
    to ask a gatekeeper.

    Under another name, no route switches it on. There is always one to rename, as a patch that finds nothing is an
    error.
    """
    settings = {"@type": f"{_TYPE}extensions.filters.http.api_key_auth.v3.ApiKeyAuth"}
    checking = {"name": KEY_FILTER, "typed_config": settings, "disabled": True}
    return [
        patch(LISTENER, listener, op="add", path=f"{manager}/http_filters/0", value=checking),
        patch(LISTENER, listener, op="replace", jsonPath=where_filter(KEY_FILTER), path="/name", value=_NO_KEY_CHECK),
    ]


def listed_models(
    namespace: str,
    gateway: Mapping[str, str],
    *,
    listener: str,
    model_lists: Mapping[str, str],
    names: Mapping[str, str],
    adapters: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """EnvoyPatchPolicy that gives the routes each tenant's body of GET /v1/models, and the models behind aliases.

    It changes no listener. Where a gatekeeper decides, there are no lists, and a model is an alias of itself. adapters:
    those among the names -> tenants that may call each.
    """
    scripts: dict[str, dict[str, Any]] = {
        name: {
            "@type": f"{_TYPE}extensions.filters.http.lua.v3.LuaPerRoute",
            "filter_context": {"models": dict(sorted(models.items()))},
        }
        for name, models in ((_SCRIPT, model_lists), (MODEL_NAMES_FILTER, names))
    }
    if adapters:
        may = {name: dict.fromkeys(tenants, True) for name, tenants in sorted(adapters.items())}
        scripts[MODEL_NAMES_FILTER]["filter_context"]["adapters"] = may
    scripted = patch(ROUTES, listener, op="add", path="/typed_per_filter_config", value=scripts)
    return patch_policy("listed-models", namespace, gateway, [scripted], labels=PROTECTED)


def _filter(name: str, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "typed_config": {"@type": f"{_TYPE}extensions.filters.http.{kind}", **settings}}


@dataclass(frozen=True, kw_only=True)
class FrontDoorArgs:
    """Which models each tenant sees, whose pickers are asked, and the gateway that it is the door of."""

    model_lists: Mapping[str, str]
    names: Mapping[str, str]
    """Alias or adapter -> model; where a gatekeeper decides, every model's own name too."""
    adapters: Mapping[str, Sequence[str]]
    """Adapter -> tenants that may call it."""
    pickers: Sequence[Picker]
    namespace: NamespaceHandle
    target: dict[str, str]
    listener: str
    port: int
    """Where the listener has to be for the Service to lead there."""
    tls: bool
    gatekeeper: Connection | None
    """How Envoy reaches the gatekeeper, where one runs."""
    decided: bool
    """Whether it decides about callers; else Envoy itself does, out of the keys that it has."""
    shared: bool
    """Whether pickers queue requests, and tenants share their turns."""
    metered: bool
    """Whether a ledger gets what streams used."""
    revisions: bool
    """Whether any model has a second revision."""
    prompts: bool
    """Whether the gatekeeper has prompts of tenants, whose names the log gets."""
    overflows: bool
    """Whether it sends requests to another model than theirs."""
    ranks_charged: bool
    """Whether tokens count, and a model ranks documents."""
    needs: list[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class FrontDoorHandle:
    """The door's policies; open the listener only after `ready`."""

    ready: list[pulumi.Resource]
    pickers: Mapping[str, pulumi.Resource]
    """Pool -> what has Envoy ask its picker: before its route is open, and until nothing of the pool is left."""


class FrontDoor(Component, token="front_door:FrontDoor"):
    """The policies that deny by default and answer what no engine needs to."""

    def __init__(self, name: str, args: FrontDoorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        space = args.namespace.name
        filters = front_door(
            space,
            args.target,
            listener=args.listener,
            port=args.port,
            tls=args.tls,
            gatekeeper=args.gatekeeper,
            decided=args.decided,
            shared=args.shared,
            metered=args.metered,
            revisions=args.revisions,
            adapters=bool(args.adapters),
            prompts=args.prompts,
            overflows=args.overflows,
            ranks_charged=args.ranks_charged,
        )
        lists = listed_models(
            space,
            args.target,
            listener=args.listener,
            model_lists=args.model_lists,
            names=args.names,
            adapters=args.adapters,
        )
        needs = [args.namespace.ready, *args.needs]
        # There before a tenant's name is, and for as long. No picker's policy changes with it: one that finds no place
        # for its filter leaves the listener without.
        again = [client_policy(space, args.target, listener=args.listener)] if args.shared else []
        behind = [self.child("client-again", body, depends_on=needs) for body in again]
        door = self.child("filters", filters, depends_on=[*needs, *behind])
        pickers = {
            picker.pool: self.child(
                f"{picker.pool}-picker",
                picker_policy(space, args.target, listener=args.listener, picker=picker),
                depends_on=[door],
            )
            for picker in args.pickers
        }
        listed = self.child("lists", lists, depends_on=needs)
        self.handle = FrontDoorHandle(ready=[door, *pickers.values(), listed], pickers=pickers)
        self.finish(name=name)
