"""Is storage well: Longhorn, volumes, and the Jobs that bring weights."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, Shape
from components.monitoring.dashboards.vocabulary import BYTES_PER_S, COUNT, SECONDS, SHARE, lines

_NO_LONGHORN = "the lab's volumes are folders"
_VOLUME = ("volume", "pvc")

BOARD = Board(
    name="storage",
    title="Inference: is storage well?",
    question="Volumes and their replicas, room, speed, and the Jobs that bring weights.",
    groups=(
        PanelGroup(
            title="Are the weights there?",
            runbook="weights-not-there",
            panels=(
                Panel(
                    title="Jobs that failed to bring weights",
                    good="0.",
                    do="Its exit status shows why.",
                    unit=COUNT,
                    queries=lines(queries.or_zero(queries.weights_jobs("failed"), queries.OBJECTS), "{{job_name}}"),
                ),
                Panel(
                    title="Jobs that bring weights now",
                    good="0, but after a new model or revision.",
                    do="Wait as long as `sitectl proof` states as its first start; then read its log.",
                    unit=COUNT,
                    queries=lines(queries.or_zero(queries.weights_jobs("active"), queries.OBJECTS), "{{job_name}}"),
                ),
                Panel(
                    title="Nodes without a model's weights, where each node has its own",
                    good="0, but after a new model, revision or node.",
                    do="The log of the node's pod has the file and the rate, or why it failed.",
                    unit=COUNT,
                    queries=lines(queries.or_zero(queries.unfilled_nodes(), queries.OBJECTS), "{{daemonset}}"),
                ),
                Panel(
                    title="Claims that are bound, pending or lost",
                    good="All bound.",
                    do="Pending: storage class or room. Lost: the volume was deleted under its claim.",
                    unit=COUNT,
                    queries=lines(queries.claims(), "{{phase}}"),
                    shape=Shape.STACKED,
                    runbook="replica-not-ready",
                ),
            ),
        ),
        PanelGroup(
            title="Are Longhorn's volumes well?",
            runbook="storage-unwell",
            panels=(
                Panel(
                    title="Volumes that are degraded or faulted",
                    good="0.",
                    do="Degraded heals when its nodes are back and have room. Faulted: no replica is left, bring the "
                    "weights again or restore a backup.",
                    unit=COUNT,
                    queries=lines(
                        queries.total(
                            "longhorn_volume_robustness", f'{queries.STORAGE}, state=~"degraded|faulted"', by=("state",)
                        ),
                        "{{state}}",
                    ),
                    not_in_lab=_NO_LONGHORN,
                ),
                Panel(
                    title="Share of each node's disks in use",
                    good="Below 0.75: Longhorn places no replica on a disk that is fuller.",
                    do="Add a disk or a node, or delete volumes that no claim has.",
                    unit=SHARE,
                    queries=lines(queries.node_storage_used_share(), "{{node}}"),
                    not_in_lab=_NO_LONGHORN,
                ),
                Panel(
                    title="Share of each volume in use",
                    good="Below 0.9. Weights fill their volume to that from the start, and it does not grow.",
                    do="Increase its size, or delete what is no longer needed in it.",
                    unit=SHARE,
                    queries=lines(queries.volume_used_share(), "{{pvc}}"),
                    not_in_lab=_NO_LONGHORN,
                ),
                Panel(
                    title="Bytes read from each volume",
                    good="Up to the storage's rate while replicas start, else near 0.",
                    do="Slower than `storage.read_bytes_per_s` while a replica starts: set the measured rate.",
                    unit=BYTES_PER_S,
                    queries=lines(queries.highest("longhorn_volume_read_throughput", by=_VOLUME), "{{pvc}}"),
                    runbook="replica-not-ready",
                    not_in_lab=_NO_LONGHORN,
                ),
                Panel(
                    title="Time that a read of a volume takes",
                    good="Below 10 ms.",
                    do="The disks or the network of its nodes; compare volumes of one node.",
                    unit=SECONDS,
                    queries=lines(f"{queries.highest('longhorn_volume_read_latency', by=_VOLUME)} / 1e9", "{{pvc}}"),
                    not_in_lab=_NO_LONGHORN,
                ),
                Panel(
                    title="Nodes that Longhorn cannot use",
                    good="0.",
                    do="The condition names what is missing.",
                    unit=COUNT,
                    queries=lines(
                        queries.unusable_storage_nodes(),
                        "{{node}} {{condition}}",
                    ),
                    not_in_lab=_NO_LONGHORN,
                ),
            ),
        ),
    ),
)
