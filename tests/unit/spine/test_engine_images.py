"""GPU nodes that pull vLLM's image ahead of replicas, where a site asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from floor import gpu_nodes
from sitectl.change.changes import Change
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.19", "001.30")

TYPE = "kubernetes:apps/v1:DaemonSet"
AHEAD = {"images": {"engine_ahead": True}}


def planned(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


def daemon_sets(folder: Path, change: dict[str, Any]) -> dict[str, Any]:
    """Of the models' namespace, by name."""
    recorder = Recorder()
    requested(planned(change).site, folder, recorder)
    made = [made.inputs for made in recorder.resources.values() if made.typ == TYPE]
    return {body["metadata"]["name"]: body for body in made if body["metadata"]["namespace"] == "inference-models"}


@pytest.mark.slow
def test_each_gpu_node_has_a_pod_of_the_engines_own_image_that_takes_no_gpu(tmp_path: Path) -> None:
    plan = planned(AHEAD)
    body = daemon_sets(tmp_path, AHEAD)["engine-image"]
    pod = body["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == plan.named["qwen3-32b"].engine.image
    assert gpu_nodes.RESOURCE not in container["resources"]["limits"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "nvidia.com/gpu.family", "operator": "In", "values": ["hopper"]}]
    assert [toleration["key"] for toleration in pod["tolerations"]] == [gpu_nodes.TAINT_KEY]
    # A node that cannot pull holds back no `up`.
    assert body["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"


@pytest.mark.slow
def test_no_change_of_them_is_severe(tmp_path: Path) -> None:
    body = daemon_sets(tmp_path, AHEAD)["engine-image"]
    for change in (
        Change(op="create", type=TYPE, name="engine-images-nodes", after=body),
        Change(op="delete", type=TYPE, name="engine-images-nodes", before=body),
    ):
        (row,) = classify(change)
        assert row.severity is Severity.LIVE
        assert "engine's image" in row.what


@pytest.mark.slow
def test_only_a_site_that_asks_for_it_and_runs_vllm_has_them(tmp_path: Path) -> None:
    simulated = (
        AHEAD | {"purpose": "trial"} | {f"models.{name}.server.engine": "simulator" for name in prod()["models"]}
    )
    for number, change in enumerate(({}, simulated)):
        (folder := tmp_path / str(number)).mkdir()
        assert "engine-image" not in daemon_sets(folder, change)
