"""Settings of a proof reach the platform's objects, each at the place that `explain` names."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from components.gateway import traffic_policies
from components.models import inference_pool, model_route, model_server
from components.placing import budget
from stacks.facts import versions
from stacks.plan.models import RevisionPlan, plan_model
from stacks.plan.settings.registry import DEFINITIONS
from stacks.plan.settings.start import PROBE_PERIOD_S
from stacks.plan.site_plan import plan_site
from stacks.site.model import SiteConfig
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.row("opening 2", "001.37")

PROD: dict[str, Any] = prod()
MODEL: dict[str, Any] = {
    "catalogue": "qwen3-32b-fp8",
    "server": {"gpus": 1, "replicas": 4},
    "load": {"requests_per_s": 2},
    "slo": {"itl_p95_ms": 100},
}


def site(engine: str = "vllm", overrides: Mapping[str, float] = MappingProxyType({})) -> SiteConfig:
    model = copy.deepcopy(MODEL)
    model["server"]["engine"] = engine
    model["overrides"] = {key: {"value": value, "reason": "to see it move"} for key, value in overrides.items()}
    return SiteConfig.model_validate(copy.deepcopy(PROD) | {"models": {"m": model}, "tenants": {}})


def planned(config: SiteConfig) -> RevisionPlan:
    return plan_model(config, "m", versions.load().images).stable


def places(engine: str = "vllm", overrides: Mapping[str, float] = MappingProxyType({})) -> dict[str, Any]:
    """What the model's objects say, by a name for the place."""
    model = planned(site(engine, overrides))
    plan, spec = model.server, model.spec
    built = model_server.deployment("m", "n", spec.server, plan, model.engine)
    container = built["spec"]["template"]["spec"]["containers"][0]
    watching = built["spec"]["template"]["spec"].get("initContainers", [{"args": []}])[-1]["args"]
    text = inference_pool.picker_config("m", "n", spec.pool, model.picker)["data"]["config.yaml"]
    plugins = {
        plugin.get("name", plugin["type"]): plugin.get("parameters", {}) for plugin in yaml.safe_load(text)["plugins"]
    }
    detector, shedding = plugins["utilization-detector"], plugins["shedding"]
    limit = model_route.parallel_limit("m", "n", requests=model.parallel_requests, connections=65_536)
    drained = budget("m", "n", {}, max_unavailable=plan.max_unavailable)
    reported = {variable["name"]: variable.get("value") for variable in container["env"]}
    return {
        **dict(flag.partition("=")[::2] for flag in container["args"]),
        "ready": reported.get("VLLM_ENGINE_READY_TIMEOUT_S", ""),
        "answers": reported.get("VLLM_MAX_N_SEQUENCES", ""),
        "deadline": built["spec"]["progressDeadlineSeconds"],
        "failures": container["startupProbe"]["failureThreshold"],
        "period": container["startupProbe"]["periodSeconds"],
        "stall": dict(flag.partition("=")[::2] for flag in watching).get("--stall-s", ""),
        "cores": container["resources"]["requests"].get("cpu", ""),
        "memory": container["resources"]["requests"].get("memory", ""),
        "picker queue": detector["queueDepthThreshold"],
        "picker cache": detector["kvCacheUtilThreshold"],
        "shedding queue": shedding["queueDepthThreshold"],
        "shedding cache": shedding["kvCacheUtilThreshold"],
        "picker prefix": plugins["prefix-cache-scorer"]["maxPrefixTokensToMatch"],
        "parallel": limit["spec"]["circuitBreaker"]["maxParallelRequests"],
        "pending": limit["spec"]["circuitBreaker"]["maxPendingRequests"],
        "unavailable": drained["spec"]["maxUnavailable"],
    }


def test_every_setting_says_where_it_takes_effect_or_why_it_does_not() -> None:
    config = site()
    names = set(planned(config).settings)
    scaling = {key for key in DEFINITIONS if key.startswith("autoscale_")} | {"starting_retry_after_s"}
    adapters = {"max_loras", "max_cpu_loras", "max_lora_rank"}
    drafts = {"num_speculative_tokens", "tokens_per_step"}
    chosen = {"quantized_weights", "kv_offloading_size", *drafts, *scaling, *adapters}
    assert names == DEFINITIONS.keys() - chosen
    server = {
        "quantization": "fp8_per_tensor",
        "speculative": {"method": "ngram", "tokens": 3, "acceptance": 0.5},
        "scaling": {"least": 0},
        "kv_offload_gib": 8,
        "resident_adapters": 1,
    }
    adapter = {"repository": "o/a", "revision": "a" * 40, "rank": 8, "target_modules": ["q_proj"]}
    everything = copy.deepcopy(PROD) | {
        "models": {
            "m": MODEL
            | {
                "catalogue": "qwen3-8b",
                "server": server,
                "adapters": {"a": adapter, "b": adapter},
                "slo": {"ttft_p99_ms": 9000},
                "load": {"requests_per_s": 1e-3},
            }
        },
        "tenants": {},
    }
    assert set(planned(SiteConfig.model_validate(everything)).settings) == DEFINITIONS.keys()
    assert all(bool(definition.used) != bool(definition.unused) for definition in DEFINITIONS.values())
    assert DEFINITIONS["max_num_seqs"].effect.startswith("yes: ")
    assert "counts a whole prompt" in DEFINITIONS["max_num_queued_tokens"].effect


def test_objects_say_what_is_derived() -> None:
    config = site()
    settings = planned(config).settings
    rendered = places()
    for setting, place in {
        "max_num_seqs": "--max-num-seqs",
        "max_model_len": "--max-model-len",
        "max_num_batched_tokens": "--max-num-batched-tokens",
        "tensor_parallel_size": "--tensor-parallel-size",
        "picker_queue_threshold": "picker queue",
        "picker_kv_threshold": "picker cache",
        "gateway_context_tokens": "picker prefix",
        "gateway_parallel_requests": "parallel",
        "start_budget_s": "ready",
        "startup_probe_failures": "failures",
        "stall_s": "stall",
        "cpu_request_cores": "cores",
        "disruption_max_unavailable": "unavailable",
    }.items():
        assert float(rendered[place]) == settings[setting].number, setting
    assert float(rendered["--max-num-queued-reqs"]) == 2 * settings["max_num_queued_reqs"].number
    assert rendered["--override-generation-config"] == f'{{"max_new_tokens": {settings["gateway_max_tokens"].value}}}'
    assert rendered["period"] == PROBE_PERIOD_S
    assert rendered["memory"] == f"{settings['memory_request_gib'].value}Gi"


@pytest.mark.parametrize(("queue", "most"), [(900, "128"), (100, "100")], ids=["long", "short"])
def test_one_request_asks_for_no_more_answers_than_the_queue_has_places(queue: int, most: str) -> None:
    """vLLM counts each of its `n` answers; what it can never hold is the client's error, not a full engine."""
    rendered = places(overrides={"max_num_seqs": 64, "max_num_queued_reqs": queue})
    assert rendered["answers"] == most


@pytest.mark.parametrize(
    ("setting", "value", "moved"),
    [
        (
            "max_num_queued_reqs",
            900,
            {
                "--max-num-queued-reqs": "1800",
                "parallel": 3600,
                "pending": 3600,
                "picker queue": None,
                "shedding queue": None,
            },
        ),
        ("picker_queue_threshold", 3, {"picker queue": 3, "shedding queue": 1}),
        ("picker_kv_threshold", 0.55, {"picker cache": 0.55, "shedding cache": 0.55}),
        ("gateway_parallel_requests", 1000, {"parallel": 1000, "pending": 1000}),
        ("gateway_max_tokens", 3000, {"--override-generation-config": '{"max_new_tokens": 3000}'}),
        ("start_budget_s", 903, {"ready": "903", "deadline": None, "failures": 181}),
        ("stall_s", 600, {"stall": "600"}),
        ("disruption_max_unavailable", 1, {"unavailable": 1}),
        ("cpu_request_cores", 7, {"cores": "7"}),
        ("memory_request_gib", 31, {"memory": "31Gi"}),
    ],
)
def test_an_override_moves_what_is_made_of_the_setting_and_nothing_else(
    setting: str, value: float, moved: dict[str, Any]
) -> None:
    """One key of a site, one value in each object that it concerns."""
    before, after = places(), places(overrides={setting: value})
    changed = {place: after[place] for place in after if after[place] != before[place]}
    assert changed.keys() == moved.keys()
    assert {place: changed[place] for place, wanted in moved.items() if wanted is not None} == {
        place: wanted for place, wanted in moved.items() if wanted is not None
    }


def test_the_simulator_queues_as_many_as_vllm_would() -> None:
    real, simulated = places(), places("simulator")
    waiting = int(real["--max-num-queued-reqs"]) - int(real["--max-num-seqs"])
    assert int(simulated["--max-waiting-queue-length"]) == waiting


def test_an_engine_takes_twice_what_its_replica_is_to_hold_before_it_refuses() -> None:
    """The picker counts a replica full before: a burst reaches one replica until its queue is seen."""
    rendered = places()
    held = rendered["picker queue"] + int(rendered["--max-num-seqs"])
    assert int(rendered["--max-num-queued-reqs"]) == 2 * held


def test_what_may_be_shed_leaves_half_of_the_queue_to_the_others() -> None:
    """At the full queue the gateway refuses every client, so a tier would come too late."""
    rendered = places()
    assert 1 < rendered["shedding queue"] == rendered["picker queue"] // 2
    assert rendered["shedding cache"] == rendered["picker cache"]
    assert places(overrides={"picker_queue_threshold": 1})["shedding queue"] == 1, "the picker takes no 0"


def test_the_picker_prefers_another_replica_by_the_derived_thresholds() -> None:
    """As the detector alone it would only shed requests of negative priority."""
    config = site()
    model = planned(config)
    text = inference_pool.picker_config("m", "n", model.spec.pool, model.picker)["data"]["config.yaml"]
    picker = yaml.safe_load(text)
    assert picker["saturationDetector"] == {"pluginRef": "shedding"}
    (profile,) = picker["schedulingProfiles"]
    assert profile["plugins"][0] == {"pluginRef": "utilization-detector"}
    defined = {plugin.get("name", plugin["type"]) for plugin in picker["plugins"]}
    assert {plugin["pluginRef"] for plugin in profile["plugins"]} <= defined


def test_the_limit_of_a_model_names_every_default_that_would_win_over_the_gateways() -> None:
    limit = model_route.parallel_limit("m", "n", requests=7, connections=65_536)["spec"]
    assert limit["mergeType"] == "StrategicMerge"
    assert limit["circuitBreaker"] == {"maxConnections": 65_536, "maxPendingRequests": 7, "maxParallelRequests": 7}
    assert limit["targetRefs"][0]["kind"] == "HTTPRoute"


def test_the_largest_context_decides_on_the_largest_body() -> None:
    """A body that no model could take is refused at the door, and none that one could take is."""
    small = site()
    unset = small.model_copy(update={"gateway": small.gateway.model_copy(update={"max_body_mib": None})})
    assert plan_site(unset).body_kib == 40_960 * 24 // 1024 + 64
    assert plan_site(small).body_kib == 4092, "of 4 MiB, the picker's message around a body has 4 KiB"
    two = small.model_copy(update={"gateway": small.gateway.model_copy(update={"max_body_mib": 2})})
    assert plan_site(two).body_kib == 2048
    limit = traffic_policies.backend_traffic_policy("g", unset.gateway, body_kib=plan_site(unset).body_kib)
    assert limit["spec"]["requestBuffer"] == {"limit": "1024Ki"}


def test_a_model_that_sees_takes_pictures_whatever_its_context() -> None:
    config = SiteConfig.model_validate(
        copy.deepcopy(PROD)
        | {
            "models": {
                "m": {
                    "catalogue": "gemma-3-27b",
                    "overrides": {"max_model_len": {"value": 4096, "reason": "short ones are enough"}},
                }
            },
            "tenants": {},
        }
    )
    assert planned(config).settings["gateway_body_kib"].value == 4092


@pytest.mark.parametrize(
    "edit", [{"server": {"gpus": 1, "replicas": 8}}, {"load": {"requests_per_s": 3}}], ids=["replicas", "load"]
)
def test_more_replicas_or_load_restart_no_engine_and_no_picker(
    edit: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart costs minutes per replica; an engine's settings follow from one full replica.

    The start budget alone takes a step beyond 4, 8, 16, ... replicas.
    """
    monkeypatch.setitem(MODEL, "slo", {"itl_p95_ms": 100, "ttft_p95_ms": 6000})
    monkeypatch.setitem(MODEL, "server", {"gpus": 1, "replicas": 5})
    before = places()
    for key, value in edit.items():
        monkeypatch.setitem(MODEL, key, value)
    after = places()
    assert {place for place in after if after[place] != before[place]} <= {"parallel", "pending", "unavailable"}


def test_a_fifth_replica_changes_no_more_of_a_pod_than_its_start_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five that start at once share the volume; with what each of them can read, nothing changes."""
    before = places()
    monkeypatch.setitem(MODEL, "server", {"gpus": 1, "replicas": 5})
    after = places()
    changed = {place for place in after if after[place] != before[place]}
    assert changed - {"parallel", "pending", "unavailable"} == {"ready", "deadline", "failures"}
    monkeypatch.setitem(PROD["storage"], "shared_read_bytes_per_s", 1.0e12)
    fast = places()
    monkeypatch.setitem(MODEL, "server", {"gpus": 1, "replicas": 4})
    again = places()
    assert {place for place in again if again[place] != fast[place]} <= {"parallel", "pending", "unavailable"}
