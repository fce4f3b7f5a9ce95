"""Headers that have a meaning behind the gateway."""

from __future__ import annotations

# The model of a request, as the AI gateway read it from the body.
MODEL_HEADER = "x-ai-eg-model"
# The authenticated client, for fairness in the picker and for every later count.
CLIENT_HEADER = "x-gateway-inference-fairness-id"
# Whose key a request came with, for the counters of its limits; a script sets it, in the place of a client's own.
TENANT_HEADER = "x-inference-tenant"
# The InferenceObjective that a request counts under, from which the picker knows its priority.
OBJECTIVE_HEADER = "x-gateway-inference-objective"
# The model's own name, for the picker, where the client used an alias.
REWRITE_HEADER = "x-gateway-model-name-rewrite"
# The revision that serves a request, where that is not its model's stable one: what its route is found by.
REVISION_HEADER = "x-inference-revision"
# A client's name for its prompt, for the request log; no engine gets it.
PROMPT_ID_HEADER = "x-prompt-id"
# Why the front door refuses a request: the error's code, for the reply mapper.
REFUSAL_HEADER = "x-inference-refusal"
# The model that answered, where it is not the one that was asked for; on answers alone.
SERVED_HEADER = "x-served-model"
# Headers that decide on routing, identity or priority behind the gateway, or ask an engine about itself: a client's own
# are dropped before anything reads them (names: AI gateway internalapi, endpoint picker pkg/epp/metadata, vLLM 0.32
# entrypoints/generate/base/serving.py and entrypoints/serve/utils/orca_metrics.py).
TRUSTED_HEADERS = (
    MODEL_HEADER,
    "x-ai-eg-original-path",
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    CLIENT_HEADER,
    OBJECTIVE_HEADER,
    REFUSAL_HEADER,
    REWRITE_HEADER,
    "endpoint-load-metrics-format",
    "x-data-parallel-rank",
    "x-llm-d-inference-fairness-id",
    "x-llm-d-inference-objective",
    "x-llm-d-model-name-rewrite",
    "x-llm-d-slo-tpot-ms",
    "x-llm-d-slo-ttft-ms",
    "x-prefiller-host-port",
    "x-slo-tpot-ms",
    "x-slo-ttft-ms",
    "x-vllm-priority",
)
# Of answers on the route of a model that may have no replica, for the reply mapper: seconds until its first one serves,
# and after how many a client is to ask again.
START_HEADER, RETRY_HEADER = "x-inference-start-s", "x-inference-start-retry-s"
# Beginnings of the names of response headers that reveal the inside.
INNER_HEADERS = (
    "endpoint-load-metrics",
    "server",
    "via",
    "x-ai-eg-",
    "x-envoy-",
    "x-gateway-",
    "x-inference-",
    "x-llm-d-",
    "x-powered-by",
    "x-went-into-",
)
