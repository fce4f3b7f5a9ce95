"""The proof of one order: whether it works, what it holds, how fast it is, what it costs, how well each is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from stacks.proof import money
from stacks.proof.adapter_figures import adapted
from stacks.proof.adapters import all_loaded_s
from stacks.proof.bands import band_of, fidelity_of
from stacks.proof.case import Case, Shortcoming
from stacks.proof.ends import Ends, Verdict
from stacks.proof.figures import Band, Fidelity, Figure, Span
from stacks.proof.gains import full_requests_per_s, gains
from stacks.proof.latency import latencies
from stacks.proof.offload import cleared_s, offload
from stacks.proof.order import Order, loading_bytes
from stacks.proof.search import best
from stacks.proof.weights import parameters

# Compilation, CUDA graphs and warm-up after the weights are there; estimated, as the start budget allows for it.
ENGINE_START_S = 120.0

_MEMORY = "GPU memory x 0.92 - weights - context, activations, logits, graphs"
_ROOFLINE = (
    "roofline: operations / (peak x share) + bytes / (bandwidth x share), fitted to aiconfigurator 0.12 and "
    "published runs"
)


@dataclass(frozen=True)
class Proof:
    """What `best` found, in figures. Cheap to build; figures are computed when they are asked for."""

    case: Case

    @property
    def order(self) -> Order:
        return self.case.order

    @cached_property
    def ends(self) -> Ends:
        """The same case at both ends of its band."""
        return Ends(self.case)

    @property
    def verdict(self) -> Verdict:
        """Whether the order works over the whole band of published speeds."""
        return self.ends.verdict

    @property
    def problems(self) -> list[Shortcoming]:
        """What the computed figures miss, or why it does not fit; empty where they hold."""
        return self.case.problems

    @property
    def holds(self) -> bool:
        """Whether the order works by the computed figures: it fits, carries its load and keeps its targets.

        Sizes follow from this; whether the order is refused follows from `verdict`.
        """
        return not self.problems

    @property
    def capacity_requests_per_s(self) -> float:
        """The most requests per second of the declared kind that these replicas carry within the targets."""
        if self.order.load is None or self.case.fit_problems:
            return 0.0
        return self.ends.nominal.capacity_requests_per_s

    @cached_property
    def saturation_requests_per_s(self) -> float:
        """Requests per second of the declared kind that these replicas answer when there are always more."""
        return full_requests_per_s(self.case)

    @cached_property
    def weights(self) -> dict[str, Figure]:
        """The model itself."""
        model = self.order.model
        counts = parameters(model)
        exact = "layers x matrices of config.json; norms and biases left out"
        return {
            "parameters": _figure(counts.total / 1e9, "billion", exact),
            "active_parameters": _figure(counts.active / 1e9, "billion", exact),
            "weight_files": _figure(self.order.file_bytes / 1e9, "GB", "parameters by part x stored bits / 8"),
            "weights_per_gpu": _figure(self.case.weights / 1e9, "GB", "parts over TP, PP, DP and EP as vLLM cuts them"),
        }

    @cached_property
    def memory(self) -> dict[str, Figure]:
        """What fits."""
        case = self.case
        kept = "2 x layers x heads on a rank x head size x element; latent: whole on every rank"
        return {
            "reserved_per_gpu": _figure(
                case.reserve.total / 1e9, "GB", "context + activations + logits + graphs", "estimated"
            ),
            "cache_per_gpu": _figure(max(0.0, case.room) / 1e9, "GB", _MEMORY, "estimated"),
            "cache_per_token": _figure(case.cache.per_token, "B", kept),
            "state_per_request": _figure(case.cache.state, "B", "state + convolution tail"),
            "cache_tokens": _figure(
                case.cache_tokens, "tokens", "cache / bytes of a mean request x its tokens", "estimated"
            ),
            "context": _figure(case.context, "tokens", "least of model, cache and order", "estimated"),
            "parallel_requests": _figure(
                case.slots * case.layout.data,
                "per replica",
                "cache / bytes of a mean request; ITL and TPOT targets",
                "estimated",
            ),
        }

    @cached_property
    def speed(self) -> dict[str, Figure]:
        """How fast one replica is, whatever the load."""
        case = self.case
        fidelity, band = fidelity_of(self.order), band_of(self.order)
        reach = self.order.request_tokens / 2
        alone = case.roofline.step_s(decodes=1, context=1)
        prompt = (case.roofline.step_s(prefill=2048, reach=reach, decodes=1, context=1) - alone) / 2048
        figures = {"prefill_per_token": _figure(prompt * 1e6, "us", _ROOFLINE, fidelity, band.of_times)}
        if self.order.model.task == "generate":
            times = band.of_times
            figures["decode_alone"] = _figure(case.token_s(1) * 1e3, "ms", _ROOFLINE, fidelity, times)
            figures["decode_full"] = _figure(case.token_s(case.slots) * 1e3, "ms", _ROOFLINE, fidelity, times)
            full = case.slots * case.layout.data / case.token_s(case.slots) / case.layout.gpus
            figures["full_tokens_per_s_per_gpu"] = _figure(full, "tokens/s", "requests / step / GPUs", fidelity, band)
        if self.order.nodes > 1:
            formula = "hops between nodes x (p2p latency + 2 hidden vectors x tokens / TP / network) / full step"
            figures["between_nodes"] = _figure(100 * case.on_the_way, "%", formula, "estimated")
        return figures

    @cached_property
    def cold_start(self) -> dict[str, Figure]:
        """From a scheduled Pod with its image to the first answer: with the weights in the volume, and before that."""
        speed, replicas = self.order.download_bytes_per_s, self.case.replicas
        download = self.order.file_bytes / speed if speed else 0.0
        together = self.start_s(replicas)
        shared = "weight files / (what the volume gives to all that read it / replicas), or as one alone if longer"
        longer = "longer of both + compilation and CUDA graphs"
        return {
            "read_weights": _figure(
                self.order.read_s(), "s", "weight files / storage bandwidth of a replica", "estimated"
            ),
            "read_weights_together": _figure(self.order.read_s(replicas), "s", shared, "estimated"),
            "copy_weights": _figure(self._copy_s, "s", "weights per GPU / PCIe bandwidth"),
            "cold_start": _figure(self.start_s(), "s", longer, "estimated"),
            "cold_start_together": _figure(together, "s", f"{longer}, all replicas at once", "estimated"),
            "download_weights": _figure(download, "s", "weight files / download bandwidth; once a volume", "estimated"),
            "first_start": _figure(
                self.order.downloads * download + together, "s", "downloads + cold start of all at once", "estimated"
            ),
        }

    def start_s(self, readers: int = 1) -> float:
        """Seconds from a scheduled Pod to its first answer, where so many start at once."""
        added = cleared_s(self.order.kv_offload_gib) + all_loaded_s(self.order.model, self.order.adapters)
        return max(self.order.read_s(readers), self._copy_s) + ENGINE_START_S + added

    @property
    def _copy_s(self) -> float:
        return self.case.weights / self.order.hardware.pcie_bytes_per_s

    @cached_property
    def serving(self) -> dict[str, Figure]:
        """The declared load; empty without one, and where nothing fits or keeps up."""
        load = self.order.load
        if load is None or self.case.fit_problems or not self.case.steady.stable:
            return {}
        steady, figures = self.case.steady, latencies(self.ends)
        if self.order.model.task == "generate":
            figures["running_requests"] = _figure(
                steady.running * self.case.schedulers, "requests", "Little's law over the decode step", "estimated"
            )
            rate = load.requests_per_s * load.answer_tokens.mean / self.case.gpus
            figures["tokens_per_s_per_gpu"] = _figure(rate, "tokens/s", "load x mean answer / GPUs", "estimated")
        capacity, most = self.capacity_requests_per_s, self.saturation_requests_per_s
        figures["capacity"] = _estimated(capacity, "requests/s", "largest load within the targets", self._capacities)
        figures["saturation"] = _estimated(
            most,
            "requests/s",
            "steps packed with prompts and answers",
            # Steps that are all so much longer.
            self.ends.span(lambda end: most / end.pace),
        )
        figures["front_end"] = _figure(
            steady.passed_requests_per_s,
            "requests/s",
            "API servers x 0.9 / CPU time of a request that is streamed",
            "estimated",
        )
        used = load.requests_per_s / capacity if capacity else 1.0
        figures["utilisation"] = _estimated(
            used * 100, "%", "load / capacity", self._capacities.mapped(lambda there: 100 * load.requests_per_s / there)
        )
        return figures

    @cached_property
    def _capacities(self) -> Span:
        """Requests per second within the targets, at both ends; none where the targets are missed by any load."""
        return self.ends.span(lambda end: end.capacity_requests_per_s or None)

    @cached_property
    def sizing(self) -> dict[str, Figure]:
        """The replicas that the load needs; empty without a load, and where no number keeps the targets."""
        if self.order.load is None or self.case.fit_problems or (needed := self.ends.nominal.replicas) is None:
            return {}
        span = self.ends.span(lambda end: end.replicas)
        return {"needed_replicas": _estimated(needed, "replicas", "fewest that keep the targets", span)}

    @cached_property
    def cost(self) -> dict[str, Figure]:
        """What it costs; empty without prices, and per token without a load that is carried."""
        prices = self.order.prices
        if prices is None:
            return {}
        unit = prices.currency
        hour = money.hourly(self.case, prices)
        figures = {
            "hour": _figure(hour, f"{unit}/h", "GPUs x (price + share of the node's power x kWh price)", "estimated")
        }
        if self.serving:
            paid = money.costs(self.case, prices)
            shared = "bill by each token's share of the GPUs' time"
            per_million = f"{unit}/M tokens"
            figures["input"] = _figure(paid.fresh, per_million, shared, "estimated")
            figures["cached_input"] = _figure(paid.cached, per_million, shared, "estimated")
            if self.order.model.task == "generate":
                figures["output"] = _figure(paid.answer, per_million, shared, "estimated")
                figures["output_alone"] = _figure(
                    paid.output_only, per_million, "bill / (answer tokens/s x 3600)", "estimated"
                )
            figures["break_even"] = _figure(
                paid.blended, per_million, "bill / all tokens: the price that pays it", "estimated"
            )
            used = self.serving["utilisation"]
            figures["break_even_full"] = _estimated(
                paid.blended * used.value / 100,
                per_million,
                "the same at full capacity",
                used.span.mapped(lambda percent: paid.blended * percent / 100) if used.span else None,
            )
        return figures

    @cached_property
    def speculation(self) -> dict[str, Figure]:
        """What drafts change, next to the same replicas without them; empty where nothing drafts."""
        return gains(self.case) if self.order.speculation and not self.case.fit_problems else {}

    @property
    def loading(self) -> dict[str, Figure]:
        """What a start has in memory that quantises weights; empty where it does not."""
        if self.order.stored is None:
            return {}
        most = loading_bytes(self.order, self.case.layout, self.case.weights)
        formula = "weights per GPU as loaded + the largest module in 16 bits"
        return {"loading_per_gpu": _figure(most / 1e9, "GB", formula, "estimated")}

    @cached_property
    def offload(self) -> dict[str, Figure]:
        """What a node's memory keeps of prefixes; empty where it keeps none."""
        return offload(self.case)

    @cached_property
    def adapters(self) -> dict[str, Figure]:
        """What adapters take, and what their requests wait for; empty without any."""
        return adapted(self.case)

    def figures(self) -> Mapping[str, Figure]:
        """All of them by name; names are unique over the groups."""
        inputs = self.speculation | self.loading | self.adapters
        served = self.sizing | self.serving | self.cost
        return self.weights | self.memory | self.speed | self.cold_start | served | inputs


def prove(order: Order, *, known: Proof | None = None) -> Proof:
    """The best that can be done for this order. It may not work: see `holds`, and `fixes.nearest` for the way out.

    known: the proof of the same order with less freedom in its layout; what is no better is not proven again.
    """
    return Proof(best(order, known.case if known and known.holds else None))


def _figure(value: float, unit: str, source: str, fidelity: Fidelity = "published", band: Band | None = None) -> Figure:
    return Figure(value=value, unit=unit, source=source, fidelity=fidelity, band=band)


def _estimated(value: float, unit: str, source: str, span: Span | None) -> Figure:
    return Figure(value=value, unit=unit, source=source, fidelity="estimated", span=span)
