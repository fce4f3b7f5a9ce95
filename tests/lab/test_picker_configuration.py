"""The pinned endpoint picker takes the configuration of every model that is deployed somewhere.

It reads its file before it asks an API server for anything, so it needs none for that.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.models.inference_pool import picker_config
from components.specs.inference_pool import InferencePoolSpec, PickerPlan
from lab.install import install
from lab.paths import Lab
from tests.unit import golden_files

pytestmark = pytest.mark.row("000.27", "opening 2")

# Nothing listens there.
NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "nobody"}}],
    "users": [{"name": "nobody", "user": {}}],
    "current-context": "none",
}


@pytest.fixture(scope="module")
def program() -> Path:
    lab = Lab.from_environment()
    install(lab, ["endpoint-picker"])
    return lab.bin / "epp"


def reported(program: Path, folder: Path, text: str) -> list[dict[str, Any]]:
    """What the picker logs of a configuration until it misses the API server."""
    (folder / "config.yaml").write_text(text)
    (folder / "kubeconfig").write_text(json.dumps(NOWHERE))
    arguments = ("--pool-name=m", "--pool-namespace=n", "--tracing=false", "--zap-encoder=json")
    done = subprocess.run(
        [program, *arguments, f"--config-file={folder / 'config.yaml'}"],
        env={**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "NAMESPACE": "n", "POD_NAME": "p"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


def lines_with(lines: list[dict[str, Any]], message: str) -> list[dict[str, Any]]:
    return [line for line in lines if message in line["msg"]]


@pytest.mark.parametrize("golden", ["model-vllm", "model-one-gpu", "model-simulator"])
def test_what_is_deployed_is_understood(program: Path, tmp_path: Path, golden: str) -> None:
    objects = golden_files.agreed(golden)
    (text,) = [body["data"]["config.yaml"] for body in objects if body["kind"] == "ConfigMap"]
    wanted = [plugin for plugin in yaml.safe_load(text)["plugins"] if plugin["type"] == "utilization-detector"]
    lines = reported(program, tmp_path, text)
    assert lines_with(lines, "loaded configuration from file/text successfully"), lines
    detectors = {line["logger"].split("/")[0]: line for line in lines_with(lines, "Creating new UtilizationDetector")}
    assert len(detectors) == len(wanted) == 2
    for plugin in wanted:
        parameters_of = detectors[plugin.get("name", plugin["type"])]
        assert {name: parameters_of[name] for name in plugin["parameters"]} == plugin["parameters"]


def test_a_threshold_that_makes_no_sense_is_refused(program: Path, tmp_path: Path) -> None:
    """The picker reads the thresholds, and does not merely carry them."""
    plan = PickerPlan(
        block_tokens=16,
        prefix_tokens=4096,
        kv_blocks=1000,
        queue_threshold=0,
        shedding_queue_threshold=1,
        kv_threshold=0.9,
    )
    lines = reported(program, tmp_path, picker_config("m", "n", InferencePoolSpec(), plan)["data"]["config.yaml"])
    (refusal,) = lines_with(lines, "Failed to parse configuration")
    assert "queueDepthThreshold must be strictly positive" in refusal["error"]


def test_the_scorer_of_adapters_that_take_turns_is_one_that_it_has(program: Path, tmp_path: Path) -> None:
    plan = PickerPlan(
        block_tokens=16,
        prefix_tokens=4096,
        kv_blocks=1000,
        queue_threshold=5,
        shedding_queue_threshold=5,
        kv_threshold=0.9,
        adapters_turn=True,
    )
    text = picker_config("m", "n", InferencePoolSpec(), plan)["data"]["config.yaml"]
    assert "lora-affinity-scorer" in text
    assert lines_with(reported(program, tmp_path, text), "loaded configuration from file/text successfully")
