"""`upgrade-path`: the steps from the versions that run to those that are pinned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from floor.counts import counted
from floor.problems import file_error, site_error
from sitectl.live import helm_releases, site_cluster
from sitectl.live.helm_releases import HelmRelease
from sitectl.live.running_versions import ClusterObjects, RunningVersions, running
from sitectl.live.site_cluster import SiteCluster
from sitectl.offline import checkout
from sitectl.shell import revisions
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import versions
from stacks.plan import conflicts, upgrades
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.plan.upgrades import Step

MORE = """\
Prints one step after the other, each a change of stacks/facts/versions.yaml and a `pulumi up`. After each of them, the
parts go together by stacks/facts/compatibility.yaml. What must be true before and after, and how far the step goes
back, is from stacks/facts/upgrades.yaml. A step that no publisher supports is refused, and the fix names the step in
between. What is wanted is versions.yaml as it is now; what runs is by git, or with --live by the site itself.

\b
  python -m sitectl upgrade-path prod                  from the last commit
  python -m sitectl upgrade-path prod --from v1.2.0    from a tag or commit
  python -m sitectl upgrade-path prod --live           from its cluster

Only the parts that the site's file lets the program install have steps. --live needs the stack's kubeconfig and
kubectl, and only reads: nodes, Pods, definitions, and Helm's Secrets, of which it shows names and versions alone. A
Helm release that is not deployed is reported, and no step begins on it.
"""
_FILE = str(versions.FILE.relative_to(Path(__file__).parents[2]))


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option(
    "--from",
    "revision",
    metavar="REVISION",
    help="the git revision whose versions run on the site  [default: HEAD]",
)
@click.option("--live", is_flag=True, help="read what runs from the site's cluster")
@pass_context
def command(context: CommandContext, *, site: str, revision: str | None, live: bool) -> int:
    file = checkout.site_files(context.project, [site])[site]
    if not live:
        return _from_git(context, site, plan_file(file), revision or "HEAD")
    if revision is not None:
        raise SitectlError(
            "what runs is by git or by the site", allowed="--from or --live", fix="leave one out", status=Exit.USAGE
        )
    with context.progress.layer(f"look at {site}"):
        objects = _objects(site_cluster.of_site(context.project, site, file))
    return _from_cluster(context, site, plan_file(file), objects)


def _from_git(context: CommandContext, site: str, plan: SitePlan, revision: str) -> int:
    text = revisions.text(context.project, revision, _FILE)
    if text is None:
        raise SitectlError(
            f"{_FILE} is not in {revision}", got=revision, fix="name a revision of this project that has the file"
        )
    before = versions.of_text(text, f"{_FILE} at {revision}", instead=plan.versions)
    steps, problems = upgrades.steps_of(plan.site, before, plan.versions)
    if problems:
        raise file_error(_FILE, problems)
    context.say(_words(site, revision, steps), {"site": site, "from": revision, "steps": [_record(s) for s in steps]})
    return 0


def _objects(cluster: SiteCluster) -> ClusterObjects:
    # First, so that a cluster that does not answer is one error.
    server = cluster.version()
    secrets = cluster.objects("Helm's releases", ["secrets"], f"--field-selector=type={helm_releases.SECRET_TYPE}")
    try:
        releases = helm_releases.releases(secrets)
    except helm_releases.UnreadableReleaseError as error:
        raise SitectlError(
            f"the Secret {error} holds no release of Helm that can be read",
            fix="helm history shows whether Helm can read it; a Secret that is no release must not have Helm's type",
        ) from None
    return ClusterObjects(
        server=server,
        nodes=cluster.objects("nodes", ["nodes"]),
        pods=cluster.objects("Pods", ["pods"]),
        definitions=cluster.objects("definitions", ["customresourcedefinitions"]),
        releases=releases,
    )


def _from_cluster(context: CommandContext, site: str, plan: SitePlan, objects: ClusterObjects) -> int:
    seen = running(objects, plan.site, plan.versions)
    wanted = conflicts.facts(plan.versions, plan.site)
    steps, problems = upgrades.steps_from(plan.site, seen.facts(wanted), plan.versions)
    if wrong := [*seen.problems(), *(replace(problem, file=_FILE) for problem in problems)]:
        raise site_error(site, wrong)
    unread = [_key(fact) for fact in upgrades.pinned(wanted) if fact not in seen.places]
    lines = [_words(site, "its cluster", steps), "", "what runs, by the site's cluster", *_runs(seen, wanted)]
    lines += [f"   {key}: nothing in the cluster states it, so no step looks at it" for key in unread]
    record = {
        "site": site,
        "runs": {fact: dict(places) for fact, places in seen.places.items() if fact in wanted},
        "not_found": unread,
        "releases": [_release(release) for release in seen.releases],
        "steps": [_record(step) for step in steps],
    }
    context.say("\n".join(lines), record)
    return 0


def _runs(seen: RunningVersions, wanted: Mapping[str, Any]) -> Iterator[str]:
    for fact in wanted:
        places = seen.places.get(fact, {})
        versions_ = ", ".join(
            version if len(places) == 1 else f"{version} ({', '.join(where)})" for version, where in places.items()
        )
        if source := seen.taken_from.get(fact):
            yield f"   {_key(fact)}: {versions_}, taken from {_key(source)}"
        elif places:
            yield f"   {_key(fact)}: {versions_}"
    for release in seen.releases:
        newest = release.newest
        yield f"   Helm release {release.label}: {newest.chart} {newest.chart_version}, {newest.status}"


def _release(release: HelmRelease) -> dict[str, Any]:
    newest = release.newest
    return {
        "release": release.label,
        "revision": newest.number,
        "status": newest.status,
        "chart": newest.chart,
        "version": newest.chart_version,
        "app_version": newest.app_version,
    }


def _key(fact: str) -> str:
    return conflicts.deciding_keys().get(fact, fact).removeprefix("versions.")


def _record(step: Step) -> dict[str, Any]:
    return {
        "parts": [part.part for part in step.parts],
        "changes": {fact: {"runs": now, "wanted": then} for fact, (now, then) in step.changes.items()},
        "pins": step.pins,
        "before": [part.before for part in step.parts],
        "by_hand": [{"why": row.text, "do": row.fix, "source": row.source} for row in step.by_hand],
        "after": [part.after for part in step.parts],
        "way_back": step.way_back,
    }


def _words(site: str, source: str, steps: list[Step]) -> str:
    """source: what stated the versions that run."""
    if not steps:
        return f"{site}: no step: the versions of {source} are those that are pinned now"
    lines = [f"{site}: {counted(len(steps), 'step')} from {source} to the versions that are pinned now"]
    for number, step in enumerate(steps, start=1):
        lines += ["", f"{number}. {', together with '.join(part.part for part in step.parts)}"]
        lines += _rows("versions", _changed(step.changes))
        lines += _rows("by hand", [f"{row.text}: {row.fix} (source: {row.source})" for row in step.by_hand])
        lines += _rows("before", [part.before for part in step.parts])
        lines += _rows("after", [part.after for part in step.parts])
        lines += _rows("way back", step.way_back)
    return "\n".join(lines)


def _changed(changes: Mapping[str, tuple[str, str]]) -> list[str]:
    return [f"{_key(fact)}: {now} -> {then}" for fact, (now, then) in changes.items()]


def _rows(head: str, texts: list[str]) -> list[str]:
    return [f"   {head if number == 0 else '':<9} {text}" for number, text in enumerate(texts)]
