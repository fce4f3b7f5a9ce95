"""What a site's declared load takes of its proxies' processors: Envoy, and the AI gateway's processor beside it.

A streamed answer is most of it: each token is an event, which Envoy takes from the replica, hands to the processor that
counts tokens, and writes to the client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from components.specs.gateway import MOST_PROXY_CORES
from stacks.plan.infra_nodes import left_out, lost_without_room, nodes_for, pods_of, proxy_cores
from stacks.plan.models import ModelPlan, declared_loads
from stacks.proof.demand import Load
from stacks.proof.figures import shown
from stacks.site.model import SiteConfig

# Of a prompt in JSON, as texts have them; estimated.
_BYTES_PER_TOKEN = 4
# Proxies, as many as the site's and more, that are tried.
_TRIED = 9
# Between which factors another processor's times lie; estimated.
_FASTER, _SLOWER = 0.5, 2.0


@dataclass(frozen=True, kw_only=True)
class ProxyTime:
    """CPU seconds that a request takes in a proxy's pod.

    Measured on the cores of an AMD EPYC (benchmarks/gateway_cpu.py, benchmarks/results/gateway_cpu.json).
    """

    request_s: float
    prompt_kib_s: float
    token_s: float
    """For each token of an answer, streamed."""

    def of(self, prompt_tokens: float, answer_tokens: float) -> float:
        """A request with so many tokens."""
        kib = prompt_tokens * _BYTES_PER_TOKEN / 1024
        return self.request_s + kib * self.prompt_kib_s + answer_tokens * self.token_s


BY_KEYS = ProxyTime(request_s=1.04e-3, prompt_kib_s=41.9e-6, token_s=134e-6)
"""Where Envoy itself compares keys, and no tenant has a limit."""
DECIDED = ProxyTime(request_s=2.42e-3, prompt_kib_s=46.1e-6, token_s=141e-6)
"""With a gatekeeper, and limits."""


@dataclass(frozen=True, kw_only=True)
class GatewayLoad:
    """Requests of all models, and the cores of all proxies together that they take."""

    requests_per_s: float
    tokens_per_s: float
    """Of answers."""
    cores: float


def taken_by(time: ProxyTime, rates: Iterable[tuple[Load, float, bool]]) -> GatewayLoad:
    """rates: of each model its load, its requests per second, and whether it writes text."""
    requests, tokens, cores = 0.0, 0.0, 0.0
    for load, rate, writes in rates:
        answer = load.answer_tokens.mean if writes else 0.0
        requests, tokens = requests + rate, tokens + rate * answer
        cores += rate * time.of(load.prompt_tokens.mean, answer)
    return GatewayLoad(requests_per_s=requests, tokens_per_s=tokens, cores=cores)


@dataclass(frozen=True, kw_only=True)
class ProxyNeed:
    """What the proxies request, and what they need."""

    pods: int
    requested: float
    """Cores that one requests."""
    declared: GatewayLoad
    full: GatewayLoad
    """With every replica full."""

    @property
    def left(self) -> int:
        """Proxies while one is away; the only one is not."""
        return max(1, self.pods - 1)

    @property
    def wanted(self) -> float:
        """Cores that each has to request for the declared load on a slow processor, in steps of a tenth."""
        return max(1, math.ceil(10 * round(_SLOWER * self.declared.cores / self.left, 4))) / 10

    @property
    def enough(self) -> bool:
        return self.requested >= self.wanted


def proxy_need(site: SiteConfig, models: Mapping[str, ModelPlan]) -> ProxyNeed | None:
    """None where no model declares a load."""
    loads = [(plan.proof, load, plan.proof.order.model.task == "generate") for plan, load in declared_loads(models)]
    if not loads:
        return None
    time = DECIDED if site.callers.decided_by == "gatekeeper" or site.limits else BY_KEYS
    return ProxyNeed(
        pods=site.gateway.replicas,
        requested=proxy_cores(site),
        declared=taken_by(time, [(load, load.requests_per_s, writes) for _, load, writes in loads]),
        full=taken_by(time, [(load, proof.saturation_requests_per_s, writes) for proof, load, writes in loads]),
    )


def describe_gateway(site: SiteConfig, models: Mapping[str, ModelPlan]) -> str:
    """As text for people; empty where no model declares a load."""
    need = proxy_need(site, models)
    if need is None:
        return ""
    proxies = "1 proxy requests" if need.pods == 1 else f"{need.pods} proxies request"
    cores = "core" if need.requested == 1 else "cores"
    away = ", with one away" if need.pods > 1 else ""
    verdict = f"enough for the declared load{away}"
    if not need.enough:
        verdict = (
            f"LESS THAN THE DECLARED LOAD MAY TAKE{away}: other pods on their machines may keep them from more. "
            f"{advice(site, need)}"
        )
    return "\n".join(
        [
            f"gateway: {proxies} {shown(need.requested)} {cores} each, {verdict}",
            f"  load        {_words(need.declared)}",
            f"  full        {_words(need.full)}",
        ]
    )


def advice(site: SiteConfig, need: ProxyNeed) -> str:
    """The keys with which they request enough, on machines that hold them, also with one away."""
    for pods in range(need.pods, need.pods + _TRIED):
        more = replace(need, pods=pods)
        keys = {"replicas": pods, "cores": more.wanted}
        other = site.model_copy(update={"gateway": site.gateway.model_copy(update=keys)})
        nodes, wanted = nodes_for(other), pods_of(other)
        room = nodes is None or not (left_out(nodes, wanted) or lost_without_room(nodes, wanted))
        if room and more.wanted <= MOST_PROXY_CORES:
            also = f" and gateway.replicas: {pods}" if pods != need.pods else ""
            return f"Set gateway.cores: {more.wanted:g}{also}"
    return f"Each needs {need.wanted:g}: add machines of role worker first"


def _words(load: GatewayLoad) -> str:
    low, high = shown(_FASTER * load.cores), shown(_SLOWER * load.cores)
    return (
        f"{shown(load.requests_per_s)} requests/s and {shown(load.tokens_per_s)} tokens/s of answers take "
        f"{shown(load.cores)} cores of proxies, {low} to {high} by the processor  [estimated]"
    )
