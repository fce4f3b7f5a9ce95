"""`explain`: where a value comes from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from stacks.facts import versions
from tests import documented
from tests.unit.sitectl.sites_to_work_on import edit, make_checkout, run

pytestmark = pytest.mark.row("opening 2", "C.06")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkout that a test may change, with no site yet."""
    return make_checkout(tmp_path / "own", sites=())


def test_explain_lists_the_settings_of_a_model(checkout_folder: Path) -> None:
    words = documented.argv("python -m sitectl explain --site prod models.qwen3-32b.settings")
    assert "max_num_seqs" in run(checkout_folder, *words[3:]).out


@pytest.mark.row("opening 13")
def test_explain_a_key(checkout_folder: Path) -> None:
    """Value, origin, meaning."""
    record = run(checkout_folder, "explain", "--site", "prod", "models.glm-5-1.server.replicas", "--json").data
    assert (record["value"], record["layer"]) == (2, "site")
    assert re.fullmatch(r"Pulumi\.prod\.yaml:\d+", record["origin"])
    assert record["meaning"].startswith("Pods that serve the model")
    default = run(checkout_folder, "explain", "--site", "lab", "models.glm-5-1.server.replicas", "--json").data
    assert (default["layer"], default["origin"]) == ("default", "default of components/specs/model_server.py")


@pytest.mark.parametrize(
    ("key", "meaning"),
    [
        ("cluster.machines.nodes.cp-1.address", "Address of the machine"),
        ("cluster.machines.hgx.storage.disks.longhorn-0.min_size", ""),
        ("tenants.search.keys.assistant.rotation", "Increase it to replace the key"),
    ],
)
def test_a_key_below_names_of_the_site_s_own_has_its_meaning(checkout_folder: Path, key: str, meaning: str) -> None:
    record = run(checkout_folder, "explain", "--site", "prod", key, "--json").data
    assert record["meaning"].startswith(meaning)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gateway.replicas", 3),
        ("gateway.max_body_mib", 4),
        ("models.qwen3-32b.pool.cpu", "2"),
        ("models.qwen3-32b.server.gpus", None),
        ("storage.read_bytes_per_s", 6.0e8),
        ("cluster.machines.registries.mirrors.*.skip_fallback", True),
        ("cluster.machines.networks.nodes", ["10.5.0.0/24"]),
        ("catalogue.glm-5.1-fp8.max_context_tokens", 202_752),
        ("versions.talos", versions.load().talos),
    ],
)
def test_explain_gives_values_of_their_own_type(checkout_folder: Path, key: str, value: object) -> None:
    record = run(checkout_folder, "explain", "--site", "prod", key, "--json").data
    assert (type(record["value"]), record["value"]) == (type(value), value)
    words = run(checkout_folder, "explain", "--site", "prod", key).out.splitlines()
    plain = value if isinstance(value, str) else json.dumps(value)
    assert words[1].split(maxsplit=1) == ["value", "not set" if value is None else plain]


def test_explain_gives_every_key_a_value(checkout_folder: Path) -> None:
    """Those of pins and the catalogue too, whose names hold dots."""
    for section in ("versions", "catalogue", "cluster", "models"):
        records = run(checkout_folder, "explain", "--site", "prod", section, "--json").data
        assert len(records) > 20
        assert all(set(record) == {"value", "origin"} for record in records.values())
        unset = [
            key for key, record in records.items() if record["value"] is None and "default" not in record["origin"]
        ]
        assert unset == []


def test_explain_a_section_lists_its_keys(checkout_folder: Path) -> None:
    result = run(checkout_folder, "explain", "--site", "prod", "models.glm-5-1.pool")
    assert "models.glm-5-1.pool.prefix_weight" in result.out


def test_explain_an_object_says_its_fields(checkout_folder: Path) -> None:
    """Without a field the error was that the site has no such key."""
    result = run(checkout_folder, "explain", "--site", "prod", "deployment/glm-5-1")
    assert result.status == Exit.OK
    assert result.out.splitlines() == [
        "object       Deployment inference-models/glm-5-1",
        "declared as  kubernetes:apps/v1:Deployment glm-5-1-server",
        "fields       metadata, spec",
        "next: python -m sitectl explain --site prod deployment/glm-5-1 spec",
    ]
    data = run(checkout_folder, "explain", "--site", "prod", "deployment/glm-5-1", "--json").data
    assert data["fields"] == ["metadata", "spec"]


@pytest.mark.slow
def test_explain_counts_one_as_one_and_writes_values_as_the_file_does(own: Path) -> None:
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    printed = run(own, "explain", "--site", "berlin", "models.chat.settings").out
    assert re.search(r"^tensor_parallel_size +1 GPU \(derived\)$", printed, re.MULTILINE)
    assert re.search(r"^disruption_max_unavailable +1 replica \(derived\)$", printed, re.MULTILINE)
    assert re.search(r"^enable_expert_parallel +false \(derived\)$", printed, re.MULTILINE)
    assert re.search(r"^max_num_seqs +4\d requests \(derived\)$", printed, re.MULTILINE)
    key = run(own, "explain", "--site", "berlin", "models.chat.server.replicas").out
    assert re.search(r"^default +2$", key, re.MULTILINE)
    args = run(own, "explain", "--site", "berlin", "deployment/chat", "spec.template.spec.containers.0.args").out
    assert re.search(r'^value +\["/models/weights", ', args, re.MULTILINE)


def test_explain_a_field_of_an_object(checkout_folder: Path) -> None:
    record = run(checkout_folder, "explain", "--site", "prod", "deployment/glm-5-1", "spec.replicas", "--json").data
    assert record["value"] == 2
    assert record["object"] == "Deployment inference-models/glm-5-1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["models.glm-5-1.server.replica"], "did you mean 'models.glm-5-1.server.replicas'?"),
        # What the proof decides is a setting, and an override only where a site sets one.
        (["models.glm-5-1.max_model_len"], "did you mean 'models.glm-5-1.settings.max_model_len'?"),
        (["models.glm-5-1.server.max_num_seqs"], "did you mean 'models.glm-5-1.settings.max_num_seqs'?"),
        (["deployment/glm-5-2", "spec"], "no such object"),
        (["deployment/glm-5-1", "spec.replica"], "did you mean 'replicas'?"),
        (["deployment/glm-5-1", "spec.template.spec.containers[7]"], "allowed: [0]"),
        (["deployment/glm-5-2"], "no such object; did you mean 'deployment/glm-5-1'?"),
        (
            ["models.glm-5-1.replicas"],
            "allowed: below models.glm-5-1: adapters, aliases, calibration, canary, catalogue,",
        ),
        (["models.glm-5-1.settings.max_seqs"], "fix: python -m sitectl explain --site prod models.glm-5-1.settings"),
        (["gatway"], "allowed: addresses, autoscaling, callers, catalogue, certificates, charts, cluster, counters,"),
        (["gatway"], "fix: python -m sitectl docs configuration"),
    ],
)
def test_explain_with_a_mistake_says_the_near_one(checkout_folder: Path, words: list[str], says: str) -> None:
    result = run(checkout_folder, "explain", "--site", "prod", *words)
    assert result.status == Exit.USAGE
    assert says in result.err


def test_explain_tells_formula_and_inputs_of_a_derived_setting(own: Path) -> None:
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    reported = json.loads(run(own, "explain", "--json", "--site", "berlin", "models.chat.settings.max_num_seqs").out)
    assert reported["origin"] == "derived"
    assert reported["inputs"]["cache_bytes_per_gpu"] > 1e9
    assert reported["rendered"] == "yes: argument of the engine, --max-num-seqs"
    idle = json.loads(
        run(own, "explain", "--json", "--site", "berlin", "models.chat.settings.max_num_queued_tokens").out
    )
    assert idle["rendered"].startswith("no: vLLM counts a whole prompt")
    everything = json.loads(run(own, "explain", "--json", "--site", "berlin", "models.chat.settings").out)
    assert everything["max_num_seqs"] == {name: reported[name] for name in ("value", "unit", "origin")}
    wrong = run(own, "explain", "--site", "berlin", "models.chat.settings.max_num_seq")
    assert (wrong.status, "did you mean 'max_num_seqs'" in wrong.err) == (Exit.USAGE, True)


def test_explain_tells_why_a_setting_was_overridden(own: Path) -> None:
    """An override has a reason, and explain shows it."""
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    override = {"value": 8, "reason": "the team wants short queues"}
    edit(own, "berlin", models={"chat": {"catalogue": "qwen3-32b-fp8", "overrides": {"max_num_seqs": override}}})
    reported = json.loads(run(own, "explain", "--json", "--site", "berlin", "models.chat.settings.max_num_seqs").out)
    assert (reported["value"], reported["origin"], reported["reason"]) == (8, "override", "the team wants short queues")
