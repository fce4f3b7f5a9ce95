"""Names of the series that the platform's own services have, those of one pod of each, and of proxies' certificates."""

from __future__ import annotations

# With the labels by which an alert names the proxy.
CERTIFICATES_LEFT = {
    f'envoy_server_days_until_first_cert_expiring{{job="{job}", pod="{pod}"}}': {"job": job, "pod": pod}
    for job, pod in (("inference-proxies", "envoy-a"), ("portal-proxies", "envoy-portal-a"))
}
PORTALS_UP = tuple(f'up{{job="portal", pod="portal-{letter}"}}' for letter in "ab")
PORTAL_READY = (
    'kube_deployment_status_replicas_available{job="kube-state-metrics", namespace="inference-gateway", '
    'deployment="portal"}'
)
PORTAL = (*PORTALS_UP, PORTAL_READY)


def answered(answer: str) -> str:
    return f'gatekeeper_answers_total{{job="gatekeeper", pod="gatekeeper-a", answer="{answer}"}}'


def heard(pod: str) -> str:
    return f'gatekeeper_directory_last_answer_timestamp_seconds{{job="gatekeeper", pod="{pod}"}}'


def overflow(kind: str) -> str:
    return f'gatekeeper_overflow_{kind}{{job="gatekeeper", pod="gatekeeper-a", model="code"}}'


def room_refusals(why: str) -> str:
    return f'gatekeeper_room_refusals_total{{job="gatekeeper", pod="gatekeeper-a", model="code", why="{why}"}}'


def files_refused(pod: str) -> str:
    return f'gatekeeper_files_refused{{job="gatekeeper", pod="{pod}"}}'


def budget_used(budget: str) -> str:
    return f'gatekeeper_budget_used_ratio{{job="gatekeeper", pod="gatekeeper-a", tenant="acme", budget="{budget}"}}'


def heard_of_use(pod: str) -> str:
    return f'gatekeeper_budgets_last_answer_timestamp_seconds{{job="gatekeeper", pod="{pod}"}}'


def of_ledger(metric: str) -> str:
    return f'inference_usage_{metric}{{job="ledger", pod="ledger-a"}}'


def signal_of_keys(signal: str) -> str:
    labels = f'job="ledger", pod="ledger-a", tenant="acme", key="ci", signal="{signal}"'
    return f"inference_usage_key_signals{{{labels}}}"


def of_directory(metric: str, labels: str = "") -> str:
    return f'directory_{metric}{{job="directory", pod="directory-a"{labels}}}'


def of_watcher(metric: str, labels: str) -> str:
    return f'watcher_{metric}{{job="watcher", pod="watcher-a"{labels}}}'


def portal_failures(part: str) -> str:
    return f'portal_upstream_failures_total{{job="portal", pod="portal-a", part="{part}"}}'


def hour_tokens(kind: str, revision: str = "code", of: str = "tokens") -> str:
    """Of the last full hour, and of a revision of the model code. of: `tokens` or `bound_tokens`."""
    named = f'model="code", revision="{revision}", kind="{kind}"'
    return f'inference_usage_hour_{of}{{job="ledger", pod="ledger-a", {named}}}'


def of_shipper(metric: str) -> str:
    return f'inference_usage_shipper_{metric}{{job="usage-shipper", pod="envoy-a"}}'


def of_collector(metric: str, more: str = "") -> str:
    return f'{metric}{{job="log-collectors", pod="log-collector-a", node="hgx-1"{more}}}'


def of_log_store(metric: str) -> str:
    return f'{metric}{{job="log-store", pod="log-store-a", path="/storage"}}'


def of_dns(metric: str, more: str = "") -> str:
    return f'external_dns_{metric}{{job="dns-records", pod="external-dns-a"{more}}}'


CHORE_FAILED = 'inference_usage_chore_failures_total{job="ledger", pod="ledger-a", chore="partitions"}'
LINES_DROPPED = 'envoy_filesystem_write_failed{job="inference-proxies", pod="envoy-a"}'
# Counters of what is wrong with the ledger, and of usage that is in no bill.
NOTHING_LOST = (CHORE_FAILED, LINES_DROPPED, of_shipper("unreadable_lines_total"), of_ledger("unpriced_rows_total"))
