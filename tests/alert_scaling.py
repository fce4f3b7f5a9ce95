"""Cases of the alerts on models whose replicas follow the load."""

from __future__ import annotations

from tests.alert_site import OBJECT, Case, constant, grows


def scaler_errors(trigger: str) -> str:
    return (
        'keda_scaler_detail_errors_total{job="autoscaling", namespace="inference-models", scaledObject="chat", '
        f'scaler="{trigger}"}}'
    )


def autoscaler(figure: str, more: str = "") -> str:
    name = 'namespace="inference-models", horizontalpodautoscaler="keda-hpa-chat"'
    return f"kube_horizontalpodautoscaler_{figure}{{{OBJECT}, {name}{more}}}"


CASES = (
    Case(
        alert="AutoscalingBlind",
        change={scaler_errors("requests"): grows(4), scaler_errors("cache"): grows(4)},
        labels={"namespace": "inference-models", "scaledObject": "chat"},
        shown="40",
    ),
    Case(
        alert="AutoscalerIdle",
        change={autoscaler("status_condition", ', condition="ScalingActive", status="true"'): constant(0)},
        labels={"horizontalpodautoscaler": "keda-hpa-chat"},
        shown="0",
    ),
    Case(
        alert="ScaledToTheMost",
        change={
            autoscaler("status_desired_replicas"): constant(4),
            autoscaler("spec_max_replicas"): constant(4),
        },
        labels={"horizontalpodautoscaler": "keda-hpa-chat"},
        shown="4",
        minutes=1500,
    ),
)
