"""Whether models, gateway and tenants go together: GPUs, times, and who may call what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.gateway import GatewaySpec
from components.specs.model import ModelSpec
from components.specs.model_server import ModelServerSpec
from floor import gpu_nodes
from floor.problems import Path, Problem, shown
from floor.spec import MOST_SECONDS
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS, USUAL_GPU
from stacks.site.demand import LoadSpec
from stacks.site.reading.levels import MACHINES, machines_of
from stacks.site.reading.raw import at, items, mapping, number

_FAMILY = str(ModelServerSpec.model_fields["gpu_family"].default)
_STREAM_S = int(ModelServerSpec.model_fields["longest_stream_s"].default)
_REQUEST_S = int(ModelSpec.model_fields["request_timeout_s"].default)
_STORAGE_CLASS = "longhorn"
_IDLE_S = int(GatewaySpec.model_fields["stream_idle_timeout_s"].default)
_COUNTS = (
    ("server", "typical_request_tokens"),
    ("load", "prompt_tokens", "p50"),
    ("load", "answer_tokens", "p50"),
    ("overrides", "max_model_len", "value"),
)

_P95 = {key: LoadSpec.model_fields[key].default.p95 for key in ("prompt_tokens", "answer_tokens")}
_WEIGHTS = ("prefix_weight", "queue_weight", "kv_weight")
# Envoy Gateway 1.9.1 (internal/xds/bootstrap, internal/cmd/envoy) and the AI gateway's processor listen there.
ENVOYS_OWN = {
    1064: "the AI gateway's processor",
    19000: "Envoy's administration",
    19001: "Envoy's metrics",
    19002: "the shutdown manager",
    19003: "Envoy's readiness",
}


# Pods that a kubelet takes by default (its maxPods).
_PODS_OF_A_NODE = 110


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything that does not go together, as far as the values can be understood."""
    for name, model in mapping(values.get("models")).items():
        if isinstance(model, Mapping):
            yield from _family(values, str(name), model)
            yield from _times(values, str(name), model)
            yield from _simulated(values, str(name), model)
            yield from _weights(str(name), model)
            yield from _tokens(str(name), model)
            yield from _longest(str(name), model)
            yield from _unwritten(str(name), model)
            yield from _step(str(name), model)
            yield from hits(("models", str(name)), model)
    yield from _board(values)
    yield from _port(values)
    yield from _envoys(values)


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What works, and is not wise."""
    called = {model for tenant in mapping(values.get("tenants")).values() for model in items(at(tenant, "models"))}
    for name in mapping(values.get("models")):
        if name not in called:
            yield Problem(
                path=("models", str(name)),
                what="may be called by no tenant, and holds its GPUs",
                fix=f"add {name} to the models of a tenant, or take the model out",
            )
    yield from _tiers_without_effect(values)
    machines = mapping(at(values, *MACHINES))
    own = [key for machine in machines_of(machines) for key in ("volumes", "raw_volumes") if machine.keys.get(key)]
    storage = mapping(values.get("storage")).get("storage_class", _STORAGE_CLASS)
    lacking = machines and storage == _STORAGE_CLASS and not own and not at(machines, "hgx", "storage")
    # A trial may do without.
    if lacking and values.get("purpose", "production") == "production":
        yield Problem(
            path=("storage", "storage_class"),
            what="no machine has a disk for Longhorn, so it would fill the system disks or offer no volume",
            got=shown(storage),
            fix="add cluster.machines.hgx.storage with its disks and set storage.system to longhorn, or name the class "
            "of another storage",
        )
    gateway = mapping(values.get("gateway"))
    if gateway.get("port") == 80 and gateway.get("certificate_secret"):
        yield Problem(
            path=("gateway", "port"),
            what="serves HTTPS on port 80, where clients expect plain HTTP",
            got="80",
            fix="write port: 443",
        )


def _tiers_without_effect(values: Mapping[str, Any]) -> Iterator[Problem]:
    """A picker refuses requests below 0, and requests to rank go around it."""
    for name, tenant in mapping(values.get("tenants")).items():
        priority = number(at(values, "tiers", str(at(tenant, "tier")), "priority"))
        ranks = [
            str(model)
            for model in items(at(tenant, "models"))
            if (entry := str(at(values, "models", str(model), "catalogue"))) in catalogue.names()
            and catalogue.load(entry).task == "rerank"
        ]
        if priority is not None and priority < 0 and ranks:
            yield Problem(
                path=("tenants", str(name), "tier"),
                what=f"has no effect on requests to rank, which {', '.join(ranks)} gets without a picker: they "
                "are not refused before those of others",
                got=shown(at(tenant, "tier")),
                fix=f"count its requests in the load of {' and '.join(ranks)}, which a tenant without that tier calls",
            )


def _family(values: Mapping[str, Any], name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    """Replicas look for nodes with this label, which NVIDIA's GPU feature discovery sets by the GPU's architecture."""
    gpu = at(values, "cluster", "gpu") or USUAL_GPU
    family = at(model, "server", "gpu_family") or _FAMILY
    if not isinstance(gpu, str) or gpu not in GPUS:
        return
    there = GPUS[gpu].family
    if not there:
        yield Problem(
            path=("cluster", "gpu"),
            what=f"is made by {GPUS[gpu].maker.upper()}, whose nodes lack the {gpu_nodes.RESOURCE} that replicas take",
            got=shown(gpu),
            allowed=", ".join(sorted(name for name, kind in GPUS.items() if kind.family)),
            fix="name the kind of NVIDIA GPU that the nodes have",
        )
    elif isinstance(family, str) and family != there:
        yield Problem(
            path=("models", name, "server", "gpu_family"),
            what=f"is not the family of cluster.gpu, {gpu}, so no node would take a replica",
            got=shown(family),
            allowed=there,
            fix=f"write {there}, or correct cluster.gpu",
        )


def _board(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Machines of role hgx get the fabric manager of NVSwitches, and an image for amd64."""
    gpu = at(values, "cluster", "gpu") or USUAL_GPU
    nodes = [machine.name for machine in machines_of(at(values, *MACHINES)) if machine.role == "hgx"]
    if not nodes or not isinstance(gpu, str) or gpu not in GPUS or not GPUS[gpu].family or GPUS[gpu].board == "hgx":
        return
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    yield Problem(
        path=("cluster", "gpu"),
        what=f"is on no HGX board, which role hgx of {nodes[0]}{more} means",
        got=shown(gpu),
        allowed=", ".join(sorted(name for name, kind in GPUS.items() if kind.board == "hgx")),
        fix="name the kind that the machines have; for others, make the cluster yourself and give cluster.kubeconfig",
    )


def _times(values: Mapping[str, Any], name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    """A request, its first token and its stream each end before what cuts them off."""
    request_s = number(model.get("request_timeout_s", _REQUEST_S))
    stream_s = number(mapping(model.get("server")).get("longest_stream_s", _STREAM_S))
    idle_s = number(mapping(values.get("gateway")).get("stream_idle_timeout_s", _IDLE_S))
    first_key, first_ms = _loosest(model, "ttft")
    if request_s is not None and stream_s is not None and request_s < stream_s:
        yield Problem(
            path=("models", name, "request_timeout_s"),
            what=f"is shorter than a stream may be, {_plain(stream_s)} s (server.longest_stream_s)",
            got=_plain(request_s),
            fix=f"write {_plain(stream_s)} or more",
        )
    between_key, between_ms = _loosest(model, "itl")
    if idle_s is not None and between_ms is not None and idle_s * 1000 < between_ms <= MOST_SECONDS * 1000:
        yield Problem(
            path=("gateway", "stream_idle_timeout_s"),
            what=f"a stream without a byte is cut between two tokens, as models.{name}.slo.{between_key} allows them, "
            f"{_plain(between_ms)} ms",
            got=_plain(idle_s),
            fix=f"write {_plain(-(-between_ms // 1000))} or more, or promise tokens sooner",
        )
    # A target that no timeout can outlast is refused by itself.
    if first_ms is None or first_ms > MOST_SECONDS * 1000:
        return
    for path, limit_s, what in (
        (("gateway", "stream_idle_timeout_s"), idle_s, "a stream without a byte is cut"),
        (("models", name, "request_timeout_s"), request_s, "a request is cut"),
    ):
        if limit_s is not None and limit_s * 1000 < first_ms:
            yield Problem(
                path=path,
                what=f"{what} before the first token that models.{name}.slo.{first_key} allows, {_plain(first_ms)} ms",
                got=_plain(limit_s),
                fix=f"write {_plain(-(-first_ms // 1000))} or more, or promise the first token sooner",
            )


def _loosest(model: Mapping[str, Any], metric: str) -> tuple[str, float | None]:
    """The target of the highest percentile that a metric has, which is the longest time that is allowed."""
    for percent in (99, 95, 50):
        key = f"{metric}_p{percent}_ms"
        if (target_ms := number(at(model, "slo", key))) is not None:
            return key, target_ms
    return "", None


def _plain(number: float) -> str:
    """A number as a site would write it, without an exponent up to a thousand billions."""
    return f"{number:.15g}"


def _weights(name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    pool = mapping(model.get("pool"))
    if all(pool.get(key) == 0 for key in _WEIGHTS):
        yield Problem(
            path=("models", name, "pool"),
            what="gives every weight as 0, so the picker would know no better replica",
            fix=f"give {', '.join(_WEIGHTS[:-1])} or {_WEIGHTS[-1]} a value above 0, or leave them out",
        )


def _tokens(name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    """No request is longer than the context that the model was made for."""
    entry = model.get("catalogue")
    if entry not in catalogue.names():
        return
    most = catalogue.load(str(entry)).max_context_tokens
    for keys in _COUNTS:
        tokens = number(at(model, *keys))
        if keys[1:2] == ("answer_tokens",) and catalogue.load(str(entry)).task != "generate":
            continue
        if tokens is not None and tokens > most:
            yield Problem(
                path=("models", name, *keys),
                what=f"is more than the context of {entry}",
                got=_plain(tokens),
                allowed=f"at most {most}",
                fix=f"write {most} or less",
            )


def _longest(name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    """The context holds prompt and answer of 19 requests in 20."""
    entry, load = model.get("catalogue"), model.get("load")
    if not isinstance(load, Mapping) or entry not in catalogue.names():
        return
    known = catalogue.load(str(entry))
    p95 = {key: number(at(load, key, "p95")) or _P95[key] for key in _P95}
    p50 = {key: number(at(load, key, "p50")) or 0 for key in _P95}
    if known.task != "generate":
        p95["answer_tokens"] = 1
    most = known.max_context_tokens
    # A median beyond the context, or beyond its own p95, is a problem of its own.
    if not most < sum(p95.values()) < float("inf") or any(p50[key] > min(most, p95[key]) for key in _P95):
        return
    longer, shorter = sorted(p95, key=lambda key: -p95[key])
    left = most - p95[shorter]
    if longer not in load:
        yield Problem(
            path=("models", name, "load"),
            what=f"has no {longer}, whose default, a p95 of {_plain(p95[longer])}, is more than the context of "
            f"{entry}, {most}",
            fix=f"add {longer} with a p95 of {_plain(left)} or less",
        )
        return
    fix = f"write {_plain(left)} or less" + (", and p50 as well" if p50[longer] > left else "")
    yield Problem(
        path=("models", name, "load", longer, "p95"),
        what=f"is, with {_plain(p95[shorter])} of {shorter}, more than the context of {entry}, {most}",
        got=_plain(p95[longer]),
        allowed=f"at most {_plain(left)}" if left > 0 else "",
        fix=fix if left > 0 else f"lower both, to {most} together",
    )


def _unwritten(name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys about tokens that the model does not write would have no effect, and no message."""
    entry = model.get("catalogue")
    if entry not in catalogue.names() or catalogue.load(str(entry)).task == "generate":
        return
    for keys, fix in (
        (("load", "answer_tokens"), "take it out"),
        *(
            (("slo", f"{metric}_p{percent}_ms"), f"take it out, or promise ttft_p{percent}_ms, the whole answer's time")
            for metric in ("itl", "tpot")
            for percent in (50, 95, 99)
        ),
    ):
        value = at(model, *keys)
        if value is not None:
            yield Problem(
                path=("models", name, *keys),
                what=f"is of tokens, and {entry} writes no tokens: its task is {catalogue.load(str(entry)).task}",
                got=shown(value),
                fix=fix,
            )


def _step(name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    """The override would win without a word."""
    here = number(at(model, "server", "max_num_batched_tokens"))
    there = number(at(model, "overrides", "max_num_batched_tokens", "value"))
    if here is not None and there is not None and here != there:
        yield Problem(
            path=("models", name, "server", "max_num_batched_tokens"),
            what=f"is not the figure which overrides.max_num_batched_tokens sets to {_plain(there)}",
            got=_plain(here),
            fix="take one of the two out",
        )


def hits(path: Path, model: Mapping[str, Any]) -> Iterator[Problem]:
    """vLLM computes at least the last token of each prompt, and a prompt's first turn is in no cache."""
    share = number(at(model, "load", "prefix_hit"))
    common = number(at(model, "load", "common_prefix"))
    if common and common > (share or 0):
        yield Problem(
            path=(*path, "load", "common_prefix"),
            what="is more than prefix_hit, of which it is a part",
            got=_plain(common),
            allowed=f"at most {_plain(share or 0)}",
            fix="count it in prefix_hit, too: what one cache for all tenants would find",
        )
    if share == 1:
        yield Problem(
            path=(*path, "load", "prefix_hit"),
            what="counts every prompt as computed before, so prefill would cost nothing",
            got=_plain(share),
            allowed="0 or more, below 1",
            fix="write what was measured, or 0",
        )
    elif share and not _keeps_prompts(model.get("catalogue")):
        yield Problem(
            path=(*path, "load", "prefix_hit"),
            what=f"is of cached prompts, and {model['catalogue']} keeps none: each token of it looks ahead too",
            got=_plain(share),
            fix="take it out",
        )


def _keeps_prompts(entry: object) -> bool:
    """Whether a prompt's beginning is computed as if nothing followed, so that another one can use it."""
    if entry not in catalogue.names():
        return True
    return not any(isinstance(mixer, catalogue.Encoder) for mixer in catalogue.load(str(entry)).mixers.values())


def _port(values: Mapping[str, Any]) -> Iterator[Problem]:
    for balancer in ("gateway", "portal"):
        port = at(values, balancer, "port")
        if isinstance(port, int) and port in ENVOYS_OWN:
            yield Problem(
                path=(balancer, "port"),
                what=f"is taken in each Envoy pod, by {ENVOYS_OWN[port]}",
                got=str(port),
                fix="write 443, or another port",
            )


def _envoys(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Nodes have room for so many pods, whatever these take."""
    machines = at(values, *MACHINES)
    replicas = number(at(values, "gateway", "replicas"))
    if not isinstance(machines, Mapping) or replicas is None:
        return
    takes = [
        machine
        for machine in machines_of(machines)
        if machine.role == "worker" or machine.keys.get("schedulable") is True
    ]
    most = sum(
        max(_PODS_OF_A_NODE, int(number(mapping(machine.keys.get("kubelet_config")).get("maxPods")) or 0))
        for machine in takes
    )
    if takes and replicas > most:
        yield Problem(
            path=("gateway", "replicas"),
            what=f"is more pods than the {len(takes)} nodes that take pods without GPUs have room for",
            got=_plain(replicas),
            allowed=f"at most {most}",
            fix=f"write {GatewaySpec.model_fields['replicas'].default}, or add nodes of role worker",
        )


def _simulated(values: Mapping[str, Any], name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    if at(model, "server", "engine") == "simulator" and values.get("purpose", "production") == "production":
        yield Problem(
            path=("models", name, "server", "engine"),
            what="answers with random words, and the purpose of this site is production",
            got="'simulator'",
            allowed="vllm; simulator where purpose is trial",
            fix="write vllm, or `purpose: trial` at the top of the site",
        )
