"""`lab doctor`: can this machine run the lab, what does it use, what of it is real. Changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any, Literal

import click
import psutil

from lab import session
from lab.cluster import network
from lab.errors import LabError
from lab.install.choices import pulumi_choice
from lab.install.installer import PARTS, Installation
from lab.paths import CHECKOUT, Lab
from lab.site import status

OLDEST_PYTHON = (3, 11)
GIB = 2**30
# Tools and Go's caches while they are built (7.5 GiB measured), then the tools with a lab's state, and its memory.
BUILD_DISK_BYTES = 8 * GIB
LAB_DISK_BYTES = 3 * GIB
LAB_MEMORY_BYTES = 4 * GIB
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
_TABLE = {"ok": "ok", "info": "--", "todo": "todo", "warning": "warn", "failed": "FAIL"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line. `todo` is what `make lab` will do by itself; only `failed` keeps the lab from running."""

    check: str
    state: Literal["ok", "info", "todo", "warning", "failed"]
    result: str
    fix: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="print the findings as a JSON list")
@click.pass_obj
def command(lab: Lab, *, as_json: bool) -> int:
    """Check whether this machine can run the lab, and show what it uses.

    The exit status is 1 if something keeps the lab from running.
    """
    findings = examine(lab)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print(render(findings))
    return 1 if any(finding.state == "failed" for finding in findings) else 0


def examine(lab: Lab) -> list[Finding]:
    """Every finding, in the order in which they matter."""
    checks: tuple[Callable[[Lab], Iterable[Finding]], ...] = (
        _python,
        _tools,
        _engine,
        _plugins,
        _rights,
        _kernel,
        _room,
        _addresses,
        _real_and_simulated,
        _running,
    )
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check(lab)
        except LabError as error:
            findings.append(Finding(check=check.__name__.strip("_"), state="failed", result=error.what, fix=error.fix))
    return findings


def render(findings: list[Finding]) -> str:
    """A table; the fix of a finding is under it."""
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{_TABLE[finding.state]:4}  {finding.check:{width}}  {finding.result}")
        if finding.fix and finding.state != "ok":
            lines.append(f"{'':4}  {'':{width}}  fix: {finding.fix}")
    failed = sum(finding.state == "failed" for finding in findings)
    verdict = f"{failed} of {len(findings)} keep" if failed else "nothing keeps"
    return "\n".join([*lines, "", f"{verdict} the lab from running"])


def foreign_routes(routes: list[dict[str, Any]], whole: IPv4Network, ours: str) -> list[str]:
    """Routes of this machine into the lab's addresses that are not the lab's own; default routes do not count."""
    overlapping = []
    for route in routes:
        target = route.get("dst", "default")
        if target == "default" or route.get("dev") == ours:
            continue
        destination = ip_network(target, strict=False)
        if isinstance(destination, IPv4Network) and destination.prefixlen > 0 and destination.overlaps(whole):
            overlapping.append(f"{target} via {route.get('gateway') or route.get('dev', '?')}")
    return overlapping


def _python(lab: Lab) -> Iterable[Finding]:  # noqa: ARG001 - the form of a check
    version = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info >= OLDEST_PYTHON
    wanted = ".".join(map(str, OLDEST_PYTHON))
    yield Finding(
        check="python",
        state="ok" if fits else "failed",
        result=f"{version} at {sys.executable}",
        fix=f"install Python {wanted} or later, then `make venv PYTHON=python{wanted}`",
    )


def _tools(lab: Lab) -> Iterable[Finding]:
    run = Installation(lab, lab.bundle)
    states = {part.name: part.state(run) for part in PARTS}
    missing = [name for name, state in states.items() if not state.ready]
    yield Finding(
        check="tools",
        state="todo" if missing else "ok",
        result=f"{len(states) - len(missing)} of {len(states)} parts ready in {lab.cache}"
        + (f"; missing: {', '.join(missing)}" if missing else ""),
        fix="make tools",
    )
    yield Finding(check="go", state="info", result=run.builder.toolchain.why)


def _engine(lab: Lab) -> Iterable[Finding]:
    choice = pulumi_choice(lab)
    kind = "official" if choice.official else "built here"
    yield Finding(
        check="pulumi",
        state="ok" if choice.program.exists() else "todo",
        result=f"{kind}, {choice.program} ({choice.reason})",
        fix="make tools",
    )


def _plugins(lab: Lab) -> Iterable[Finding]:
    for choice in session.plugins(lab):
        missing = not choice.path.exists()
        kind = choice.kind.upper() if choice.kind == "stand-in" else choice.kind
        yield Finding(
            check=f"{choice.name} plugin",
            state="failed" if missing else "ok",
            result=f"{kind}, {choice.path} ({choice.reason.removeprefix('stand-in: ')})",
            fix=f"git restore {choice.path.relative_to(CHECKOUT)}" if choice.kind == "stand-in" else "",
        )


def _rights(lab: Lab) -> Iterable[Finding]:  # noqa: ARG001
    try:
        network.require_root()
    except LabError as error:
        yield Finding(check="rights", state="failed", result=f"{error.what}; {_user_namespaces()}", fix=error.fix)
        return
    lacking = [
        name
        for name, bit in (("NET_ADMIN", _CAP_NET_ADMIN), ("SYS_ADMIN", _CAP_SYS_ADMIN))
        if not _capabilities() >> bit & 1
    ]
    if lacking:
        yield Finding(
            check="rights",
            state="failed",
            result=f"root without {' and '.join(lacking)}: a container that may not make network namespaces",
            fix="start the container with --privileged, or use a virtual machine",
        )
        return
    yield Finding(check="rights", state="ok", result=f"root, may make network namespaces; {_user_namespaces()}")


def _kernel(lab: Lab) -> Iterable[Finding]:  # noqa: ARG001
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        yield Finding(check="kernel", state="warning", result="not tried: it takes root and `unshare`", fix="as root")
        return
    attempts = {
        "network namespaces": "true",
        "veth pairs": "ip link add name probe0 type veth peer name probe1",
        "bridges": "ip link add name probe0 type bridge",
        "iptables nat": "iptables -t nat -A POSTROUTING -s 198.18.0.0/15 -j MASQUERADE",
        "iptables conntrack": "iptables -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
    }
    for name, attempt in attempts.items():
        # A namespace without a name ends with the command, and takes what was made in it along.
        done = subprocess.run(["unshare", "--net", "sh", "-c", attempt], capture_output=True, text=True, check=False)
        last_lines = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        failed = done.returncode != 0
        yield Finding(
            check=name,
            state="failed" if failed else "ok",
            result=last_lines[0] if failed else "tried in a namespace of their own",
            fix="a kernel with this feature (`modprobe` its module), or `make tools` where a program is missing",
        )


def _room(lab: Lab) -> Iterable[Finding]:
    run = Installation(lab, lab.bundle)
    complete = all(part.state(run).ready for part in PARTS)
    wanted = {lab.cache: 0 if complete else BUILD_DISK_BYTES, lab.home: LAB_DISK_BYTES}
    for folder, bytes_wanted in wanted.items():
        free = shutil.disk_usage(_existing(folder)).free
        yield Finding(
            check="free disk",
            state="ok" if free >= bytes_wanted else "failed",
            result=f"{free / GIB:.0f} GiB at {folder}, {bytes_wanted / GIB:.0f} GiB more wanted",
            fix="free some, or point LAB_CACHE and LAB_HOME at a larger disk",
        )
    available = psutil.virtual_memory().available
    enough = available >= LAB_MEMORY_BYTES or bool(status.rows(lab))
    yield Finding(
        check="free memory",
        state="ok" if enough else "failed",
        result=f"{available / GIB:.1f} GiB, the lab site takes up to {LAB_MEMORY_BYTES / GIB:.0f} GiB",
        fix="end what holds it",
    )


def _addresses(lab: Lab) -> Iterable[Finding]:
    network.require_own(lab)
    whole = lab.network.whole
    done = subprocess.run(["ip", "-json", "route", "show", "table", "all"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield Finding(check="addresses", state="warning", result="no `ip` to ask for routes", fix="make tools")
        return
    foreign = foreign_routes(json.loads(done.stdout or "[]"), whole, network.uplink(lab))
    yield Finding(
        check="addresses",
        state="failed" if foreign else "ok",
        result=f"{whole} is used by {'; '.join(foreign)}" if foreign else f"{whole} (RFC 2544 test range) is free",
        fix="LAB_INDEX=1 (to 7) takes the next /18",
    )


def _real_and_simulated(lab: Lab) -> Iterable[Finding]:
    simulator = "SIMULATOR (llm-d-inference-sim): vLLM's API, computed timings, made-up text; no GPU, no weights"
    vllm = "vLLM on this machine's CPU, with a TINY MODEL of random weights: its text and its timings mean nothing"
    yield Finding(check="model server", state="info", result=vllm if lab.chosen_site.exists() else simulator)
    yield Finding(
        check="nodes",
        state="info",
        result="EMULATED (Talos machines, KWOK): their pods' programs run on this machine, their GPUs do not exist",
    )


def _running(lab: Lab) -> Iterable[Finding]:
    rows = status.rows(lab)
    # Until there is a cluster, some wait for it.
    ailing = [row.component for row in rows if row.state != "running" and not row.state.startswith("waits for")]
    if not rows:
        yield Finding(check="lab", state="info", result=f"down ({lab.home}, index {lab.index})")
    elif ailing:
        yield Finding(check="lab", state="warning", result=f"up, but {', '.join(ailing)} do not run", fix="make lab")
    else:
        yield Finding(check="lab", state="ok", result=f"up ({lab.home}, index {lab.index})")


def _user_namespaces() -> str:
    for setting in ("kernel/unprivileged_userns_clone", "user/max_user_namespaces"):
        path = Path("/proc/sys") / setting
        if path.exists() and path.read_text().strip() == "0":
            return f"user namespaces are off ({path} is 0)"
    if not Path("/proc/self/ns/user").exists():
        return "the kernel has no user namespaces"
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if restricted.exists() and restricted.read_text().strip() == "1":
        return "user namespaces are restricted by AppArmor"
    return "user namespaces are on, and not needed"


def _capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())
