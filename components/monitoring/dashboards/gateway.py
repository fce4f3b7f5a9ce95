"""Is the way in well: proxies, pickers, and the controllers that configure them."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, Query, Shape
from components.monitoring.dashboards.vocabulary import (
    BYTES,
    COUNT,
    OF_PICKER,
    REQUESTS_PER_S,
    SECONDS,
    SHARE,
    WINDOW,
    lines,
)

_PORTALS, _NO_PORTAL = 'job="portal"', "the lab's site has no portal"

BOARD = Board(
    name="gateway",
    title="Inference: is the way in well?",
    question="Envoy, the endpoint pickers of the models, the portal, and the controllers that configure Envoy.",
    groups=(
        PanelGroup(
            title="Proxies",
            panels=(
                Panel(
                    title="Requests per second, by class of status",
                    good="Nearly all 2xx.",
                    do="4xx: keys and requests of clients. 5xx: the platform.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.rate(
                            "envoy_http_downstream_rq_xx",
                            queries.LISTENERS,
                            by=("envoy_response_code_class",),
                            window=WINDOW,
                        ),
                        "{{envoy_response_code_class}}xx",
                    ),
                    shape=Shape.STACKED,
                    runbook="api-key",
                ),
                Panel(
                    title="Requests under way in each proxy",
                    good="Alike in all proxies, and below 1,024 per model and proxy.",
                    do="One has far more: clients keep few connections, which a proxy keeps for good.",
                    unit=COUNT,
                    queries=lines(
                        queries.total("envoy_http_downstream_rq_active", queries.LISTENERS, by=("pod",)), "{{pod}}"
                    ),
                ),
                Panel(
                    title="Connections of clients to each proxy",
                    good="Alike in all proxies.",
                    do="Growth without requests: clients that open one for each request, or never close any.",
                    unit=COUNT,
                    queries=lines(
                        queries.total("envoy_http_downstream_cx_active", queries.LISTENERS, by=("pod",)), "{{pod}}"
                    ),
                ),
                Panel(
                    title="Memory of each proxy",
                    good="Below half of `gateway.memory_mib`.",
                    do="Readers that are slow: from half on, Envoy resets the streams that take most of it.",
                    unit=BYTES,
                    queries=lines(queries.highest("envoy_server_memory_allocated", by=("pod",)), "{{pod}}"),
                    runbook="stream-cut",
                ),
                Panel(
                    title="Requests that Envoy refused because a model has too many (per second)",
                    good="0.",
                    do="More replicas, or a load that was not declared.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.or_zero(
                            queries.rate_by_model("envoy_cluster_upstream_rq_pending_overflow", window=WINDOW),
                            queries.PROXIES,
                        ),
                        "{{model}}",
                    ),
                    runbook="model-overloaded",
                ),
                Panel(
                    title="Days until a certificate of a proxy expires",
                    good="More than 14.",
                    do="Renew the Secret that `gateway.certificate_secret` names; 2^31 means no certificate.",
                    unit="suffix: days",
                    runbook="certificate-expires",
                    queries=lines(
                        queries.lowest("envoy_server_days_until_first_cert_expiring", by=("pod",)), "{{pod}}"
                    ),
                ),
            ),
        ),
        PanelGroup(
            title="Pickers",
            runbook="picker-down",
            panels=(
                Panel(
                    title="Replicas that the pickers of a model see as ready",
                    good="All that the site declares.",
                    do="0 is 503 for each request of the model.",
                    unit=COUNT,
                    queries=lines(queries.lowest("inference_pool_ready_pods", OF_PICKER, by=("model",)), "{{model}}"),
                    runbook="replica-not-ready",
                ),
                Panel(
                    title="Requests that the pickers of a model place (per second), by priority",
                    good="Those of high priority never fall when load grows.",
                    do="See the tiers of the site.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.rate(
                            "inference_objective_request_total", OF_PICKER, by=("model", "priority"), window=WINDOW
                        ),
                        "{{model}} priority {{priority}}",
                    ),
                ),
                Panel(
                    title="Requests that the pickers of a model refuse (per second)",
                    good="0, or those of tiers below 0 under load.",
                    do="429 is a tier that makes room; 503 is a model without a ready replica.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.or_zero(
                            queries.rate(
                                "inference_objective_request_error_total",
                                OF_PICKER,
                                by=("model", "error_code"),
                                window=WINDOW,
                            ),
                            queries.PICKERS,
                        ),
                        "{{model}} {{error_code}}",
                    ),
                    runbook="model-overloaded",
                ),
                Panel(
                    title="Requests that wait per replica, as the pickers see it",
                    good="Near 0.",
                    do="It grows on all: the model is overloaded. On one: look at this replica.",
                    unit=COUNT,
                    queries=lines(
                        queries.highest("inference_pool_per_pod_queue_size", OF_PICKER, by=("model_server_pod",)),
                        "{{model_server_pod}}",
                    ),
                    runbook="model-overloaded",
                ),
                Panel(
                    title="Requests for a model that another one answers (per second)",
                    good="0.",
                    do="The model is full or away for as long as this lasts.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.or_zero(
                            queries.rate("gatekeeper_overflow_requests_total", by=("model", "to"), window=WINDOW),
                            queries.PICKERS,
                        ),
                        "{{model}} {{to}}",
                    ),
                    runbook="model-overloaded",
                ),
                Panel(
                    title="Time that a picker takes to choose (P99)",
                    good="Below 10 ms.",
                    do="More processor time: `models.NAME.pool.cpu`.",
                    unit=SECONDS,
                    queries=lines(
                        queries.picking_s(0.99, OF_PICKER, window=WINDOW),
                        "{{model}}",
                    ),
                ),
                Panel(
                    title="Share of a prompt that the pickers find on the replica that they choose (P50)",
                    good="At least the model's declared `prefix_hit`.",
                    do="Prompts that change at their beginning, or replicas that restart.",
                    unit=SHARE,
                    queries=lines(
                        queries.quantile(
                            0.5,
                            "inference_extension_prefix_indexer_hit_ratio",
                            OF_PICKER,
                            by=("model",),
                            window=WINDOW,
                        ),
                        "{{model}}",
                    ),
                ),
            ),
        ),
        PanelGroup(
            title="The portal",
            runbook="portal-away",
            panels=(
                Panel(
                    title="Requests of people and programs to the portal (per second), by status",
                    good="No 5xx.",
                    do="502 and 503: another part does not answer, see beside. 500: the portal's log.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.rate("portal_requests_total", _PORTALS, by=("status",), window=WINDOW), "{{status}}"
                    ),
                    shape=Shape.STACKED,
                    not_in_lab=_NO_PORTAL,
                ),
                Panel(
                    title="Requests of the portal that a part did not answer (per second)",
                    good="0, or no data: nothing has failed since its pods started.",
                    do="The part that is named is away, or refuses the portal's token.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.rate("portal_upstream_failures_total", _PORTALS, by=("part",), window=WINDOW),
                        "{{part}}",
                    ),
                    not_in_lab=_NO_PORTAL,
                ),
            ),
        ),
        PanelGroup(
            title="Controllers",
            runbook="gateway-not-programmed",
            panels=(
                Panel(
                    title="Controllers that answer",
                    good="1 for each.",
                    do="Running requests go on; changes wait, and new proxies do not start without the webhook.",
                    unit=COUNT,
                    queries=lines(queries.total("up", queries.CONTROLLERS, by=("pod",)), "{{pod}}"),
                ),
                Panel(
                    title="Configurations that Envoy rejected (per second)",
                    good="0.",
                    do="The last `up` made one: its status is in the conditions of the Gateway and its policies.",
                    unit=COUNT,
                    queries=lines(
                        queries.or_zero(
                            queries.rate("xds_nack_total", by=("pod",), window=WINDOW), queries.CONTROLLERS
                        ),
                        "{{pod}}",
                    ),
                ),
                Panel(
                    title="Reconciliations that failed (per second), by controller",
                    good="0, but for seconds during `up`.",
                    do="The log of this controller.",
                    unit=COUNT,
                    queries=(
                        Query(
                            expression=queries.rate(
                                "controller_runtime_reconcile_errors_total",
                                queries.CONTROLLERS,
                                by=("pod", "controller"),
                                window=WINDOW,
                            ),
                            legend="{{pod}} {{controller}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
