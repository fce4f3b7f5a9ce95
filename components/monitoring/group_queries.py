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
    wanted, ready = _counts(groups)
    return f"({pods} or {_as_deployment(f'{wanted} - {ready}')})"


def without_replica(groups: Sequence[str], minutes: int) -> str:
    """Deployments of models and pickers, and groups' models, of whose pods none is available and some are declared.

    Not one that was made or changed within so many minutes: it may still start.
    """
    available = queries.total("kube_deployment_status_replicas_available", queries.IN_MODELS, by=("deployment",))
    declared = queries.total("kube_deployment_spec_replicas", queries.IN_MODELS, by=("deployment",))
    changed = queries.changed_deployments(minutes)
    pods = f"{available} == 0 and on (deployment) {declared} > 0 unless on (deployment) {changed}"
    if not groups:
        return pods
    where, (wanted, ready) = _leaders(groups), _counts(groups)
    moved = f"changes(kube_statefulset_metadata_generation{{{where}}}[{minutes}m]) > 0"
    made = f"time() - kube_statefulset_created{{{where}}} < {minutes * 60}"
    changed = f"max by (statefulset) ({moved} or {made})"
    leaders = f"{ready} == 0 and on (statefulset) {wanted} > 0 unless on (statefulset) {changed}"
    return f"({pods}) or {_as_deployment(leaders)}"


def _counts(groups: Sequence[str]) -> tuple[str, str]:
    """Groups that are declared, and those whose leader is ready, by model."""
    wanted, ready = "kube_statefulset_replicas", "kube_statefulset_status_replicas_ready"
    where, by = _leaders(groups), ("statefulset",)
    return queries.total(wanted, where, by=by), queries.total(ready, where, by=by)


def _leaders(groups: Sequence[str]) -> str:
    return f'{queries.IN_MODELS}, statefulset=~"{"|".join(groups)}"'


def _as_deployment(expression: str) -> str:
    return f'label_replace({expression}, "deployment", "$1", "statefulset", "(.+)")'
