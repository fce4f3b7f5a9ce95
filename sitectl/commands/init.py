"""`init`: a new site's file, valid from the start."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sitectl.errors import Exit, SitectlError
from stacks import catalogue
from stacks.counts import counted
from stacks.hardware import GPUS
from stacks.loader import KEY, load_site
from stacks.loading.problems import SiteError
from stacks.loading.products import nearest_product
from stacks.reference import keys
from stacks.site import SiteConfig

MORE = """\
Everything has a safe default, and every key says what it means. Nothing is overwritten.

  python -m sitectl init berlin
  python -m sitectl init berlin --model glm-5-1=glm-5.1-fp8 --model chat=qwen3-32b-fp8 --tenant search --tenant support
"""

# A chat model whose catalogue entry asks for one GPU.
FIRST_MODEL = "qwen3-32b-fp8"
# What people change first; the rest keeps its default and is in docs/configuration.md.
_HEAD = """\
# yaml-language-server: $schema=docs/site.schema.json
# Site {name}. Keys that are not here have their defaults; all of them: docs/configuration.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", metavar="SITE", help="name of the new site: lower-case letters, digits and dashes")
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME[=CATALOGUE]",
        help=f"a model; of the catalogue: {', '.join(catalogue.names())} (default: {FIRST_MODEL})",
    )
    parser.add_argument("--tenant", action="append", metavar="NAME", help="a team that may call every model")
    parser.add_argument(
        "--gpu", default="h200-sxm", metavar="KIND", help=f"{', '.join(sorted(GPUS))} (default: %(default)s)"
    )
    parser.add_argument("--replicas", type=int, default=2, help="pods a model (default: %(default)s)")
    parser.add_argument("--kubeconfig", metavar="FILE", help="credentials of the cluster (default: kubeconfig.SITE)")
    parser.add_argument("--storage-class", default="longhorn", help="offers ReadWriteMany (default: %(default)s)")
    parser.add_argument("--certificate-secret", default="inference-tls", help="TLS Secret (default: %(default)s)")
    parser.add_argument("--gpu-hour", type=float, metavar="PRICE", help="cost of one GPU for an hour, for cost figures")
    parser.add_argument("--currency", default="EUR", help="of the price (default: %(default)s)")


def run(context: Any, arguments: argparse.Namespace) -> int:
    project: Path = context.project
    file = project / f"Pulumi.{arguments.site}.yaml"
    values = _values(arguments)
    text = "\n".join([_HEAD.format(name=arguments.site) + "config:", f"  {KEY}:", *_lines(values)]) + "\n"
    try:
        load_site(values, file.name)
    except SiteError as error:
        raise SitectlError(
            f"with these arguments the site would not be valid, so nothing is written:\n{error}",
            fix="change the argument that sets the key above: python -m sitectl init --help",
            status=Exit.REFUSED,
        ) from None
    # What is written is what was checked: comments and quotes change no value.
    assert yaml.safe_load(text)["config"][KEY] == values  # noqa: S101
    try:
        with file.open("x") as stream:
            stream.write(text)
    except FileExistsError:
        raise SitectlError(
            f"{file.name} is already there",
            fix=f"choose another name, or edit that file and check it: python -m sitectl validate {arguments.site}",
            status=Exit.REFUSED,
        ) from None
    steps = [f"python -m sitectl validate {arguments.site}"]
    lines = [
        f"wrote {file.name}: {counted(len(values['models']), 'model')}, "
        f"{counted(len(values['tenants']), 'tenant')}; valid as it is",
        "read it once: every key says what it means",
        f"next: {steps[0]}",
    ]
    context.say("\n".join(lines), {"file": str(file), "next": steps})
    return int(Exit.OK)


def _values(arguments: argparse.Namespace) -> dict[str, Any]:
    models = dict(_model(one, arguments) for one in arguments.model or [FIRST_MODEL])
    tenants = arguments.tenant or ["first-team"]
    prices = {"prices": {"gpu_hour": arguments.gpu_hour, "currency": arguments.currency}} if arguments.gpu_hour else {}
    return {
        "name": arguments.site,
        "cluster": {"kubeconfig": arguments.kubeconfig or f"kubeconfig.{arguments.site}", "gpu": arguments.gpu},
        "storage": {"storage_class": arguments.storage_class},
        "gateway": {"controllers": "chart", "port": 443, "certificate_secret": arguments.certificate_secret},
        **prices,
        "models": models,
        "tenants": {tenant: {"models": list(models), "keys": {"default": {}}} for tenant in tenants},
    }


def _model(said: str, arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    name, _, entry = said.partition("=")
    entry = entry or name
    if entry not in catalogue.names():
        near = nearest_product(entry, catalogue.names())
        raise SitectlError(
            f"--model {said}: the catalogue has no such model" + (f"; did you mean '{near}'?" if near else ""),
            got=entry,
            allowed=", ".join(catalogue.names()),
            fix=f"--model {name}={near}" if near else "choose one of the list: python -m sitectl catalogue list",
            status=Exit.USAGE,
        )
    return name.replace(".", "-"), {"catalogue": entry, "server": {"replicas": arguments.replicas}}


def _lines(values: dict[str, Any]) -> Iterator[str]:
    meanings = {key.path: key.meaning for key in keys(SiteConfig)}
    yield from _section(values, "", meanings, indent=4, told=set())


def _section(
    values: dict[str, Any], path: str, meanings: dict[str, str], *, indent: int, told: set[str]
) -> Iterator[str]:
    """YAML of a section, each key under its meaning the first time that it comes."""
    pad = " " * indent
    for key, value in values.items():
        named = path in ("models", "tenants") or path.endswith(".keys")
        here = f"{path}.<name>" if named else f"{path}.{key}" if path else key
        meaning = meanings.get(here, "")
        if meaning and here not in told:
            told.add(here)
            yield from (f"{pad}# {line}" for line in _wrapped(meaning, 116 - indent))
        if isinstance(value, dict) and value:
            yield f"{pad}{key}:"
            yield from _section(value, here, meanings, indent=indent + 2, told=told)
        else:
            shown = yaml.safe_dump(value, default_flow_style=True, width=200).strip().removesuffix("...").strip()
            yield f"{pad}{key}: {shown}"


def _wrapped(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.replace("`", "").split():
        if line and len(line) + len(word) + 1 > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]
