"""`recover`: what a lost state held of a site's cluster, into a file for the next `up`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from components.addons import registry
from floor import namespaces
from floor.counts import counted
from sitectl.commands.recovered import helm_records, of_cluster
from sitectl.live import site_cluster
from sitectl.offline import checkout
from sitectl.shell import whole_files
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.site_plan import plan_file

RUNBOOK = "docs/runbooks/lost-state.md"
MORE = f"""\
The engine's state is the only place where `up` keeps tenants' keys. The cluster has them too, in Secrets. This writes
them to a file with mode 0600, by the rotation that the site's file states. The key `recovered` of the site names the
file, and the next `up` takes them instead of new ones. {RUNBOOK} has all steps.

\b
  python -m sitectl recover prod --kubeconfig kubeconfig --output recovered.json

It needs kubectl, and reads alone. The exit status is 1 where the cluster has no key for a client of the site: `up`
makes a new one for it.
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option("--kubeconfig", type=PATH, help="an administrator's (default: that of the site's file)", metavar="FILE")
@click.option("--output", type=PATH, required=True, help="where to write the keys; a name that is free", metavar="FILE")
@pass_context
def command(context: CommandContext, *, site: str, kubeconfig: Path | None, output: Path) -> int:
    file = checkout.site_files(context.project, [site])[site]
    tenants = plan_file(file).site.tenants
    if output.exists():
        raise SitectlError(f"{output} exists", fix="name another file with --output", status=Exit.USAGE)
    with context.progress.layer(f"read the keys of {site}"):
        cluster = site_cluster.of_file(context.project, site, file, kubeconfig)
        cluster.version()
        recovered = of_cluster(
            tenants,
            cluster.objects("Secrets", ["secrets"], f"--field-selector=metadata.namespace={namespaces.GATEWAY}"),
            cluster.objects(
                "Deployments", ["deployments"], f"--field-selector=metadata.namespace={namespaces.AI_GATEWAY}"
            ),
        )
        helm = helm_records(
            cluster.objects("Secrets of Helm", ["secrets"], "--selector=owner=helm"),
            sorted(registry.chart_namespaces().values()),
        )
    whole_files.write(output, json.dumps(recovered.values, indent=2) + "\n", private=True)
    # The site's file has what is known of the others.
    clients = sum(key.sha256 is None for tenant in tenants.values() for key in tenant.keys.values())
    lines = [f"{site}: {clients - len(recovered.missing)} of {counted(clients, 'key')} written to {output}, mode 0600"]
    lines += [f"   {client}: the cluster has no key; `up` makes a new one" for client in recovered.missing]
    lines += [f"   set `recovered: {_from_project(output, context.project)}` in {file.name}"]
    if helm:
        lines.append(f"   Helm's records, which the provider's create of a release refuses ({RUNBOOK}):")
        lines += [f"      kubectl -n {namespace} delete secrets -l owner=helm,name={name}" for namespace, name in helm]
    record = {
        "site": site,
        "file": str(output),
        "missing": list(recovered.missing),
        "releases": [{"namespace": namespace, "name": name} for namespace, name in helm],
    }
    context.say("\n".join(lines), record)
    return int(Exit.REFUSED if recovered.missing else Exit.OK)


def _from_project(path: Path, project: Path) -> Path:
    """As the site's file names it."""
    whole = path.resolve()
    return whole.relative_to(project) if whole.is_relative_to(project) else whole
