"""A site with a ledger, under the SDK's mocks: what Envoy pods ship, with which token, and what is measured of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from components.addons import callers
from components.gateway.envoy_names import CHECKED
from components.gateway.request_log import marked
from components.tenants.ledger import price_book
from services.ledger import variables
from services.ledger.prices import book_of
from stacks.plan.idle import billed_idle, dedicated_gpus, gpu_costs
from stacks.plan.site_plan import plan_values
from stacks.site.model import SiteConfig
from tests.unit.spine.test_platform import Recorder, declare, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_usage import PRICE, since, usage
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.32", "000.35")

ALERTS = {"LedgerChoreFails", "LedgersDown", "UsageBehind", "UsageGap", "UsageLost", "UsageUnreadable"}
OF_PRICES = {"UsageUnpriced", "PricesUnusable"}
PRICES = since("2026-12-01", {"glm-5-1": PRICE, "qwen3-32b": {"input": 0.1, "output": 0.4}}, tiers={"batch": 0.5})


def site(*versions: dict[str, Any], **more: Any) -> SiteConfig:
    return plan_values(changed(prod(), usage(*versions, **more)), "site.yaml").site


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return declare(site(PRICES), tmp_path_factory.mktemp("site"))[0]


def envoy_pods(recorder: Recorder) -> dict[str, Any]:
    spec = recorder.resources["gateway-proxy"].inputs["spec"]
    pods: dict[str, Any] = spec["provider"]["kubernetes"]["envoyDeployment"]
    return pods


def test_an_envoy_pod_ships_what_it_writes(recorder: Recorder) -> None:
    """Into one folder, by a sidecar that has the writer's token and no other."""
    spec, pods = recorder.resources["gateway-proxy"].inputs["spec"], envoy_pods(recorder)
    everything, known = spec["telemetry"]["accessLog"]["settings"]
    assert everything["sinks"] == [{"type": "File", "file": {"path": "/dev/stdout"}}]
    (sink,) = known["sinks"]
    folder, _, _ = sink["file"]["path"].rpartition("/")
    (sidecar,) = pods["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    for mounts in (pods["container"]["volumeMounts"], sidecar["volumeMounts"]):
        assert folder in {mount["mountPath"] for mount in mounts}
    assert f"--log={sink['file']['path']}" in sidecar["args"]
    # What waits has room, and the log is stopped before the kubelet ends the pod for it.
    (room,) = [volume["emptyDir"]["sizeLimit"] for volume in pods["pod"]["volumes"] if "emptyDir" in volume]
    assert sidecar["resources"]["requests"]["ephemeral-storage"] == room == "1Gi"
    assert f"--most-bytes={2**30 * 9 // 10}" in sidecar["args"]
    token = recorder.resources["ledger-writer-token"].inputs
    (mounted,) = [volume["secret"] for volume in pods["pod"]["volumes"] if "secret" in volume]
    named = {"name": mounted["secretName"], "namespace": "envoy-gateway-system"}
    assert named.items() <= token["metadata"].items()
    # It is secret to the engine, which wraps it.
    assert set(token["stringData"]["value"]) == {variables.WRITER_KEY}


def test_no_prompt_and_no_key_is_in_a_row(recorder: Recorder) -> None:
    _, known = recorder.resources["gateway-proxy"].inputs["spec"]["telemetry"]["accessLog"]["settings"]
    read = " ".join(known["format"]["json"].values()).upper()
    assert "AUTHORIZATION" not in read
    assert "API-KEY" not in read
    assert "USER-AGENT" not in read
    assert "REMOTE_ADDRESS" not in read
    assert "REQ(:PATH)" not in read


@pytest.mark.slow
def test_a_row_has_the_revision_that_a_gatekeeper_chose(recorder: Recorder, tmp_path: Path) -> None:
    """On a site whose models have further ones, and never by a header, which a client may have sent."""
    own = {"tenants": ["search"], "server": {"replicas": 1}, "load": {"requests_per_s": 0.5}}
    further = {"callers": {"decided_by": "gatekeeper"}, "models.qwen3-32b.dedicated": {"search": own}}
    other = plan_values(changed(prod(), usage(PRICES) | further), "site.yaml").site
    logged = [
        given.resources["gateway-proxy"].inputs["spec"]["telemetry"]["accessLog"]["settings"][1]["format"]["json"]
        for given in (recorder, declare(other, tmp_path)[0])
    ]
    assert [log.get("revision") for log in logged] == [None, marked((CHECKED, "revision"))]
    assert logged[0] == {name: logged[1][name] for name in logged[1] if name != "revision"}


@pytest.mark.slow
def test_envoy_pods_start_when_their_token_is_there_and_wait_for_no_ledger(tmp_path: Path) -> None:
    _, requests = requested(site(), tmp_path, Recorder())
    before = {urn.rpartition("::")[2] for urn in requests["gateway-proxy"].dependencies}
    assert "ledger-writer-token" in before
    assert "ledger-pods" not in before


def test_the_ledger_reads_the_price_book_of_the_site(recorder: Recorder, tmp_path: Path) -> None:
    """In whole numbers; a cached token costs as any where nothing else is given."""
    text = recorder.resources["ledger-prices"].inputs["data"][variables.PRICES_KEY]
    file = tmp_path / "prices.json"
    file.write_text(text)
    (version,) = book_of(file).contents().values()
    kinds = ("input", "cached_input", "output")
    assert [version.unit_price("acme", "glm-5-1", "", kind) for kind in kinds] == [200_000, 50_000, 800_000]
    assert [version.unit_price("acme", "qwen3-32b", "batch", kind) for kind in kinds] == [50_000, 50_000, 200_000]
    assert json.loads(text)["versions"][0]["from"] == 1796083200
    assert {"glm-5-1", "qwen3-32b", "glm-5.1"} < set(json.loads(text)["served"])


@pytest.mark.slow
@pytest.mark.row("004.17", "opening 15")
def test_idle_gpus_are_billed_by_choice_to_who_may_call_their_model(recorder: Recorder, tmp_path: Path) -> None:
    """By what the proof carries and what the GPUs cost; dedicated replicas to their tenants, scaling models to none."""
    book = json.loads(recorder.resources["ledger-prices"].inputs["data"][variables.PRICES_KEY])
    assert "idle" not in book
    own = {"tenants": ["search"], "server": {"replicas": 1}, "load": {"requests_per_s": 0.5}}
    chosen = {"callers": {"decided_by": "gatekeeper"}, "models.qwen3-32b.dedicated": {"search": own}}
    chosen |= {"prices": {"gpu_hour": 2.5, "currency": "EUR"}}
    given = plan_values(changed(prod(), usage(PRICES, idle_share=0.25) | chosen), "site.yaml")
    declared = declare(given.site, tmp_path)[0].resources
    text = declared["ledger-prices"].inputs["data"][variables.PRICES_KEY]
    file = tmp_path / "prices.json"
    file.write_text(text)
    idle = book_of(file).idle
    assert idle.keys() == {name for name, revision in given.named.items() if revision.proof.serving.get("capacity")}
    tenants = {name for name, tenant in given.site.tenants.items() if "qwen3-32b" in tenant.models}
    assert idle["qwen3-32b--for-search"].callers == ["search"]
    assert set(idle["qwen3-32b"].callers) == tenants - {"search"}
    gpus = given.named["qwen3-32b"].proof.case.gpus
    assert idle["qwen3-32b"].price == round(gpus * 2.5 * 0.25 * 10**12 / 3600)
    costs = {cost.model: cost.tokens for cost in gpu_costs(given, 24)}
    both = [idle[name].carried for name in ("qwen3-32b", "qwen3-32b--for-search")]
    assert sum(both) == pytest.approx(costs["qwen3-32b"], abs=2)
    # With a price of an hour, a tenant's own GPUs are billed for all of it, and its tokens of the model are free.
    hourly = usage(PRICES | {"gpu_hour": 3.0}, idle_share=0.25) | chosen
    billed = plan_values(changed(prod(), hourly), "site.yaml")
    stood_idle = {name: asdict(gpus) for name, gpus in billed_idle(billed).items()}
    file.write_text(price_book(billed.site.usage, stood_idle, dedicated=dedicated_gpus(billed)))
    read = book_of(file)
    (version,) = read.contents().values()
    (held,) = version.dedicated.values()
    assert (set(version.dedicated), held.carried, held.callers) == ({"qwen3-32b--for-search"}, 0, ["search"])
    assert held.price == round(billed.named["qwen3-32b--for-search"].proof.case.gpus * 3 * 10**12 / 3600)
    assert (
        version.unit_price("search", "qwen3-32b", "", "input") == 0 < version.unit_price("x", "qwen3-32b", "", "input")
    )
    # From the day of that price on, none of it is idle; before it, idle time is billed.
    carried = [read.gpus_of(moment)["qwen3-32b--for-search"].carried for moment in (version.since - 1, version.since)]
    assert carried[0] > 0
    assert carried[1] == 0


@pytest.mark.row("004.17")
@pytest.mark.parametrize(
    ("percent", "pinned", "shared", "canary"),
    [
        (25, {}, {"search", "archive"}, {"search", "archive"}),
        (25, {"archive": "canary", "search": "stable"}, {"search"}, {"archive"}),
        (0, {"archive": "canary"}, {"search"}, None),
    ],
)
def test_idle_replicas_are_billed_to_who_is_answered_by_them(
    percent: int, pinned: dict[str, str], shared: set[str], canary: set[str] | None
) -> None:
    """Not to those that a canary's pins keep away, and shared ones not to tenants with their own, which use them while
    their own are away. A canary of no share is proven for no load."""
    chosen = {"callers": {"decided_by": "gatekeeper"}, "prices": {"gpu_hour": 2.5, "currency": "EUR"}}
    canary_of = {"percent": percent, "pinned": pinned, "server": {"replicas": 1, "gpus": 2}}
    chosen |= usage(PRICES, idle_share=0.25)
    plan = plan_values(changed(prod(), chosen | {"models.qwen3-32b.canary": canary_of}), "site.yaml")
    idle = billed_idle(plan)
    (name,) = [name for name in plan.models["qwen3-32b"].revisions if name.digest]
    billed = [set(idle[own].callers) if own in idle else None for own in ("qwen3-32b", name.name)]
    assert billed == [shared, canary]
    own = {"tenants": ["search"], "server": {"replicas": 1}, "load": {"requests_per_s": 0.5}, "when_away": "shared"}
    idle = billed_idle(plan_values(changed(prod(), chosen | {"models.qwen3-32b.dedicated": {"own": own}}), "site.yaml"))
    assert [idle[own].callers for own in ("qwen3-32b", "qwen3-32b--for-own")] == [("archive",), ("search",)]


def test_a_stream_that_is_left_is_metered_without_limits(recorder: Recorder) -> None:
    *_, script = recorder.resources["tiers-policy"].inputs["spec"]["lua"]
    assert '"llm_output_token"' in script["inline"]
    filters = json.dumps(recorder.resources["front-door-filters"].inputs["spec"])
    assert "keep_own_count" in filters


@pytest.mark.slow
@pytest.mark.row("002.09")
def test_what_is_measured_is_reached_and_watched(tmp_path: Path, recorder: Recorder) -> None:
    """On a site with prices, on one without, and nothing where no ledger is."""

    def measured(resources: dict[str, Any]) -> tuple[set[str], set[str]]:
        groups = resources["monitoring-rules"].inputs["spec"]["groups"]
        alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
        jobs = {job for job in (callers.LEDGER.key, variables.SHIPPER) if f"monitoring-monitor-{job}" in resources}
        return jobs, alerts & (ALERTS | OF_PRICES)

    def other(name: str, given: SiteConfig) -> dict[str, Any]:
        folder = tmp_path / name
        folder.mkdir()
        return declare(given, folder)[0].resources

    jobs = {callers.LEDGER.key, variables.SHIPPER}
    assert measured(recorder.resources) == (jobs, ALERTS | OF_PRICES)
    assert measured(other("unpriced", site())) == (jobs, ALERTS)
    without = other("none", plan_values(prod(), "site.yaml").site)
    assert measured(without) == (set(), set())
    assert not [name for name in without if name.startswith("ledger")]
    (endpoint,) = recorder.resources["monitoring-monitor-usage-shipper"].inputs["spec"]["podMetricsEndpoints"]
    (sidecar,) = envoy_pods(recorder)["initContainers"]
    assert endpoint["portNumber"] in {port["containerPort"] for port in sidecar["ports"]}
    opened = [
        rule["from"]
        for rule in recorder.resources["gateway-network-policy"].inputs["spec"]["ingress"]
        if endpoint["portNumber"] in {port["port"] for port in rule["ports"]}
    ]
    assert "prometheus" in str(opened)
