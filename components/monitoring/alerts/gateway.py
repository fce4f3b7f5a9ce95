"""Alerts about the way in: the error budget, proxies, pickers and certificates."""

from __future__ import annotations

from dataclasses import dataclass

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert, Severity

# Below so many in the longer window a share means nothing: one failed request of a quiet night would page someone.
_FEWEST_ERRORS = 5
# Share of a model's requests, for the model to be named; ten times the budget of 99.9 %.
_FAILED_SHARE = 0.01
# Envoy resets streams from 0.7 of its heap on (components/gateway/gateway_overload.py).
_HEAP_SHARE = 0.7
_CERTIFICATE_LEFT, _CERTIFICATE_DAYS = "envoy_server_days_until_first_cert_expiring", 14
PORTAL_PROXIES = "portal-proxies"
"""Job of the proxies before the portal's pages."""


@dataclass(frozen=True, kw_only=True)
class Burn:
    """How fast an error budget is used up, seen over two windows: the short one ends the alert when the cause ends."""

    name: str
    factor: float
    """Times the speed that uses up a budget of 30 days in 30 days."""
    long: str
    short: str
    severity: Severity
    budget_percent: int
    """Of the budget that is gone after the long window."""


BURNS = (
    # The Site Reliability Workbook (sre.google/workbook/alerting-on-slos), multiple windows and burn rates: 2 % in 1 h,
    # 5 % in 6 h, 10 % in 3 d. The third, 10 % in a day, is the one that kubernetes-mixin adds.
    Burn(name="Fastest", factor=14.4, long="1h", short="5m", severity="page", budget_percent=2),
    Burn(name="Fast", factor=6, long="6h", short="30m", severity="page", budget_percent=5),
    Burn(name="Slow", factor=3, long="1d", short="2h", severity="ticket", budget_percent=10),
    Burn(name="Slowest", factor=1, long="3d", short="6h", severity="ticket", budget_percent=10),
)


def error_budget() -> list[Alert]:
    """The share of requests that the platform itself answers with an error."""
    return [_burning(burn) for burn in BURNS]


def _burning(burn: Burn) -> Alert:
    speed = "as fast" if burn.factor == 1 else f"{burn.factor:g} times as fast"
    allowed = f"{burn.factor:g} * scalar(1 - {queries.AVAILABILITY})"
    failed = f'{queries.LISTENERS}, envoy_response_code_class="5"'
    counted = queries.growth("envoy_http_downstream_rq_xx", failed, window=burn.long)
    return Alert(
        name=f"ErrorBudgetBurns{burn.name}",
        severity=burn.severity,
        expression=(
            f"{queries.error_ratio(burn.long)} > {allowed} and {queries.error_ratio(burn.short)} > {allowed} "
            f"and {counted} >= {_FEWEST_ERRORS}"
        ),
        minutes=2,
        summary=f"Requests fail {speed} as the availability target allows",
        description=f"{{{{ $value | humanizePercentage }}}} of all requests failed over {burn.long}, and over "
        f"{burn.short} still too many: {burn.budget_percent} % of the error budget of 30 days is gone.",
        runbook="error-budget",
    )


def proxies(*, portal: bool) -> list[Alert]:
    """Envoy, by its own figures. portal: whether proxies of the portal are measured too."""
    failed = queries.rate_by_model("envoy_cluster_upstream_rq_xx", 'envoy_response_code_class="5"', window="5m")
    answered = queries.rate_by_model("envoy_cluster_upstream_rq_xx", window="5m")
    # Shorter than the alert waits: a picker that was replaced leaves one burst of failed calls.
    cancelled = queries.rate("envoy_http_ext_proc_streams_failed", queries.LISTENERS, window="2m")
    answering = queries.highest("up", queries.PROXIES)
    return [
        Alert(
            name="GatewayDown",
            severity="page",
            # Without proxies nothing counts requests, so no share of them fails.
            expression=f"({answering} or vector(0)) == 0",
            minutes=2,
            summary="No proxy of the gateway answers",
            description="Prometheus reaches none ({{ $value }} is none): clients get no connection, or all of the "
            "proxies' metrics are out of reach.",
            runbook="gateway-not-programmed",
        ),
        Alert(
            name="ModelFails",
            severity="ticket",
            expression=f"{queries.share_of(failed, answered)} > {_FAILED_SHARE:g}",
            minutes=10,
            summary="Requests for {{ $labels.model }} fail",
            description="{{ $value | humanizePercentage }} of its requests end with 5xx. Others are counted by the "
            "error budget alone; this one names the model.",
            runbook="error-budget",
        ),
        Alert(
            name="PickersDoNotAnswer",
            severity="page",
            expression=f"{cancelled} > 0",
            minutes=5,
            summary="Calls from the proxies to pickers or to the AI gateway fail",
            description="{{ $value | humanize }} calls fail per second. The requests behind them get 503.",
            runbook="picker-down",
        ),
        Alert(
            name="ProxyMemoryHigh",
            severity="ticket",
            expression=(
                # The metric is in percent.
                f"max by (pod) (envoy_overload_envoy_resource_monitors_fixed_heap_pressure{{{queries.PROXIES}}}) / 100 "
                f"> {_HEAP_SHARE:g}"
            ),
            minutes=5,
            summary="The proxy {{ $labels.pod }} runs out of memory",
            description="It has used {{ $value | humanizePercentage }} of its heap, and resets the streams of clients "
            "that read slowly. A larger `gateway.memory_mib` or more `gateway.replicas`.",
            runbook="stream-cut",
        ),
        _expiring(portal=portal),
    ]


def _expiring(*, portal: bool) -> Alert:
    """Of the endpoint's proxies, and of the portal's where there are any."""
    if portal:
        by: tuple[str, ...] = ("job", "pod")
        where = f'job=~"inference-proxies|{PORTAL_PROXIES}"'
        which = (
            "The proxy is one of {{ $labels.job }}. Of inference-proxies it is the endpoint's own one, in the Secret "
            f"that `gateway.certificate_secret` names; of {PORTAL_PROXIES} the portal's, in the Secret that "
            "`portal.certificate_secret` names; of both it may be the one between proxy and controller."
        )
    else:
        by, where = ("pod",), queries.PROXIES
        which = (
            "The endpoint's own one, in the Secret that `gateway.certificate_secret` names, or the one between proxy "
            "and controller."
        )
    return Alert(
        name="CertificateExpires",
        severity="ticket",
        expression=f"{queries.lowest(_CERTIFICATE_LEFT, where, by=by)} < {_CERTIFICATE_DAYS}",
        minutes=60,
        summary="A certificate of the proxy {{ $labels.pod }} expires in {{ $value }} days",
        description=which,
        runbook="certificate-expires",
    )
