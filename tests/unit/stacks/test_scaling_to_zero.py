"""Models that may have no replica: what preview states, what is refused beside it, and what clients and KEDA get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.models.scaling import scaled_object
from floor.problems import SiteError
from tests.unit.spine.test_autoscaling_site import declared
from tests.unit.stacks.test_scaling import BOTH, GLM, PAGE, QWEN, plan, scaling_of
from tests.unit.stacks.wrong_sites import Wrong, refused_and_fixed

pytestmark = pytest.mark.row("001.24", "001.25", "001.30")

MODEL = "qwen3-32b"
ZERO: dict[str, Any] = {f"{QWEN}.scaling": {"least": 0}}
BY_GATEKEEPER = {**ZERO, "callers.decided_by": "gatekeeper"}
TENANT = "archive"


def test_preview_shows_what_the_first_request_waits_for() -> None:
    alone, refused, room = scaling_of(plan(ZERO))
    first = "the first serves 177 s after its GPUs are free, and half a minute for noticing"
    assert alone == f"  {MODEL}: 0 to 4 replicas; {first}"
    assert "\n".join(["scaling:", alone, refused, room]) in PAGE.read_text()
    # Others may have its GPUs, so it may find no room at all.
    planned = plan({**BOTH, f"{GLM}.scaling": {"least": 0}})
    assert "and for 0" in scaling_of(planned)[2]
    warned = {warning.key: warning.what for warning in planned.warnings}
    assert warned[f"{GLM}.scaling"].startswith("of its 3 replicas 0 find room for sure")


def test_placement_has_room_for_the_most_beside_models_that_may_have_none() -> None:
    """Of four nodes glm-5-1 takes one whole for each replica: beside one of it as a number, three more do not fit."""
    room = {f"{QWEN}.scaling": {"least": 0}, f"{QWEN}.replicas": 16, f"{GLM}.scaling": {"least": 0}}
    assert plan({**room, f"{GLM}.replicas": 4})
    with pytest.raises(SiteError, match="find no room"):
        plan({**room, f"{GLM}.replicas": 5})


def test_settings_follow_from_the_cold_start() -> None:
    settings = plan(ZERO).named[MODEL].settings
    budget, window = settings["start_budget_s"].whole, settings["autoscale_window_s"].whole
    # A client that started it has as long as another cold start to return, also after the slowest start.
    assert settings["autoscale_cooldown_s"].whole == budget + window
    assert settings["starting_retry_after_s"].whole == min(window, 60) == 60
    assert "autoscale_cooldown_s" not in plan({f"{QWEN}.scaling": {"least": 1}}).named[MODEL].settings


def test_only_a_read_zero_is_a_zero_and_a_failed_query_stops_no_replica() -> None:
    scaling = plan(ZERO).named[MODEL].server.scaling
    assert scaling is not None
    spec = scaled_object(MODEL, "models", {}, scaling, "http://prometheus")["spec"]
    queries = {trigger["name"]: trigger["metadata"]["query"] for trigger in spec["triggers"]}
    assert list(queries) == ["asked", "requests", "cache", "first-token"]
    ready = f'inference_pool_ready_pods{{job="inference-pickers", model="{MODEL}"}}'
    assert all(queries[name].endswith(f" or 0 * (max({ready}) == 0)") for name in ("requests", "cache", "first-token"))
    assert {trigger["metadata"]["ignoreNullValues"] for trigger in spec["triggers"]} == {"false"}
    # To KEDA a fallback is load, which starts the first replica.
    assert spec["minReplicaCount"] == 0 and "fallback" not in spec
    assert spec["cooldownPeriod"] == spec["initialCooldownPeriod"] == 936


@pytest.mark.slow
def test_clients_get_the_models_own_time_and_nothing_else_changes(tmp_path: Path) -> None:
    fixed = declared(tmp_path / "range", {f"{QWEN}.scaling": {"least": 1}})[0]
    made = declared(tmp_path / "zero", ZERO)[0]
    assert made[f"{MODEL}-server"]["spec"]["replicas"] == 0
    different = {name for name in made if made[name].get("spec") != fixed[name].get("spec")}
    assert different == {
        f"{MODEL}-server",
        f"{MODEL}-scaling",
        f"front-door-{MODEL}-picker",
        "gateway-errors",
        "monitoring-rules",
    }
    (headers,) = [
        change["operation"]["value"]
        for change in made[f"front-door-{MODEL}-picker"]["spec"]["jsonPatches"]
        if change["operation"].get("path") == "/response_headers_to_add"
    ]
    added = {entry["header"]["key"]: entry["header"]["value"] for entry in headers}
    assert added == {"x-inference-start-s": "178", "x-inference-start-retry-s": "60"}
    assert "model_starting" in json.dumps(made["gateway-errors"])
    assert "model_starting" not in json.dumps(fixed)
    assert "ModelNotStarted" in json.dumps(made["monitoring-rules"])


def test_a_peak_keeps_replicas_of_a_model_that_may_have_none() -> None:
    peak = {"start": "45 7 * * 1-5", "end": "0 18 * * 1-5", "least": 1}
    scaling = plan({f"{QWEN}.scaling": {"least": 0, "peaks": [peak]}}).named[MODEL].server.scaling
    assert scaling is not None
    spec = scaled_object(MODEL, "models", {}, scaling, "http://prometheus")["spec"]
    assert spec["triggers"][-1]["metadata"]["desiredReplicas"] == "1"


GROUP = {"tenants": [TENANT], "server": {"replicas": 1}, "when_away": "shared"}


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(
            {**ZERO, f"models.{MODEL}.pool.queues": True},
            f"models.{MODEL}.pool.queues",
            "lets requests wait for a replica, for less than one takes to start",
            {f"models.{MODEL}.pool.queues": None},
        ),
        Wrong(
            {**BY_GATEKEEPER, f"models.{MODEL}.canary": {"percent": 5, "server": {"replicas": 1}}},
            f"models.{MODEL}.canary",
            f"is compared with the replicas of {MODEL}",
            {f"{QWEN}.scaling.least": 1},
        ),
        Wrong(
            {**BY_GATEKEEPER, f"models.{MODEL}.dedicated": {"own": GROUP}},
            f"models.{MODEL}.dedicated.own.when_away",
            "sends its tenants to the shared replicas",
            {f"models.{MODEL}.dedicated.own.when_away": "refuse"},
        ),
        Wrong(
            {**BY_GATEKEEPER, "models.glm-5-1.overflow": {"to": MODEL}},
            "models.glm-5-1.overflow.to",
            "may have no replica itself",
            {f"{QWEN}.scaling.least": 1},
        ),
        Wrong(
            {**ZERO, f"tenants.{TENANT}.limits.guaranteed_tokens_per_minute": 1000},
            f"tenants.{TENANT}.limits.guaranteed_tokens_per_minute",
            f"guarantees tokens of {MODEL}, which may have no replica",
            {f"{QWEN}.scaling.least": 1},
        ),
        Wrong({f"{QWEN}.scaling": {"least": -1}}, f"{QWEN}.scaling.least", "-1", {f"{QWEN}.scaling.least": 0}),
    ],
    ids=lambda wrong: wrong.what,
)
def test_what_counts_on_a_replica_is_refused_beside_none(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
