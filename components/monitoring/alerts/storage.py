"""Alerts about volumes and the disks below them: Longhorn's own figures."""

from __future__ import annotations

from components.models.weights import CLAIM_MARK
from components.monitoring import queries
from components.monitoring.alerts.alert import Alert
from components.specs.longhorn import MINIMAL_AVAILABLE_PERCENT
from floor.namespaces import MONITORING

# What Longhorn counts includes blocks that were freed and not trimmed; an estimate of when to look.
_FULL_SHARE = 0.9
# Below so much free space Longhorn places nothing on a disk; a margin before that.
_DISK_SHARE = 1 - MINIMAL_AVAILABLE_PERCENT / 100 - 0.05


def volumes() -> list[Alert]:
    """Volumes of weights and of what else the site keeps."""
    growing = f'{queries.STORAGE}, pvc!~".+{CLAIM_MARK}.+", pvc_namespace!="{MONITORING}"'
    return [
        Alert(
            name="VolumeFaulted",
            severity="page",
            expression=_state("faulted"),
            minutes=1,
            summary="The volume of {{ $labels.pvc }} has no copy left",
            description="No replica of {{ $labels.volume }} is usable ({{ $value }} is yes), and what uses it has "
            "stopped.",
            runbook="storage-unwell",
        ),
        Alert(
            name="VolumeDegraded",
            severity="ticket",
            expression=_state("degraded"),
            # Longhorn waits ten minutes for a node before it makes another copy (replica-replenishment-wait-interval).
            minutes=30,
            summary="The volume of {{ $labels.pvc }} has fewer copies than declared",
            description="{{ $labels.volume }} is degraded ({{ $value }} is yes): a node or a disk is away, or there is "
            "no room for another copy.",
            runbook="storage-unwell",
        ),
        Alert(
            name="VolumeNearlyFull",
            severity="ticket",
            # A model's volume is made for its weights and is full from then on; Prometheus keeps to a share of its own.
            expression=f"{queries.volume_used_share(growing)} > {_FULL_SHARE:g}",
            minutes=15,
            summary="The volume of {{ $labels.pvc }} is nearly full",
            description="{{ $value | humanizePercentage }} of {{ $labels.volume }} was written.",
            runbook="storage-unwell",
        ),
        Alert(
            name="StorageNodeNearlyFull",
            severity="ticket",
            expression=f"{queries.node_storage_used_share()} > {_DISK_SHARE:g}",
            minutes=15,
            summary="The disks of {{ $labels.node }} are nearly full",
            description=f"{{{{ $value | humanizePercentage }}}} are in use. Longhorn places no copy on a disk with "
            f"less than {MINIMAL_AVAILABLE_PERCENT} % free.",
            runbook="storage-unwell",
        ),
    ]


def _state(state: str) -> str:
    where = f'{queries.STORAGE}, state="{state}"'
    return f"{queries.highest('longhorn_volume_robustness', where, by=('volume', 'pvc'))} > 0"
