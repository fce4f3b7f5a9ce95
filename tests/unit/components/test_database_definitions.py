"""The database's objects against the definitions of CloudNativePG and its plugin, as their Go modules have them.

The modules are fetched from the module proxy, into the lab's cache of modules, and their content is checked.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from components.placing import Placing
from components.specs.database import DatabaseSpec
from components.tenants import database
from lab.install.toolchain import choose_toolchain, go_environment
from lab.paths import Lab

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.32")]

MODULES = {
    "postgresql.cnpg.io": (
        "github.com/cloudnative-pg/cloudnative-pg@v1.30.0",
        "h1:fnhVq44xXx97MNiuvJsPrX1vSjYbgdyBK5MSGfdHdp0=",
    ),
    "barmancloud.cnpg.io": (
        "github.com/cloudnative-pg/plugin-barman-cloud@v0.13.0",
        "h1:dcEVsozSmdx5p2LbG1hbkWBvr6LXs1xpCsQiJWpo/ew=",
    ),
}
"""By group of the API: a module, and the digest of its content as Go's checksum database has it."""
BACKUPS = {"address": "https://s3.site.example/platform/database", "keys_secret": "bucket", "has_ca": True}
RECOVERY = {"generation": 1, "until": "2026-12-01T00:00:00Z"}
PLACING = Placing(
    node_selector={"node": "cpu"}, tolerations=({"key": "cpu", "operator": "Exists", "effect": "NoSchedule"},)
)


@cache
def folder_of(group: str) -> Path:
    """Where the definitions of a group are."""
    module, digest = MODULES[group]
    lab = Lab.from_environment()
    toolchain = choose_toolchain(lab, (1, 26))
    toolchain.prepare(lab)
    # Outside of a module, so that no go.mod decides.
    lab.cache.mkdir(parents=True, exist_ok=True)
    asked = [str(toolchain.program), "mod", "download", "-json", module]
    done = subprocess.run(asked, cwd=lab.cache, env=go_environment(lab), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["Sum"] == digest
    return Path(answer["Dir"]) / "config" / "crd" / "bases"


def closed(schema: Any) -> Any:
    """A schema that refuses what the API server drops without a word, or with strict fields refuses."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(part) for name, part in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], **({"pattern": schema["pattern"]} if "pattern" in schema else {})}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        open_to_all = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
        if not open_to_all:
            made["additionalProperties"] = False
    return made


def refused(body: dict[str, Any]) -> list[str]:
    """What the definition of an object's kind does not accept; rules in CEL are not looked at."""
    group, version = body["apiVersion"].split("/")
    plain = json.loads(json.dumps(body["spec"]))
    errors = Draft7Validator(schema_of(group, version, body["kind"])).iter_errors(plain)
    return [f"{error.json_path}: {error.message}" for error in errors]


@cache
def schema_of(group: str, version: str, kind: str) -> Any:
    """Of the part `spec`."""
    (file,) = folder_of(group).glob(f"{group}_{kind.lower()}s.yaml")
    definition = yaml.load(file.read_text(), yaml.CSafeLoader)
    assert definition["spec"]["names"]["kind"] == kind
    (served,) = [own for own in definition["spec"]["versions"] if own["name"] == version and own["served"]]
    return closed(served["schema"]["openAPIV3Schema"]["properties"]["spec"])


def objects(**more: Any) -> list[dict[str, Any]]:
    """All that a site with a database has."""
    spec = DatabaseSpec.model_validate({"run_by": "cloudnative_pg", "generation": 2, **more})
    made = [
        database.cluster(
            spec, image="registry/postgresql:18", storage_class="fast", placing=PLACING, databases=["ledger"]
        ),
        database.database(spec.generation, "ledger"),
    ]
    if spec.backups is None:
        return made
    return [*made, database.object_store(spec.backups), database.scheduled_backup(spec.backups, spec.generation)]


@pytest.mark.parametrize("more", [{}, {"backups": BACKUPS}, {"backups": BACKUPS, "recovery": RECOVERY}])
def test_every_object_is_one_that_its_definition_accepts(more: dict[str, Any]) -> None:
    for body in objects(**more):
        assert refused(body) == [], body["kind"]


def test_what_a_definition_does_not_accept_is_found() -> None:
    """A field that is not there, deep within; another type; a value that is none of its own; one that is missing."""
    servers, own, store, backup = objects(backups=BACKUPS)
    servers["spec"]["postgresql"]["synchronous"]["dataDurable"] = "required"
    servers["spec"]["instances"] = "3"
    own["spec"]["databaseReclaimPolicy"] = "keep"
    store["spec"]["configuration"]["wal"]["compression"] = "rar"
    del backup["spec"]["cluster"]
    errors = [" ".join(refused(body)) for body in (servers, own, store, backup)]
    for text, wanted in zip(errors, ("dataDurable", "'keep'", "'rar'", "'cluster'"), strict=True):
        assert wanted in text
    assert "$.instances" in errors[0]


def test_the_definitions_are_those_that_the_program_was_written_for() -> None:
    versions = re.findall(r"\bv(\d+\.\d+\.\d+)\b", str(database.__doc__))
    assert [module.rpartition("@v")[2] for module, _ in MODULES.values()] == versions
