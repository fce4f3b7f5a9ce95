"""Where the logs of pods are kept, and what a lost node or store takes of them."""

from __future__ import annotations

from stacks.plan.monitoring import scratch_volumes
from stacks.site.model import SiteConfig


def log_volume_class(site: SiteConfig) -> str | None:
    """Class of the store's volume; None where none is known."""
    return site.logs.storage_class or scratch_volumes(site)


def describe_logs(site: SiteConfig) -> str:
    """What is kept, for how long, and what is not, as text for people; empty where the program collects none."""
    spec = site.logs
    if not spec.collected:
        return ""
    where = (
        f"{spec.keep_days} days in VictoriaLogs, on {spec.volume_gib} GiB of class {log_volume_class(site)}"
        if spec.system == "victoria_logs"
        else f"at {spec.address}"
    )
    lines = [
        f"logs: lines of all pods, {where}",
        "   a node lost: the lines of its last seconds, and those that waited for the store",
        "   not in them: prompts and answers, and what machines log outside of pods",
    ]
    return "\n".join(lines)
