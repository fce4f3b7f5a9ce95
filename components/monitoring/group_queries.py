"""PromQL about replicas, where those of some models are groups of pods over several nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from components.monitoring import queries


def assigned_gpus(slices: Mapping[str, float], groups: Sequence[str]) -> str:
    """What `model:gpus:assigned` records.

    groups: such models. Their pods are NAME-GROUP and NAME-GROUP-WORKER, which a Deployment's pattern reads otherwise.
    """
    if not groups:
        return queries.assigned_gpus(slices)
    named = f"({'|'.join(groups)})-[0-9]+(-[0-9]+)?"
    of_pods = queries.assigned_gpus(slices, others=f', pod!~"{named}"')
    return f"{of_pods} or {queries.assigned_gpus(slices, named)}"


def missing_replicas(groups: Sequence[str]) -> str:
    """Replicas of models and pickers that are declared and not available, by Deployment, or by group's model.

    The leaders of groups are of a StatefulSet; without one of its pods a group has no leader that is ready.
    """
    pods = queries.missing_replicas()
    if not groups:
        return pods
    where = f'{queries.IN_MODELS}, statefulset=~"{"|".join(groups)}"'
    wanted, ready = (
        queries.total(metric, where, by=("statefulset",))
        for metric in ("kube_statefulset_replicas", "kube_statefulset_status_replicas_ready")
    )
    return f'({pods} or label_replace({wanted} - {ready}, "deployment", "$1", "statefulset", "(.+)"))'
