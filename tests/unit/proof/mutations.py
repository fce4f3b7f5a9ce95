"""Terms of the proof that a test must notice: each spoiled in one place, and the test files that then turn red."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_MEMORY = ("test_published_memory.py", "test_published_starts.py", "test_proof_memory.py")
_LATENCY = ("test_proof_simulated.py", "test_proof_targets.py", "test_proof_serving.py")
_SEARCH = ("test_proof_searched.py", "test_proof_fit.py", "test_proof_layouts.py", "test_sizing.py")
_SPEED = ("test_proof_roofline.py", "test_proof_bands.py")
_ENDS = ("test_proof_ends.py",)
_WEIGHTS = ("test_published_memory.py", "test_proof_catalogue.py")
_DRAFTS = ("test_proof_speculation.py", "test_proof_drafts.py")
_ADAPTERS = ("test_proof_adapters.py",)
_QUANTISED = ("test_proof_online_quantisation.py",)
_FRONT_END = ("test_proof_front_end.py",)


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One text of one file of `stacks/proof`, and what takes its place."""

    module: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"{self.module}: {self.old.strip()} -> {self.new.strip() or 'nothing'}"


def _of(module: str, tests: tuple[str, ...], *changes: tuple[str, str]) -> Iterator[Mutation]:
    for old, new in changes:
        yield Mutation(module=module, old=old, new=new, tests=tests)


MUTATIONS: tuple[Mutation, ...] = (
    *_of(
        "memory",
        _MEMORY,
        ("MEMORY_UTILISATION = 0.92", "MEMORY_UTILISATION = 1.0"),
        ("_CONTEXT_BYTES = 0.5", "_CONTEXT_BYTES = 0.0"),
        ("\n_COLLECTIVE_BYTES = 1.2", "\n_COLLECTIVE_BYTES = 0.0"),
        ("_LARGER_COLLECTIVE_BYTES = 1.9", "_LARGER_COLLECTIVE_BYTES = 1.2"),
        ("_SAMPLER_BYTES = 15", "_SAMPLER_BYTES = 7"),
        ("_SORTING_SAMPLER_BYTES = 38", "_SORTING_SAMPLER_BYTES = 19"),
        ("_GRAPH_BYTES = 0.23e6", "_GRAPH_BYTES = 0.0"),
        ("_GRAPH_VALUES = 8", "_GRAPH_VALUES = 4"),
        (" + batched_tokens * self.transient", ""),
        ("_GRAPH_EXPERTS_BYTES = 0.2e6", "_GRAPH_EXPERTS_BYTES = 0.0"),
        ("_GRAPH_LATENT_BYTES = 0.15e6", "_GRAPH_LATENT_BYTES = 0.0"),
        ("_EXPERT_KERNELS = 1.3", "_EXPERT_KERNELS = 0.5"),
        ("_SPARSE_CONTEXTS = 5", "_SPARSE_CONTEXTS = 2"),
        ("_ROOM_MARGIN = 0.03", "_ROOM_MARGIN = 0.0"),
        ("_WEIGHTS_MARGIN = 0.01", "_WEIGHTS_MARGIN = 0.0"),
        ("layer=2 * (4 * model.hidden + 3 * inner)", "layer=0.0"),
        ("output=2.0 * model.hidden", "output=0.0"),
        ("routed=2 * layout.data * ", "routed=2 * "),
        ("batched_tokens * self.routed, self.sparse) + self.scores", "batched_tokens * self.routed, self.sparse)"),
        ("max(pictures * self.picture, seen + text)", "seen + text"),
        ("self.picture, seen + text", "self.picture, text"),
        ("max(1, batched_tokens // self.picture_tokens)", "1"),
        ("3 * tower.hidden + tower.matrices * tower.width", "3 * tower.hidden"),
        ("return 2 * _LARGEST_GRAPH if larger", "return _LARGEST_GRAPH if larger"),
        ("_BESIDE_BYTES = 2.4", "_BESIDE_BYTES = 1.6"),
        ("layout.data == 1 or left", "left"),
        ("return room - _ROOM_MARGIN", "return room + _ROOM_MARGIN"),
    ),
    *_of(
        "cache",
        _MEMORY,
        ("BLOCK_TOKENS = 16", "BLOCK_TOKENS = 32"),
        ("SPARSE_FP8_BYTES = 656", "SPARSE_FP8_BYTES = 576"),
        ("INDEXER_SCALE_BYTES = 4", "INDEXER_SCALE_BYTES = 0"),
        ("_STATE_BLOCKS = 2", "_STATE_BLOCKS = 1"),
        ("convolution - 1 + drafted", "convolution - 1"),
        ("_UNEVEN = 1.5", "_UNEVEN = 9.0"),
        ("self.window - 1 + in_flight", "self.window"),
        ("/ self.block_tokens) + 1)", "/ self.block_tokens))"),
        ("self.block_bytes * (1 + sum(", "self.block_bytes * (0 + sum("),
        ("self.block_bytes * (1 + blocks)", "self.block_bytes * 1"),
        ("max(1.0, mixer.kv_heads / ranks)", "mixer.kv_heads / ranks"),
        ("mixer.state_bits / 8 * state", "mixer.state_bits / 16 * state"),
        ("batches = layout.pipeline + 1", "batches = layout.pipeline"),
        ("tables = math.ceil(count / size)", "tables = 1"),
    ),
    *_of(
        "layouts",
        _WEIGHTS,
        ("_MXFP4_INNER, _MXFP4_HIDDEN = 128, 256", "_MXFP4_INNER, _MXFP4_HIDDEN = 1, 1"),
        (" + embeddings + size.vision", " + embeddings"),
        (" + _absorbed(model, layout)", ""),
        ("size.replicated + size.routers", "size.replicated"),
    ),
    *_of(
        "roofline",
        _SPEED,
        ("link=0.691", "link=0.3"),
        ("layer_s=7.26e-6", "layer_s=0.0"),
        ("block_layer_s=82.1e-6", "block_layer_s=0.0"),
        ("sparse_layer_s=45.6e-6", "sparse_layer_s=0.0"),
        ("collective_s=12.1e-6", "collective_s=0.0"),
        ("step_s=1.5e-3", "step_s=0.0"),
        ("engine=1.13", "engine=1.0"),
        ("sink_compute=0.14", "sink_compute=0.63"),
        ('("ampere", "ada-lovelace")', '("ampere",)'),
    ),
    *_of(
        "roofline",
        ("test_proof_collectives.py",),
        ("layers * last / count + head)", "layers * last / count)"),
        ("math.ceil(count / stages)", "count / stages"),
        ("stages = 1 if alone else", "stages = 1 if False else"),
        ("total += self._hops.fixed_s + tokens * self._hops.token_s", ""),
        ("self._tensor_links = links_between(gpu, layout.tensor,", "self._tensor_links = links_between(gpu, divided,"),
    ),
    *_of(
        "collectives",
        ("test_proof_collectives.py",),
        ("_PCIE_STEP_S = 2.2e-6", "_PCIE_STEP_S = 0.0"),
        ("_PCIE_SHARE, _PCIE_MANY_SHARE = 0.55, 0.40", "_PCIE_SHARE, _PCIE_MANY_SHARE = 0.691, 0.691"),
        ("_NETWORK_STEP_S = 14.0e-6", "_NETWORK_STEP_S = 0.0"),
        ("_HOP_VECTORS = 2", "_HOP_VECTORS = 1"),
        ("- 1\n    moved", "\n    moved"),
        ("if gpu.linked_by_pcie:", "if False:"),
    ),
    *_of(
        "several_nodes",
        ("test_proof_several_nodes.py",),
        ("one_node=False, replicas", "replicas"),
    ),
    *_of(
        "disaggregation",
        ("test_proof_disaggregation.py",),
        ("prefix_hit=1.0", "prefix_hit=0.0"),
        ("answer_tokens=_ONE", "prefix_hit=0.0"),
        ("self.prefill.sojourn_mean_s + self.after_s", "self.prefill.mean_s + self.after_s"),
        (" or self.network_busy > MOST_BUSY", ""),
        ("_MOST_BUSY_PREFILL = 0.83", "_MOST_BUSY_PREFILL = 0.95"),
        ("return self.transfer_s + self.decode", "return self.decode"),
        ("servers=1,", "servers=64,"),
    ),
    *_of(
        "roofline",
        _ENDS,
        ("return total * fit.engine * self._pace", "return total * fit.engine"),
    ),
    *_of(
        "ends",
        _ENDS,
        ("End(self.case, self.band.low, self.nominal)", "End(self.case, 1.0)"),
        ("End(self.case, self.band.high, self.nominal)", "End(self.case, 1.0)"),
        ("roofline=engine.roofline.at(self.pace)", "roofline=engine.roofline"),
        ('"uncertain" if self.fast.keeps else "fails"', '"fails"'),
        ('"holds" if self.slow.keeps else "uncertain"', '"holds"'),
    ),
    *_of(
        "batch",
        _LATENCY,
        ("self.gaps / 2 if self.gaps", "self.gaps / 4 if self.gaps"),
        ("return base / (1 - min(_MOST_SHARE, self.prompt_share / (1 - idle))), idle", "return base, idle"),
        ("if abs(step_s - before) < _SETTLED * before:", "if step_s > 0:"),
        ("math.sqrt(low * high)", "math.sqrt(low / high)"),
        ("fresh = max(1.0, tokens * (1 - hit))", "fresh = max(1.0, tokens)"),
    ),
    *_of(
        "serving",
        _LATENCY,
        ("MOST_BUSY = 0.9", "MOST_BUSY = 1.2"),
        ("max(figure, self.mean_gap_s(target.metric))", "max(figure, 0.0)"),
        ("free, rate = 1 - self.prompt_share, self._rate", "free, rate = 1.0, self._rate"),
    ),
    *_of("packing", _LATENCY, ("rest_s = part * length + scheduled_s", "rest_s = part * length")),
    *_of("replica", _LATENCY, ('drafts.method not in ("ngram", "draft")', "bool(drafts.method)")),
    *_of(
        "front_end",
        _FRONT_END,
        ("request_s: float = 1.93e-3", "request_s: float = 0.5e-3"),
        ("prompt_token_s: float = 2.69e-6", "prompt_token_s: float = 0.0"),
        ("    token_s: float = 12.4e-6", "    token_s: float = 0.0"),
        ("piece_s: float = 65.1e-6", "piece_s: float = 30e-6"),
        ("step_s: float = 0.63e-3", "step_s: float = 0.0"),
        ("min(answer, 2.0)", "answer"),
        ("together = streams <= CHUNK_STREAMS", "together = True"),
        ("return second / 2 / (1 - min(self.busy, MOST_BUSY_SERVER))", "return second / 2"),
        (" + self.steps_per_s * self.outputs_s\n", "\n"),
    ),
    *_of(
        "serving",
        _FRONT_END,
        ("self.computes and self.server.busy <= MOST_BUSY_SERVER", "self.computes"),
        (
            "sojourn.beyond(seconds - PATH_S - REQUEST_OVERHEAD_S - self._shared_s)",
            "sojourn.beyond(seconds - PATH_S)",
        ),
        ("REQUEST_OVERHEAD_S + self._shared_s + self.sojourn", "REQUEST_OVERHEAD_S + self.sojourn"),
        ("self._own_s(prompt) + self._tokenised_s(tokens)", "self._own_s(prompt)"),
        ("self._tokenised_s(tokens)) for", "self._tokenised_s(self._prompt_tokens)) for"),
        ("front_end=self.front_end_s,", "front_end=0.0,"),
        ("self.engine.servers * self.schedulers", "self.schedulers"),
        ("pieces = rate * (self.gaps + 1)", "pieces = rate"),
    ),
    *_of(
        "replica",
        _FRONT_END,
        ("servers=SERVERS / self.layout.data", "servers=SERVERS"),
    ),
    *_of(
        "gains",
        _FRONT_END,
        (
            "min(engine.requests_per_s * case.schedulers, _passed_requests_per_s(case, mix))",
            "engine.requests_per_s * case.schedulers",
        ),
    ),
    *_of(
        "case",
        _FRONT_END,
        ("if self.steady.computes:", "if False:"),
    ),
    *_of(
        "search",
        _SEARCH,
        ("return (severity, case.gpus, divided", "return (severity, -case.gpus, divided"),
        ("divided = order.simple and not case.layout.tensor_alone", "divided = False"),
        ('"illegal": 16', '"illegal": 0'),
        ("speed = gap_s + case", "speed = gap_s - case"),
    ),
    *_of(
        "speculation",
        _DRAFTS,
        ("for place in range(drafted + 1)", "for place in range(drafted)"),
        ("return self.tokens + 1", "return self.tokens"),
        ('(1 if self.method == "draft" else 0)', "0"),
        ('(1 if self.method == "ngram" else 2)', "1"),
        ('count = {"count": layers or model.draft_layers}', 'count = {"count": 2}'),
        ("and speculation.tokens % layers", ""),
        ("(2 * place + 1) * self.acceptance**place", "(2 * place) * self.acceptance**place"),
        ("min(self.tokens, int(accepted))", "int(accepted)"),
        ("math.sqrt(many * self.variance)", "0.0"),
        ("if draft.vocabulary != model.vocabulary", "if False"),
    ),
    *_of(
        "drafts",
        _DRAFTS,
        ("return size - shared + ", "return size + "),
        ("+ model.draft_layers * joining_parameters(model) * _UNQUANTISED", ""),
        ("return weight_bytes(speculation.draft).files if", "return 0.0 if"),
        ("alone=alone, width=width, sampled=width", "alone=alone, width=width"),
        ("context=context, width=width)\n        others", "context=context)\n        others"),
        ("(self._speculation.tokens - 1) * others", "self._speculation.tokens * others"),
        ("work * (tokens + others * decodes)", "work * tokens"),
        ("+ read * (1 + others)", "+ read"),
        ("if layout.pipeline > 1:", "if False:"),
        ("context <= draft.max_context_tokens", "True"),
        ("Layout(tensor=layout.tensor) if", "Layout() if"),
    ),
    *_of(
        "adapters",
        _ADAPTERS,
        ("\n_BYTES = 2", "\n_BYTES = 1"),
        ("_FILE_BYTES = 4", "_FILE_BYTES = 2"),
        ("_BYTES * adapters.slots * adapters.rank", "_BYTES * adapters.rank"),
        ("elements * stage", "elements"),
        ("max(1.0, mixer.kv_heads / ranks)", "mixer.kv_heads / ranks"),
        ("(3 * hidden + queries", "(hidden + queries"),
        ("(answers / ranks + hidden)", "(answers + hidden)"),
        ("slices * (hidden + layer.width / ranks)", "slices * (hidden + layer.width)"),
        ("(layer.width / ranks + hidden)", "(layer.width + hidden)"),
        ("all(isinstance(layer, DenseFeedForward)", "any(isinstance(layer, DenseFeedForward)"),
    ),
    *_of("memory", _ADAPTERS, ("* (2 if adapted else 1)", "")),
    *_of("replica", _ADAPTERS, ("self.order.speculation) + adapters", "self.order.speculation)")),
    *_of("order", _ADAPTERS, ("draft_files(self.speculation) + adapters", "draft_files(self.speculation)")),
    *_of(
        "memory",
        _DRAFTS,
        ("sampled = sequences * self.width", "sampled = sequences"),
        (" + (_graph_bytes(drafts, layout) if drafts else 0.0)", ""),
    ),
    *_of(
        "cache",
        _DRAFTS,
        ("tokens, in_flight = tokens + self.lookahead, ", "tokens, in_flight = tokens, "),
        ("self.lookahead, 1 + self.lookahead", "self.lookahead, 1"),
        ("blocks=_STATE_BLOCKS + drafted", "blocks=_STATE_BLOCKS"),
        ("layers += [(mixer, mixer.count) for mixer in drafts.mixers.values()] if drafts else []", ""),
    ),
    *_of(
        "roofline",
        _DRAFTS,
        ("tokens = prefill + decodes * width", "tokens = prefill + decodes"),
        ("decodes * sampled * fit.request_s", "decodes * fit.request_s"),
        ("max(decodes * sampled, 1.0)", "max(decodes, 1.0)"),
    ),
    *_of(
        "attention",
        _DRAFTS,
        ("layers.score * width", "layers.score"),
        ("layers.latent * kept * width", "layers.latent * kept"),
        ("layers.further * (width - 1)", "layers.further * 0"),
        ("(1 + width), 0.0, 0.0", "2, 0.0, 0.0"),
    ),
    *_of(
        "attention",
        _SPEED,
        ("2 * heads * (mixer.nope + mixer.rope + mixer.value_size)", "2 * heads * mixer.nope"),
        ("limit=mixer.indexer_tokens or math.inf", "limit=math.inf"),
        ("read += layers.read * kept", "read += layers.read * 0.0"),
    ),
    *_of(
        "attention",
        ("test_proof_attention.py",),
        ("seen = 6 * self._state", "seen = 0.0"),
        ("self._state_bytes * (1 + width)", "self._state_bytes * width"),
        ("limit=mixer.window", "limit=math.inf"),
    ),
    *_of(
        "replica",
        _DRAFTS,
        ("own + draft_weights(self.order.model, self.layout, self.order.speculation)", "own"),
        ("batched_tokens // self.width)", "batched_tokens)"),
        ("self.order.slo.mean_step_ms(self.order.tokens_per_step)", "self.order.slo.mean_step_ms()"),
    ),
    *_of(
        "case",
        _DRAFTS,
        ("(order.max_num_seqs or 0) * self.width", "(order.max_num_seqs or 0)"),
        ("return self.decode_s(running) / self.order.tokens_per_step", "return self.decode_s(running)"),
    ),
    *_of(
        "batch",
        _DRAFTS,
        ("max(0.0, tokens - 1) / self.engine.tokens_per_step)", "max(0.0, tokens - 1))"),
        ("        so_far *= self.engine.tokens_per_step\n", ""),
        ("self.engine.batched_tokens - decodes * self.engine.width", "self.engine.batched_tokens - decodes"),
    ),
    *_of(
        "serving",
        _DRAFTS,
        ("        seconds *= self.engine.tokens_per_step\n", ""),
        ("return self.itl_mean_s / (", "return self.itl_mean_s * (1 / 1.0) if metric else ("),
        ("max(least, steps * (1 + place * spread))", "steps"),
        ("gaps + (self.engine.tokens_variance / mean + mean - 1) / 2 / mean", "gaps"),
        ("max(1.0, min(beyond, gaps * mean))", "beyond"),
        ("sum(share * self._steps(gaps) / gaps for", "sum(share for"),
        ("engine.tokens_variance / gaps", "engine.tokens_variance / gaps / 4"),
        (" + met / (1 - self.prompt_share)) / self.engine.tokens_per_step", " + met / (1 - self.prompt_share)) / 1.0"),
    ),
    *_of(
        "saturation",
        _DRAFTS,
        ("max(0.0, mix.answer - 1) / tokens_per_step", "max(0.0, mix.answer - 1)"),
        ("batched_tokens - middle * rest * width", "batched_tokens - middle * rest"),
    ),
    *_of(
        "money",
        _DRAFTS,
        ("/ running / case.order.tokens_per_step if", "/ running if"),
    ),
    *_of(
        "bands",
        (*_DRAFTS, *_QUANTISED),
        ("if order.speculation or order.stored:", "if order.stored:"),
        ("order.speculation or order.stored:", "order.speculation:"),
    ),
    *_of(
        "online_quantisation",
        _QUANTISED,
        ('_LINEAR = ("mixers", "dense", "experts", "shared")', '_LINEAR = ("mixers", "dense", "experts")'),
        ('"fp8_per_block": Quantisation(format="fp8-block"', '"fp8_per_block": Quantisation(format="fp8"'),
        ("_STORED * layer.experts * layer.matrices", "_STORED * layer.matrices"),
        ("_STORED * (layer.matrices - 1)", "_STORED * layer.matrices"),
    ),
    *_of(
        "order",
        (*_QUANTISED, *_DRAFTS),
        ("weight_bytes(as_stored(self.model, self.stored)).files", "weight_bytes(self.model).files"),
        (".files + draft_files(self.speculation)", ".files"),
        ("return weights + (largest_module(order.model, layout) if order.stored else 0.0)", "return weights"),
    ),
)
