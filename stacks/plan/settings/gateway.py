"""Settings of the gateway for one model: bodies, answers, and requests at once."""

from __future__ import annotations

import math

from stacks.plan.settings.definition import Basis, Bounds, Definition, Derived
from stacks.proof.case import Case

# Bytes of a body for each token of it: two characters, each escaped as JSON's \uXXXX\uXXXX; estimated, text has 4.
BODY_BYTES_PER_TOKEN = 24
# Parts of a body other than its text: settings of the request, roles, names.
_BODY_FRAME_KIB = 64
# The picker takes a body as one message of gRPC, of 4 MiB at most, with a little around it.
LARGEST_BODY_KIB = 4 * 1024 - 4


def token_s(case: Case) -> float:
    """Mean seconds per token at worst, whatever the load: of a full batch, or what the targets allow if more."""
    per_step = case.order.tokens_per_step
    return max(case.token_s(case.slots), (case.order.slo.mean_step_ms(per_step) or 0.0) / 1e3 / per_step)


def _context(basis: Basis) -> Derived:
    return Derived(value=basis.case.context, inputs={"max_model_len": basis.case.context})


def _body(basis: Basis) -> Derived:
    case = basis.case
    text = math.ceil(case.context * BODY_BYTES_PER_TOKEN / 1024) + _BODY_FRAME_KIB
    pictures = case.order.model.vision_parameters > 0
    return Derived(
        value=LARGEST_BODY_KIB if pictures else min(LARGEST_BODY_KIB, text),
        inputs={"max_model_len": case.context, "largest_kib": LARGEST_BODY_KIB},
    )


def _parallel(basis: Basis) -> Derived:
    replicas, held = basis.case.replicas, int(basis.number("max_num_queued_reqs"))
    return Derived(value=replicas * held, inputs={"replicas": replicas, "max_num_queued_reqs": held})


def _parallel_bounds(basis: Basis) -> Bounds:
    case = basis.case
    running = case.replicas * case.slots * case.layout.data
    return Bounds(
        low=running,
        high=basis.number("gateway_parallel_requests"),
        below=f"the gateway would refuse requests while GPUs are idle: the replicas run {running:,} at once",
        above="the gateway would pass on what the replicas refuse",
        instead_above="raise overrides.max_num_queued_reqs or server.replicas",
    )


def _usual_answer(case: Case) -> int:
    """Tokens of an answer that the site expects; it is never cut."""
    return math.ceil(case.order.load.answer_tokens.p95) if case.order.load else 1


def _answers(basis: Basis) -> Derived | None:
    case, stream_s = basis.case, basis.serving.longest_stream_s
    if case.order.model.task != "generate" or case.fit_problems:
        return None
    slow, usual = token_s(case), _usual_answer(case)
    return Derived(
        value=min(case.context, max(usual, math.floor(stream_s / slow))),
        inputs={"longest_stream_s": stream_s, "itl_ms": round(slow * 1e3, 1), "answer_tokens_p95": usual},
    )


def _answer_bounds(basis: Basis) -> Bounds:
    case, most, stream_s = basis.case, basis.number("gateway_max_tokens"), basis.serving.longest_stream_s
    usual, wanted = _usual_answer(case), basis.serving.overrides["gateway_max_tokens"].value
    seconds = math.ceil(wanted * token_s(case))
    fits = wanted <= case.context
    return Bounds(
        low=min(usual, most),
        high=most,
        below="answers that the declared load has would be cut",
        instead_below="lower load.answer_tokens.p95" if usual > 1 else "",
        above=f"an answer of so many tokens takes {seconds:,} s, and a rollout cuts streams after {stream_s:,} s"
        if fits
        else f"no request may have more than {case.context:,} tokens",
        instead_above=f"raise server.longest_stream_s to {seconds + 1}" if fits else "",
    )


DEFINITIONS = (
    Definition(
        key="gateway_context_tokens",
        unit="tokens",
        formula="max_model_len",
        derive=_context,
        used="argument of the engine, --max-model-len: the gateway counts no tokens before the engine does",
    ),
    Definition(
        key="gateway_body_kib",
        unit="KiB",
        formula=f"min(largest message of the picker, max_model_len x {BODY_BYTES_PER_TOKEN} bytes + {_BODY_FRAME_KIB} "
        "KiB); that message for a model that sees: pictures have few tokens for their bytes",
        derive=_body,
        used="the Gateway's BackendTrafficPolicy: requestBuffer.limit, the largest of all models, since a body is read "
        "before its model is known; gateway.max_body_mib sets another",
    ),
    Definition(
        key="gateway_parallel_requests",
        unit="requests",
        formula="replicas x max_num_queued_reqs, in each Envoy pod: one alone must be able to carry them all",
        derive=_parallel,
        used="the model's BackendTrafficPolicy: circuitBreaker.maxParallelRequests and maxPendingRequests",
        bounds=_parallel_bounds,
    ),
    Definition(
        key="gateway_max_tokens",
        unit="tokens",
        formula="min(max_model_len, longest stream / longer of gap target and a full batch's step): a rollout cuts "
        "longer answers; at least the declared answers' p95",
        derive=_answers,
        used="argument of the engine, --override-generation-config, of vLLM alone: the AI gateway changes no body on "
        "its way to an inference pool, and the simulator has no such limit",
        bounds=_answer_bounds,
    ),
)
