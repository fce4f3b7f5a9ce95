"""`init`: a new site's file, valid from the start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import yaml

from components.specs.model_server import ModelServerSpec
from floor.counts import counted
from floor.problems import SiteError, meant
from sitectl.commands import new_machines
from sitectl.output import annotated
from sitectl.shell import whole_files
from sitectl.shell.command import Command, CommandContext, pass_context
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS, USUAL_GPU
from stacks.plan.site_plan import plan_values
from stacks.site.checks.products import nearest_product
from stacks.site.loader import KEY, UNFINISHED

MORE = """\
Everything has a safe default, and every key has a comment. Nothing is overwritten.

\b
  python -m sitectl init berlin                      an existing cluster
  python -m sitectl init berlin --model chat=qwen3-32b-fp8 --tenant search
  python -m sitectl init berlin --machines 3+6 --network 10.1.0.0/24

With --machines, `up` makes the cluster: three control planes, six HGX nodes, two for
the gateway. Values that only you can know are marked FILL IN in the file; options set them.
"""

# A chat model whose catalogue entry asks for one GPU.
FIRST_MODEL = "qwen3-32b-fp8"
DEFAULT_CURRENCY = "EUR"
DEFAULT_FAMILY = ModelServerSpec.model_fields["gpu_family"].default
# What people change first; the rest keeps its default and is in docs/configuration.md.
_SCHEMA = "docs/site.schema.json"
_HEAD = "# Site {name}. Keys that are not here have their defaults; all of them: {reference}\n"


@click.command(cls=Command, epilog=MORE)
@click.argument("site", help="name of the new site: lower-case letters, digits and dashes")
@click.option(
    "--model",
    multiple=True,
    metavar="NAME[=CATALOGUE]",
    help=f"a model; may be repeated. In the catalogue: {', '.join(catalogue.names())} (default: {FIRST_MODEL})",
)
@click.option("--tenant", multiple=True, metavar="NAME", help="a team that may call every model; may be repeated")
@click.option(
    "--gpu",
    default=USUAL_GPU,
    metavar="KIND",
    show_default=True,
    help=f"kind of GPU in the nodes: {', '.join(sorted(GPUS))}",
)
@click.option("--replicas", type=int, default=2, metavar="N", show_default=True, help="pods of each model")
@click.option("--kubeconfig", metavar="FILE", help="credentials of the cluster (default: kubeconfig.SITE)")
@click.option("--machines", metavar="N+M", help="control planes and HGX nodes, such as 3+6")
@click.option(
    "--gateway-nodes", type=int, metavar="N", help="machines without GPUs for gateway and pickers (default: 2)"
)
@click.option("--network", metavar="CIDR", help="the machines' subnet; their addresses are taken from it")
@click.option("--router", metavar="IP", help="next hop of that subnet (default: its first address)")
@click.option("--vip", metavar="IP", help="address of the Kubernetes API (default: the tenth)")
@click.option("--link", multiple=True, metavar="NAME", help="network card (default: eno1); several are bonded")
@click.option("--resolver", multiple=True, metavar="IP", help="DNS server; may be repeated")
@click.option("--time-server", multiple=True, metavar="HOST", help="NTP server; may be repeated")
@click.option(
    "--storage-class",
    default="longhorn",
    metavar="NAME",
    show_default=True,
    help="StorageClass of the weights' volumes, with ReadWriteMany",
)
@click.option(
    "--certificate-secret",
    default="inference-tls",
    metavar="NAME",
    show_default=True,
    help="TLS Secret of the endpoint, in the namespace inference-gateway",
)
@click.option("--gpu-hour", type=float, metavar="PRICE", help="cost of one GPU for an hour, for cost figures")
@click.option("--currency", metavar="CODE", help=f"of the price (default: {DEFAULT_CURRENCY})")
@pass_context
def command(context: CommandContext, /, **options: Any) -> int:
    arguments = SimpleNamespace(**options)
    project: Path = context.project
    file = project / f"Pulumi.{arguments.site}.yaml"
    rack = _rack(arguments)
    values = _values(arguments, rack)
    notes = new_machines.notes(rack) if rack else {}
    written = annotated.lines(values, notes, indent=4)
    text = "\n".join([_head(project, arguments.site) + "config:", f"  {KEY}:", *written]) + "\n"
    try:
        plan_values(values, file.name, beside=file)
    except SiteError as error:
        # A broken file of facts is no mistake of these arguments.
        if error.origin != file.name:
            raise
        raise SitectlError(
            f"with these arguments the site would not be valid, so nothing is written:\n{error}",
            fix="change the argument that sets the key above: python -m sitectl init --help",
            status=Exit.REFUSED,
        ) from None
    # What is written is what was checked: comments and quotes change no value.
    assert yaml.safe_load(text)["config"][KEY] == values  # noqa: S101
    try:
        whole_files.write_new(file, text)
    except FileExistsError:
        raise SitectlError(
            f"{file.name} is already there",
            fix=f"choose another name, or edit that file and check it: python -m sitectl validate {arguments.site}",
            status=Exit.REFUSED,
        ) from None
    lines = [
        f"wrote {file.name}: {counted(len(values['models']), 'model')}, "
        f"{counted(len(values['tenants']), 'tenant')}; valid as it is",
    ]
    if rack:
        nodes = values["cluster"]["machines"]["nodes"]
        addresses = ", ".join(f"{name} {node['address']}" for name, node in nodes.items())
        lines.append(f"{counted(len(nodes), 'machine')}: {addresses}")
        lines.append(f"{counted(len(notes), 'fact')} to fill in, marked {UNFINISHED} in the file")
        lines.append("the whole way: python -m sitectl docs from-rack-to-first-token")
    else:
        lines.append("read it once: every key has its meaning beside it")
        kubeconfig = values["cluster"]["kubeconfig"]
        if not (project / kubeconfig).exists():
            lines.append(f"put the cluster's kubeconfig at {kubeconfig}; plan and up need it")
    step = f"python -m sitectl validate {arguments.site}"
    lines.append(f"next: {step}")
    context.say("\n".join(lines), {"file": str(file), "next": [step], "fill_in": sorted(notes)})
    return int(Exit.OK)


def _head(project: Path, site: str) -> str:
    """The first lines of a site's file: only a checkout has the pages as files."""
    if (project / _SCHEMA).is_file():
        return f"# yaml-language-server: $schema={_SCHEMA}\n" + _HEAD.format(
            name=site, reference="docs/configuration.md"
        )
    return _HEAD.format(name=site, reference="sitectl docs configuration")


def _rack(arguments: SimpleNamespace) -> new_machines.Rack | None:
    """The machines that the options describe, if any. Raises SitectlError."""
    if arguments.machines is None:
        given = {
            "--gateway-nodes": arguments.gateway_nodes is not None,
            "--network": arguments.network,
            "--router": arguments.router,
            "--vip": arguments.vip,
            "--link": arguments.link,
            "--resolver": arguments.resolver,
            "--time-server": arguments.time_server,
        }
        if alone := [name for name, value in given.items() if value]:
            raise SitectlError(
                f"{', '.join(alone)}: only with --machines, which makes the cluster",
                fix="add --machines 3+6, or leave it out",
                status=Exit.USAGE,
            )
        return None
    if arguments.kubeconfig is not None:
        raise SitectlError(
            "--kubeconfig is of a cluster that exists, --machines of one that `up` makes",
            fix="leave one of the two out",
            status=Exit.USAGE,
        )
    control_planes, hgx = new_machines.counts(arguments.machines)
    return new_machines.Rack(
        control_planes=control_planes,
        hgx=hgx,
        gateway_nodes=new_machines.gateway_nodes(arguments.gateway_nodes),
        network=new_machines.network(arguments.network),
        router=arguments.router or "",
        vip=arguments.vip or "",
        links=arguments.link,
        resolvers=arguments.resolver,
        time_servers=arguments.time_server,
    )


def _values(arguments: SimpleNamespace, rack: new_machines.Rack | None) -> dict[str, Any]:
    models = _models(arguments)
    tenants = arguments.tenant or ["first-team"]
    default = f"kubeconfig.{arguments.site}"
    cluster = {"kubeconfig": default if arguments.kubeconfig is None else arguments.kubeconfig}
    return {
        "name": arguments.site,
        "cluster": {"gpu": arguments.gpu}
        | (
            # A rack has nothing yet that offers its GPUs.
            {"gpu_stack": "operator", "machines": new_machines.machines(rack)} if rack else cluster
        ),
        "storage": {"storage_class": arguments.storage_class},
        "gateway": {"controllers": "chart", "port": 443, "certificate_secret": arguments.certificate_secret},
        **_prices(arguments),
        "models": models,
        "tenants": {tenant: {"models": list(models), "keys": {"default": {}}} for tenant in tenants},
    }


def _prices(arguments: SimpleNamespace) -> dict[str, Any]:
    if arguments.gpu_hour is not None:
        return {"prices": {"gpu_hour": arguments.gpu_hour, "currency": arguments.currency or DEFAULT_CURRENCY}}
    if arguments.currency is not None:
        raise SitectlError("--currency: only with --gpu-hour", fix="add --gpu-hour PRICE", status=Exit.USAGE)
    return {}


def _models(arguments: SimpleNamespace) -> dict[str, Any]:
    models: dict[str, Any] = {}
    for given in arguments.model or [FIRST_MODEL]:
        name, model = _model(given, arguments)
        if name in models:
            raise SitectlError(
                f"--model: two are named {name}",
                got=f"{models[name]['catalogue']}, {model['catalogue']}",
                fix=f"give one of them another name: --model NAME={model['catalogue']}",
                status=Exit.USAGE,
            )
        models[name] = model
    return models


def _model(given: str, arguments: SimpleNamespace) -> tuple[str, dict[str, Any]]:
    name, _, entry = given.partition("=")
    entry = entry or name
    if entry not in catalogue.names():
        near = nearest_product(entry, catalogue.names())
        raise SitectlError(
            f"--model {given}: the catalogue has no such model" + meant(near),
            got=entry,
            allowed=", ".join(catalogue.names()),
            fix=f"--model {name}={near}" if near else "choose one of the list: python -m sitectl catalogue list",
            status=Exit.USAGE,
        )
    family = GPUS[arguments.gpu].family if arguments.gpu in GPUS else ""
    server = {"replicas": arguments.replicas} | ({"gpu_family": family} if family not in ("", DEFAULT_FAMILY) else {})
    return name.replace(".", "-"), {"catalogue": entry, "server": server}
