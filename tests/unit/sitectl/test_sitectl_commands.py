"""The command line: what each command prints, its exit status, and that its messages name the next command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from sitectl.cli import COMMANDS, command_parsers, load, parser
from sitectl.commands.doctor import Machine, checks
from sitectl.errors import MEANINGS, Exit
from sitectl.progress import Progress
from stacks.facts import versions
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, run

pytestmark = pytest.mark.row("opening 2", "C.06")

SITE = "inference-platform:site"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkout that a test may change, with no site yet."""
    return make_checkout(tmp_path / "own", sites=())


def edit(folder: Path, site: str, **values: Any) -> None:
    file = folder / f"Pulumi.{site}.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"][SITE].update(values)
    file.write_text(yaml.safe_dump(document))


def test_from_init_to_a_checked_site_by_the_printed_words_alone(own: Path) -> None:
    """A user who follows `next:` gets from nothing to a site that is valid and keeps the rules."""
    said = run(own, "validate")
    walked = []
    assert said.status == Exit.REFUSED
    command = re.search(r"fix: python -m sitectl (init) NAME", said.err)
    assert command
    said = run(own, command[1], "berlin")
    while found := re.search(r"^next: python -m sitectl (.+)$", said.out, re.MULTILINE):
        assert said.status == Exit.OK, said.err
        words = shlex.split(found[1])
        walked.append(words[0])
        if words[0] == "plan":
            break
        said = run(own, *words)
    assert walked == ["validate", "proof", "rules", "plan"]
    assert "docs add-a-site" in said.out, "the walk ends where a cluster is needed, and says how to get one"
    assert "pulumi stack init" in run(own, "docs", "add-a-site").out


@pytest.mark.parametrize(
    "command", [["validate"], ["proof"], ["rules"], ["render", "--out", "out"]], ids=lambda words: words[0]
)
def test_without_a_site_a_command_says_how_to_make_one(own: Path, command: list[str]) -> None:
    said = run(own, *command)
    assert said.status == Exit.REFUSED
    assert said.out == ""
    assert "error: there is no site yet\n  fix: python -m sitectl init NAME" in said.err


def test_validate_tells_all_mistakes_of_all_sites(own: Path) -> None:
    run(own, "init", "berlin")
    run(own, "init", "oslo")
    edit(own, "berlin", gateway={"replica": 2, "port": 443})
    edit(own, "oslo", cluster={"kubeconfig": "k", "gpu": "h900"})
    (own / "rules.oslo.yaml").write_text("waivers: [{rule: spreads, resource: a}]\n")
    said = run(own, "validate")
    assert said.status == Exit.REFUSED
    for part in (
        "Pulumi.berlin.yaml:",
        "gateway.replica",
        "did you mean 'replicas'?",
        "h900",
        "rules.oslo.yaml",
        "did you mean 'spread'?",
        "2 sites: 2 not valid (berlin, oslo)",
    ):
        assert part in said.out, part
    assert str(own) not in said.out, "files are named as the user sees them"
    data = run(own, "validate", "--json").data
    assert not data["berlin"]["valid"]
    assert {problem["key"] for problem in data["berlin"]["problems"]} >= {"gateway.replica"}
    assert data["berlin"]["problems"][0]["line"] > 0


def test_rules_refuse_and_waive(own: Path) -> None:
    run(own, "init", "berlin")
    sovereign = {"sovereign": True, "registries": ["registry.internal"]}
    (own / "rules.berlin.yaml").write_text(yaml.safe_dump(sovereign))
    said = run(own, "rules", "berlin", "--json")
    assert said.status == Exit.REFUSED
    broken = said.data["berlin"]["errors"]
    assert any(
        "not in a registry of this sovereign site (allowed: registry.internal)" in one["problem"] for one in broken
    )
    held = {"reason": "the mirror is empty", "expires": "2999-01-01"}
    waivers = [{"rule": one["rule"], "resource": one["resource"], **held} for one in broken]
    (own / "rules.berlin.yaml").write_text(yaml.safe_dump({**sovereign, "waivers": waivers}))
    said = run(own, "rules", "berlin")
    assert said.status == Exit.OK
    assert "waived until 2999-01-01" in said.out


def test_rules_list_says_each_rule(checkout_folder: Path) -> None:
    said = run(checkout_folder, "rules", "--list")
    assert "image-pinned" in said.out
    assert "Every image is a release tag or a digest." in said.out


@pytest.mark.row("opening 13")
def test_explain_a_key(checkout_folder: Path) -> None:
    """Value, origin, meaning."""
    said = run(checkout_folder, "explain", "--site", "prod", "models.glm-5-1.server.replicas", "--json").data
    assert (said["value"], said["layer"]) == (2, "site")
    assert re.fullmatch(r"Pulumi\.prod\.yaml:\d+", said["origin"])
    assert said["meaning"].startswith("Pods that serve the model")
    default = run(checkout_folder, "explain", "--site", "lab", "models.glm-5-1.server.replicas", "--json").data
    assert (default["layer"], default["origin"]) == ("default", "default of components/specs/model_server.py")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gateway.replicas", 3),
        ("gateway.max_body_mib", 4),
        ("models.qwen3-32b.pool.cpu", "2"),
        ("models.qwen3-32b.server.gpus", None),
        ("storage.read_bytes_per_s", 1.5e9),
        ("cluster.machines.registries.mirrors.*.skip_fallback", True),
        ("cluster.machines.networks.nodes", ["10.5.0.0/24"]),
        ("catalogue.glm-5.1-fp8.max_context_tokens", 202_752),
        ("versions.talos", versions.load().talos),
    ],
)
def test_explain_gives_values_of_their_own_type(checkout_folder: Path, key: str, value: object) -> None:
    said = run(checkout_folder, "explain", "--site", "prod", key, "--json").data
    assert (type(said["value"]), said["value"]) == (type(value), value)
    words = run(checkout_folder, "explain", "--site", "prod", key).out.splitlines()
    plain = value if isinstance(value, str) else json.dumps(value)
    assert words[1].split(maxsplit=1) == ["value", "not set" if value is None else plain]


def test_explain_gives_every_key_a_value(checkout_folder: Path) -> None:
    """Those of pins and the catalogue too, whose names hold dots."""
    for section in ("versions", "catalogue", "cluster", "models"):
        said = run(checkout_folder, "explain", "--site", "prod", section, "--json").data
        assert len(said) > 20
        assert all(set(one) == {"value", "origin"} for one in said.values())
        unset = [key for key, one in said.items() if one["value"] is None and "default" not in one["origin"]]
        assert unset == []


def test_explain_a_section_lists_its_keys(checkout_folder: Path) -> None:
    said = run(checkout_folder, "explain", "--site", "prod", "models.glm-5-1.pool")
    assert "models.glm-5-1.pool.prefix_weight" in said.out


def test_explain_an_object_says_its_fields(checkout_folder: Path) -> None:
    """Without a field the error was that the site has no such key."""
    said = run(checkout_folder, "explain", "--site", "prod", "deployment/glm-5-1")
    assert said.status == Exit.OK
    assert said.out.splitlines() == [
        "object       Deployment inference-models/glm-5-1",
        "declared as  kubernetes:apps/v1:Deployment glm-5-1-server",
        "fields       metadata, spec",
        "next: python -m sitectl explain --site prod deployment/glm-5-1 spec",
    ]
    data = run(checkout_folder, "explain", "--site", "prod", "deployment/glm-5-1", "--json").data
    assert data["fields"] == ["metadata", "spec"]


def test_explain_counts_one_as_one_and_writes_values_as_the_file_does(own: Path) -> None:
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    said = run(own, "explain", "--site", "berlin", "models.chat.settings").out
    assert re.search(r"^tensor_parallel_size +1 GPU \(derived\)$", said, re.MULTILINE)
    assert re.search(r"^disruption_max_unavailable +1 replica \(derived\)$", said, re.MULTILINE)
    assert re.search(r"^enable_expert_parallel +false \(derived\)$", said, re.MULTILINE)
    assert re.search(r"^max_num_seqs +46 requests \(derived\)$", said, re.MULTILINE)
    key = run(own, "explain", "--site", "berlin", "models.chat.server.replicas").out
    assert re.search(r"^default +2$", key, re.MULTILINE)
    args = run(own, "explain", "--site", "berlin", "deployment/chat", "spec.template.spec.containers.0.args").out
    assert re.search(r'^value +\["Qwen/Qwen3-32B-FP8", ', args, re.MULTILINE)


def test_explain_a_field_of_an_object(checkout_folder: Path) -> None:
    said = run(checkout_folder, "explain", "--site", "prod", "deployment/glm-5-1", "spec.replicas", "--json").data
    assert said["value"] == 2
    assert said["object"] == "Deployment inference-models/glm-5-1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["models.glm-5-1.server.replica"], "did you mean 'models.glm-5-1.server.replicas'?"),
        (["deployment/glm-5-2", "spec"], "no such object"),
        (["deployment/glm-5-1", "spec.replica"], "did you mean 'replicas'?"),
        (["deployment/glm-5-1", "spec.template.spec.containers[7]"], "allowed: [0]"),
        (["deployment/glm-5-2"], "no such object; did you mean 'deployment/glm-5-1'?"),
        (["models.glm-5-1.replicas"], "allowed: below models.glm-5-1: aliases, catalogue, load, overrides, pool,"),
        (["models.glm-5-1.settings.max_seqs"], "fix: python -m sitectl explain --site prod models.glm-5-1.settings"),
        (["gatway"], "allowed: catalogue, charts, cluster, crds, gateway, models, name,"),
        (["gatway"], "fix: python -m sitectl docs configuration"),
    ],
)
def test_explain_with_a_mistake_says_the_near_one(checkout_folder: Path, words: list[str], says: str) -> None:
    said = run(checkout_folder, "explain", "--site", "prod", *words)
    assert said.status == Exit.USAGE
    assert says in said.err


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "prud"],
        ["plan", "prud"],
        ["drift", "--site", "prud"],
        ["render", "prud", "--out", "rendered"],
        ["explain", "--site", "prud", "gateway.port"],
    ],
    ids=lambda words: words[0],
)
def test_an_unknown_site_lists_those_that_are_there(own: Path, words: list[str]) -> None:
    """Before the engine is looked for, and before anything is rendered."""
    for site in ("lab", "prod"):
        (own / f"Pulumi.{site}.yaml").write_text((ROOT / f"Pulumi.{site}.yaml").read_text())
    said = run(own, *words)
    assert said.status == Exit.USAGE
    assert said.err.splitlines()[1:] == [
        "  got: prud",
        "  allowed: lab, prod",
        "  fix: name one of these, or make one: python -m sitectl init NAME",
    ]


def test_outside_of_a_checkout(tmp_path: Path) -> None:
    said = run(tmp_path, "validate")
    assert said.status == Exit.USAGE
    assert "in no checkout" in said.err


def test_errors_are_data_with_json(checkout_folder: Path) -> None:
    said = run(checkout_folder, "validate", "prud", "--json")
    assert said.data["error"]["got"] == "prud"


def test_versions_name_every_pin(checkout_folder: Path) -> None:
    pins = run(checkout_folder, "versions", "--json").data
    assert [name for name in pins if "vllm" in name]
    assert all(isinstance(value, str) for value in pins.values())


def test_versions_tells_a_digest_from_a_version(checkout_folder: Path) -> None:
    """Cilium's manifest and the CRD files are pinned by content; 64 digits stood there as if they were versions."""
    told = dict(line.split(maxsplit=1) for line in run(checkout_folder, "versions").out.splitlines())
    pinned = versions.load()
    assert (told["talos"], told["cilium.manifest"]) == (pinned.talos, f"sha256:{pinned.cilium.manifest}")
    bare = re.compile(r"[0-9a-f]{64}")
    assert [name for name, value in told.items() if bare.fullmatch(value)] == []
    assert run(checkout_folder, "versions", "--json").data["cilium.manifest"] == pinned.cilium.manifest


def test_proof_says_what_each_model_holds_with_units_sources_and_fidelity(own: Path) -> None:
    """One block a model; each figure with formula and fidelity."""
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    said = run(own, "proof", "berlin")
    assert said.status == Exit.OK
    assert "chat: holds. Qwen/Qwen3-32B-FP8 on h200-sxm" in said.out
    model = json.loads(run(own, "proof", "--json", "berlin").out)["berlin"]["models"]["chat"]
    for name, figure in model["figures"].items():
        assert figure["source"] and figure["fidelity"] in ("published", "calibrated", "estimated"), name
    assert model["settings"]["max_num_seqs"]["formula"]


def test_proof_says_where_all_models_find_room(own: Path, checkout_folder: Path) -> None:
    """Fragments, a lost node and a rollout, or that the site names no nodes."""
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    assert "\n\nplacement: unknown, as cluster.kubeconfig does not say the nodes. 2 GPUs are" in run(own, "proof").out
    assert json.loads(run(own, "proof", "--json", "berlin").out)["berlin"]["placement"]["known"] is False
    said = run(checkout_folder, "proof", "lab")
    assert "\n\nplacement: fits, every model outlives any one node. 18 of 32 GPUs on 4 nodes of 8 h200-sxm" in said.out
    placement = json.loads(run(checkout_folder, "proof", "--json", "lab").out)["lab"]["placement"]
    assert sum(placement["free"].values()) == 14
    assert placement["lost_node"]["hgx-1"] == {"verdict": "degraded", "missing": {"glm-5-1": 1}}
    assert placement["room_for_one_more"] == {"glm-5-1": False, "qwen3-32b": True}


def test_proof_refuses_what_does_not_fit_with_the_nearest_fix(own: Path) -> None:
    run(own, "init", "berlin", "--model", "chat=glm-5.1-fp8")
    edit(own, "berlin", models={"chat": {"catalogue": "glm-5.1-fp8", "server": {"gpus": 4}}})
    said = run(own, "proof", "berlin")
    assert said.status == Exit.REFUSED
    assert "does not fit" in said.out
    assert "fix: " in said.out


def test_explain_tells_formula_and_inputs_of_a_derived_setting(own: Path) -> None:
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    told = json.loads(run(own, "explain", "--json", "--site", "berlin", "models.chat.settings.max_num_seqs").out)
    assert told["origin"] == "derived"
    assert told["inputs"]["cache_bytes_per_gpu"] > 1e9
    assert told["rendered"] == "yes: argument of the engine, --max-num-seqs"
    idle = json.loads(
        run(own, "explain", "--json", "--site", "berlin", "models.chat.settings.autoscale_queue_tokens").out
    )
    assert idle["rendered"].startswith("no: the pinned versions hold no autoscaler")
    window = json.loads(
        run(own, "explain", "--json", "--site", "berlin", "models.chat.settings.autoscale_window_s").out
    )
    assert (window["value"], window["inputs"]) == (155, {"cold_start_s": 155})
    everything = json.loads(run(own, "explain", "--json", "--site", "berlin", "models.chat.settings").out)
    assert everything["max_num_seqs"] == {name: told[name] for name in ("value", "unit", "origin")}
    wrong = run(own, "explain", "--site", "berlin", "models.chat.settings.max_num_seq")
    assert (wrong.status, "did you mean 'max_num_seqs'" in wrong.err) == (Exit.USAGE, True)


def test_explain_tells_why_a_setting_was_overridden(own: Path) -> None:
    """An override has a reason, and explain shows it."""
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    override = {"value": 8, "reason": "the team wants short queues"}
    edit(own, "berlin", models={"chat": {"catalogue": "qwen3-32b-fp8", "overrides": {"max_num_seqs": override}}})
    told = json.loads(run(own, "explain", "--json", "--site", "berlin", "models.chat.settings.max_num_seqs").out)
    assert (told["value"], told["origin"], told["reason"]) == (8, "override", "the team wants short queues")


def test_an_override_that_breaks_the_proof_is_refused_with_what_is_allowed(own: Path) -> None:
    """One error of validate, with what, got, allowed and fix."""
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    override = {"value": 60, "reason": "the team is in a hurry"}
    edit(own, "berlin", models={"chat": {"catalogue": "qwen3-32b-fp8", "overrides": {"start_budget_s": override}}})
    said = run(own, "validate", "berlin")
    assert said.status == Exit.REFUSED
    told = " ".join((said.out + said.err).split())
    assert "models.chat.overrides.start_budget_s: a replica needs 429 s to start, 275 s of it to download" in told
    assert "got 60 s; allowed: from 429 to 1,000,000,000 fix: write at least 429" in told


def test_doctor_tells_what_is_missing_and_how_to_get_it(checkout_folder: Path, tmp_path: Path) -> None:
    """Everything is missing on a machine without programs; nothing of that is an error for work without a cluster."""
    bare = Machine(environment={"PULUMI_HOME": str(tmp_path)}, which=lambda _: None, say=lambda _: "")
    found = {one.name: one for one in checks(checkout_folder, bare)}
    for name in ("git", "pulumi", "plugin kubernetes", "plugin command", "kubectl", "CRD bundle"):
        notes = [one for one in checks(checkout_folder, bare) if one.name == name and one.state == "note"]
        assert notes, name
        assert notes[0].fix
    assert found["site prod"].state == "ok"
    assert [one for one in found.values() if one.state == "bad"] == []


def test_doctor_names_a_clusters_file_that_is_not_there(own: Path) -> None:
    run(own, "init", "berlin")
    bare = Machine(environment={}, which=lambda _: None, say=lambda _: "")
    found = {one.name: one for one in checks(own, bare)}
    assert (found["cluster of berlin"].state, found["cluster of berlin"].fix) == (
        "note",
        "put the kubeconfig of berlin there",
    )


def test_doctor_names_the_pod_network_of_a_site_of_machines(own: Path) -> None:
    """Without it `up` ends; doctor, which the way from the rack begins with, looked at the CRDs alone."""
    bare = Machine(environment={}, which=lambda _: None, say=lambda _: "")
    assert run(own, "init", "rack", "--machines", "3+6", "--network", "10.1.0.0/24").status == Exit.OK
    found = {one.name: one for one in checks(own, bare)}["pod network of rack"]
    assert (found.state, found.fix) == ("note", "python -m sitectl bundle rack")
    manifest = own / ".bundle" / "cilium" / "cilium.yaml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("another one")
    assert {one.name: one for one in checks(own, bare)}["pod network of rack"].state == "note"


def test_doctor_refuses_a_broken_site(own: Path) -> None:
    run(own, "init", "berlin")
    edit(own, "berlin", gateway={"port": 1})
    said = run(own, "doctor")
    assert said.status == Exit.REFUSED
    assert "fix: python -m sitectl validate berlin" in said.out


def test_help_teaches() -> None:
    top = " ".join(parser().format_help().split())
    assert all(name in top for name in COMMANDS)
    assert all(meaning in top for meaning in MEANINGS.values())
    assert "python -m sitectl init" in top
    for name, meaning in COMMANDS.items():
        assert meaning
        assert load(name).MORE


def test_progress_names_the_slow_item_and_is_silent_when_nothing_was_slow() -> None:
    progress = Progress(None)
    progress.took("render prod", 0.3)
    assert progress.slowest() == ""
    progress.took("preview berlin", 61.25)
    assert progress.slowest() == "slowest: preview berlin, 61.2 s"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in command_parsers()[command].fill().format_help().splitlines() if len(line) > 80] == []
