"""`weights`: list what models consist of, and compare folders with that."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from bundle.errors import BundleError
from bundle.locked_weights import ADAPTER_CONFIG, HubMetadata, differences, folder_manifest
from components.specs.weights import DRAFT, SERVED, adapter_of
from floor.counts import counted
from floor.model_hub import HUB
from floor.problems import Problem, meant, nearest
from services.weights.failure import WeightsError
from services.weights.manifest import Manifest, file_name, parse
from services.weights.pace import size
from sitectl.offline.planned import plan_of
from sitectl.shell import invocation, whole_files
from sitectl.shell.command import PATH, Command, CommandContext, CommandGroup, pass_context
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan import adapter_configs
from stacks.plan.weights import LOCKS, wanted_of
from stacks.site.demand import OrderedModelSpec

MORE = """\
A lock is a file per model and commit, in the folder weights of the project: each file with its size and sha256. Commit
it. The Job that brings weights then takes no other file, whatever its source serves. Without a lock, what the source
states at the commit decides, and preview warns.
"""
_LOCK_MORE = """\
\b
  python -m sitectl weights lock berlin                 for all models of the site
  python -m sitectl weights lock berlin chat            for one of them
  python -m sitectl weights lock berlin chat --from ./GLM-5.1-FP8
  python -m sitectl weights lock berlin chat --from ./Llama-3.3-70B --draft-from ./Llama-3.2-1B
  python -m sitectl weights lock berlin chat --adapter-from legal=./chat-legal

Asks HF_ENDPOINT, else the site's mirror, else the hub, and reads no weights: the hub knows their sha256. Of weights in
several forms, it lists the one that vLLM reads. A lock that is there is never overwritten. Of an adapter, rank and
projections are compared with its adapter_config.json.
"""
_VERIFY_MORE = """\
Also without sitectl: cd FOLDER && sha256sum --check .../weights/OWNER--NAME@COMMIT.sha256
"""


_COMMIT = re.compile("[0-9a-f]{40}")
# The folder that is given for each role.
_OPTIONS = {SERVED: "--from", DRAFT: "--draft-from"}
_ADAPTER_OPTION = "--adapter-from"


@click.group(cls=CommandGroup, epilog=MORE)
def command() -> None:
    pass


@command.command(cls=Command, epilog=_LOCK_MORE)
@click.argument("site", help="site whose models are locked")
@click.argument("models", nargs=-1, metavar="[MODEL]...", help="some of its models (default: all that are brought)")
@click.option("--from", "folder", type=PATH, metavar="FOLDER", help="folder with the files of the one model named")
@click.option("--draft-from", "draft", type=PATH, metavar="FOLDER", help="the same of the model that drafts for it")
@click.option(_ADAPTER_OPTION, "adapters", multiple=True, metavar="NAME=FOLDER", help="the same of an adapter of it")
@pass_context
def lock(
    context: CommandContext,
    *,
    site: str,
    models: tuple[str, ...],
    folder: Path | None,
    draft: Path | None,
    adapters: tuple[str, ...],
) -> int:
    """Write the lock of each model that has none."""
    plan = plan_of(context.project, site, without={"images", "weights"})
    known = {name: revision for name, revision in plan.named.items() if revision.weights}
    for name in models:
        if name not in known:
            near = nearest(name, known)
            raise SitectlError(
                f"{site} brings no weights for a model '{name}'" + meant(near),
                allowed=", ".join(known) or "none",
                fix="name a model of the site that is no simulator",
                status=Exit.USAGE,
            )
    given = _given(folder, draft, adapters)
    if given and len(models) != 1:
        option = next(iter(given)).partition(" ")[0]
        raise SitectlError(f"{option} is of one model", fix="name the model whose files are there", status=Exit.USAGE)
    if folder and draft and folder.samefile(draft):
        raise SitectlError(
            f"--from and --draft-from are one folder, {folder}",
            allowed="a folder for each of two models",
            fix="name the folder of each, or lock one at a time",
            status=Exit.USAGE,
        )
    mirror = plan.site.storage.weights.mirror
    hub = HubMetadata(endpoint=os.environ.get("HF_ENDPOINT") or mirror or HUB, note=context.progress.note)
    wanted = _wanted({name: known[name].spec for name in models or known})
    for option in given.keys() - wanted.values():
        _refuse_option(option, models[0], wanted.values())
    for (repository, revision), option in wanted.items():
        _require_commit(option, given.get(option), repository, revision)
    _require_adapters({name: known[name].spec for name in models or known}, given, hub)
    lines, written, lacking = list[str](), list[str](), list[dict[str, str]]()
    for (repository, revision), option in wanted.items():
        source = given.get(option)
        if given and source is None:
            lacking += _lacking(context, repository, revision, [site, *models], option)
            continue
        try:
            manifest = folder_manifest(source, repository, revision) if source else hub.manifest(repository, revision)
        except BundleError as error:
            raise SitectlError.of(error.problem) from None
        file = context.project / LOCKS / file_name(repository, revision)
        named = f"{LOCKS}/{file.name}"
        content = f"{counted(len(manifest.files), 'file')}, {size(manifest.size)}"
        if file.exists():
            _refuse_another(file, named, manifest)
            lines.append(f"{named}: as locked, {content}")
            continue
        file.parent.mkdir(exist_ok=True)
        whole_files.write(file, manifest.text())
        written.append(named)
        lines.append(f"{named}: {content}")
    last = f"commit {LOCKS}; {invocation.next_step('plan', [site], context.named)}" if written else "all locked"
    still = [
        f"not locked yet: {entry['repository']} at {entry['revision']}; next: {entry['next']}" for entry in lacking
    ]
    context.say("\n".join([*lines, *(still or [last])]), {"written": written, "not_locked": lacking})
    return int(Exit.OK)


@command.command(cls=Command, epilog=_VERIFY_MORE)
@click.argument("folder", type=PATH, metavar="FOLDER", help="folder with the files of one revision")
@click.option(
    "--lock",
    "file",
    type=PATH,
    metavar="FILE",
    help="lock to compare with (default: the project's own whose commit is the folder's name)",
)
@pass_context
def verify(context: CommandContext, *, folder: Path, file: Path | None) -> int:
    """Compare each file of a folder with its lock."""
    _require_folder(folder)
    if file is None:
        commit = folder.resolve().name
        locks = sorted((context.project / LOCKS).glob("*.sha256"))
        file = next((lock for lock in locks if lock.name.endswith(f"@{commit}.sha256")), None)
        if file is None:
            raise SitectlError(
                f"no lock is of {commit}, the name of the folder",
                allowed=", ".join(lock.name for lock in locks) or "no lock is there",
                fix="name the lock with --lock FILE, or make one: python -m sitectl weights lock SITE",
                status=Exit.USAGE,
            )
    manifest = _read(file)
    wrong = [*differences(folder, manifest)]
    if wrong:
        raise SitectlError(
            "\n  ".join([f"{folder}: {counted(len(wrong), 'file')} of {len(manifest.files)} not as locked", *wrong]),
            fix="bring these files again; if the lock is wrong, take it back from version control",
            status=Exit.REFUSED,
        )
    content = f"{folder}: {counted(len(manifest.files), 'file')}, {size(manifest.size)}, as {file.name} lists them"
    context.say(content, {"files": len(manifest.files), "bytes": manifest.size, "lock": file.name})
    return int(Exit.OK)


def _wanted(specs: Mapping[str, OrderedModelSpec]) -> dict[tuple[str, str], str]:
    """Repositories and commits of these models and their drafts, each once, with the option that names its folder."""
    wanted = dict[tuple[str, str], str]()
    for spec in specs.values():
        for role, entry in wanted_of(spec, {}).items():
            adapter = adapter_of(role)
            option = f"{_ADAPTER_OPTION} {adapter}" if adapter else _OPTIONS[role]
            # A model that drafts for itself is one folder.
            wanted.setdefault((entry.repository, entry.revision), option)
    return wanted


def _given(folder: Path | None, draft: Path | None, adapters: Iterable[str]) -> dict[str, Path]:
    """Folders that are there, by the option that names each; of an adapter with its name."""
    given = {option: path for option, path in (("--from", folder), ("--draft-from", draft)) if path is not None}
    for text in adapters:
        name, _, place = text.partition("=")
        given[f"{_ADAPTER_OPTION} {name}"] = Path(place)
    for path in given.values():
        _require_folder(path)
    return given


def _refuse_option(option: str, model: str, known: Iterable[str]) -> None:
    """Refuse the folder of what a model has not; one of its own may be that of its draft, too."""
    if option == "--draft-from":
        raise SitectlError(
            f"no model drafts for {model}",
            fix=f"leave --draft-from out, or set models.{model}.server.speculative first",
            status=Exit.USAGE,
        )
    if option.startswith(_ADAPTER_OPTION):
        there = [other.rpartition(" ")[2] for other in known if other.startswith(_ADAPTER_OPTION)]
        raise SitectlError(
            f"{model} has no adapter {option.rpartition(' ')[2]}",
            allowed=", ".join(there) or "it has no adapters",
            fix=f"write {_ADAPTER_OPTION} NAME=FOLDER with the name of one, or leave it out",
            status=Exit.USAGE,
        )


def _require_adapters(specs: Mapping[str, OrderedModelSpec], given: Mapping[str, Path], hub: HubMetadata) -> None:
    """Refuse adapters of which the site states another rank or other projections than they have."""
    wrong: list[Problem] = []
    for model, spec in specs.items():
        for name, adapter in spec.adapters.items():
            folder = given.get(f"{_ADAPTER_OPTION} {name}")
            if given and folder is None:
                continue
            try:
                text = (
                    (folder / ADAPTER_CONFIG).read_text(encoding="utf-8", errors="replace")
                    if folder
                    else hub.adapter_config(adapter.repository, adapter.revision)
                )
            except BundleError as error:
                raise SitectlError.of(error.problem) from None
            except OSError:
                what = f"{folder} is no adapter's folder: it has no {ADAPTER_CONFIG}"
                raise SitectlError(what, fix="name the folder of one revision", status=Exit.USAGE) from None
            wrong += adapter_configs.differences(("models", model, "adapters", name), adapter, text)
    if wrong:
        first, *others = wrong
        after = "".join(f"\n{other.key}: {other.sentence}; {other.fix}" for other in others)
        raise SitectlError.of(first, Exit.REFUSED, before=f"{first.key}: ", after=after)


def _lacking(
    context: CommandContext, repository: str, revision: str, arguments: list[str], option: str
) -> list[dict[str, str]]:
    """What to call for the lock of a commit whose folder was not given; nothing where its lock is there."""
    if (context.project / LOCKS / file_name(repository, revision)).exists():
        return []
    named, _, adapter = option.partition(" ")
    folder = f"{adapter}=FOLDER" if adapter else "FOLDER"
    step = invocation.next_step("weights lock", [*arguments, named, folder], context.named)
    return [
        {
            "repository": repository,
            "revision": revision,
            "reason": f"{option} is not given",
            "next": step.removeprefix("next: "),
        }
    ]


def _require_commit(option: str, folder: Path | None, repository: str, revision: str) -> None:
    """Refuse a folder whose name is another commit: hubs' clients and volumes name folders so."""
    name = folder.resolve().name if folder else ""
    if _COMMIT.fullmatch(name) and name != revision:
        raise SitectlError(
            f"{option} is the folder of another commit than that of {repository}",
            got=name,
            allowed=revision,
            fix="name the folder of this commit; if its files are there, call it otherwise",
            status=Exit.USAGE,
        )


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise SitectlError(f"{folder} is no folder", fix="name the folder of one revision", status=Exit.USAGE)


def _refuse_another(file: Path, named: str, manifest: Manifest) -> None:
    locked = _read(file)
    if locked.digest == manifest.digest:
        return
    paths = sorted(locked.files.keys() | manifest.files.keys())
    changed = [path for path in paths if locked.files.get(path) != manifest.files.get(path)]
    raise SitectlError(
        f"{named} lists other files: {', '.join(changed[:5])}{' and more' if len(changed) > 5 else ''}",
        got=f"sha256 of the list {manifest.digest}",
        allowed=f"sha256 of the list {locked.digest}",
        fix=f"find out which is right; to lock again, remove {named} first",
        status=Exit.REFUSED,
    )


def _read(file: Path) -> Manifest:
    try:
        return parse(file.read_text(encoding="utf-8", errors="replace"), file.name)
    except OSError as error:
        raise SitectlError(f"{file} cannot be read: {error.strerror}", fix="name a lock", status=Exit.USAGE) from None
    except WeightsError as error:
        raise SitectlError(error.what, fix=error.fix, status=Exit.REFUSED) from None
