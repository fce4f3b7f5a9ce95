"""`catalogue`: the models that a site can order, and new ones from their config.json."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from floor.counts import counted
from floor.problems import meant
from sitectl.shell import whole_files
from sitectl.shell.command import PATH, CommandContext, CommandGroup, pass_context
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.facts.hardware import GPUS
from stacks.importing.config import catalogue_file, read_json, text
from stacks.importing.geometry import NotUnderstoodError, Section
from stacks.importing.repository import Repository, check_size, read_repository
from stacks.proof.cache import kv_dtype
from stacks.proof.order import Order
from stacks.proof.proof import prove
from stacks.proof.weights import parameters, weight_bytes
from stacks.site.checks.products import nearest_product

MORE = """\
\b
  python -m sitectl catalogue list               names, sizes, contexts
  python -m sitectl catalogue show glm-5.1-fp8   one, and a replica's GPUs
  python -m sitectl catalogue add --help         what a new one needs

`add` writes stacks/facts/catalogue/NAME.yaml, and only if it understands every key of
config.json and the figures agree with the published number of parameters. Of a folder, such
as a snapshot of the hub's cache, it takes name, commit and licence, and checks the size.

exit status 1: the model is not understood, or the name is taken; nothing is written
"""
_ADD_MORE = """\
It refuses what it does not understand, key by key, and figures that are not near the published number of parameters,
nor near the size of the folder's weights. Only --force overwrites an entry. With an example:

\b
  python -m sitectl docs add-a-model
"""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@click.group(cls=CommandGroup, epilog=MORE)
def command() -> None:
    pass


@command.command("list")
@pass_context
def list_models(context: CommandContext) -> int:
    """All models, with sizes and contexts."""
    models = {name: catalogue.load(name) for name in catalogue.names()}
    width = max(map(len, models))
    lines = [f"{'model':<{width}}  {'parameters':>10}  {'weights':>8}  {'context':>9}  task"]
    for name, model in models.items():
        billions, files = f"{parameters(model).total / 1e9:,.1f} B", f"{weight_bytes(model).files / 1e9:,.0f} GB"
        lines.append(f"{name:<{width}}  {billions:>10}  {files:>8}  {model.max_context_tokens:>9,}  {model.task}")
    lines.append(f"{counted(len(models), 'model')}; next: python -m sitectl catalogue show NAME")
    context.say("\n".join(lines), {name: _record(model) for name, model in models.items()})
    return int(Exit.OK)


def model_names(context: click.Context, argument: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Models, for the completion of a shell."""
    return [name for name in catalogue.names() if name.startswith(incomplete)]


@command.command()
@click.argument("name", shell_complete=model_names, help="name in the catalogue")
@pass_context
def show(context: CommandContext, *, name: str) -> int:
    """One model, and the GPUs that a replica takes."""
    if name not in catalogue.names():
        near = nearest_product(name, catalogue.names())
        raise SitectlError(
            f"the catalogue has no model '{name}'" + meant(near),
            fix=f"python -m sitectl catalogue show {near}" if near else "python -m sitectl catalogue list",
            status=Exit.USAGE,
        )
    model = catalogue.load(name)
    replica = {gpu: _replica(name, gpu) for gpu in GPUS}
    record = _record(model) | {"replica": replica}
    width = max(map(len, GPUS))
    lines = [f"{key:<17} {value}" for key, value in _record(model).items() if value not in ("", [])]
    lines += ["a replica on each kind of GPU, and the longest context that it holds there:"]
    lines += [f"  {gpu:<{width}}  {size}" for gpu, size in replica.items()]
    context.say("\n".join(lines), record)
    return int(Exit.OK)


def _record(model: CatalogueModel) -> dict[str, Any]:
    counts = parameters(model)
    return {
        "repository": model.repository,
        "revision": model.revision or "none; a production site that downloads it names its own",
        "licence": model.licence,
        "vLLM": f"{model.engine_version} or later" if model.engine_version else "",
        "remote code": ", ".join(model.remote_code.files) if model.remote_code else "",
        "task": model.task,
        "parameters": f"{counts.total / 1e9:.1f} billion",
        "active": f"{counts.active / 1e9:.1f} billion",
        "weights": f"{weight_bytes(model).files / 1e9:.1f} GB, {_stored(model)}",
        "context": f"{model.max_context_tokens:,} tokens",
        "engine flags": " ".join(model.engine_flags),
    }


def _stored(model: CatalogueModel) -> str:
    kind = model.quantisation.format
    return "not quantised" if kind == "none" else kind


def _replica(name: str, gpu: str) -> str:
    cache = kv_dtype(GPUS[gpu])
    order = Order(name=name, model=catalogue.load(name), gpu=gpu, one_node=True, simple=True, kv_dtype=cache)
    proof = prove(order)
    if not proof.holds:
        return "does not fit on a node"
    return f"{counted(proof.case.layout.gpus, 'GPU')} ({proof.case.layout}), {proof.case.context:,} tokens of context"


@command.command(short_help="Write a new model's file from its config.json or repository.", epilog=_ADD_MORE)
@click.argument("config", type=PATH, metavar="PATH", help="config.json of the repository, or the folder that has it")
@click.option("--name", metavar="NAME", help="name in the catalogue (default: that of the repository, in lower case)")
@click.option("--repository", metavar="OWNER/MODEL", help="name at the hub (default: the folder's)")
@click.option("--revision", metavar="COMMIT", help="commit that is served (default: the folder's, or none)")
@click.option("--licence", metavar="TEXT", help="SPDX name, or LicenseRef-NAME (default: the model card's)")
@click.option(
    "--source", required=True, metavar="TEXT", help="where the config.json, and what you give by hand, is from"
)
@click.option("--parameters", type=float, required=True, metavar="COUNT", help="published parameters, such as 32.8e9")
@click.option("--active", type=float, metavar="COUNT", help="published active parameters (default: all)")
@click.option("--published", required=True, metavar="TEXT", help="where these are published")
@click.option("--engine-version", metavar="VERSION", default="", help="first vLLM that serves it, such as 0.19.1")
@click.option("--engine-source", metavar="TEXT", default="", help="where that is documented")
@click.option("--remote-code", metavar="REASON", help="why vLLM must run the repository's code (default: it does not)")
@click.option(
    "--task",
    type=click.Choice(("generate", "embed", "rerank")),
    default="generate",
    help="what clients ask of it (default: generate)",
)
@click.option("--quantisation", type=PATH, metavar="FILE", help="hf_quant_config.json, if it is not in the folder")
@click.option("--flag", multiple=True, metavar="FLAG", help="vLLM flag that the model needs; may be repeated")
@click.option("--ignore", multiple=True, metavar="KEY", help="key of config.json that is harmless; may be repeated")
@click.option("--force", is_flag=True, help="overwrite the entry of that name")
@pass_context
def add(context: CommandContext, /, **options: Any) -> int:
    """Write a new model's file, stacks/facts/catalogue/NAME.yaml, from its config.json or repository."""
    arguments = SimpleNamespace(**options)
    _refuse_no_provenance(arguments)
    folder: Path = context.project / "stacks" / "facts" / "catalogue"
    if not folder.is_dir():
        raise SitectlError(
            f"{context.project} has no stacks/facts/catalogue, and a model is added there",
            fix="add it in a checkout of the platform, then install that again: pip install .",
            status=Exit.REFUSED,
        )
    try:
        there = read_repository(arguments.config)
        _fill_in(arguments, there)
        name = _name(arguments)
        file = folder / f"{name}.yaml"
        if file.exists() and not arguments.force:
            raise _taken(file, name)
        content = catalogue_file(there.config, _meta(arguments, there), _nvidia(arguments, there))
        model = CatalogueModel.model_validate(content)
        check_size(there, model)
    except NotUnderstoodError as error:
        reasons = str(error).splitlines()
        # Of a file that is none, no key can be ignored.
        reads = arguments.config.exists()
        raise SitectlError(
            "\n  ".join([f"{arguments.config}: {counted(len(reasons), 'reason')} not to add it", *reasons]),
            fix="correct these" + (", or add --ignore KEY for a key that changes no size" if reads else ""),
            status=Exit.REFUSED,
        ) from None
    size = f"{parameters(model).total / 1e9:.1f} billion, {weight_bytes(model).files / 1e9:.1f} GB"
    written = text(content, f"{arguments.repository}: {size}.")
    try:
        if arguments.force:
            whole_files.write(file, written)
        else:
            whole_files.write_new(file, written)
    except FileExistsError:
        raise _taken(file, name) from None
    except OSError as error:
        raise SitectlError(f"{file} cannot be written: {error.strerror}", fix="make the folder writable") from None
    lines = [f"wrote {file.relative_to(context.project)}: {size}", *_notes(arguments, there, model)]
    lines += [
        f"order it below models of a site: {{catalogue: {name}}}",
        "next: make docs, then make check, as reference and schema list the catalogue",
    ]
    context.say("\n".join(lines), {"file": str(file), "name": name, "next": ["make docs", "make check"]})
    return int(Exit.OK)


def _refuse_no_provenance(arguments: SimpleNamespace) -> None:
    """Raise SitectlError for text that is empty, for numbers that count nothing, and for a commit that is none."""
    for option in ("repository", "licence", "source", "published"):
        given = getattr(arguments, option)
        if given is not None and not given.strip():
            raise SitectlError(
                f"--{option} is empty",
                allowed="where each figure is from, which the catalogue keeps",
                fix="write it as catalogue add --help shows",
                status=Exit.USAGE,
            )
    for option in ("parameters", "active"):
        number = getattr(arguments, option)
        if number is not None and not 0 < number < math.inf:
            raise SitectlError(
                f"--{option} is no number of parameters",
                got=str(number),
                allowed="a number above 0, such as 32.8e9",
                fix="take it from the model card",
                status=Exit.USAGE,
            )
    for option, form, allowed in (
        ("revision", r"[0-9a-f]{40}", "40 digits of 0-9 and a-f, as the hub shows a commit"),
        ("engine_version", r"([0-9]+\.[0-9]+\.[0-9]+)?", "three numbers, such as 0.19.1"),
    ):
        given = getattr(arguments, option)
        if given is not None and not re.fullmatch(form, given):
            raise SitectlError(
                f"--{option.replace('_', '-')} is none",
                got=given,
                allowed=allowed,
                fix="correct it, or leave it out where you do not know it",
                status=Exit.USAGE,
            )
    if bool(arguments.engine_version) != bool(arguments.engine_source.strip()):
        raise SitectlError(
            "--engine-version and --engine-source go together",
            allowed="both, or neither",
            fix="add the one that is missing: the catalogue keeps where each figure is from",
            status=Exit.USAGE,
        )


def _fill_in(arguments: SimpleNamespace, there: Repository) -> None:
    """Take from the repository what no option gives. Raises SitectlError for what neither gives."""
    arguments.repository = arguments.repository or there.name
    arguments.licence_source = f"given by hand: {arguments.source}" if arguments.licence else there.licence_source
    arguments.licence = arguments.licence or there.licence
    arguments.revision_source = f"given by hand: {arguments.source}" if arguments.revision else there.revision_source
    arguments.revision = arguments.revision or there.revision
    for option, where in (
        ("repository", "no path of a hub's cache, and no clone of the hub"),
        ("licence", "no license in the front matter of a README.md, and no LICENSE that is known"),
    ):
        if not getattr(arguments, option):
            raise SitectlError(
                f"--{option} is missing",
                got=f"{arguments.config}: {where}",
                allowed="a folder that has it, or the option",
                fix=f"add --{option}",
                status=Exit.USAGE,
            )
    if arguments.remote_code and not there.code:
        raise SitectlError(
            "--remote-code without code",
            got=f"{arguments.config}: no auto_map",
            allowed="a folder whose config.json, tokenizer_config.json or preprocessor_config.json names files",
            fix="take --remote-code out, or name the folder of the repository in place of its config.json",
            status=Exit.USAGE,
        )


def _name(arguments: SimpleNamespace) -> str:
    name = str(arguments.name or arguments.repository.rpartition("/")[2].lower())
    if not _NAME.fullmatch(name):
        raise SitectlError(
            f"'{name}' is not a name for the catalogue",
            allowed="lower-case letters, digits, and dots and dashes inside",
            fix="add --name with one that is",
            status=Exit.USAGE,
        )
    return name


def _taken(file: Path, name: str) -> SitectlError:
    return SitectlError(
        f"{file.name} is in the catalogue already, and stays as it is",
        fix=f"add --name with another name, or --force to overwrite it; to look at it: "
        f"python -m sitectl catalogue show {name}",
        status=Exit.REFUSED,
    )


def _nvidia(arguments: SimpleNamespace, there: Repository) -> Mapping[str, Any] | None:
    return read_json(arguments.quantisation) if arguments.quantisation else there.nvidia


def _notes(arguments: SimpleNamespace, there: Repository, model: CatalogueModel) -> Iterator[str]:
    """What may surprise those who add the model."""
    if not model.revision:
        yield "it has no revision: a production site that downloads it names one, as models.NAME.server.revision"
    if there.code and not arguments.remote_code:
        yield f"its auto_map names {', '.join(there.code)}, which is not run; if vLLM needs it, give --remote-code"
    if there.answer_tokens:
        yield f"its generation_config.json ends answers at {there.answer_tokens:,} tokens where no client asks for more"


def _meta(arguments: SimpleNamespace, there: Repository) -> Section:
    """What config.json does not hold."""
    code = (
        {"remote_code": {"reason": arguments.remote_code, "files": list(there.code)}} if arguments.remote_code else {}
    )
    return {
        "repository": arguments.repository,
        "revision": arguments.revision,
        "licence": arguments.licence,
        "engine_version": arguments.engine_version,
        **code,
        "task": arguments.task,
        **({"engine_flags": list(arguments.flag)} if arguments.flag else {}),
        "published": {
            "parameters": arguments.parameters,
            "active_parameters": arguments.active or arguments.parameters,
            "source": arguments.published,
        },
        "sources": {
            "geometry": arguments.source,
            "licence": arguments.licence_source,
            "revision": arguments.revision_source if arguments.revision else "not looked up: none was given",
            "engine_version": arguments.engine_source or "not looked up: none was given",
        },
        "ignore": arguments.ignore,
    }
