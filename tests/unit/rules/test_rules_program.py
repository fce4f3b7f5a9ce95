"""The whole program under the rules: a site that breaks one registers nothing, and a waiver counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from floor.metadata import DISPOSABLE
from floor.reading.document import read_file
from floor.stateful import holder
from sitectl.offline import checkout
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, remembering, run
from tests.unit.stacks.site_examples import ON_NODES
from tests.unit.stacks.wrong_sites import changed

pytestmark = [pytest.mark.processes, pytest.mark.row("opening 15")]

RUN = "import sys; from sitectl.offline.mocked_program import main; main(sys.argv[1:], enforce_rules=True)"
SOVEREIGN = {"sovereign": True, "registries": ["ghcr.io"]}
MISSPELT = "{rule: spreads, resource: a, reason: because, expires: 2027-02-30}"
PICKERS = [f"Deployment inference-models/{model}-epp" for model in ("glm-5-1", "qwen3-32b")]


INSIDE = {"sovereign": True, "registries": ["registry.site.example", "hub.site.example"]}
# Name -> the committed site that it comes from, and its rules file.
SITES: dict[str, tuple[str, dict[str, Any]]] = {
    "mirror": ("prod", INSIDE),
    "volume": ("prod", {**INSIDE, "registries": ["registry.site.example"]}),
    "hub": ("prod", INSIDE),
    "fallback": ("prod", INSIDE),
    "keeping": ("lab", {}),
    "disposable": ("prod", {}),
    "nodes": ("prod", INSIDE),
}
CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "mirror": lambda _: None,
    "volume": lambda site: site["storage"].update(weights={"source": "volume"}),
    "hub": lambda site: site["storage"].update(weights={"source": "hub"}),
    "fallback": lambda site: site["cluster"]["machines"]["registries"]["mirrors"]["*"].update(skip_fallback=False),
    "keeping": lambda site: site["models"]["glm-5-1"].update(volume="protected"),
    "disposable": lambda site: site["cluster"]["machines"].update(secrets="disposable"),
    "nodes": lambda site: site.update(changed(site, ON_NODES)),
}


def waived(expires: str) -> dict[str, Any]:
    held = {"rule": "sovereign-registries", "reason": "the mirror is being filled", "expires": expires}
    return {**SOVEREIGN, "waivers": [{**held, "resource": resource} for resource in PICKERS]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The committed sites, and the lab's one under rules files of its own."""
    patch = pytest.MonkeyPatch()
    patch.setattr(checkout, "declare", remembering)
    folder = make_checkout(tmp_path_factory.mktemp("rules") / "project")
    for name, text in {
        "broken": yaml.safe_dump(SOVEREIGN),
        "waived": yaml.safe_dump(waived("2999-01-01")),
        "expired": yaml.safe_dump(waived("2026-01-01")),
        "misspelt": f"waivers:\n  - {MISSPELT}\nsovereing: true\n",
        "unclosed": "registries: [ghcr.io\nsovereign: true\n",
    }.items():
        document = yaml.safe_load((ROOT / "Pulumi.lab.yaml").read_text())
        small = document["config"]["inference-platform:site"]
        # Without weights and monitoring, whose pods break the same rules again.
        del small["storage"]["weights"], small["monitoring"]
        (folder / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(document))
        (folder / f"rules.{name}.yaml").write_text(text)
    for name, (site, rules) in SITES.items():
        document = yaml.safe_load((ROOT / f"Pulumi.{site}.yaml").read_text())
        CHANGES[name](document["config"]["inference-platform:site"])
        (folder / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(document))
        (folder / f"rules.{name}.yaml").write_text(yaml.safe_dump(rules))
    yield folder
    patch.undo()


@pytest.fixture(scope="module")
def outcomes(project: Path) -> dict[str, Any]:
    """What the program does on each site: {"resources": [...]} or {"error": text}."""
    out = project.parent / "outcomes.json"
    sites = []
    for path in sorted(project.glob("Pulumi.*.yaml")):
        content = out.with_name(f"{path.name}.json")
        content.write_text(json.dumps(read_file(path).values))
        sites.append(f"{path.name.split('.')[1]}={content}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", RUN, str(out), *sites], cwd=project, env=environment, check=True)
    results: dict[str, Any] = json.loads(out.read_text())
    return results


@pytest.mark.parametrize("site", ["lab", "prod"])
def test_the_committed_sites_pass(outcomes: dict[str, Any], site: str) -> None:
    assert "error" not in outcomes[site]
    assert len(outcomes[site]["resources"]) > 40


@pytest.mark.parametrize("site", ["mirror", "volume"])
def test_a_sovereign_site_can_keep_its_own_rules(outcomes: dict[str, Any], site: str) -> None:
    """The annotated site, with weights from its own mirror or from a filled volume."""
    assert outcomes[site].get("error", "") == ""
    engines = [
        {variable["name"]: variable.get("value") for variable in container["env"]}
        for resource in outcomes[site]["resources"]
        if resource["type"] == "kubernetes:apps/v1:Deployment"
        for container in resource["inputs"]["spec"]["template"]["spec"]["containers"]
        if container["name"] == "engine"
    ]
    reported = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    assert len(engines) == 2
    for variables in engines:
        assert reported.items() <= variables.items()


def test_a_sovereign_site_may_not_ask_the_hub(outcomes: dict[str, Any]) -> None:
    error = outcomes["hub"]["error"]
    assert error.startswith("hub: 2 violations")
    assert error.count("may download weights from the hub [sovereign-egress]") == 2
    assert "set storage.weights.source: volume" in error


def test_a_mirror_with_a_way_back_to_the_registry_does_not_count(outcomes: dict[str, Any]) -> None:
    assert "[sovereign-registries]" in outcomes["fallback"]["error"]


def test_volumes_are_protected_unless_the_site_says_that_they_may_go(outcomes: dict[str, Any]) -> None:
    claims = {
        site: {
            resource["inputs"]["metadata"]["name"]: resource["protect"]
            for resource in outcomes[site]["resources"]
            if resource["type"].endswith(":PersistentVolumeClaim")
        }
        for site in ("prod", "lab", "keeping")
    }
    assert claims == {
        "prod": {
            "glm-5-1-weights-longhorn": True,
            "qwen3-32b-weights-longhorn": True,
            # Counters of limits, which begin from nothing without it.
            "limit-counters-longhorn-scratch": False,
        },
        "lab": {"glm-5-1-weights-longhorn": False, "qwen3-32b-weights-longhorn": False},
        "keeping": {"glm-5-1-weights-longhorn": True, "qwen3-32b-weights-longhorn": False},
    }


def test_weights_on_nodes_keep_the_rules_and_wait_for_every_node(outcomes: dict[str, Any]) -> None:
    """Under the rules of a sovereign site, to which each of its pods with a source belongs."""
    assert outcomes["nodes"].get("error", "") == ""
    declared = {resource["name"]: resource for resource in outcomes["nodes"]["resources"]}
    of_model = {name for name in declared if name.startswith("qwen3-32b-") and ("node" in name or "weight" in name)}
    assert of_model == {
        "qwen3-32b-node-volume",
        "qwen3-32b-node-weights",
        "qwen3-32b-weights-policy",
        "qwen3-32b-nodes",
    }
    assert {"qwen3-32b-bring", "qwen3-32b-order", "qwen3-32b-server"} <= declared.keys()
    assert "qwen3-32b-prune" not in declared, "what brings a revision removes earlier ones"
    assert declared["qwen3-32b-node-weights"]["protect"] is False


def test_what_is_protected_is_what_holds_data(outcomes: dict[str, Any]) -> None:
    """The list that the rule works from has each resource that the components protect, and the other way round."""
    declared = outcomes["prod"]["resources"]
    stateful = [
        resource["name"]
        for resource in declared
        if holder(resource["type"], resource["name"])
        # Counters of limits may go.
        and DISPOSABLE not in resource["inputs"].get("metadata", {}).get("annotations", {})
    ]
    assert stateful == [resource["name"] for resource in declared if resource["protect"]]
    accounts = ["directory-pepper", "database-servers-1"]
    assert sorted(stateful) == sorted(
        [*accounts, "glm-5-1-weights", "qwen3-32b-weights", "machines-identity-secrets", "storage-longhorn"]
    )


def test_a_site_may_let_the_secrets_of_its_machines_go(outcomes: dict[str, Any], project: Path) -> None:
    assert "error" not in outcomes["disposable"]
    assert run(project, "rules", "disposable", "--json").data["disposable"]["errors"] == []
    kept = {resource["name"]: resource["protect"] for resource in outcomes["disposable"]["resources"]}
    assert (kept["machines-identity-secrets"], kept["glm-5-1-weights"]) == (False, True)


def test_a_broken_rule_stops_the_program_before_anything_is_registered(outcomes: dict[str, Any]) -> None:
    assert "resources" not in outcomes["broken"]
    error = outcomes["broken"]["error"]
    assert error.startswith("broken: 2 violations of the platform's rules, so nothing was touched\n")
    for resource in PICKERS:
        assert f"\n  {resource}: 'registry.k8s.io/" in error
    assert error.count("[sovereign-registries]\n    fix: mirror it") == 2
    assert "in rules.broken.yaml" in error


def test_the_program_and_sitectl_say_the_same(outcomes: dict[str, Any], project: Path) -> None:
    """What a pull request's job without credentials says is what `up` does."""
    errors = run(project, "rules", "broken", "--json").data["broken"]["errors"]
    assert len(errors) == 2
    for error in errors:
        assert (
            f"{error['resource']}: {error['problem']} [{error['rule']}]\n    fix: {error['fix']}"
            in outcomes["broken"]["error"]
        )


def test_a_waiver_lets_the_program_through(outcomes: dict[str, Any]) -> None:
    assert outcomes["waived"].get("error", "") == ""
    waived_site, lab = (
        {(resource["type"], resource["name"]) for resource in outcomes[site]["resources"]} for site in ("waived", "lab")
    )
    # The last lets Prometheus read cert-manager.
    programs = ("pod-programs-weights", "pod-programs-liveness", "-order", "-weights-policy", "-bring", "-prune")
    left_out = (*programs, "certificates-network-policy-controller")
    kept = {(kind, name) for kind, name in lab if not name.endswith(left_out)}
    assert waived_site == {(kind, name) for kind, name in kept if "monitoring" not in name}


def test_an_expired_waiver_stops_the_program(outcomes: dict[str, Any]) -> None:
    error = outcomes["expired"]["error"]
    assert error.startswith("expired: 4 violations of the platform's rules")
    assert f"{PICKERS[0]}: its waiver expired on 2026-01-01 (reason: the mirror is being filled)" in error


def test_a_rules_file_with_mistakes_is_one_error_with_all_of_them(outcomes: dict[str, Any]) -> None:
    assert outcomes["misspelt"]["error"].splitlines() == [
        "rules.misspelt.yaml: 4 errors in the file",
        "  rules.misspelt.yaml:2:waivers.0.rule: there is no such rule; did you mean 'spread'?",
        "    fix: take a name of: python -m sitectl rules --list",
        "  rules.misspelt.yaml:2:waivers.0.reason: not what it takes; got 'because'; allowed: 10 letters or more",
        "    fix: see: python -m sitectl docs waive-a-rule",
        "  rules.misspelt.yaml:2:waivers.0.expires: not what it takes; got '2027-02-30'; allowed: a day, as 2027-01-31",
        "    fix: see: python -m sitectl docs waive-a-rule",
        "  rules.misspelt.yaml:3:sovereing: unknown key; did you mean 'sovereign'? allowed: sovereign, registries, "
        "privileged_namespaces, host_access, waivers",
        "    fix: rename it to sovereign, or take it out",
    ]
    assert "rules.unclosed.yaml:1: not YAML: a list is not closed" in outcomes["unclosed"]["error"]
    for site in ("misspelt", "unclosed"):
        assert "trace" not in outcomes[site]
        assert "resources" not in outcomes[site]


def test_sitectl_says_each_mistake_of_each_site(project: Path) -> None:
    reported = run(project, "rules", "misspelt", "unclosed", "broken")
    assert reported.status == 1
    for part in ("rules.misspelt.yaml:3:sovereing", "rules.unclosed.yaml:1", "broken: 2 broken"):
        assert part in reported.out, part
    assert str(project) not in reported.out


def test_a_site_that_breaks_a_rule_can_still_be_rendered(project: Path, tmp_path: Path) -> None:
    """To fix the site, an engineer needs to see what it declares."""
    reported = run(project, "render", "broken", "--out", str(tmp_path))
    assert reported.status == 0
    assert (tmp_path / "broken" / "inference-models" / "deployment.apps_glm-5-1-epp.yaml").is_file()
