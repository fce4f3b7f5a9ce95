"""`split`: prompts and answers on replicas of their own, as objects that are marked as not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.models.split_pools import TRANSFER
from sitectl.commands.split import NOT_RUN
from sitectl.shell.errors import Exit
from stacks.facts import versions
from tests import documented
from tests.unit.sitectl.sites_to_work_on import run

pytestmark = pytest.mark.row("000.29", "001.20")

MODEL = "qwen3-32b"
POOL_PORT, ENGINE_PORT = 8000, 8200
Object = dict[str, Any]


@pytest.fixture(scope="module")
def objects(checkout_folder: Path) -> dict[str, Object]:
    """By kind and name."""
    text = run(checkout_folder, *documented.argv("python -m sitectl split --site prod qwen3-32b")[3:]).out
    assert text.startswith(f"# {NOT_RUN}\n# split: yes, but it is not deployed. 1 x TP1 for prompts, 1 x TP1")
    return {f"{body['kind']} {body['metadata']['name']}": body for body in yaml.safe_load_all(text) if body}


def pod_of(objects: dict[str, Object], role: str) -> Object:
    spec: Object = objects[f"Deployment {MODEL}-{role}"]["spec"]
    assert spec["replicas"] == 1
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"]["llm-d.ai/role"] == role
    return dict(spec["template"]["spec"])


def ports_of(container: Object) -> list[int]:
    return [port["containerPort"] for port in container["ports"]]


def test_both_roles_pass_caches_and_a_request_for_an_answer_comes_by_the_sidecar(objects: dict[str, Object]) -> None:
    prefill, decode = (pod_of(objects, role) for role in ("prefill", "decode"))
    ports = {"prefill": POOL_PORT, "decode": ENGINE_PORT}
    for role, pod in (("prefill", prefill), ("decode", decode)):
        (engine,) = pod["containers"]
        (watching,) = [item for item in pod["initContainers"] if item["name"] == "liveness"]
        assert f"--engine=http://127.0.0.1:{ports[role]}" in watching["args"]
        assert {TRANSFER, f"--port={ports[role]}", "--tensor-parallel-size=1"} <= set(engine["args"])
        assert ports_of(engine) == [ports[role]]
        assert {"VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT"} <= {
            item["name"] for item in engine["env"]
        }
    sidecars = [
        [item for item in pod["initContainers"] if item["image"] == versions.load().images.split_sidecar]
        for pod in (prefill, decode)
    ]
    assert sidecars[0] == []
    (sidecar,) = sidecars[1]
    assert (sidecar["restartPolicy"], ports_of(sidecar)) == ("Always", [POOL_PORT])
    assert f"--model-server-port={ENGINE_PORT}" in sidecar["args"]


def test_one_pool_has_both_and_its_picker_chooses_twice(objects: dict[str, Object]) -> None:
    pool = objects[f"InferencePool {MODEL}"]["spec"]
    assert [port["number"] for port in pool["targetPorts"]] == [POOL_PORT]
    for role in ("prefill", "decode"):
        labels = objects[f"Deployment {MODEL}-{role}"]["spec"]["template"]["metadata"]["labels"]
        assert pool["selector"]["matchLabels"].items() <= labels.items()
    (picker,) = objects[f"Deployment {MODEL}-epp"]["spec"]["template"]["spec"]["containers"]
    assert picker["image"] == versions.load().images.split_picker
    config = yaml.safe_load(objects[f"ConfigMap {MODEL}-epp"]["data"]["config.yaml"])
    assert config["apiVersion"] == "llm-d.ai/v1alpha1"
    declared = {plugin["type"] for plugin in config["plugins"]}
    profiles = {
        entry["name"]: [used["pluginRef"] for used in entry["plugins"]] for entry in config["schedulingProfiles"]
    }
    assert {name: refs[0] for name, refs in profiles.items()} == {
        "prefill": "prefill-filter",
        "decode": "decode-filter",
    }
    assert {ref for refs in profiles.values() for ref in refs} <= declared
    handler = next(plugin for plugin in config["plugins"] if plugin["type"] == "disagg-profile-handler")
    assert handler["parameters"]["deciders"]["prefill"] in declared
    groups = {group for rule in objects[f"Role {MODEL}-epp"]["rules"] for group in rule["apiGroups"]}
    assert "llm-d.ai" in groups


def test_no_site_has_any_of_it(checkout_folder: Path, tmp_path: Path) -> None:
    run(checkout_folder, "render", "prod", "--out", str(tmp_path))
    texts = "".join(path.read_text() for path in tmp_path.rglob("*.yaml"))
    assert "inference-models" in texts
    assert not [word for word in ("llm-d-router", "NixlConnector", "llm-d.ai/role") if word in texts]


@pytest.mark.parametrize(
    ("site", "model", "status", "what"),
    [
        ("prod", "glm-5-1", Exit.REFUSED, "two pools take at least 16 GPUs, and the load needs 8 GPUs"),
        ("lab", MODEL, Exit.REFUSED, "is served by a simulator"),
        ("prod", "none", Exit.USAGE, "allowed: glm-5-1, qwen3-32b"),
    ],
)
def test_what_has_no_split_is_refused_with_the_reason(
    checkout_folder: Path, site: str, model: str, status: Exit, what: str
) -> None:
    refused = run(checkout_folder, "split", "--site", site, model)
    assert (refused.status, refused.out) == (status, "")
    assert what in refused.err
