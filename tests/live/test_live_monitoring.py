"""What measures the site: every target answers, every rule is computed, alerts get as far as Alertmanager. And what it
measures of GPUs, which no lab has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from components.monitoring import alertmanager, prometheus, queries
from components.monitoring.alerts import hardware
from components.monitoring.scraping import own_targets
from components.scrape_target import ScrapeTarget
from floor.namespaces import MONITORING
from stacks.facts import metrics
from stacks.facts.hardware import GPUS, GpuSlice
from stacks.plan.cluster import PlannedNode
from stacks.plan.models import MODELS_NAMESPACE
from stacks.plan.placing import nodes_of
from stacks.program.monitoring import host_jobs, targets_of
from stacks.program.platform import GATEWAY_NAMESPACE
from talos.hgx import required_services
from tests.live.conftest import Seen
from tests.live.running import Object, RunningSite

_API = f"/apis/monitoring.coreos.com/v1/namespaces/{MONITORING}"
_WATCHDOG = "Watchdog"
_UP = "up"
# Those that no lab has, and two that it has, whose faults it can plant; it compares all others with a scrape.
_LISTED = (
    *("dcgm_exporter", "longhorn", "cilium_agent", "hubble", "log_collector", "log_store", "external_dns"),
    *("alertmanager", "prometheus_operator"),
)
_SENT = "vlagent_remotewrite_blocks_sent_total"
_FABRIC_STATUS, _JOINED = "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "3"
# Alerts whose conditions are faults that a GPU did not correct.
UNCORRECTED = ("GpuXidError", "GpuRowRemapFailed", "GpuMemoryErrors")
_XID, _REMAPPED, _REMAP_FAILED = (
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
)


@pytest.fixture(autouse=True)
def _measured(site: RunningSite) -> None:
    system = site.plan.site.monitoring.system
    if system != "prometheus_operator":
        pytest.skip(f"the site has no Prometheus of the program's: monitoring.system is {system}")


def _targets(site: RunningSite) -> Sequence[ScrapeTarget]:
    return (*targets_of(site.plan.site, MODELS_NAMESPACE, GATEWAY_NAMESPACE), *own_targets())


def _need(site: RunningSite, job: str) -> None:
    if job not in {*(target.job for target in _targets(site)), *host_jobs(site.plan.site)}:
        pytest.skip(f"the site's file does not let the program install what is measured as {job}")


def _rules(site: RunningSite) -> dict[str, Object]:
    """Every rule that Prometheus has, by the name of what it records or alerts of."""
    groups = site.prometheus("rules")["groups"]
    return {rule["name"]: rule for group in groups for rule in group["rules"]}


@pytest.mark.row("002.09", "002.16")
def test_what_measures_is_ready_with_the_pinned_images(site: RunningSite, seen: Seen) -> None:
    pins = site.plan.versions.images
    wanted = {
        pins.prometheus_operator,
        pins.config_reloader,
        pins.prometheus,
        pins.alertmanager,
        pins.kube_state_metrics,
    }
    wrong, runs = list[str](), set[str]()
    for pod in site.pods(MONITORING, {}):
        name, status = pod["metadata"]["name"], pod.get("status", {})
        images = [container["image"] for container in pod["spec"]["containers"]]
        ready = {of["type"]: of["status"] for of in status.get("conditions") or ()}.get("Ready")
        runs |= set(images)
        seen(f"{name}: Ready {ready}, {', '.join(images)}")
        wrong += [f"{name} is not Ready"] if ready != "True" else []
        wrong += [f"{name} runs {image}" for image in images if image not in wanted]
    wrong += [f"no pod runs {image}" for image in sorted(wanted - runs)]
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("002.09")
def test_every_pod_that_is_measured_answers(site: RunningSite, seen: Seen) -> None:
    """As many targets as there are Pods of each kind, and all of them up."""
    active = site.prometheus("targets", state="active")["activeTargets"]
    wrong = []
    for target in _targets(site):
        pool = f"podMonitor/{MONITORING}/{target.name}/"
        mine = [entry for entry in active if entry["scrapePool"].startswith(pool)]
        answering = [entry for entry in mine if entry["health"] == _UP]
        pods = len(site.pods(target.namespace, target.pods))
        seen(f"{target.name}: {len(answering)} of {pods} Pods up")
        if not pods:
            wrong.append(f"{target.name}: there is no Pod to measure")
        elif len(answering) < pods:
            errors = sorted({entry["lastError"] for entry in mine if entry["lastError"]})
            wrong.append(f"{target.name}: {len(answering)} of {pods} Pods are up{': ' if errors else ''}{errors or ''}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("002.09")
@pytest.mark.parametrize("part", _LISTED)
def test_what_rules_and_dashboards_ask_for_is_measured(site: RunningSite, seen: Seen, part: str) -> None:
    """Every name of the part's list: a version that renamed one leaves a rule that never fires."""
    listed = metrics.load()[part]
    _need(site, listed.job)
    samples = site.prometheus("query", query=f'count by (__name__) ({{job="{listed.job}"}})')["result"]
    names = {sample["metric"]["__name__"] for sample in samples}
    wanted = {name for name in listed.series if name not in listed.rare}
    seen(f"{listed.job}: {len(wanted & names)} of {len(wanted)} listed names, {len(names)} in all")
    missing = sorted(wanted - names)
    assert not missing, f"{listed.job} measures no {', '.join(missing)} (stacks/facts/metrics/{part}.yaml)"


@pytest.mark.row("003.20")
def test_each_node_sends_the_lines_of_its_pods(site: RunningSite, seen: Seen) -> None:
    """To the store, by each collector's own count."""
    _need(site, metrics.load()["log_collector"].job)
    asked = queries.total(_SENT, f'job="{metrics.load()["log_collector"].job}"', by=("node",))
    samples = site.prometheus("query", query=asked)["result"]
    sent = {sample["metric"]["node"]: float(sample["value"][1]) for sample in samples}
    nodes = [node["metadata"]["name"] for node in site.items("/api/v1/nodes")]
    for node in nodes:
        seen(f"{node}: {sent.get(node, 0):g} blocks sent")
    silent = [node for node in nodes if not sent.get(node)]
    assert not silent, f"no line came from {', '.join(silent)} (docs/runbooks/logs-missing.md)"


@pytest.mark.row("000.12")
def test_every_gpu_has_joined_the_fabric_of_its_node(
    site: RunningSite, machines: tuple[PlannedNode, ...], seen: Seen
) -> None:
    """By DCGM: the service of the fabric manager also runs where the fabric has failed. Cut GPUs are left out."""
    _need(site, metrics.load()["dcgm_exporter"].job)
    hgx = [node for node in machines if required_services(node.schematic.extensions) and not node.spec.mig]
    if not hgx:
        pytest.skip("the site has no machine with the fabric manager whose GPUs are whole")
    statuses = defaultdict[str, dict[str, str]](dict)
    for sample in site.prometheus("query", query=f"{_FABRIC_STATUS}{{{queries.GPUS}}}")["result"]:
        statuses[sample["metric"]["node"]][sample["metric"]["gpu"]] = sample["value"][1]
    wrong = []
    for node in hgx:
        of_node = statuses[node.name]
        seen(f"{node.name}: {', '.join(f'GPU {gpu} {of_node[gpu]}' for gpu in sorted(of_node)) or 'no status'}")
        wrong += [] if of_node else [f"{node.name} has no {_FABRIC_STATUS}"]
        wrong += [
            f"GPU {gpu} of {node.name} has status {of_node[gpu]}, not {_JOINED}"
            for gpu in sorted(of_node)
            if of_node[gpu] != _JOINED
        ]
    assert not wrong, f"{'; '.join(wrong)} (docs/runbooks/gpu-unwell.md)"


@pytest.mark.row("000.09", "002.09")
def test_no_gpu_reports_an_uncorrected_fault(site: RunningSite, seen: Seen) -> None:
    """By what the alerts ask, at this moment: Xids of the hardware, remaps that failed, rows remapped within a day.

    A GPU that is not measured has not passed. The last Xid alone may be absent: an exporter may have none before the
    first (NVIDIA/dcgm-exporter#700).
    """
    _need(site, metrics.load()["dcgm_exporter"].job)
    xids, remapped, failed = (_of_gpus(site, metric) for metric in (_XID, _REMAPPED, _REMAP_FAILED))
    measured = remapped.keys() & failed.keys()
    wanted = _gpus_of_nodes(site) or Counter(node for node, _ in remapped.keys() | failed.keys())
    wrong = []
    for node, count in sorted(wanted.items()):
        there = sum(of == node for of, _ in measured)
        rows = sum(value for (of, _), value in remapped.items() if of == node)
        numbers = sorted({value for (of, _), value in xids.items() if of == node and value})
        last = ", ".join(f"{number:g}" for number in numbers) or "none"
        seen(f"{node}: {there} of {count} GPUs measured, {rows:g} rows ever remapped, last Xids {last}")
        wrong += [f"{node}: {there} of {count} GPUs are measured"] if there < count else []
    for alert in (alert for alert in hardware.gpus() if alert.name in UNCORRECTED):
        for sample in site.prometheus("query", query=alert.expression)["result"]:
            where, value = sample["metric"], float(sample["value"][1])
            page = f"docs/runbooks/{alert.runbook}.md"
            wrong.append(f"{where['node']} GPU {where['gpu']}: {alert.name}, {value:g} ({page})")
    assert wanted, "no GPU is measured"
    assert not wrong, "; ".join(wrong)


def _of_gpus(site: RunningSite, metric: str) -> dict[tuple[str, str], float]:
    """(node, GPU) -> value. A GPU that is cut into slices is one."""
    asked = queries.highest(metric, queries.GPUS, by=("node", "gpu"))
    samples = site.prometheus("query", query=asked)["result"]
    return {(of["metric"]["node"], of["metric"]["gpu"]): float(of["value"][1]) for of in samples}


def _gpus_of_nodes(site: RunningSite) -> Counter[str]:
    """Whole GPUs of each node that the site's file lists."""
    kinds = {node.name: GPUS[node.gpu] for node in nodes_of(site.plan.site) or ()}
    whole = {name: GPUS[kind.whole] if isinstance(kind, GpuSlice) else kind for name, kind in kinds.items()}
    return Counter({name: kind.gpus_per_node for name, kind in whole.items()})


@pytest.mark.row("002.16", "003.19")
def test_every_rule_is_loaded_and_computed(site: RunningSite, seen: Seen) -> None:
    """The rules of the program, and any other that this Prometheus was given."""
    given = {
        rule.get("alert") or rule["record"]
        for body in site.items(f"{_API}/prometheusrules", labelSelector=_selector(prometheus.SELECTED))
        for group in body["spec"]["groups"]
        for rule in group["rules"]
    }
    loaded = _rules(site)
    failing = {name: rule.get("lastError", "") for name, rule in loaded.items() if rule["health"] != "ok"}
    seen(f"{len(given)} rules given, {len(loaded)} loaded, {len(failing)} not computed")
    assert _WATCHDOG in given, "the program's rules are not in the cluster"
    assert given <= loaded.keys(), f"not loaded: {', '.join(sorted(given - loaded.keys()))}"
    assert not failing, f"not computed: {'; '.join(f'{name}: {error}' for name, error in sorted(failing.items()))}"


@pytest.mark.row("002.16")
def test_prometheus_sends_alerts_to_every_alertmanager(site: RunningSite, seen: Seen) -> None:
    pods = site.pods(MONITORING, alertmanager.LABELS)
    receivers = [entry["url"] for entry in site.prometheus("alertmanagers")["activeAlertmanagers"]]
    seen(f"{len(receivers)} receivers for {len(pods)} Alertmanagers: {', '.join(receivers)}")
    assert pods, "there is no Alertmanager"
    assert len(receivers) == len(pods), f"Prometheus knows {len(receivers)} of {len(pods)} Alertmanagers"


@pytest.mark.row("002.16")
def test_the_watchdog_fires_as_far_as_alertmanager(site: RunningSite, seen: Seen) -> None:
    """It always fires: where it is missing, no other alert would arrive."""
    firing = {alert["labels"]["alertname"]: alert["state"] for alert in site.prometheus("alerts")["alerts"]}
    seen(f"fires in Prometheus: {', '.join(sorted(firing))}")
    assert firing.get(_WATCHDOG) == "firing", f"{_WATCHDOG} does not fire in Prometheus"
    arrived = sorted({str(alert["labels"]["alertname"]) for alert in site.alertmanager_alerts()})
    seen(f"in Alertmanager: {', '.join(arrived)}")
    assert _WATCHDOG in arrived, f"{_WATCHDOG} fires and is not in Alertmanager"


def _selector(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())
