"""PromQL of what the cluster's autoscaler does, by autoscaler, as in `queries`."""

from __future__ import annotations

from components.models.scaling import counting
from components.monitoring import queries

_BY = ("horizontalpodautoscaler",)
# As KEDA names the autoscaler of a Deployment (its pkg/util, v2.21).
_HPA = "keda-hpa-$1"


def wanted_replicas() -> str:
    """Replicas that it wants of each model that scales."""
    return _replicas("status_desired")


def most_replicas() -> str:
    """The most that it may want."""
    return _replicas("spec_max")


def active() -> str:
    """1 where it gets metrics and sets the number."""
    where = f'{queries.IN_MODELS}, condition="ScalingActive", status="true"'
    return queries.total("kube_horizontalpodautoscaler_status_condition", where, by=_BY)


def without_any(name: str = "$1", label: str = "model") -> str:
    """0 of each Deployment of models that is to have no replica. name: of the label, out of that of the Deployment."""
    wanted = queries.total("kube_deployment_spec_replicas", queries.IN_MODELS, by=("deployment",))
    return f'label_replace({wanted} == 0, "{label}", "{name}", "deployment", "(.+)")'


def idle() -> str:
    """Of `active`, the autoscalers of models that have a replica or should: with none, Kubernetes' own is off."""
    return f"{active()} == 0 unless on (horizontalpodautoscaler) {without_any(_HPA, _BY[0])}"


def asked_in_vain(window: str) -> str:
    """Models whose pickers refused requests within `window`, and that are to have no replica still."""
    refused = f"inference_objective_request_error_total{{{queries.PICKERS}}}"
    return f"count by (model) ({counting(refused, window)}) and on (model) {without_any()}"


def _replicas(figure: str) -> str:
    return queries.total(f"kube_horizontalpodautoscaler_{figure}_replicas", queries.IN_MODELS, by=_BY)
