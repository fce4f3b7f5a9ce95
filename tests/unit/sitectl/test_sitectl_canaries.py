"""Nothing that looks like a secret is ever printed, as name or value, wherever it is in a file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from sitectl.shell.errors import Exit
from tests.unit.sitectl.sites_to_work_on import ROOT, CommandResult, make_checkout, run
from tests.unit.stacks.site_mutations import SECRETS, TRACES, places

REFERENCE = ROOT / "Pulumi.prod.yaml"
KEY = "inference-platform:site"
RULES = {
    "sovereign": True,
    "registries": ["registry.internal"],
    "waivers": [
        {"rule": "spread", "resource": "Deployment a/b", "reason": "one node alone", "expires": "2027-01-31"},
    ],
}
# Random bytes without an issuer's mark are a digest as well as a key: in a preview they are shown.
ISSUED = [secret for secret in SECRETS if not secret.startswith("Q0FO")]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "own", sites=())


def planted(document: Any, secrets: list[str]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, document) with one secret more: in the place of each leaf, then of each key."""
    chosen = cycle(secrets)
    for path in places(document):
        for change in (_as_value, _as_name):
            changed = copy.deepcopy(document)
            here = changed
            for key in path[:-1]:
                here = here[key]
            if change(here, path[-1], next(chosen)):
                yield path, changed


def _as_value(section: Any, key: Any, secret: str) -> bool:
    if isinstance(section[key], dict | list):
        return False
    section[key] = secret
    return True


def _as_name(section: Any, key: Any, secret: str) -> bool:
    if not isinstance(section, dict):
        return False
    section[secret] = section.pop(key)
    return True


def is_silent(result: CommandResult, path: object) -> None:
    reported = (result.out + result.err).lower()
    assert not [trace for trace in TRACES if trace in reported], f"{path}: {reported}"
    assert "traceback" not in reported and "has a bug" not in reported, f"{path}: {reported}"


def nowhere_printed(own: Path, step: int) -> None:
    """Every `step`-th place of the reference site."""
    site = yaml.safe_load(REFERENCE.read_text())["config"][KEY]
    file, tried, refused = own / "Pulumi.prod.yaml", 0, 0
    for path, changed in islice(planted(site, list(SECRETS)), 0, None, step):
        file.write_text(json.dumps({"config": {KEY: changed}}))
        result = run(own, "validate", *(["--json"] if tried % 2 else []))
        is_silent(result, path)
        tried += 1
        refused += result.status == Exit.REFUSED
    assert tried > 300 / step
    assert refused > tried * 0.9


@pytest.mark.slow
def test_a_secret_in_a_site_is_not_printed(own: Path) -> None:
    nowhere_printed(own, 7)


@pytest.mark.exhaustive
def test_a_secret_anywhere_in_a_site_is_not_printed(own: Path) -> None:
    nowhere_printed(own, 1)


@pytest.mark.slow
def test_secrets_in_many_places_are_printed_by_no_command(own: Path) -> None:
    document = yaml.safe_load(REFERENCE.read_text())
    site = document["config"][KEY]
    patches = site["cluster"]["machines"]["roles"]["hgx"]["patches"] = {}
    steps = []
    for number, secret in enumerate(SECRETS):
        site["tenants"]["search"]["models"] += [secret]
        site["tenants"][secret] = {"models": [secret], "keys": {secret: {}}, "tier": secret}
        server = {"engine": secret, "extra_args": [f"--api-key={secret}"]}
        site["models"][secret] = {"catalogue": secret, "server": server}
        patches[f"join-{number}"] = {"machine": {"ca": {"key": secret}}, "cluster": {"secret": secret}}
        steps.append({"op": secret, "urn": number})
    site["cluster"]["gpu"] = SECRETS[0]
    (own / "Pulumi.prod.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    preview = own / "preview.json"
    preview.write_text(json.dumps({"steps": steps, "diagnostics": [{"message": list(SECRETS)}]}))
    for words in (
        ["validate"],
        ["validate", "--json"],
        ["proof"],
        ["proof", "--json"],
        ["explain", "--site", "prod", "models"],
        ["render", "--out", str(own / "out")],
        ["rules"],
        ["rules", "--json"],
        ["doctor"],
        ["plan", "prod", "--from", str(preview)],
        *([command, secret] for command in ("validate", "docs", "diff") for secret in ISSUED),
    ):
        result = run(own, *words)
        assert result.status in (Exit.REFUSED, Exit.USAGE, Exit.UNABLE), words
        is_silent(result, words)


def test_a_secret_in_a_tenants_models_is_one_problem(own: Path) -> None:
    document = yaml.safe_load(REFERENCE.read_text())
    document["config"][KEY]["tenants"]["search"]["models"] += [SECRETS[0]]
    (own / "Pulumi.prod.yaml").write_text(yaml.safe_dump(document))
    problems = run(own, "validate", "--json").data["prod"]["problems"]
    assert [problem["key"] for problem in problems] == ["tenants.search.models.2"]


def test_a_secret_of_a_machine_in_a_patch_is_refused_whatever_its_form(own: Path) -> None:
    document = yaml.safe_load(REFERENCE.read_text())
    roles = document["config"][KEY]["cluster"]["machines"]["roles"]
    for patch in (
        {"machine": {"token": "hunter"}},
        {"cluster": {"token": "hunter"}},
        {"cluster": {"aggregatorCA": {"key": "hunter"}}},
        {"cluster": {"serviceAccount": {"key": "hunter"}}},
        {"cluster": {"secretboxEncryptionSecret": "hunter"}},
        {"machine": {"registries": {"config": {"registry.internal": {"auth": {"password": "hunter"}}}}}},
    ):
        roles["hgx"]["patches"] = {"join": patch}
        (own / "Pulumi.prod.yaml").write_text(yaml.safe_dump(document))
        result = run(own, "validate")
        assert (result.status, "hunter" in result.out) == (Exit.REFUSED, False)
        assert "looks like a secret in plain text" in result.out
        assert "`up` makes the machines' secrets" in result.out


def test_a_secret_in_a_rules_file_is_not_printed(own: Path) -> None:
    (own / "Pulumi.lab.yaml").write_text((ROOT / "Pulumi.lab.yaml").read_text())
    for path, changed in planted(RULES, list(SECRETS)):
        (own / "rules.lab.yaml").write_text(yaml.safe_dump(changed))
        is_silent(run(own, "validate", "lab"), path)


@pytest.mark.parametrize("command", [["plan", "lab"], ["plan", "lab", "--json"]], ids=["text", "json"])
def test_a_secret_in_a_preview_is_not_printed(own: Path, command: list[str], preview: Callable[[], Any]) -> None:
    file = own / "preview.json"
    for path, changed in planted(preview(), ISSUED):
        file.write_text(json.dumps(changed))
        is_silent(run(own, *command, "--from", str(file), "--markdown", str(own / "plan.md")), path)
        is_silent(CommandResult(0, (own / "plan.md").read_text() if (own / "plan.md").exists() else "", ""), path)


@pytest.fixture
def preview() -> Callable[[], Any]:
    """A short preview of the engine with what it says of one changed object."""
    state = {
        "type": "kubernetes:apps/v1:Deployment",
        "inputs": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 1}},
    }
    step = {"op": "update", "urn": "urn:pulumi:lab::p::t::a", "oldState": state, "newState": copy.deepcopy(state)}
    step["newState"]["inputs"]["spec"]["replicas"] = 2  # type: ignore[index]
    return lambda: {
        "steps": [step],
        "diagnostics": [{"urn": "", "severity": "error", "message": "error: no such stack"}],
        "proofs": ["glm-5-1 fits"],
    }
