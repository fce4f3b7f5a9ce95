"""`doctor`: can this machine work on sites, and what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from bundle.fetching import is_pinned
from components.addons.chart_lock import locked_name, read_lock
from components.addons.charts import chart_of
from components.specs.crd_bundle import CrdBundleSpec
from floor.counts import counted
from floor.digests import sha256_of
from floor.problems import SiteError
from sitectl.offline import checkout
from sitectl.shell import home
from sitectl.shell.command import Command, CommandContext, pass_context
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import versions
from stacks.plan.charts import cilium_digest, cilium_manifest, installed_charts, optional_parts
from stacks.plan.site_plan import plan_file
from stacks.site.loader import read_site_file
from stacks.site.model import SiteConfig

MORE = """\
`validate`, `render` and `rules` need only Python and the packages, `diff` also git; `plan` and `drift` need the engine,
its plugins and a cluster. If only they miss something, that is a note here, not an error. The lab has its
own doctor: make doctor
"""
_VERSIONS_BACK = "take it back from version control: git checkout stacks/facts/versions.yaml"
_PLUGINS = ("kubernetes", "command")
_OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at. `note`: missing, but some commands work without it."""

    name: str
    state: Literal["ok", "note", "bad"]
    result: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class OwnMachine:
    """What the checks ask of the machine; tests give their own."""

    environment: Mapping[str, str]
    which: Callable[[str], str | None]
    say: Callable[[list[str]], str]
    """Output of a program."""


def here() -> OwnMachine:
    """This machine."""

    def say(command: list[str]) -> str:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        ).stdout.strip()

    return OwnMachine(environment=os.environ, which=shutil.which, say=say)


@click.command(cls=Command, epilog=MORE)
@pass_context
def command(context: CommandContext) -> int:
    all_checks = list(checks(context.project, here()))
    width = max(len(check.name) for check in all_checks)
    lines = []
    for check in all_checks:
        lines.append(f"{check.state:<4}  {check.name:<{width}}  {check.result}")
        lines += [f"      fix: {check.fix}"] if check.fix else []
    bad = sum(check.state == "bad" for check in all_checks)
    lines.append("all commands that need no cluster work here" if not bad else f"{counted(bad, 'problem')} to fix")
    context.say(
        "\n".join(lines),
        [{"name": check.name, "state": check.state, "result": check.result, "fix": check.fix} for check in all_checks],
    )
    return int(Exit.REFUSED if bad else Exit.OK)


def checks(project: Path, machine: OwnMachine) -> Iterator[Check]:
    """Every check, the ground first."""
    yield _python()
    yield from _packages()
    yield _program(machine, "git", ["git", "--version"], "`diff` of revisions needs it", "install git")
    yield _program(
        machine, "pulumi", ["pulumi", "version"], "`plan` and `drift` need it", "https://www.pulumi.com/docs/install/"
    )
    yield from (_plugin(machine, name) for name in _PLUGINS)
    yield _program(
        machine,
        "helm",
        ["helm", "version", "--short"],
        "`bundle` needs it",
        "install helm 3.8 or later: https://helm.sh",
    )
    client = ["kubectl", "version", "--client"]
    yield _program(machine, "kubectl", client, "`up`, `drift` and rolls of machines need it", "install kubectl")
    files = checkout.site_files(project)
    sites = {site: _read(file) for site, file in files.items()}
    if any(not isinstance(site, str) and site.cluster.machines for site in sites.values()):
        yield _program(
            machine,
            "talosctl",
            ["talosctl", "version", "--client", "--short"],
            "runbooks look at machines with it",
            f"install talosctl {versions.load().talos}: https://github.com/siderolabs/talos/releases",
        )
    if any(_locks_images(file) for file in files.values()):
        yield _program(
            machine,
            "crane",
            ["crane", "version"],
            "`bundle lock`, `pack` and `push` need it",
            "install crane: https://github.com/google/go-containerregistry",
        )
    yield _bundle(project, [site for site in sites.values() if not isinstance(site, str)])
    if not files:
        yield Check(name="sites", state="note", result="none yet", fix="python -m sitectl init NAME")
    for name, site in sites.items():
        yield from _site(project, name, site)


def _python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    good = sys.version_info[:2] >= _OLDEST_PYTHON
    return Check(
        name="python", state="ok" if good else "bad", result=version, fix="" if good else "Python 3.11 or later"
    )


def _packages() -> Iterator[Check]:
    for package in ("pulumi", "pulumi-kubernetes", "pulumi-command", "pydantic"):
        try:
            yield Check(name=f"package {package}", state="ok", result=importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Check(
                name=f"package {package}",
                state="bad",
                result="not installed",
                fix="make venv, and run .venv/bin/python" if home.is_checkout() else home.repair(),
            )


def _program(machine: OwnMachine, name: str, command: list[str], without: str, fix: str) -> Check:
    if machine.which(name) is None:
        return Check(name=name, state="note", result=f"not on PATH; {without}", fix=fix)
    lines = [line for line in machine.say(command).splitlines() if not line.endswith(":")]
    return Check(name=name, state="ok", result=lines[0] if lines else "there")


def _plugin(machine: OwnMachine, name: str) -> Check:
    version = importlib.metadata.version(f"pulumi-{name}")
    home = Path(machine.environment.get("PULUMI_HOME") or Path.home() / ".pulumi")
    ambient = machine.which(f"pulumi-resource-{name}")
    if (home / "plugins" / f"resource-{name}-v{version}").is_dir():
        return Check(name=f"plugin {name}", state="ok", result=f"v{version}, installed")
    if ambient:
        return Check(name=f"plugin {name}", state="ok", result=f"from PATH: {ambient}")
    fix = f"pulumi plugin install resource {name} v{version}"
    return Check(name=f"plugin {name}", state="note", result="not installed; `plan` downloads it", fix=fix)


def _bundle(project: Path, sites: Sequence[SiteConfig]) -> Check:
    """Of the folders where these sites look; without a site, where the next one will."""
    try:
        pins = versions.load()
    except SiteError as error:
        return Check(
            name="versions",
            state="bad",
            result=str(error).splitlines()[0],
            fix=_VERSIONS_BACK if home.is_checkout() else home.repair(),
        )
    bundles = [(site.crds, optional_parts(site)) for site in sites] or [(CrdBundleSpec(), [])]
    files = {
        bundle.folder / file: pin
        for bundle, parts in bundles
        if bundle.owner == "program"
        for file, pin in pins.crds_with(parts).items()
    }
    wrong = [file.parent for file, digest in files.items() if not is_pinned(project / file, digest)]
    if not wrong:
        return Check(name="CRD bundle", state="ok", result="as pinned")
    return Check(
        name="CRD bundle",
        state="note",
        result=", ".join(f"{counted(wrong.count(folder), 'file')} of {folder}" for folder in dict.fromkeys(wrong))
        + " missing or not as pinned; `plan` needs them",
        fix="python -m sitectl bundle",
    )


def _read(file: Path) -> SiteConfig | str:
    """The site, or the first line of what is wrong with it."""
    try:
        return plan_file(file).site
    except (SiteError, SitectlError) as error:
        return str(error).splitlines()[0]


def _locks_images(file: Path) -> bool:
    """Also of a site that is refused, since its images are not locked yet."""
    try:
        site = read_site_file(file).site
    except (SiteError, SitectlError):
        return False
    return site is not None and site.images.locked


def _site(project: Path, site: str, loaded: SiteConfig | str) -> Iterator[Check]:
    if isinstance(loaded, str):
        yield Check(name=f"site {site}", state="bad", result=loaded, fix=f"python -m sitectl validate {site}")
        return
    yield Check(name=f"site {site}", state="ok", result="valid")
    manifest = cilium_manifest(loaded)
    if manifest:
        pinned = is_pinned(project / manifest, cilium_digest(loaded, versions.load().cilium))
        missing = f"{manifest} missing or not as pinned; `plan` needs it"
        yield Check(
            name=f"pod network of {site}",
            state="ok" if pinned else "note",
            result="as pinned" if pinned else missing,
            fix="" if pinned else f"python -m sitectl bundle {site}",
        )
    yield from _charts(project, site, loaded)
    kubeconfig = loaded.cluster.kubeconfig
    if kubeconfig and not (project / kubeconfig).exists():
        missing = f"{kubeconfig} is not there; `plan` needs it"
        yield Check(name=f"cluster of {site}", state="note", result=missing, fix=f"put the kubeconfig of {site} there")


def _charts(project: Path, site: str, loaded: SiteConfig) -> Iterator[Check]:
    """Of a folder of charts, which helm reads when `up` runs; a registry or a repository is not asked here."""
    pins = [versions.load().charts[name] for name in installed_charts(loaded)]
    charts = [chart_of(pin.chart, pin.version, loaded.charts.mirror).chart for pin in pins]
    packed = [locked_name(chart, project) for chart in charts if chart.endswith(".tgz")]
    if not packed:
        return
    try:
        digests = read_lock(project)
    except SiteError as error:
        first = error.problems[0]
        yield Check(
            name=f"charts of {site}", state="bad", result=first.text(error.origin).splitlines()[0], fix=first.fix
        )
        return
    wrong = [
        name
        for name in packed
        if not (project / name).is_file() or digests.get(name, "") not in ("", sha256_of(project / name))
    ]
    yield Check(
        name=f"charts of {site}",
        state="note" if wrong else "ok",
        result=f"{', '.join(wrong)} missing or not as locked; `plan` needs it" if wrong else "there",
        fix=f"python -m sitectl bundle {site} --charts" if wrong else "",
    )
