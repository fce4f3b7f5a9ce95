"""What fails below the models: GPUs and nodes, weights and volumes, the cluster, and what measures."""

from __future__ import annotations

from components.monitoring import gpu_resources, queries
from components.monitoring.dashboards import hardware, storage
from components.monitoring.dashboards.board import Panel, PanelGroup, Shape
from components.monitoring.dashboards.vocabulary import COUNT, SECONDS, WINDOW, lines

_FAILED_GPUS, _SLOWED_GPUS, _ = hardware.BOARD.groups
_, _VOLUMES = storage.BOARD.groups
# Each counted as itself: the files of dashboards know no site, and so no part that a slice is of its GPU.
_OFFERED = queries.total(
    "kube_node_status_allocatable", f"{queries.OBJECTS}, {gpu_resources.WHOLE_OR_SLICE}", by=("node", "resource")
)

GROUPS = (
    PanelGroup(
        title="A node does not offer its GPUs",
        runbook="gpu-not-offered",
        panels=(
            Panel(
                title="GPUs that each node offers",
                good="8 for each HGX machine; of one that is cut, its slices and no whole GPU.",
                do="Follow the chain from the card to the scheduler.",
                unit=COUNT,
                queries=lines(_OFFERED, "{{node}} {{resource}}"),
                shape=Shape.STACKED,
            ),
            Panel(
                title="Nodes that are not ready",
                good="0.",
                do="`python -m talos` on its address shows what the machine does.",
                unit=COUNT,
                queries=lines(
                    queries.nodes_not_ready(),
                    "{{node}}",
                ),
            ),
        ),
    ),
    PanelGroup(
        title="Weights are not there",
        runbook="weights-not-there",
        panels=(
            Panel(
                title="Weights Jobs that failed",
                good="0.",
                do="Its exit status shows why.",
                unit=COUNT,
                queries=lines(queries.or_zero(queries.weights_jobs("failed"), queries.OBJECTS), "{{job_name}}"),
            ),
            Panel(
                title="Time since the oldest weights Job that still runs began",
                good="Nothing, or less than the first start of `sitectl proof`.",
                do="Its log has the file and the rate.",
                unit=SECONDS,
                queries=lines(queries.or_zero(queries.weights_job_age(), queries.OBJECTS), "{{job_name}}"),
            ),
        ),
    ),
    PanelGroup(
        title="The API server is away during up",
        runbook="api-server-away",
        panels=(
            Panel(
                title="Failures of Prometheus to find its targets (per second)",
                good="0.",
                do="The API server does not answer: known targets are still scraped.",
                unit=COUNT,
                queries=lines(queries.rate("prometheus_sd_kubernetes_failures_total", window=WINDOW), "failures"),
            ),
        ),
    ),
    PanelGroup(
        title="A GPU is not well", runbook="gpu-unwell", panels=(*_FAILED_GPUS.panels[:3], *_SLOWED_GPUS.panels[:3])
    ),
    PanelGroup(title="Storage is not well", runbook="storage-unwell", panels=_VOLUMES.panels[:3]),
    PanelGroup(
        title="What measures does not work",
        runbook="monitoring-down",
        panels=(
            Panel(
                title="Targets that do not answer, by job",
                good="0.",
                do="Panels and alerts of this job know nothing new.",
                unit=COUNT,
                queries=lines("count by (job) (up == 0) or on () 0 * sum(up)", "{{job}}"),
            ),
            Panel(
                title="Rules that cannot be computed (per second), by group",
                good="0.",
                do="Alerts of this group do not fire: Prometheus's log has the reason.",
                unit=COUNT,
                queries=lines(
                    queries.rule_failures_per_s(window=WINDOW),
                    "{{rule_group}}",
                ),
            ),
        ),
    ),
)
