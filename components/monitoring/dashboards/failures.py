"""What fails: a group of panels for each failure mode, and for each runbook whose symptom metrics can show.

Here those of runbooks about requests.
"""

from __future__ import annotations

from components.monitoring import queries, scaling_queries
from components.monitoring.dashboards import failure_modes, failures_below
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, Query
from components.monitoring.dashboards.vocabulary import (
    COUNT,
    MODEL,
    OF_MODEL,
    OF_PICKER,
    OF_TENANT,
    REQUESTS_PER_S,
    SECONDS,
    SHARE,
    WINDOW,
    lines,
)

NOT_SHOWN = {
    "autoscaling-blind": "few sites have a range of replicas; no request fails, and the alert names the model",
    "canary-worse": "the group of failure mode 7 has it",
    "node-unwell": "the dashboard of hosts has it, where a site measures them",
    "control-plane-unwell": "the same",
    "pod-network-unwell": "the same",
    "credential-ends": "no figure moves before its end; the alert names it and its days",
    "bring-up": "planned work, before there is a cluster",
    "secure-boot": "planned work on machines",
    "crd-bundle": "a preview stops before it changes anything",
    "delete-protected": "a preview stops before it changes anything",
    "directory-away": "few sites have a directory; no request fails, and the alert names the gatekeeper",
    "database-backup": "no figure moves before it is needed; the alert has the hours",
    "database-unwell": "few sites run a database here; no request fails, and the alert has the number",
    "dns-records": "few sites have them written; the alert has the minutes, or the owner of a record",
    "disk-full": "on the machine that builds or runs a lab",
    "engine-killed": "on the machine that runs `up`",
    "key-signals": "what a signal is made of is a list of keys with figures, which sitectl key signals prints",
    "budget-spent": "few sites have budgets; the alert names the tenant, and its portal page the remainder",
    "usage-behind": "the dashboard of usage has it, where a site has a ledger",
    "usage-gap": "the same",
    "gpu-fault": "few sites have a watcher; the alert names the node, and GPUs have panels of their own",
    "gatekeeper-down": "few sites have gatekeepers; requests without one are in the panels of 5xx",
    "lab-in-the-way": "on the machine that runs a lab",
    "lab-machine": "the lab's own status shows it",
    "logs-missing": "no request fails; the alert names the node, or has the share of the volume",
    "object-terminating": "`up` names the object and its finalizers",
    "plugins": "on the machine that runs `up`",
    "portal-away": "few sites have a portal; the dashboard of the gateway has what its pages answer",
    "rdma-not-offered": "few sites offer devices, and no request needs one; a live check names the node",
    "recover-etcd": "without etcd there is no API server, and Prometheus finds no targets",
    "lost-state": "pulumi has no stack; nothing of the cluster changes",
    "replica-stalled": "its probe restarts it within seconds; the alert names the pod and what it held",
    "replace-node": "planned work; its nodes are in the group of nodes that do not offer GPUs",
    "secret-not-ready": "few sites have a store; the alert names the Secret, and its ExternalSecret the reason",
    "slow-request": "one request, which the log of requests shows; all of a model are in `slow-model`",
    "upgrade-machines": "planned work; `up` reports it node by node",
}
"""Runbooks without a group, and why metrics cannot show what they are about."""


def _listener(counter: str) -> str:
    return queries.rate(counter, queries.LISTENERS, by=("pod",), window=WINDOW)


BOARD = Board(
    name="failures",
    title="Inference: what fails?",
    question="The failure modes first, then one group for each runbook whose symptom can be measured. The panels of "
    "runbooks are flat and near 0 when nothing fails, but for those that count what is there.",
    groups=(
        *failure_modes.GROUPS,
        PanelGroup(
            title="A key is rejected",
            runbook="api-key",
            panels=(
                Panel(
                    title="Requests that end with 4xx (per second), by proxy",
                    good="Near 0.",
                    do="A client's key, model or body is wrong; the proxies' log has its status and client.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.rate(
                            "envoy_http_downstream_rq_xx",
                            f'{queries.LISTENERS}, envoy_response_code_class="4"',
                            by=("pod",),
                            window=WINDOW,
                        ),
                        "{{pod}}",
                    ),
                ),
                Panel(
                    title="Share of requests that end with 4xx",
                    good="Below 0.01.",
                    do="Above, after a key was rotated: a client still has the old one.",
                    unit=SHARE,
                    queries=lines(queries.status_share("4", window=WINDOW), "4xx"),
                ),
            ),
        ),
        PanelGroup(
            title="A request is too large",
            runbook="body-too-large",
            panels=(
                Panel(
                    title="Requests that are too large (per second)",
                    good="0.",
                    do="413 of the proxy: `gateway.max_body_mib`.",
                    unit=REQUESTS_PER_S,
                    queries=lines(_listener("envoy_http_downstream_rq_too_large"), "{{pod}}"),
                ),
            ),
        ),
        PanelGroup(
            title="A stream is cut",
            runbook="stream-cut",
            panels=(
                Panel(
                    title="Streams that Envoy cut for a limit of time (per second)",
                    good="0.",
                    do="`request_timeout_s` of the model, or `gateway.stream_idle_timeout_s`.",
                    unit=REQUESTS_PER_S,
                    queries=(
                        Query(expression=_listener("envoy_http_downstream_rq_idle_timeout"), legend="silence {{pod}}"),
                        Query(
                            expression=queries.or_zero(
                                queries.rate_by_model("envoy_cluster_upstream_rq_timeout", window=WINDOW),
                                queries.PROXIES,
                            ),
                            legend="limit {{model}}",
                        ),
                    ),
                ),
                Panel(
                    title="Streams that ended early (per second), by side",
                    good="By clients alone.",
                    do="By replicas: one of them died or was stopped before its streams ended.",
                    unit=REQUESTS_PER_S,
                    queries=(
                        Query(expression=_listener("envoy_http_downstream_rq_rx_reset"), legend="client {{pod}}"),
                        Query(
                            expression=queries.or_zero(
                                queries.rate_by_model("envoy_cluster_upstream_rq_rx_reset", window=WINDOW),
                                queries.PROXIES,
                            ),
                            legend="replica {{model}}",
                        ),
                    ),
                ),
            ),
        ),
        PanelGroup(
            title="The picker is down",
            runbook="picker-down",
            panels=(
                Panel(
                    title="Pickers that answer, by model",
                    good="As many as `pool.pickers`.",
                    do="0: each request of the model ends with 503.",
                    unit=COUNT,
                    queries=lines(queries.total("up", OF_PICKER, by=("model",)), "{{model}}"),
                ),
                Panel(
                    title="Requests that end with 5xx (per second), by model",
                    good="0.",
                    do="One model alone: its picker or its replicas. All: the proxies.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.or_zero(
                            queries.rate_by_model(
                                "envoy_cluster_upstream_rq_xx", 'envoy_response_code_class="5"', window=WINDOW
                            ),
                            queries.PROXIES,
                        ),
                        "{{model}}",
                    ),
                ),
            ),
        ),
        PanelGroup(
            title="A model is overloaded",
            runbook="model-overloaded",
            panels=(
                Panel(
                    title="Requests that wait, by model",
                    good="0, or some for seconds.",
                    do="Add replicas, or declare the load that there is.",
                    unit=COUNT,
                    queries=lines(queries.total("vllm:num_requests_waiting", OF_MODEL, by=("model",)), "{{model}}"),
                ),
                Panel(
                    title="Requests refused at the gateway (per second), by model",
                    good="0.",
                    do="Envoy has as many requests as the model's replicas can run and queue.",
                    unit=REQUESTS_PER_S,
                    queries=lines(
                        queries.or_zero(
                            queries.rate_by_model("envoy_cluster_upstream_rq_pending_overflow", window=WINDOW),
                            queries.PROXIES,
                        ),
                        "{{model}}",
                    ),
                ),
                Panel(
                    title="Share of requests that end with an error, by tenant",
                    good="0.",
                    do="Tenants of a tier below 0 alone: they make room. All: the model is overloaded or broken.",
                    unit=SHARE,
                    queries=lines(queries.error_share("tenant", OF_TENANT, window=WINDOW), "{{tenant}}"),
                ),
            ),
        ),
        PanelGroup(
            title="A replica does not become ready",
            runbook="replica-not-ready",
            panels=(
                Panel(
                    title="Replicas that are missing, by Deployment",
                    good="0.",
                    do="Its Pods' reasons: waiting, no room, loading, or restarting.",
                    unit=COUNT,
                    queries=lines(queries.missing_replicas(), "{{deployment}}"),
                ),
                Panel(
                    title="Replicas that the autoscaler wants, and the most that it may",
                    good="Below its dashed line; no data where no model scales.",
                    do="At the line for long: the load is no peak any more. Raise `server.replicas`, or add nodes.",
                    unit=COUNT,
                    queries=(
                        *lines(scaling_queries.wanted_replicas(), "{{horizontalpodautoscaler}}"),
                        Query(
                            expression=scaling_queries.most_replicas(),
                            legend="{{horizontalpodautoscaler}} most",
                            is_target=True,
                        ),
                    ),
                    not_in_lab="no model of the lab's site scales",
                ),
                Panel(
                    title="Restarts of containers in an hour, by Pod",
                    good="0.",
                    do="The log of the container before its restart.",
                    unit=COUNT,
                    queries=lines(
                        queries.restarts(window="1h"),
                        "{{pod}}",
                    ),
                ),
                Panel(
                    title="Pods that no node has room for",
                    good="0.",
                    do="GPUs that are used, in the wrong node, or not offered.",
                    unit=COUNT,
                    queries=lines(queries.pending_pods(), "pending"),
                ),
            ),
        ),
        PanelGroup(
            title="The Gateway is not programmed",
            runbook="gateway-not-programmed",
            panels=(
                Panel(
                    title="Addresses that the Gateway's Service has",
                    good="1.",
                    do="0: nothing in the cluster assigns addresses, or its pool is used up.",
                    unit=COUNT,
                    queries=lines(
                        queries.gateway_addresses(),
                        "{{service}}",
                    ),
                ),
                Panel(
                    title="Proxies that answer",
                    good="As many as `gateway.replicas`.",
                    do="0: no request arrives.",
                    unit=COUNT,
                    queries=lines(queries.total("up", queries.PROXIES), "proxies"),
                ),
            ),
        ),
        PanelGroup(
            title="The webhook's certificate has expired",
            runbook="webhook-certificate",
            panels=(
                Panel(
                    title="Proxies that are wanted and not made",
                    good="0, but for seconds while proxies roll.",
                    do="Events with `failed calling webhook`: rotate its certificate.",
                    unit=COUNT,
                    queries=lines(
                        queries.missing_proxies(),
                        "missing",
                    ),
                ),
            ),
        ),
        PanelGroup(
            title="A model is slow",
            runbook="slow-model",
            panels=(
                Panel(
                    title="Time between tokens, by model (P95)",
                    good="Below its dashed line.",
                    do="Too many requests at once, long prompts between steps, or a GPU that is slowed down.",
                    unit=SECONDS,
                    queries=(
                        Query(expression=queries.itl_s(0.95, OF_MODEL, window=WINDOW), legend="{{model}}"),
                        Query(expression=queries.target_s("itl", 95, MODEL), legend="{{model}} target", is_target=True),
                    ),
                ),
                Panel(
                    title="Time to the first token, by model (P95)",
                    good="Below its dashed line.",
                    do="A queue, or prompts that are longer than declared.",
                    unit=SECONDS,
                    queries=(
                        Query(expression=queries.ttft_s(0.95, OF_MODEL, window=WINDOW), legend="{{model}}"),
                        Query(
                            expression=queries.target_s("ttft", 95, MODEL), legend="{{model}} target", is_target=True
                        ),
                    ),
                ),
            ),
        ),
        PanelGroup(
            title="Requests fail too often",
            runbook="error-budget",
            panels=(
                Panel(
                    title="How many times faster than allowed is the error budget used?",
                    good="Below 1.",
                    do="The panels of 5xx by model have where.",
                    unit=COUNT,
                    queries=tuple(
                        Query(expression=queries.burn_rate(window), legend=f"over {window}") for window in ("1h", "3d")
                    ),
                ),
                Panel(
                    title="Share of requests that end with 5xx",
                    good="0.",
                    do="503 of one model: overload, no replica, or no picker that answers.",
                    unit=SHARE,
                    queries=lines(queries.status_share("5", window=WINDOW), "5xx"),
                ),
            ),
        ),
        PanelGroup(
            title="A certificate of the proxies expires",
            runbook="certificate-expires",
            panels=(
                Panel(
                    title="Days until the first certificate of a proxy expires",
                    good="More than 14.",
                    do="Renew the Secret that `gateway.certificate_secret` names.",
                    unit="suffix: days",
                    queries=lines(
                        queries.lowest("envoy_server_days_until_first_cert_expiring", by=("pod",)), "{{pod}}"
                    ),
                ),
            ),
        ),
        *failures_below.GROUPS,
    ),
)
