"""A thousand tenants with ten thousand keys: what they cost, and how long a key takes to live and to die.

Keys are made in the directory, as `sitectl key` does, and asked for at each pod of the gateway.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import httpx
import psutil

from benchmarks import models, processes
from benchmarks.arithmetic import percentile
from benchmarks.models import Bench
from benchmarks.report import Cell, Result, Row, Table, note
from components.gateway.envoy_names import door_port
from components.gateway.gateway import proxy_labels
from components.gateway.gateway_controllers import ENVOY_NAMESPACE
from floor.namespaces import GATEWAY
from lab import session
from lab.cluster import operator_database
from lab.cluster.parts import status_of
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab
from sitectl.live import key_directory
from sitectl.live.key_directory import KeyDirectory
from sitectl.live.site_cluster import SiteCluster
from stacks.plan.site_plan import plan_file

HELP = "memory, preview and time to live of keys, with 1,000 tenants and 10,000 keys"
FEW, MANY = 2, 1000
KEYS_EACH = 10
GATEWAYS = 2
_AT_ONCE = 4
_PATIENCE_S = 60.0
_LOOK_S = 0.02
PARAMETERS = (
    click.Option(
        ["--timed-keys"], type=int, default=50, show_default=True, help="many_tenants: keys that are timed each time"
    ),
)
_PROGRAMS = {"gatekeeper": "gatekeeper", "envoy": "Envoy"}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Of the site with so many tenants."""

    tenants: int
    keys: int
    resources: int
    preview_s: float
    memory_mib: Mapping[str, float]
    """Of the largest process of each program."""
    live_s: tuple[float, ...]
    """From the directory's answer until a gateway pod takes a new key, for each key and pod."""
    dead_s: tuple[float, ...]
    """The same until it refuses a revoked one."""


def tenants(count: int, site: dict[str, Any]) -> None:
    """A gatekeeper, a directory of keys, two pods of the gateway, and so many tenants without keys of the file."""
    site["callers"] = {
        "decided_by": "gatekeeper",
        "database_secret": operator_database.DIRECTORY,
        "pepper": "disposable",
    }
    site["gateway"]["replicas"] = GATEWAYS
    served = sorted(site["models"])
    site["tenants"] |= {f"team-{number:04}": {"models": served, "keys": {}} for number in range(count)}


def run(lab: Lab, *, timed_keys: int) -> Result:
    """Raises LabError when the platform does not come up, or a key does not live or die in time."""
    models.give_databases(lab, operator_database.DIRECTORY)
    measured = []
    for count in (FEW, MANY):
        with models.served(lab, {}, lambda site, count=count: tenants(count, site)) as bench:  # type: ignore[misc]
            measured.append(_measure(bench, count, timed_keys))
            note(f"{count} tenants: {_row(measured[-1])}")
    return _result(measured, timed_keys)


def _measure(bench: Bench, count: int, timed: int) -> Measured:
    started = time.perf_counter()
    session.run_pulumi(bench.lab, "preview", "--stack", session.STACK, "--config-file", str(bench.file))
    preview_s = time.perf_counter() - started
    with _directory(bench) as directory:
        before = len(directory.keys(None))
        names = [(f"team-{number % count:04}", f"{count}-{number // count}") for number in range(count * KEYS_EACH)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda name: directory.create({"tenant": name[0], "name": name[1]}), names))
        live_s, dead_s = _lives(bench, directory, [f"timed-{count}-{number}" for number in range(timed)])
    return Measured(
        tenants=count,
        keys=before + len(names),
        resources=_resources(bench.lab),
        preview_s=preview_s,
        memory_mib=_memory_mib(bench.lab),
        live_s=live_s,
        dead_s=dead_s,
    )


@contextmanager
def _directory(bench: Bench) -> Iterator[KeyDirectory]:
    cluster = SiteCluster(project=CHECKOUT, site=session.STACK, kubeconfig=bench.lab.kubeconfig.read_text())
    with key_directory.of_cluster(cluster) as directory:
        yield directory


def _lives(bench: Bench, directory: KeyDirectory, names: list[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """One key after another: made, asked for at every gateway pod at once, and revoked."""
    live_s: list[float] = []
    dead_s: list[float] = []
    with _doors(bench) as doors, ThreadPoolExecutor(len(doors)) as pool:

        def until(status: int, text: str) -> list[float]:
            since = time.perf_counter()
            return list(pool.map(lambda door: until_answered(door, text, status) - since, doors))

        for name in names:
            key = directory.create({"tenant": "team-0000", "name": name})
            live_s += until(200, key["key"])
            directory.revoke(key["id"])
            dead_s += until(401, key["key"])
    return tuple(live_s), tuple(dead_s)


@contextmanager
def _doors(bench: Bench) -> Iterator[list[httpx.Client]]:
    """A client of each pod of the gateway."""
    selector = ",".join(f"{name}={value}" for name, value in proxy_labels(GATEWAY).items())
    pods = bench.core().list_namespaced_pod(ENVOY_NAMESPACE, label_selector=selector).items
    port = door_port(plan_file(bench.file).site.gateway.port)
    trust = bench.front.trust
    if isinstance(trust, ssl.SSLContext):
        # The certificate is for the gateway's name, and not for a pod's address.
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    doors = [
        httpx.Client(base_url=f"https://{status_of(pod).pod_ip}:{port}/v1", verify=trust, trust_env=False)
        for pod in pods
    ]
    if len(doors) < GATEWAYS:
        raise LabError(f"{len(doors)} pods of the gateway run, and {GATEWAYS} should", fix="python -m lab logs")
    try:
        yield doors
    finally:
        for door in doors:
            door.close()


def until_answered(door: httpx.Client, text: str, status: int) -> float:
    """When a gateway answered so to this key for the first time. Raises LabError after a minute."""
    deadline = time.perf_counter() + _PATIENCE_S
    while time.perf_counter() < deadline:
        if door.get("/models", headers={"Authorization": f"Bearer {text}"}).status_code == status:
            return time.perf_counter()
        # Between two looks; a gateway reports no change of a key by itself.
        time.sleep(_LOOK_S)
    raise LabError(f"the gateway gives no {status} after {_PATIENCE_S:.0f} s", fix="python -m lab logs")


def _resources(lab: Lab) -> int:
    state = json.loads(session.run_pulumi(lab, "stack", "export", "--stack", session.STACK).stdout)
    return len(state["deployment"]["resources"])


def _memory_mib(lab: Lab) -> dict[str, float]:
    programs = processes.lab_programs(lab)
    pids_of: dict[str, list[int]] = {name: programs.get(program, []) for program, name in _PROGRAMS.items()}
    pids_of["directory"] = [
        pid for pids in programs.values() for pid in pids if "services.directory" in processes.command_line(pid)
    ]
    return {name: round(max(map(_rss_mib, pids), default=0.0), 1) for name, pids in pids_of.items()}


def _rss_mib(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss / 2**20)


def _row(measured: Measured) -> Row:
    times: dict[str, Cell] = {}
    for what, seconds in (("lives", measured.live_s), ("dies", measured.dead_s)):
        times |= {f"{what} p50, s": _of(seconds, 0.5), f"{what} p99, s": _of(seconds, 0.99)}
    return {
        "tenants": measured.tenants,
        "keys": measured.keys,
        "resources": measured.resources,
        "preview, s": round(measured.preview_s, 1),
        **{f"{name}, MiB": mib for name, mib in measured.memory_mib.items()},
        **times,
    }


def _of(seconds: tuple[float, ...], share: float) -> float:
    return round(percentile(list(seconds), share), 2)


def _result(measured: list[Measured], timed: int) -> Result:
    few, many = measured
    slowest = max(*many.live_s, *many.dead_s)
    return Result(
        benchmark="many_tenants",
        question="What do 1,000 tenants with 10,000 keys cost, and how fast does a key live and die at each gateway?",
        conditions={
            "site": f"the lab's, with a gatekeeper, a directory and {GATEWAYS} pods of the gateway",
            "keys": f"{KEYS_EACH} a tenant, made in the directory; memory is of the largest process of each program",
            "times": f"{timed} keys, one after another, at every pod of the gateway; looked for every {_LOOK_S:g} s",
        },
        tables=[Table(title="With few and with many", rows=[_row(some) for some in measured])],
        findings=[
            f"{many.tenants - few.tenants} tenants and {many.keys - few.keys} keys more are "
            f"{many.resources - few.resources} resources more, and the gatekeeper takes "
            f"{many.memory_mib['gatekeeper'] - few.memory_mib['gatekeeper']:.0f} MiB more.",
            f"The slowest of {len(many.live_s) + len(many.dead_s)} changes was in force after {slowest:.1f} s.",
        ],
    )
