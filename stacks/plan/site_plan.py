"""The plan of a site: everything that follows from its file, computed once and used by everything else.

`plan_file` for a stack file, `plan_values` for values without one, `plan_site` for a site that is typed already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from components.models.weights import WeightsPlan
from floor.problems import Problem, site_error
from floor.stateful import Keeping
from stacks.facts import versions
from stacks.facts.image_lock import ImageLock, read_image_lock
from stacks.facts.versions import Versions
from stacks.plan import checks, gpu_faults
from stacks.plan.administrators import describe_administrators
from stacks.plan.cache_shares import without_place
from stacks.plan.canaries import describe_canaries, describe_dedicated
from stacks.plan.cluster import ClusterPlan, plan_machines
from stacks.plan.database import describe_database
from stacks.plan.disks import describe_storage, lacking
from stacks.plan.dns import describe_dns
from stacks.plan.engine_releases import uncompared_releases, wrong_releases
from stacks.plan.gateway_load import describe_gateway
from stacks.plan.guarantees import crowded_out, given_way, unproven
from stacks.plan.hub_revisions import engines_too_old
from stacks.plan.images import pinned_images, site_images, unlocked_images, untagged_repositories
from stacks.plan.infra_nodes import crowded_infra, crowded_without_one
from stacks.plan.limits import past_context
from stacks.plan.limits_text import describe_all_limits
from stacks.plan.logs import describe_logs
from stacks.plan.lost_usage import describe_lost_usage
from stacks.plan.machine_keys import site_problems
from stacks.plan.models import DoesNotFitError, ModelPlan, RevisionPlan, plan_model
from stacks.plan.monitoring import describe_grafana
from stacks.plan.node_disks import describe_node_weights, lacking_on_nodes, many_downloads
from stacks.plan.overflows import carrying_nothing, describe_overflows
from stacks.plan.placing import crowds, describe_placement, whole_nodes_of
from stacks.plan.scaling import describe_scaling, placed, short, unplaced
from stacks.plan.settings.gateway import LARGEST_BODY_KIB
from stacks.plan.take_overs import TakeOver, describe_take_overs, itself, not_carried, take_overs
from stacks.plan.tenants import TenantsPlan, plan_tenants
from stacks.plan.valid_part import ValidPart, valid_part, without_consequences
from stacks.plan.volume_nodes import crowded_servers
from stacks.plan.weight_places import describe_places
from stacks.plan.weights import Locks, lacking_locks, lacking_repositories, read_locks, unlocked
from stacks.proof.proof import Proof
from stacks.site.demand import OrderedModelSpec
from stacks.site.loader import ReadSite, read_site_file, read_values
from stacks.site.machines import NetworksSpec
from stacks.site.model import SiteConfig
from stacks.site.reading.origins import Origin, origins
from talos.documents.problems import ConfigError

LockKind = Literal["images", "weights"]

# Of a gateway without models, until it has one.
_LONGEST_STREAM_S = 60


@dataclass(frozen=True, kw_only=True)
class SitePlan:
    """A site that can work, with what was derived for it. Frozen and pure; program and commands work from it alone."""

    site: SiteConfig
    versions: Versions
    models: Mapping[str, ModelPlan]
    """By name, sorted; each has its revisions."""
    machines: ClusterPlan | None
    """None on a cluster that exists already."""
    image_lock: ImageLock | None = None
    """Images that may run; None where the site locks none."""
    file: str = ""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Where each value comes from, by dotted path; see `stacks.site.reading.origins`."""
    warnings: tuple[Problem, ...] = ()
    """What works, and is not wise; each has its line."""
    taken: tuple[TakeOver, ...] = ()
    """What becomes here of the requests of sites that it takes over."""

    @property
    def revisions(self) -> list[RevisionPlan]:
        """Every revision of every model, by the models' names."""
        return [revision for model in self.models.values() for revision in model.revisions.values()]

    @cached_property
    def named(self) -> Mapping[str, RevisionPlan]:
        """Every revision by its own name, which the stable one has from its model."""
        return {revision.name: revision for revision in self.revisions}

    def filled_by(self, revision: RevisionPlan) -> RevisionPlan:
        """The revision whose weights its replicas mount: itself, or of dedicated ones the stable one of their model."""
        return self.models[revision.model].stable if revision.id.group else revision

    @property
    def specs(self) -> dict[str, OrderedModelSpec]:
        """What the site sets for each revision, by its name."""
        return {name: revision.spec for name, revision in self.named.items()}

    @property
    def proofs(self) -> dict[str, Proof]:
        """The proof of each revision, by its name."""
        return {name: revision.proof for name, revision in self.named.items()}

    @cached_property
    def tenants(self) -> TenantsPlan:
        """Who may call what."""
        return plan_tenants(self.site, self.models)

    @cached_property
    def placed(self) -> Mapping[str, Proof]:
        """The proofs by name with the replicas that have room at once: of models that scale their most, or least."""
        return placed(self.site, self.proofs, self.specs)

    @cached_property
    def placement_text(self) -> str:
        """Where all replicas find room, as text for people; empty without models."""
        return describe_placement(self.site, self.placed, self.specs)

    @property
    def stores(self) -> dict[str, WeightsPlan]:
        """The weights of each revision that has a Job for them, by its name."""
        return {name: revision.weights for name, revision in self.named.items() if revision.weights}

    @property
    def weight_bytes(self) -> dict[str, float]:
        """Bytes of each revision's weights, which its volume is for, by its name; none on nodes' own disks."""
        if self.site.storage.weights.place == "nodes":
            return {}
        return {
            name: revision.weights.volume_bytes if revision.weights else revision.server.weight_bytes
            for name, revision in self.named.items()
            if not revision.id.group
        }

    @cached_property
    def storage_text(self) -> str:
        """Where all weights find room, and where they are better kept, as text for people; empty without weights."""
        nodes = self.site.storage.weights.place == "nodes"
        text = describe_node_weights(self.site, self.stores) if nodes else ""
        text = text or describe_storage(self.site, self.weight_bytes)
        # A simulator reads nothing.
        engines = {revision.name for revision in self.revisions if revision.spec.server.engine == "vllm"}
        reading = {name: proof for name, proof in self.proofs.items() if name in self.stores and name in engines}
        stored = sum(store.volume_bytes for store in self.stores.values())
        # Of a storage system of others, what a lost node costs is not known.
        return "\n".join([text, *describe_places(self.site, reading, stored)]) if text else ""

    @property
    def texts(self) -> list[str]:
        """Blocks of text: each revision, their room on nodes and disks, and what the site's choices lead to."""
        ends = [
            describe_gateway(self.site, self.models),
            describe_take_overs(self.taken),
            self.scaling_text,
            describe_canaries(self.models),
            describe_dedicated(self.models),
            describe_overflows(self.site, self.models),
            self.limits_text,
            describe_lost_usage(self.site, self.models),
            self.gpu_faults_text,
            describe_database(self.site),
            describe_dns(self.site),
            describe_grafana(self.site),
            describe_logs(self.site),
            describe_administrators(self.site.cluster.machines),
        ]
        return [*(revision.text() for revision in self.revisions), *self.rooms, *filter(None, ends)]

    @cached_property
    def scaling_text(self) -> str:
        """What models that scale can reach, as text for people; empty without any."""
        return describe_scaling(self.site, self.proofs, self.specs)

    @cached_property
    def gpu_faults_text(self) -> str:
        """What is done about a node with a faulty GPU, as text for people; empty where alerts are all."""
        return gpu_faults.describe_gpu_faults(self.site, self.placed, self.specs)

    @cached_property
    def limits_text(self) -> str:
        """What tenants may take by their limits, and what they are guaranteed, as text; empty without either."""
        return describe_all_limits(self.site, self.models)

    @property
    def rooms(self) -> list[str]:
        """Where everything finds room on the site's nodes and disks, as text for people."""
        return [text for text in (self.placement_text, self.storage_text) if text]

    @property
    def longest_stream_s(self) -> int:
        """Seconds that the gateway lets streams run: its own setting, and no less than any of its models."""
        given = [
            self.site.gateway.longest_stream_s,
            *(revision.spec.server.longest_stream_s for revision in self.revisions),
        ]
        return max((seconds for seconds in given if seconds is not None), default=_LONGEST_STREAM_S)

    @property
    def body_kib(self) -> int:
        """Largest request body at the gateway: the site's own value, or what the largest context can need."""
        if self.site.gateway.max_body_mib is not None:
            return min(self.site.gateway.max_body_mib * 1024, LARGEST_BODY_KIB)
        needed = [revision.settings["gateway_body_kib"].whole for revision in self.revisions]
        return max(needed, default=LARGEST_BODY_KIB)

    @property
    def load_s(self) -> dict[str, float]:
        """Seconds in which all replicas of a revision that start at once read its weights, by its name."""
        return {name: proof.cold_start["read_weights_together"].value for name, proof in self.proofs.items()}

    @cached_property
    def images(self) -> dict[str, list[str]]:
        """Every container image that the site runs, and what of it does: by name and tag, with its locked digest."""
        return site_images(self.site, self.versions.images, self.models, self.machines)

    @property
    def locked_images(self) -> list[str] | None:
        """Images that may run, by tag and digest; None where the site locks none."""
        return None if self.image_lock is None else [str(image) for image in self.image_lock.images]

    @property
    def proxy_image(self) -> str | None:
        """Envoy by its locked digest; None where Envoy Gateway's own default decides."""
        own = self.image_lock is not None and self.site.gateway.controllers == "chart"
        return self.versions.images.envoy if own else None

    @property
    def asked_factory(self) -> str | None:
        """Image factory that the program asks for the machines' images.

        None on a cluster that exists already, and where images are locked: a factory built each installer that the
        lock has a digest of.
        """
        return self.machines.machines.image_factory if self.machines and self.image_lock is None else None

    @property
    def dns_domain(self) -> str:
        """Domain of the cluster's Services; the usual one of a cluster that exists already."""
        machines = self.site.cluster.machines
        return machines.networks.dns_domain if machines else str(NetworksSpec.model_fields["dns_domain"].default)

    @property
    def machine_secrets(self) -> Keeping | None:
        """Whether the secrets of the site's machines may go; None on a cluster that exists already."""
        return self.site.cluster.machines.secrets if self.site.cluster.machines else None

    @property
    def pepper(self) -> Keeping | None:
        """Whether the pepper of the directory of keys may go; None on a site without one."""
        return self.site.callers.pepper if self.site.has_directory else None

    @property
    def replaced_registries(self) -> dict[str, tuple[str, ...]]:
        """Registries that the machines' own mirrors replace, without a fallback to them: endpoints by name."""
        machines = self.site.cluster.machines
        mirrors = machines.registries.mirrors if machines and machines.registries else {}
        return {name: mirror.endpoints for name, mirror in mirrors.items() if mirror.skip_fallback}


def plan_file(path: Path, *, without: Collection[LockKind] = ()) -> SitePlan:
    """The plan of one stack file. Raises SiteError with every problem of the file, its models and its machines.

    without: locks that the site need not have yet, for a command that writes them.
    """
    return plan_read(read_site_file(path), without=without)


def plan_values(values: Mapping[str, Any], file: str, *, beside: Path | None = None) -> SitePlan:
    """The plan of the site that `values` describe; `file` is the one to name in errors. Raises SiteError.

    beside: path of the future file, to compare the site with those in its folder.
    """
    return plan_read(read_values(values, file, beside=beside))


def plan_read(read: ReadSite, project: Path | None = None, *, without: Collection[LockKind] = ()) -> SitePlan:
    """The plan of a site that was read. Raises SiteError with its problems and those of its plan, all at once.

    project: the folder with the locks, where it is not that of the site's file. without: as in `plan_file`.
    """
    if read.site is None:
        raise read.error()
    valid = valid_part(read.site, [problem.path for problem in read.problems])
    sources = origins(valid.site, read.document, read.file)
    folder = project or Path(read.file).parent
    images = read_image_lock(folder) if valid.site.images.locked and "images" not in without else None
    plan, refused = _plan(valid, versions.load(), sources, read.values, read_locks(folder), images)
    if "weights" not in without:
        refused += lacking_locks(plan.stores, plan.site.name)
    refused += lacking_repositories(plan.stores)
    refused = without_consequences(refused, read.problems)
    if read.problems or refused:
        raise read.error(refused)
    taken = tuple(take_overs(plan.site, plan.models, folder))
    warnings = read.warnings([*plan.warnings, *not_carried(taken)])
    return replace(plan, site=read.site, file=read.file, origins=sources, warnings=warnings, taken=taken)


def plan_site(site: SiteConfig, pins: Versions | None = None) -> SitePlan:
    """The plan of a site that is typed already; `pins`: instead of the checkout's. Raises SiteError."""
    valid = ValidPart(site=site, whole=True)
    plan, refused = _plan(valid, pins or versions.load(), {}, site.model_dump(mode="json", exclude_unset=True), {})
    if refused:
        raise site_error(site.name, refused)
    return plan


def _plan(
    valid: ValidPart,
    pins: Versions,
    sources: Mapping[str, Origin],
    values: Mapping[str, Any],
    locks: Locks,
    images: ImageLock | None = None,
) -> tuple[SitePlan, list[Problem]]:
    """The plan of what is valid, and what is wrong with it."""
    site, problems = valid.site, list[Problem]()
    if images is not None:
        pins = pins.model_copy(update={"images": pinned_images(pins.images, images)})
    models: dict[str, ModelPlan] = {}
    for name in sorted(site.models):
        try:
            models[name] = plan_model(site, name, pins.images, locks, images)
        except DoesNotFitError as error:
            problems += error.problems
    plan = SitePlan(site=site, versions=pins, models=models, machines=None, image_lock=images)
    for revision in plan.revisions:
        problems += checks.cut_answers(revision)
        problems += checks.endless_starts(revision, site)
    problems += checks.across_processors(site, plan.proofs)
    problems += [*past_context(site, models), *without_place(site, models), *itself(site)]
    problems += unproven(site, models, lambda name, proof: not [*crowds(site, {**plan.placed, name: proof})])
    # If one model does not fit by itself, the room that it needs on the nodes is unknown.
    whole = frozenset[str]()
    if valid.whole and len(models) == len(site.models):
        whole = whole_nodes_of(site, plan.placed)
        problems += unplaced(site, plan.proofs, plan.specs)
        problems += gpu_faults.problems(site, plan.placed, plan.specs)
        problems += crowded_infra(site)
        problems += crowded_servers(site)
        problems += lacking(site, plan.weight_bytes)
        if site.storage.weights.place == "nodes":
            problems += lacking_on_nodes(site, plan.stores)
    if site.cluster.machines is not None:
        machines, in_configs = plan_machines(
            site.name,
            site.cluster.machines,
            pins,
            whole,
            measured=site.measures_hosts,
            pod_network_measured=site.measures_pod_network,
        )
        plan = replace(plan, machines=machines)
        problems += site_problems(in_configs, values)
    if images is not None:
        problems += _unlocked(plan, images)
    problems += checks.incompatible(site, pins, sources)
    problems += wrong_releases(site, pins)
    problems += engines_too_old(site, pins)
    return plan if problems else replace(plan, warnings=tuple(_warnings(plan, whole=valid.whole))), problems


def _unlocked(plan: SitePlan, lock: ImageLock) -> Iterator[Problem]:
    try:
        yield from unlocked_images(plan.images, untagged_repositories(plan.site, plan.versions), lock, plan.site.name)
    except ConfigError as error:
        yield Problem(path=("images", "locked"), what=error.what, fix=error.fix)


def _warnings(plan: SitePlan, *, whole: bool) -> Iterator[Problem]:
    """What hangs on a speed that is known between two bounds, and on what a source of weights states."""
    for revision in plan.revisions:

        def has_room(proof: Proof, name: str = revision.name) -> bool:
            return not [*crowds(plan.site, {**plan.placed, name: proof})]

        yield from checks.uncertain(revision, has_room)
        yield from checks.may_cut_answers(revision)
    yield from [*uncompared_releases(plan.site, plan.versions), *checks.outdated_calibrations(plan.models.values())]
    yield from crowded_out(plan.site, plan.models)
    yield from given_way(plan.site)
    yield from many_downloads(plan.site, plan.stores)
    # Dead nodes refuse no site, and `up` waits for replicas that find no other.
    if whole:
        yield from unplaced(plan.site, plan.proofs, plan.specs, dead=False)
        yield from short(plan.site, plan.proofs, plan.specs)
        yield from carrying_nothing(plan.site, plan.models)
    yield from crowded_without_one(plan.site)
    if plan.site.purpose == "production":
        yield from unlocked(plan.stores, plan.site.name)
