"""A proof as a block of text for people: one screen, the same lines in the same order every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from floor.counts import counted
from stacks.facts.hardware import GpuSlice
from stacks.plan.block_inputs import adapted, drafts, offloaded, quantised
from stacks.proof.demand import METRICS, PERCENTS, Metric, Slo
from stacks.proof.ends import Verdict
from stacks.proof.figures import Figure, shown
from stacks.proof.fixes import Fix
from stacks.proof.proof import Proof
from stacks.proof.search import reason
from stacks.proof.split_verdict import SplitVerdict

_LABEL = 12
# A limit of the front end is shown where it is below so many times the capacity.
_NEAR = 1.5
_KEEPING: Mapping[Verdict, str] = {"holds": "keeps", "uncertain": "may miss", "fails": "misses"}
_KEEPING_UP: Mapping[Verdict, str] = {"holds": "keeps", "uncertain": "may not keep", "fails": "does not keep"}
_VERDICTS: Mapping[Verdict, str] = {"holds": "holds", "uncertain": "uncertain", "fails": "DOES NOT HOLD"}


def block(
    proof: Proof,
    fixes: tuple[Fix, ...] | list[Fix] = (),
    better: Proof | None = None,
    split: SplitVerdict | None = None,
    most_answer: int | None = None,
    apart: str = "",
) -> str:
    """Lines for one model.

    fixes: for a proof that does not hold. better: a proof of the same order with more freedom, mentioned where it needs
    fewer GPUs or carries more. split: mentioned where it would do better. most_answer: tokens that no answer passes.
    apart: what prompt caches of each tenant cost.
    """
    lines = [_headline(proof), *(f"  {line}" for line in _lines(proof, fixes, better, most_answer))]
    if split is not None and split.better:
        lines.append(f"  {_line('split', f'{split.line}; not deployed  [estimated]')}")
    if apart:
        lines.append(f"  {_line('caches', f'{apart}  [estimated]')}")
    return "\n".join(lines)


def _headline(proof: Proof) -> str:
    order = proof.order
    return f"{order.name}: {_VERDICTS[proof.verdict]}. {order.model.repository} on {order.gpu}, {_size(proof)}"


def _size(proof: Proof) -> str:
    case = proof.case
    unit = "slice" if isinstance(proof.order.hardware, GpuSlice) else "GPU"
    return f"{case.replicas} x {case.layout} = {counted(case.gpus, unit)}"


def _lines(
    proof: Proof, fixes: tuple[Fix, ...] | list[Fix], better: Proof | None, most_answer: int | None
) -> Iterator[str]:
    for doubt in proof.ends.doubts:
        yield _line("problem" if proof.verdict == "fails" else "uncertain", doubt.text)
    for fix in fixes:
        yield _line("fix", fix.text)
    yield from _layout(proof)
    yield from _model(proof)
    if proof.case.longest > 0:
        yield from _memory(proof)
        if most_answer is not None and most_answer < proof.case.context:
            yield _line("answers", f"cut at {most_answer:,} tokens, whatever a request asks for")
        yield from _speed(proof)
        for label, text, figures in (*quantised(proof), *drafts(proof), *adapted(proof), *offloaded(proof)):
            yield _line(label, text, figures)
    yield from _load(proof)
    yield from _replicas(proof)
    yield from _one_out(proof)
    yield from _cost(proof)
    if better is not None and better.holds and better.case.layout != proof.case.layout:
        gain = _gain(proof, better)
        if gain:
            yield _line("better", f"{_size(better)}: {gain}")


def _layout(proof: Proof) -> Iterator[str]:
    layout = proof.case.layout
    text = f"{layout}: {reason(proof.case)}"
    if layout.data > 1:
        # The engine's own balancing goes by queues, so a prefix is found only if its request meets the same rank.
        text += f"; {layout.data} schedulers, each with a cache of its own"
        text += ", so count prefix_hit for a rank" if proof.order.load and proof.order.load.prefix_hit else ""
    yield _line("layout", text)
    if (nodes := proof.order.nodes) > 1:
        network = proof.order.hardware.network_bytes_per_s / 1e9
        yield _line(
            "nodes",
            f"{nodes} whole ones a replica, one lost is a replica lost; a full step of prompts is between them for "
            f"{proof.speed['between_nodes']} of its time, at {network:.3g} GB/s a GPU",
            {"between_nodes": proof.speed["between_nodes"]},
        )
    if isinstance(gpu := proof.order.hardware, GpuSlice):
        yield _line(
            "slice",
            f"a {gpu.profile} of {gpu.whole} (MIG), {gpu.of_a_gpu} of a GPU: {gpu.memory_bytes / 1e9:.3g} GB, "
            f"{gpu.memory_bytes_per_s / 1e12:.3g} TB/s; its speed is its share of the GPU's  [estimated]",
        )


def _model(proof: Proof) -> Iterator[str]:
    weights = proof.weights
    yield _line(
        "model",
        f"{weights['parameters']} parameters, {weights['active_parameters']} active; "
        f"{weights['weight_files']} in files, {weights['weights_per_gpu']} per GPU",
        weights,
    )


def _memory(proof: Proof) -> Iterator[str]:
    memory, case = proof.memory, proof.case
    kept = f"{memory['cache_per_token']} per token ({proof.order.kv_dtype})"
    if memory["state_per_request"].value:
        kept += f" and {shown(memory['state_per_request'].value / 1e6)} MB per request"
    if case.keeps_cache:
        text = f"{memory['cache_per_gpu']} per GPU, {kept}; {memory['cache_tokens']} per replica"
        yield _line("cache", text, memory)
    yield _line(
        "holds",
        f"context {memory['context']}; {memory['parallel_requests']} at once, each of "
        f"{shown(proof.order.request_tokens)} tokens",
        memory,
    )


def _speed(proof: Proof) -> Iterator[str]:
    speed = proof.speed
    text = f"prompt {speed['prefill_per_token']} per token"
    if "decode_alone" in speed:
        text += f"; a token every {speed['decode_alone']} for one request, {speed['decode_full']} when full"
        text += f"; {speed['full_tokens_per_s_per_gpu']} per GPU when full"
    yield _line("speed", text, speed)
    band = proof.ends.band
    of = "all models, as none are of slices" if isinstance(proof.order.hardware, GpuSlice) else "such models"
    text = f"steps take {band} as long in {band.rows} published figures of {of}"
    if own := proof.order.measured:
        text = f"steps took {band} as long in {own.periods} periods of this site; median x {own.pace:.3g} of computed"
    yield _line("band", text)
    yield _line(
        "cold start",
        f"{proof.cold_start['cold_start']}, of it {proof.cold_start['read_weights']} reading{_together(proof)}"
        f"{_first_start(proof)}",
        proof.cold_start,
    )


def _together(proof: Proof) -> str:
    if proof.case.replicas == 1:
        return ""
    return f"; all {proof.case.replicas:,} at once {proof.cold_start['cold_start_together']}"


def _first_start(proof: Proof) -> str:
    download = proof.cold_start["download_weights"]
    if not download.value:
        return ""
    again = " to one node, and then as long to the others" if proof.order.downloads > 1 else ""
    return f"; the first {proof.cold_start['first_start']}, of it {download} downloading{again}"


def _load(proof: Proof) -> Iterator[str]:
    load, slo, serving = proof.order.load, proof.order.slo, proof.serving
    if load is None:
        yield _line("load", "none declared, so no latency, utilisation or cost per token is given")
        return
    prompt, answer = load.prompt_tokens, load.answer_tokens
    yield _line(
        "load",
        f"{load.requests_per_s:g} requests/s; prompt {prompt.p50:,.0f} / {prompt.p95:,.0f}, answer {answer.p50:,.0f} / "
        f"{answer.p95:,.0f} tokens (p50 / p95); {100 * load.prefix_hit:.0f} % cached",
    )
    if not serving:
        return
    for metric in METRICS:
        if f"{metric}_p50" in serving:
            yield _line(metric.upper(), _percentiles(serving, metric, slo), serving)
    yield _line("TTFT mean", _parts(serving), serving)
    if "heavy_prompt" in serving:
        yield _line("heavy", _heavy(proof), serving)
    rate = f"; {serving['tokens_per_s_per_gpu']} per GPU" if "tokens_per_s_per_gpu" in serving else ""
    full = _ranged(serving["saturation"], " when full")
    passed = serving["front_end"]
    # Only where it is what limits the capacity, or nearly so.
    if passed.value < _NEAR * serving["capacity"].value:
        full += f"; the front end passes {passed}"
    yield _line("capacity", f"{_ranged(serving['capacity'])}, {used(proof)}{rate}; {full}", serving)


def _replicas(proof: Proof) -> Iterator[str]:
    needed = proof.sizing.get("needed_replicas")
    if needed is None or needed.span is None:
        return
    if needed.span.slow is None:
        over = "no number does at the slow end"
    elif needed.span.slow == needed.span.fast:
        over = "and over the whole band"
    else:
        over = f"{needed.span} over the band"
    text = f"{proof.case.replicas}; the load needs {shown(needed.value)} within the targets, {over}"
    yield _line("replicas", text, proof.sizing)


def _one_out(proof: Proof) -> Iterator[str]:
    """What the others do while one replica is out: restarted, or on a lost node."""
    count = proof.case.replicas
    if proof.order.load is None or proof.case.fit_problems:
        return
    if count == 1:
        yield _line("one out", "no replica is left until it has started again")
        return
    left = Proof(proof.case.again(replicas=count - 1))
    if not left.serving:
        yield _line("one out", f"{count - 1} of {count} are left, and the load is more than they carry")
        return
    slower = f"TTFT p95 {left.serving['ttft_p95']}, " if "ttft_p95" in left.serving else ""
    text = f"with {count - 1} of {count} replicas the model {keeping(left, left.verdict)}: {slower}{used(left)}"
    yield _line("one out", text, left.serving)


def keeping(proof: Proof, verdict: Verdict) -> str:
    """What a verdict means for the model: `may miss its targets`, or whether it keeps up where it has none."""
    if proof.order.slo.targets:
        return f"{_KEEPING[verdict]} its targets"
    return f"{_KEEPING_UP[verdict]} up with the load"


def used(proof: Proof) -> str:
    """The share of what the replicas carry that the load takes: `102 % used (61.5 to 141)`."""
    if not proof.serving:
        return "the load is more than they carry"
    return _ranged(proof.serving["utilisation"], " used")


def _ranged(figure: Figure, more: str = "") -> str:
    """A figure with its range: `1.78 requests/s (0.371 to 2.78)`."""
    return f"{figure}{more} ({figure.span})" if figure.span else f"{figure}{more}"


def _percentiles(serving: Mapping[str, Figure], metric: Metric, slo: Slo) -> str:
    """The figures, then the range of each percentile that has a target, of p95 where none has."""
    values = " / ".join(shown(serving[f"{metric}_p{percent}"].value) for percent in PERCENTS)
    text = f"{values} ms (p50 / p95 / p99), mean {shown(serving[f'{metric}_mean'].value)}"
    targets = slo.of_metrics(metric)
    for target in targets:
        text += f"; p{target.percent} {serving[target.figure].span}, target {target.ms:,.0f}"
    return text if targets else f"{text}; p95 {serving[f'{metric}_p95'].span}"


def _parts(serving: Mapping[str, Figure]) -> str:
    way = sum(serving[f"ttft_{part}"].value for part in ("path", "overhead", "front_end"))
    parts = {
        "way and overhead": way,
        "queue": serving["ttft_queue"].value,
        "prompt": serving["ttft_prefill"].value,
        "decode steps it shares": serving["ttft_decode"].value,
    }
    text = f"{serving['ttft_mean']} = " + " + ".join(f"{shown(ms)} {name}" for name, ms in parts.items())
    saved = serving["ttft_saved"]
    return text + (f"; the cache saves {saved}" if saved.value >= 0.5 else "")


def _heavy(proof: Proof) -> str:
    serving = proof.serving
    others = "shorter prompts pass it" if proof.order.prompt_step_tokens else "prompts behind it wait"
    return (
        f"a prompt of {serving['heavy_prompt']} makes gaps of others up to {serving['heavy_itl_p99']} for "
        f"{serving['heavy_lasts']}, and {others}; its answer adds {serving['heavy_later']}"
    )


def _cost(proof: Proof) -> Iterator[str]:
    cost = proof.cost
    if not cost:
        return
    text = str(cost["hour"])
    if "input" in cost:
        output = f", output {shown(cost['output'].value)}" if "output" in cost else ""
        text += f"; input {shown(cost['input'].value)}, cached {shown(cost['cached_input'].value)}{output} "
        text += cost["input"].unit
        even, full = cost["break_even"], cost["break_even_full"]
        text += f"; one price for all tokens {shown(even.value)}, at full capacity {shown(full.value)} ({full.span})"
    yield _line("cost", text, cost)


def _gain(proof: Proof, better: Proof) -> str:
    if better.case.gpus < proof.case.gpus:
        return f"{counted(proof.case.gpus - better.case.gpus, 'GPU')} fewer"
    if better.case.gpus == proof.case.gpus and better.capacity_requests_per_s > 1.1 * proof.capacity_requests_per_s > 0:
        return f"carries {better.capacity_requests_per_s / proof.capacity_requests_per_s:.1f} times the load"
    return ""


def _line(label: str, text: str, figures: Mapping[str, Figure] | None = None) -> str:
    """A label, a text, and the least trusted fidelity of the figures behind it."""
    mark = ""
    if figures:
        order = ("published", "calibrated", "estimated")
        mark = f"  [{max((figure.fidelity for figure in figures.values()), key=order.index)}]"
    return f"{label:<{_LABEL}}{text}{mark}"
