"""`python -m components.monitoring.alert_page`: writes docs/alerts.md, the table of every alert, out of the alerts."""

from __future__ import annotations

import re
from pathlib import Path

from components.monitoring import rules
from components.monitoring.alerts.alert import Alert
from components.specs.promises import SitePromise

PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"
_ANY_SITE = SitePromise(models=(), availability_percent=99.9, jobs=("inference-engines",))
_TITLES = {
    "error-budget": "Error budget",
    "proxies": "The way in",
    "latency": "Latency",
    "load": "Load",
    "replicas": "Replicas, pickers and weights",
    "nodes": "Nodes",
    "gpus": "GPUs",
    "watcher": "Nodes with a faulty GPU",
    "storage": "Storage",
    "certificates": "Certificates",
    "credentials": "Credentials of the cluster",
    "secrets": "Secrets out of a store",
    "autoscaling": "Replicas by load",
    "gatekeeper": "Gatekeepers",
    "directory": "The directory of keys",
    "portal": "The portal",
    "budgets": "Budgets of tenants",
    "ledger": "Ledgers of usage",
    "usage-shipper": "Usage on its way to the ledger",
    "prices": "Prices of tokens",
    "key-signals": "Keys that may be abused",
    "suspensions": "Keys that signals suspend",
    "canaries": "Canaries",
    "scaling": "Models whose replicas follow the load",
    "starting": "Models that start once they are asked",
    "overflows": "Overflow to other models",
    "dns-records": "Records in DNS",
    "log-collectors": "Log lines on their way",
    "log-store": "The log store",
    "hosts": "Nodes from within",
    "control-plane": "API servers and cluster DNS",
    "etcd-members": "Members of etcd",
    "pod-network": "The pod network",
    "etcd": "etcd",
    "database": "PostgreSQL of the platform",
    "measuring": "What measures",
}
# Labels that are a number.
_NAMED = {"gpu": "N", "percentile": "N"}
_HEAD = """\
# Alerts

<!-- Written by `make docs` from components/monitoring/alerts. Edit those. -->

Every alert of a site with `monitoring`: when it fires, how urgent it is, and its runbook.

A **page** needs someone now, a **ticket** within days; `none` reaches no one. An alert waits for the minutes of the
third column before it fires; `ReplicaMissing` and `WeightsNotOnNode` wait longer where a start or a download of the
site may take longer. Those about models compare with what the site declares and its proof promises, which the rules
record as series whose names end with `:declared` and `:promised`. GPUs, storage and etcd have alerts where the program
installs the GPU stack and Longhorn, and takes snapshots; Prometheus and Alertmanager where it installs them; the
cluster's credentials where it made the cluster and installs Prometheus; nodes from within, API servers, cluster DNS
and members of etcd with `monitoring.hosts: measured`; Cilium with `monitoring.pod_network:
measured`; gatekeepers, the directory, the portal, the ledger, prices, signals of keys, canaries, overflow and the
watcher where the site has them.

Each alert was fired by `promtool` on made-up series of its fault, and was silent on those of a healthy site. None has
been seen on a GPU.
"""


def render() -> str:
    """The page."""
    parts = [_HEAD]
    for group, alerts in rules.alerts(_ANY_SITE).items():
        rows = [_row(alert) for alert in alerts]
        table = "\n".join(["| alert | severity | after | what is wrong | runbook |", "|---|---|---|---|---|", *rows])
        parts.append(f"## {_TITLES[group]}\n{table}\n")
    return "\n".join(parts)


def _row(alert: Alert) -> str:
    named = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: _NAMED.get(match[1], match[1].upper()), alert.summary)
    text = re.sub(r"\{\{ \$value[^}]*\}\}", "N", named)
    after = f"{alert.minutes} min" if alert.minutes else "at once"
    page = f"[{alert.runbook}](runbooks/{alert.runbook}.md)"
    return f"| `{alert.name}` | {alert.severity} | {after} | {text} | {page} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render())
    print(f"wrote docs/{PAGE.name}")


if __name__ == "__main__":
    main()
