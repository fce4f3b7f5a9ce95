"""Cases of the alerts on models whose replicas follow the load."""

from __future__ import annotations

from tests.alert_site import OBJECT, Case, Values, constant, deployment, grows


def scaler_errors(trigger: str) -> str:
    return (
        'keda_scaler_detail_errors_total{job="autoscaling", namespace="inference-models", scaledObject="chat", '
        f'scaler="{trigger}"}}'
    )


def autoscaler(figure: str, more: str = "") -> str:
    name = 'namespace="inference-models", horizontalpodautoscaler="keda-hpa-chat"'
    return f"kube_horizontalpodautoscaler_{figure}{{{OBJECT}, {name}{more}}}"


def scales(count: int) -> dict[str, Values]:
    """1 where Kubernetes' own autoscaler sets the number, which it does not while there is none."""
    return {autoscaler("status_condition", ', condition="ScalingActive", status="true"'): constant(count)}


# As of a model that is to have no replica: nothing is scraped, and Kubernetes' own autoscaler is off.
AT_ZERO: dict[str, Values | None] = {
    **deployment("chat", available=0, wanted=0),
    **scales(0),
    'inference_pool_ready_pods{job="inference-pickers", model="chat", name="chat"}': constant(0),
}
REFUSED = (
    'inference_objective_request_error_total{job="inference-pickers", model="chat", pod="chat-epp-a", '
    'error_code="ServiceUnavailable"}'
)

CASES = (
    # No alert fires but the one that always does.
    Case(alert="Watchdog", change=AT_ZERO, shown="1"),
    Case(
        alert="ModelNotStarted",
        change={**AT_ZERO, REFUSED: grows(1)},
        labels={"model": "chat"},
        shown="1",
        minutes=10,
    ),
    # KEDA started it, and it is not ready in its time.
    Case(
        alert="ModelHasNoReplica",
        change={**AT_ZERO, **deployment("chat", available=0, wanted=1), **scales(1)},
        labels={"deployment": "chat"},
        also=("ReplicaMissing",),
        shown="0",
    ),
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
