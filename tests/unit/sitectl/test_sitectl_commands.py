"""The command line: what each command prints, its exit status, and that its messages name the next command."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
import yaml

from sitectl.shell.cli import COMMAND_LINE, COMMANDS
from sitectl.shell.errors import MEANINGS, Exit
from sitectl.shell.progress import Progress
from stacks.facts import versions
from stacks.site.loader import KEY
from tests.command_lines import help_text
from tests.unit.sitectl.sites_to_work_on import ROOT, edit, make_checkout, run

pytestmark = pytest.mark.row("opening 2", "C.06")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkout that a test may change, with no site yet."""
    return make_checkout(tmp_path / "own", sites=())


@pytest.mark.slow
def test_from_init_to_a_checked_site_by_the_printed_words_alone(own: Path) -> None:
    """A user who follows `next:` gets from nothing to a site that is valid and keeps the rules."""
    result = run(own, "validate")
    walked = []
    assert result.status == Exit.REFUSED
    command = re.search(r"fix: python -m sitectl (init) NAME", result.err)
    assert command
    result = run(own, command[1], "berlin")
    while match := re.search(r"^next: python -m sitectl (.+)$", result.out, re.MULTILINE):
        assert result.status == Exit.OK, result.err
        words = shlex.split(match[1])
        walked.append(words[0])
        if words[0] == "plan":
            break
        result = run(own, *words)
    assert walked == ["validate", "proof", "rules", "plan"]
    assert "docs add-a-site" in result.out, "the walk ends where a cluster is needed, and says how to get one"
    assert "pulumi stack init" in run(own, "docs", "add-a-site").out


@pytest.mark.parametrize(
    "command", [["validate"], ["proof"], ["rules"], ["render", "--out", "out"]], ids=lambda words: words[0]
)
def test_without_a_site_a_command_says_how_to_make_one(own: Path, command: list[str]) -> None:
    result = run(own, *command)
    assert result.status == Exit.REFUSED
    assert result.out == ""
    assert "error: there is no site yet\n  fix: python -m sitectl init NAME" in result.err


def test_validate_tells_all_mistakes_of_all_sites(own: Path) -> None:
    run(own, "init", "berlin")
    run(own, "init", "oslo")
    edit(own, "berlin", gateway={"replica": 2, "port": 443})
    edit(own, "oslo", cluster={"kubeconfig": "k", "gpu": "h900"})
    (own / "rules.oslo.yaml").write_text("waivers: [{rule: spreads, resource: a}]\n")
    result = run(own, "validate")
    assert result.status == Exit.REFUSED
    for part in (
        "Pulumi.berlin.yaml:",
        "gateway.replica",
        "did you mean 'replicas'?",
        "h900",
        "rules.oslo.yaml",
        "did you mean 'spread'?",
        "2 sites: 2 not valid (berlin, oslo)",
    ):
        assert part in result.out, part
    assert str(own) not in result.out, "files are named as the user sees them"
    data = run(own, "validate", "--json").data
    assert not data["berlin"]["valid"]
    assert {problem["key"] for problem in data["berlin"]["problems"]} >= {"gateway.replica"}
    assert data["berlin"]["problems"][0]["line"] > 0


def test_rules_refuse_and_waive(own: Path) -> None:
    run(own, "init", "berlin")
    sovereign = {"sovereign": True, "registries": ["registry.internal"]}
    (own / "rules.berlin.yaml").write_text(yaml.safe_dump(sovereign))
    result = run(own, "rules", "berlin", "--json")
    assert result.status == Exit.REFUSED
    broken = result.data["berlin"]["errors"]
    assert any(
        "not in a registry of this sovereign site (allowed: registry.internal)" in violation["problem"]
        for violation in broken
    )
    held = {"reason": "the mirror is empty", "expires": "2999-01-01"}
    waivers = [{"rule": violation["rule"], "resource": violation["resource"], **held} for violation in broken]
    (own / "rules.berlin.yaml").write_text(yaml.safe_dump({**sovereign, "waivers": waivers}))
    result = run(own, "rules", "berlin")
    assert result.status == Exit.OK
    assert "waived until 2999-01-01" in result.out


def test_rules_list_says_each_rule(checkout_folder: Path) -> None:
    result = run(checkout_folder, "rules", "--list")
    assert "image-pinned" in result.out
    assert "Every image is a release tag or a digest." in result.out


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
    result = run(own, *words)
    assert result.status == Exit.USAGE
    assert result.err.splitlines()[1:] == [
        "  got: prud",
        "  allowed: lab, prod",
        "  fix: name one of these, or make one: python -m sitectl init NAME",
    ]


def test_outside_of_a_checkout(tmp_path: Path) -> None:
    result = run(tmp_path, "validate")
    assert result.status == Exit.USAGE
    assert "in no checkout" in result.err


def test_errors_are_data_with_json(checkout_folder: Path) -> None:
    result = run(checkout_folder, "validate", "prud", "--json")
    assert result.data["error"]["got"] == "prud"


def test_versions_name_every_pin(checkout_folder: Path) -> None:
    pins = run(checkout_folder, "versions", "--json").data
    assert [name for name in pins if "vllm" in name]
    assert all(isinstance(value, str) for value in pins.values())


def test_versions_tells_a_digest_from_a_version(checkout_folder: Path) -> None:
    """Cilium's manifest and the CRD files are pinned by content; 64 digits stood there as if they were versions."""
    reported = dict(line.split(maxsplit=1) for line in run(checkout_folder, "versions").out.splitlines())
    pinned = versions.load()
    assert (reported["talos"], reported["cilium.manifest"]) == (pinned.talos, f"sha256:{pinned.cilium.manifest}")
    bare = re.compile(r"[0-9a-f]{64}")
    assert [name for name, value in reported.items() if bare.fullmatch(value)] == []
    assert run(checkout_folder, "versions", "--json").data["cilium.manifest"] == pinned.cilium.manifest


def test_proof_says_what_each_model_holds_with_units_sources_and_fidelity(own: Path) -> None:
    """One block a model; each figure with formula and fidelity."""
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    result = run(own, "proof", "berlin")
    assert result.status == Exit.OK
    assert "chat: holds. Qwen/Qwen3-32B-FP8 on h200-sxm" in result.out
    model = json.loads(run(own, "proof", "--json", "berlin").out)["berlin"]["models"]["chat"]
    for name, figure in model["figures"].items():
        assert figure["source"] and figure["fidelity"] in ("published", "calibrated", "estimated"), name
    assert model["settings"]["max_num_seqs"]["formula"]


def test_proof_says_where_all_models_find_room(own: Path, checkout_folder: Path) -> None:
    """Fragments, a lost node and a rollout, or that the site names no nodes."""
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    assert "\n\nplacement: unknown, as cluster.kubeconfig does not list the nodes. 2 GPUs are" in run(own, "proof").out
    assert json.loads(run(own, "proof", "--json", "berlin").out)["berlin"]["placement"]["known"] is False
    result = run(checkout_folder, "proof", "lab")
    assert (
        "\n\nplacement: fits, a replica of every model outlives any one node. 18 of 32 GPUs on 4 nodes of 8 h200-sxm"
        in result.out
    )
    placement = json.loads(run(checkout_folder, "proof", "--json", "lab").out)["lab"]["placement"]
    assert sum(placement["free"].values()) == 14
    assert placement["lost_node"]["hgx-1"] == {
        "verdict": "degraded",
        "missing": {"glm-5-1": 1},
        "moved": {},
        "meanwhile": {},
    }
    meanwhile = placement["lost_node"]["hgx-3"]["meanwhile"]["qwen3-32b"]
    assert (meanwhile["replicas"], meanwhile["verdict"], meanwhile["utilisation_percent"]) == (1, "holds", None)
    assert placement["room_for_one_more"] == {"glm-5-1": False, "qwen3-32b": True}


def test_proof_fails_where_the_nodes_that_are_alive_do_not_hold_all(own: Path) -> None:
    """`up` may take a dead node out, so the site is valid; its models hold one by one, and not together."""
    shutil.copy(ROOT / "Pulumi.prod.yaml", own)
    file = own / "Pulumi.prod.yaml"
    document = yaml.safe_load(file.read_text())
    nodes = document["config"][KEY]["cluster"]["machines"]["nodes"]
    for name in ("hgx-2", "hgx-3", "hgx-4"):
        nodes[name]["dead"] = True
    # One node carries no three servers of a database, which is an error of its own.
    document["config"][KEY]["database"] = {"run_by": "external"}
    document["config"][KEY]["callers"]["database_secret"] = "directory-database"
    document["config"][KEY]["usage"]["database_secret"] = "usage-database"
    file.write_text(yaml.safe_dump(document))
    result = run(own, "proof", "prod")
    assert "placement: DOES NOT FIT" in result.out
    assert "site prod: 2 models hold by themselves; together THEY DO NOT FIT" in result.out
    assert result.status == Exit.REFUSED
    record = json.loads(run(own, "proof", "--json", "prod").out)["prod"]
    assert (record["holds"], record["verdict"], record["placement"]["fits"]) == (False, "fails", False)


def test_proof_says_what_is_left_while_a_replica_is_out_and_where_answers_end(checkout_folder: Path) -> None:
    out = run(checkout_folder, "proof", "prod").out
    assert re.search(r"answers +cut at 8,000 tokens, whatever a request asks for", out)
    assert re.search(
        r"one out +with 1 of 2 replicas the model may miss its targets: TTFT p95 [\d,]+ ms, [\d.]+ % used", out
    )
    assert re.search(r"one out +with 3 of 4 replicas", out)


def test_proof_refuses_what_does_not_fit_with_the_nearest_fix(own: Path) -> None:
    run(own, "init", "berlin", "--model", "chat=glm-5.1-fp8")
    edit(own, "berlin", models={"chat": {"catalogue": "glm-5.1-fp8", "server": {"gpus": 4}}})
    result = run(own, "proof", "berlin")
    assert result.status == Exit.REFUSED
    assert "does not fit" in result.out
    assert "fix: " in result.out


def test_an_override_that_breaks_the_proof_is_refused_with_what_is_allowed(own: Path) -> None:
    """One error of validate, with what, got, allowed and fix."""
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    override = {"value": 60, "reason": "the team is in a hurry"}
    edit(own, "berlin", models={"chat": {"catalogue": "qwen3-32b-fp8", "overrides": {"start_budget_s": override}}})
    result = run(own, "validate", "berlin")
    assert result.status == Exit.REFUSED
    reported = " ".join((result.out + result.err).split())
    assert "models.chat.overrides.start_budget_s: 2 replicas at once need 189 s to start" in reported
    assert "got 60 s; allowed: from 189 to 1,000,000,000 fix: write at least 189" in reported


def test_help_teaches() -> None:
    top = " ".join(help_text(COMMAND_LINE).split())
    assert all(name in top for name in COMMANDS)
    assert all(meaning in top for meaning in MEANINGS.values())
    assert "python -m sitectl init" in top
    for name, meaning in COMMANDS.items():
        command = COMMAND_LINE.get_command(click.Context(COMMAND_LINE), name)
        assert meaning and command and command.epilog, name


def test_progress_names_the_slow_item_and_is_silent_when_nothing_was_slow() -> None:
    progress = Progress(None)
    progress.took("render prod", 0.3)
    assert progress.slowest() == ""
    progress.took("preview berlin", 61.25)
    assert progress.slowest() == "slowest: preview berlin, 61.2 s"
