"""`access`: files with which one more person looks after a site, in one of three roles."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import click
import yaml

from components.specs.administrators import AdministratorsSpec
from sitectl.live import site_cluster
from sitectl.offline import checkout
from sitectl.shell import whole_files
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.cluster import ClusterPlan
from stacks.plan.site_plan import plan_file
from talos.api.errors import MachineApiError
from talos.api.talosconfig import TalosconfigError, parse_talosconfig

PAGE = "docs/how-to/second-administrator.md"
MORE = f"""\
It writes two files into the folder, and prints neither. `talosconfig` has a client certificate of Talos's role
os:reader, os:operator or os:admin, signed by a control plane, with mode 0600. It cannot be revoked, and ends after
--hours. `kubeconfig` holds no secret: kubectl's plugin oidc-login logs the person in at the site's issuer, whose groups
decide about the role there. Without `cluster.machines.administrators` it is not written.

\b
  python -m sitectl access prod operator ana --output access-ana

It needs the stack's outputs, and control planes in reach. {PAGE} has what each role may do.
"""
ROLES = {"viewer": "os:reader", "operator": "os:operator", "admin": "os:admin"}
_MOST_HOURS = 168
_CALL_TIMEOUT_S = 20.0


def _person(_: click.Context, __: click.Parameter, name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.@-]{0,62}[a-z0-9])?", name):
        raise click.BadParameter(f"got '{name}'; allowed: lower-case letters, digits, dots, dashes and @")
    return name


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.argument("role", type=click.Choice(list(ROLES)), help="viewer, operator or admin")
@click.argument("person", callback=_person, help="whose files they are: part of the names in them")
@click.option("--hours", type=click.IntRange(1, _MOST_HOURS), default=8, metavar="N", help="how long it works (8)")
@click.option("--output", type=PATH, required=True, metavar="FOLDER", help="a folder that is not there yet")
@pass_context
def command(context: CommandContext, *, site: str, role: str, person: str, hours: int, output: Path) -> int:
    file = checkout.site_files(context.project, [site])[site]
    plan = plan_file(file).machines
    if plan is None:
        raise SitectlError(
            f"{site} is on a cluster that exists already",
            fix="ask those who run that cluster for access",
            status=Exit.USAGE,
        )
    if output.exists():
        raise SitectlError(f"{output} exists", fix="name another folder with --output", status=Exit.USAGE)
    name, people = f"{site}-{person}", plan.machines.administrators
    with context.progress.layer(f"issue access to {site}"):
        files = {"talosconfig": _talosconfig(context, plan, site, name, ROLES[role], hours * 3600)}
        if people:
            files["kubeconfig"] = _kubeconfig(context, plan, people, site, name)
    output.mkdir(mode=0o700, parents=True)
    for called, text in files.items():
        whole_files.write(output / called, text, private=True)
    lines = [f"{site}: {person} is {role}; {output / 'talosconfig'}, mode 0600, has {ROLES[role]} for {hours} h"]
    lines.append(
        f"   {output / 'kubeconfig'} has no secret: groups of {people.issuer} decide there"
        if people
        else f"   no kubeconfig: the site has no cluster.machines.administrators ({PAGE})"
    )
    record = {"site": site, "person": person, "role": role, "hours": hours, "files": sorted(files)}
    context.say("\n".join(lines), record)
    return int(Exit.OK)


def _talosconfig(context: CommandContext, plan: ClusterPlan, site: str, name: str, role: str, lifetime_s: int) -> str:
    """Of a certificate that a control plane signs, which has no name in it: Talos knows roles alone."""
    text = site_cluster.pulumi(context.project, site, "stack", "output", "talosconfig", "--show-secrets", "--json")
    try:
        identity = parse_talosconfig(str(text)).identity
    except TalosconfigError as error:
        fix = "run `pulumi up`, which writes it into the stack"
        raise SitectlError(f"the stack of {site}: {error.problem.what}", fix=fix) from None
    # Imported here: it needs protobuf, which hardly any other command does.
    api: Any = importlib.import_module("talos.api.client")
    planes, refusals = [node for node in plan.nodes if node.is_control_plane and not node.spec.dead], list[str]()
    for node in planes:
        try:
            with api.connect(
                node.spec.address, identity, node=node.name, attempts=2, call_timeout_s=_CALL_TIMEOUT_S
            ) as client:
                made = client.generate_client_configuration(roles=(role,), lifetime_s=lifetime_s)
        except MachineApiError as error:
            refusals.append(f"{node.name}: {error}")
            continue
        issued = yaml.safe_load(made.talosconfig)
        (inner,) = issued["contexts"].values()
        inner |= {"endpoints": [plane.spec.address for plane in planes]}
        return yaml.safe_dump({"context": name, "contexts": {name: inner}}, sort_keys=False, width=10**6)
    raise SitectlError(
        f"no control plane of {site} signs a certificate: {'; '.join(refusals)}",
        fix="check that this machine is in firewall.admins, and that one of them runs",
    )


def _kubeconfig(context: CommandContext, plan: ClusterPlan, people: AdministratorsSpec, site: str, name: str) -> str:
    """Of the API server, by a login."""
    text = site_cluster.pulumi(context.project, site, "stack", "output", "kubeconfig", "--show-secrets", "--json")
    (cluster, *_) = yaml.safe_load(str(text))["clusters"]
    trust = cluster["cluster"]["certificate-authority-data"]
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "kubectl",
        "args": [
            *("oidc-login", "get-token"),
            *(f"--oidc-issuer-url={people.issuer}", f"--oidc-client-id={people.client_id}"),
            *("--oidc-extra-scope=email", "--oidc-extra-scope=profile"),
        ],
        "interactiveMode": "IfAvailable",
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": site, "cluster": {"server": plan.machines.endpoint, "certificate-authority-data": trust}}
        ],
        "users": [{"name": name, "user": {"exec": login}}],
        "contexts": [{"name": name, "context": {"cluster": site, "user": name}}],
    }
    return json.dumps(content, indent=2) + "\n"
