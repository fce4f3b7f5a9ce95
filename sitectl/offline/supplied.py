"""What sites take from outside, out of their plans, of what their programs declare, and of the project's locks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from bundle.asking import Asking
from bundle.fetching import Sources
from bundle.helm import Helm
from bundle.schematics import FactoryImage
from bundle.supplies import Supplies
from bundle.wheels import locked_packages
from components.addons.chart_lock import read_lock
from floor.images import image_reference
from floor.problems import SiteError
from floor.reading.document import read_file
from policy.model import HIDDEN, Resource
from policy.pods import containers
from services.weights.failure import WeightsError
from services.weights.manifest import Manifest
from services.weights.order import Wanted
from sitectl.offline import checkout
from sitectl.shell import temporary
from sitectl.shell.command import CommandContext
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import versions
from stacks.facts.image_lock import ImageLock, read_image_lock
from stacks.facts.own_images import PYTHON_SERVICES, is_built_here, service_of
from stacks.facts.versions import Versions
from stacks.plan.charts import announces_by_bgp, brings_cilium, installed_charts, optional_parts
from stacks.plan.images import untagged_repositories
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.site.loader import KEY
from stacks.site.model import SiteConfig


@dataclass(frozen=True, kw_only=True)
class Supplied:
    """Sites, their plans and what they take."""

    plans: Mapping[str, SitePlan]
    supplies: Supplies
    named: frozenset[str]
    """Images that plans and programs name, by name and tag. Those of renderings alone are not in it."""
    lock: ImageLock
    releases: Mapping[str, list[Resource]]
    """Charts that the program of each site installs, as it declares them."""


def supplied(context: CommandContext, sites: tuple[str, ...]) -> Supplied:
    """Of these sites, or of all. Raises SitectlError for a site that is not valid."""
    project = context.project
    files = checkout.chosen_sites(project, sites)
    plans = {name: _plan(name, file, project) for name, file in files.items()}
    lock = read_image_lock(project)
    users = defaultdict[str, set[str]](set)
    for plan in plans.values():
        for image, names in plan.images.items():
            users[image].update(names)
    declared = _declared(context, files)
    # Of an image that the plans know, they name the users; others come from additions to the program.
    users = defaultdict(set, _images(declared) | users)
    if on_python := {*PYTHON_SERVICES} & {service_of(image) for image in users if is_built_here(image)}:
        users[versions.load().images.python].add(f"base of {', '.join(sorted(on_python))}")
    named = frozenset(image_reference(image).tagged for image in users)
    for plan in plans.values():
        for repository, releases in untagged_repositories(plan.site, plan.versions).items():
            for release in releases:
                # Without a locked one, the repository alone is named: its tag is to be found.
                locked = [image.tagged for image in lock.rendered(repository, release)]
                for image in locked or [repository]:
                    users[image].add(f"chart {release.chart}")
    return Supplied(
        plans=plans,
        supplies=_supplies(plans, {image: sorted(users[image]) for image in sorted(users)}, lock, project),
        named=named,
        lock=lock,
        releases={
            name: [resource for resource in resources if resource.type.startswith("kubernetes:helm.sh/")]
            for name, resources in declared.items()
        },
    )


def require_locked(known: Supplied) -> None:
    """Raises SitectlError for sites that do not ask for locked images, whose pods may run others than are packed."""
    if unlocked := [name for name, plan in known.plans.items() if not plan.site.images.locked]:
        raise SitectlError(
            f"images are not locked in {', '.join(unlocked)}",
            allowed="images.locked: true, without which the gateway runs the Envoy of its controller's own digest",
            fix="sitectl bundle lock, then set images: {locked: true} in "
            + ", ".join(f"Pulumi.{name}.yaml" for name in unlocked),
            status=Exit.REFUSED,
        )


def sources_of(site: SiteConfig, helm: Helm, mirror: str | None, asking: Asking, pins: Versions) -> Sources:
    """Where the charts, definitions and pod network of a site come from."""
    return Sources(
        versions=pins,
        helm=helm,
        mirror=mirror,
        wanted=installed_charts(site),
        parts=optional_parts(site),
        defined=site.crds.owner == "program",
        networked=brings_cilium(site),
        by_bgp=announces_by_bgp(site),
        measured=site.measures_pod_network,
        asking=asking,
    )


def chart_digests(project: Path) -> dict[str, str]:
    """sha256 in hex of the charts that the project locked, by file."""
    return {Path(name).name: digest for name, digest in read_lock(project).items()}


def _plan(name: str, file: Path, project: Path) -> SitePlan:
    try:
        return plan_file(file, without={"images"})
    except SiteError as error:
        raise SitectlError(
            f"the site is not valid:\n{checkout.relative(str(error), project)}",
            fix=f"python -m sitectl validate {name}",
            status=Exit.REFUSED,
        ) from None


def _declared(context: CommandContext, files: Mapping[str, Path]) -> dict[str, list[Resource]]:
    """What the sites' programs declare, run as if no image were locked."""
    with temporary.folder() as folder:
        copies = {name: _unlocked_copy(file, folder) for name, file in files.items()}
        with context.progress.layer("what the sites declare"):
            declared = checkout.declare(context.project, copies, context.progress)
    for name, site in declared.items():
        if site.error:
            raise SitectlError(
                f"what {name} declares is not known:\n{site.error}",
                fix=f"python -m sitectl validate {name}",
                status=Exit.REFUSED,
            )
    return {name: site.resources for name, site in declared.items()}


def _images(declared: Mapping[str, list[Resource]]) -> dict[str, set[str]]:
    """Images of the pods that are declared; what has them."""
    images = defaultdict[str, set[str]](set)
    for resource in chain.from_iterable(declared.values()):
        for container in containers(resource):
            image = str(container.get("image") or HIDDEN)
            if image not in (HIDDEN, checkout.LATER):
                images[image].add(resource.label)
    return images


def _unlocked_copy(file: Path, folder: Path) -> Path:
    """The stack file without `images`, as JSON, which is YAML."""
    values: dict[str, Any] = read_file(file).values
    site = {key: value for key, value in values["config"][KEY].items() if key != "images"}
    copy = folder / file.name
    copy.write_text(json.dumps({**values, "config": {**values["config"], KEY: site}}), encoding="utf-8")
    return copy


def _supplies(
    plans: Mapping[str, SitePlan], users: Mapping[str, list[str]], lock: ImageLock, project: Path
) -> Supplies:
    pins, helm, asking = versions.load(), Helm("helm", project), Asking()
    images, used_by = set(), dict[str, list[str]]()
    for image, names in users.items():
        reference = image_reference(lock.pinned(image) or image)
        images.add(reference)
        used_by[reference.tagged] = names
    charts = {
        packed.file: packed
        for plan in plans.values()
        for packed in sources_of(plan.site, helm, None, asking, pins).packed()
    }
    locked, unlocked = dict[tuple[str, str], Manifest](), set[tuple[str, str]]()
    for plan in plans.values():
        for revision in plan.revisions:
            for wanted in revision.weights.order.wanted if revision.weights else ():
                manifest = _manifest(wanted)
                key = (wanted.repository, wanted.revision)
                if manifest:
                    locked[key] = manifest
                else:
                    unlocked.add(key)
    nodes = [node for plan in plans.values() if plan.machines for node in plan.machines.nodes]
    return Supplies(
        sites=tuple(plans),
        images=tuple(sorted(images)),
        used_by=used_by,
        charts=tuple(packed for _, packed in sorted(charts.items())),
        packages=tuple(locked_packages(project)),
        weights=tuple(manifest for _, manifest in sorted(locked.items())),
        unlocked_weights=tuple(sorted(unlocked)),
        talos=pins.talos if nodes else None,
        extensions=tuple(sorted({name for node in nodes for name in node.schematic.extensions})),
        factory_images=tuple(_factory_images(plans, lock)),
    )


def _factory_images(plans: Mapping[str, SitePlan], lock: ImageLock) -> Iterator[FactoryImage]:
    """Each once, of all machines that have it."""
    machines = {site: plan.machines for site, plan in plans.items() if plan.machines}
    nodes = {
        (cluster.machines.image_factory, node.image): (cluster, node)
        for cluster in machines.values()
        for node in cluster.nodes
    }
    with_switches = {node.image for cluster in machines.values() for node in cluster.nodes if node.spec.role == "hgx"}
    users = defaultdict[tuple[str, str], list[str]](list)
    for site, cluster in machines.items():
        for node in cluster.nodes:
            users[cluster.machines.image_factory, node.image].append(f"{site}/{node.name}")
    for (factory, image), (cluster, node) in sorted(nodes.items(), key=lambda item: item[0]):
        yield FactoryImage(
            factory=factory,
            schematic=node.schematic,
            talos=cluster.versions.talos,
            nvswitch=image in with_switches,
            secure_boot=cluster.machines.secure_boot,
            installer=image_reference(lock.pinned(image) or image),
            machines=tuple(sorted(users[factory, image])),
        )


def _manifest(wanted: Wanted) -> Manifest | None:
    try:
        return wanted.manifest()
    except WeightsError as error:
        raise SitectlError(error.what, fix=error.fix, status=Exit.REFUSED) from None
