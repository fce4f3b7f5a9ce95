"""A replica's Pod as the program declares it, without its GPUs and weights: its engine hangs, and is restarted."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
import yaml
from kubernetes import client

from components.models import liveness, model_server, own_program
from lab.paths import SITE_FILE, Lab
from stacks.facts import versions
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import plan_values
from tests.lab.runner.pods import log_of, main_status, read, run_pod, wait_ready
from tests.lab.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.row("002.11")

MODEL = "qwen3-32b"
# As short as the proof allows.
STALL_S = 3


def planned() -> RevisionPlan:
    site = yaml.safe_load(SITE_FILE.read_text())["config"]["inference-platform:site"]
    site["models"][MODEL]["overrides"]["stall_s"] = {"value": STALL_S, "reason": "a test waits for it"}
    return plan_values(site, "Pulumi.lab.yaml").models[MODEL].stable


def replica(model: RevisionPlan, namespace: str) -> dict[str, Any]:
    """What is its own of the Pod: the engine, and what watches it."""
    spec, engine = model.spec.server, model.engine
    body = model_server.deployment(MODEL, namespace, spec, model.server, engine, model.weights)
    pod = body["spec"]["template"]["spec"]
    container, watching = pod["containers"][0], pod["initContainers"][-1]
    del container["resources"], container["volumeMounts"]
    volumes = [volume for volume in pod["volumes"] if volume == liveness.volume()]
    grace = pod["terminationGracePeriodSeconds"]
    return {"container": container, "sidecar": watching, "volumes": volumes, "grace": grace}


@pytest.fixture
def address(core: client.CoreV1Api, namespace: str) -> str:
    """Of the running replica's engine."""
    model = planned()
    program = own_program.config_map(liveness.PROGRAM, namespace)
    core.create_namespaced_config_map(namespace, client.V1ConfigMap.model_validate(program))
    parts = replica(model, namespace)
    assert parts["sidecar"]["image"] == versions.load().images.vllm
    run_pod(
        core,
        namespace,
        "replica",
        parts["container"],
        initContainers=[parts["sidecar"]],
        volumes=parts["volumes"],
        terminationGracePeriodSeconds=parts["grace"],
    )
    return f"http://{wait_ready(core, namespace, 'replica').status.pod_ip}:8000"


def asked(address: str, tokens: int) -> httpx.Response:
    body = {"model": MODEL, "prompt": "hi", "max_tokens": tokens, "ignore_eos": True}
    return httpx.post(f"{address}/v1/completions", json=body, trust_env=False, timeout=PATIENCE_S)


def test_a_hung_engine_ends_its_requests_and_is_restarted(
    bare_lab: Lab, core: client.CoreV1Api, namespace: str, address: str
) -> None:
    for _ in range(3):
        assert asked(address, 20).status_code == 200
    assert main_status(core, namespace, "replica").restart_count == 0
    httpx.post(f"{address}/admin/config", json={"inter-token-latency": "1h"}, trust_env=False).raise_for_status()
    ends: list[str] = []

    def ask() -> None:
        try:
            ends.append(f"{asked(address, 20).status_code}")
        except httpx.TransportError as error:
            ends.append(type(error).__name__)

    asking = threading.Thread(target=ask)
    asking.start()
    status = eventually(lambda: (now := main_status(core, namespace, "replica")).restart_count and now)
    asking.join(timeout=PATIENCE_S)
    assert ends in (["RemoteProtocolError"], ["ReadError"]), "the client was left waiting, or got an answer"
    # Without a grace period of its own, it would have been its stop hook's and its streams' time.
    assert status.last_state.terminated.exit_code == 137
    written = log_of(bare_lab, namespace, "replica", "liveness")
    assert "the engine is to be restarted: no step for " in written
    wait_ready(core, namespace, "replica")
    (watching,) = read(core, namespace, "replica").status.init_container_statuses
    assert watching.restart_count == 0
    assert asked(address, 20).status_code == 200
