"""A site whose database the program runs, under the SDK's mocks: servers, who reads their addresses, and backups."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from components.addons import cloudnative_pg
from components.placing import Placing
from components.specs.database import DatabaseSpec
from components.tenants import database
from floor import namespaces
from floor.problems import Problem
from floor.stateful import DATABASE, holder
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.spine.test_platform import Recorder, declare, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("000.32", "000.35")

BUCKET = {"address": "https://s3.site.example/platform/database", "keys_secret": "database-bucket"}
ON: dict[str, Any] = {
    "database": {"run_by": "cloudnative_pg", "backups": BUCKET},
    "callers": {"decided_by": "gatekeeper"},
    "usage": {},
}


def planned(**more: Any) -> SitePlan:
    return plan_values(changed(prod(), {**ON, **more}), "site.yaml")


def spec(**more: Any) -> DatabaseSpec:
    return DatabaseSpec.model_validate({"run_by": "cloudnative_pg", "backups": BUCKET, **more})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    recorder: Recorder = declare(planned().site, tmp_path_factory.mktemp("site"))[0]
    return {name: resource.inputs for name, resource in recorder.resources.items()}


def test_a_confirmed_row_is_on_two_nodes(made: dict[str, Any]) -> None:
    """No node has two servers, and a server without a standby confirms nothing."""
    servers = made["database-servers-1"]["spec"]
    assert servers["instances"] == 3
    assert servers["affinity"]["podAntiAffinityType"] == "required"
    assert servers["postgresql"]["synchronous"] == {"method": "any", "number": 1, "dataDurability": "required"}
    assert holder("kubernetes:postgresql.cnpg.io/v1:Cluster", "database-servers-1") == DATABASE


@pytest.mark.slow
def test_nothing_but_its_own_objects_waits_for_the_servers(tmp_path: Path) -> None:
    """A database that does not start keeps no gateway, tenant or model from being made."""
    _, requests = requested(planned().site, tmp_path, Recorder())
    waits = {name: {urn.rpartition("::")[2] for urn in request.dependencies} for name, request in requests.items()}
    waiting, more = set[str](), {"database-servers-1"}
    while more:
        waiting |= more
        more = {name for name, needed in waits.items() if needed & waiting} - waiting
    assert {name for name in waiting if not name.startswith("database")} == set()
    assert "database-directory-address" in waits["directory-secrets"] | waits["directory-pods"]


def test_a_volume_without_room_for_the_rows_that_are_kept_is_a_warning() -> None:
    def warned(**more: Any) -> list[Problem]:
        return [problem for problem in planned(**more).warnings if problem.path == ("database", "size_gib")]

    (problem,) = warned()
    assert (problem.got, "for 13 months of rows" in problem.what) == ("50 GiB", True)
    least = int(problem.fix.partition("write ")[2].partition(",")[0])
    # 4.7 requests a second, half a KiB each, and the log.
    assert least == 10 + math.ceil(4.7 * 13 * 30.44 * 86_400 * 512 / 2**30)
    assert warned(**{"database.size_gib": least}) == []
    assert len(warned(**{"database.size_gib": least - 1})) == 1
    assert warned(usage={"keep_months": 6}) == []


@pytest.mark.parametrize("name", ["directory", "ledger"])
def test_each_program_reads_the_address_of_its_own_database(name: str, made: dict[str, Any]) -> None:
    """By the role that owns it, and no Secret of the site is asked for."""
    secret = made[f"database-{name}-address"]
    assert set(secret["stringData"]["value"]) == {"url"}
    volumes = made[f"{name}-pods"]["spec"]["template"]["spec"]["volumes"]
    mounted = {volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    assert secret["metadata"]["name"] in mounted
    assert made[f"database-{name}-1"]["spec"]["owner"] == name
    role = next(role for role in made["database-servers-1"]["spec"]["managed"]["roles"] if role["name"] == name)
    assert role["passwordSecret"]["name"] == made[f"database-{name}-role"]["metadata"]["name"]
    address = database.address_of(name, "a/b", generation=2)
    assert address == f"postgresql://{name}:a%2Fb@platform-2-rw.inference-database.svc:5432/{name}?sslmode=require"


def test_who_reaches_the_servers(made: dict[str, Any]) -> None:
    """Programs that keep rows there, the servers themselves, their operator, and what measures."""
    rules = made["database-network-policy"]["spec"]["ingress"]
    clients = next(rule for rule in rules if [port["port"] for port in rule["ports"]] == [5432])
    names = {entry["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for entry in clients["from"]}
    assert names == {"directory", "ledger"}
    assert all("from" in rule for rule in rules)


def test_a_new_standby_is_filled_through_the_policy_by_a_pod_that_is_no_server_yet(made: dict[str, Any]) -> None:
    """Of a Job: it has the label of its Cluster, and not that of servers."""
    joins = {"podSelector": {"matchLabels": {"cnpg.io/cluster": made["database-servers-1"]["metadata"]["name"]}}}
    rules = made["database-network-policy"]["spec"]["ingress"]
    assert [5432, 8000] in [[port["port"] for port in rule["ports"]] for rule in rules if joins in rule["from"]]


def test_the_operator_finds_its_plugin() -> None:
    """It looks for plugins in the namespaces that it watches alone."""
    watched = cloudnative_pg.operator_values()["config"]["data"]["WATCH_NAMESPACE"].split(",")
    assert watched == [namespaces.DATABASE, namespaces.DATABASE_OPERATOR]


def test_no_object_is_of_two_generations_whose_servers_it_cannot_change() -> None:
    first, second = (database.database(generation, "ledger") for generation in (1, 2))
    assert first["spec"]["cluster"] != second["spec"]["cluster"]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["spec"]["name"] == second["spec"]["name"] == "ledger"


def test_base_backups_and_the_log_go_to_the_bucket(made: dict[str, Any]) -> None:
    store = made["database-bucket"]["spec"]
    assert store["retentionPolicy"] == "30d"
    wanted = {"destinationPath": "s3://platform/database/", "endpointURL": "https://s3.site.example"}
    assert wanted.items() <= store["configuration"].items()
    (archiver,) = made["database-servers-1"]["spec"]["plugins"]
    assert archiver["isWALArchiver"]
    assert archiver["parameters"] == {"barmanObjectName": made["database-bucket"]["metadata"]["name"]}
    schedule = made["database-schedule"]["spec"]
    assert (schedule["schedule"], schedule["method"], schedule["immediate"]) == ("0 47 0 * * *", "plugin", True)
    assert schedule["cluster"]["name"] == made["database-servers-1"]["metadata"]["name"]


def test_a_generation_begins_where_an_earlier_one_was_at_a_moment() -> None:
    """It writes into a folder of its own, as two that archive into one would destroy each other's log."""
    restored = spec(generation=2, recovery={"generation": 1, "until": "2026-12-01T06:30:00Z"})
    body = database.cluster(
        restored, image="x", storage_class="y", placing=Placing(node_selector={}, tolerations=()), databases=[]
    )
    recovery = body["spec"]["bootstrap"]["recovery"]
    (source,) = body["spec"]["externalClusters"]
    assert recovery == {"source": source["name"], "recoveryTarget": {"targetTime": "2026-12-01T06:30:00Z"}}
    assert source["plugin"]["parameters"]["serverName"] == "platform-1"
    assert body["metadata"]["name"] == "platform-2"


@pytest.mark.slow
def test_a_site_with_a_database_of_its_own_has_nothing_of_it(tmp_path: Path) -> None:
    recorder = declare(plan_values(prod(), "site.yaml").site, tmp_path)[0]
    assert not [name for name in recorder.resources if name.startswith("database")]
    assert namespaces.DATABASE not in str([made.inputs for made in recorder.resources.values()])


def test_preview_says_what_a_loss_costs() -> None:
    (text,) = [text for text in planned().texts if text.startswith("database:")]
    assert "one node lost: no confirmed row" in text
    assert "5 minutes" in text
    unsaved = planned(database={"run_by": "cloudnative_pg"})
    (bare,) = [text for text in unsaved.texts if text.startswith("database:")]
    assert "all nodes lost: everything" in bare
    warned = [
        [warning.key for warning in plan.warnings if "no backups" in warning.what] for plan in (planned(), unsaved)
    ]
    assert warned == [[], ["database"]]


WRONG = {
    "another database": Wrong(
        {**ON, "usage": {"database_secret": "mine"}},
        "usage.database_secret",
        "names a database, and database.run_by cloudnative_pg runs one for it",
        {"usage": {}},
    ),
    "no use": Wrong(
        {"database": {"run_by": "cloudnative_pg"}},
        "database.run_by",
        "runs PostgreSQL, and nothing of the site keeps rows in it",
        {"usage": {}},
    ),
    "no cert-manager": Wrong(
        {**ON, "certificates": None, "gateway.certificate_secret": "mine"},
        "database.backups",
        "whose certificates cert-manager makes, and the site has none",
        {"database.backups": None},
    ),
    "too few nodes with Longhorn's disks": Wrong(
        {**ON, "database.instances": 5, "database.storage_class": "longhorn"},
        "database.instances",
        "is more servers than nodes can mount volumes of class longhorn",
        {"database.instances": 3},
    ),
    "too few nodes that GPUs leave open": Wrong(
        {**ON, "database.storage_class": "nfs"},
        "database.instances",
        "3 servers, 2 such nodes",
        {"database.storage_class": None},
    ),
    "larger than the disks": Wrong(
        {**ON, "database.size_gib": 9000},
        "database.size_gib",
        "lower database.size_gib from 9000 to",
        {"database.size_gib": 100},
    ),
    "week's date": Wrong(
        {**ON, "database.generation": 2, "database.recovery": {"generation": 1, "until": "2026-W49-2T06:30Z"}},
        "database.recovery.until",
        "is no moment with a time zone",
        {"database.recovery.until": "2026-12-01T06:30:00Z"},
    ),
    "class that is not made": Wrong(
        {**ON, "database.storage_class": "longhorn-database"},
        "database.storage_class",
        "is no class that the program makes for Longhorn",
        {"database.storage_class": "longhorn-databases"},
    ),
    "no moment": Wrong(
        {**ON, "database.generation": 2, "database.recovery": {"generation": 1, "until": "2026-12-01"}},
        "database.recovery.until",
        "is no moment with a time zone",
        {"database.recovery.until": "2026-12-01T00:00:00Z"},
    ),
    "of its own generation": Wrong(
        {**ON, "database.recovery": {"generation": 1}},
        "database",
        "recovery.generation is not an earlier one",
        {"database.generation": 2},
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_wrong_sites_are_refused_and_fixed(case: Wrong) -> None:
    refused_and_fixed(case)
