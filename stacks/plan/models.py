"""The plan of one model: its revisions, each with its proof and the settings, server, picker and engine of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from components.models.engines import Engine, simulator_engine, vllm_engine
from components.models.weights import WeightsPlan
from components.specs.inference_pool import PickerPlan
from components.specs.model_server import (
    FirstTokens,
    LayoutSpec,
    ModelServerPlan,
    ModelServerSpec,
    ScalingPlan,
    ZeroPlan,
    pod_priority,
)
from floor import namespaces
from floor.problems import Path, Problem, shown
from floor.revision_ids import RevisionId
from stacks.facts import versions
from stacks.facts.image_lock import ImageLock
from stacks.facts.versions import Images
from stacks.plan.adapters import adapter_modules, unadaptable
from stacks.plan.block import block
from stacks.plan.engine_releases import with_release
from stacks.plan.optimisations import refused, speculative_config, unstreamable
from stacks.plan.orders import order_of, serving_of
from stacks.plan.picking import picker_plan
from stacks.plan.placing import takes_whole_nodes
from stacks.plan.settings.definition import Setting
from stacks.plan.settings.registry import broken_overrides, derive
from stacks.plan.settings.scaling import first_answer_s, first_token_target
from stacks.plan.settings.start import PROBE_PERIOD_S
from stacks.plan.tenant_caches import Apart, proven
from stacks.plan.weights import NO_LOCKS, Locks, broken_locks, plan_weights, volume_files, without_safetensors
from stacks.proof import several_nodes
from stacks.proof.cache import BLOCK_TOKENS
from stacks.proof.demand import Load, Slo
from stacks.proof.disaggregation import one_is_enough
from stacks.proof.fixes import nearest, out_of_reach, tried
from stacks.proof.layouts import allowed, refusals
from stacks.proof.proof import Proof, prove
from stacks.proof.serving import REQUEST_OVERHEAD_S
from stacks.proof.split_verdict import SplitVerdict, compare
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig

MODELS_NAMESPACE = namespaces.MODELS


class DoesNotFitError(Exception):
    """A model cannot work on the GPUs that it gets, or not within its targets. `problems` are at the site's keys."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.text("") for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, kw_only=True)
class RevisionPlan:
    """One revision of a model: a catalogue entry with the settings of its servers, planned once."""

    id: RevisionId
    spec: OrderedModelSpec
    """What the site sets for this revision."""
    proof: Proof
    """It does not fail: it holds, or it is uncertain."""
    apart: Apart | None
    """Prompt caches that its tenants have of their own, where they have prefixes in common."""
    settings: Mapping[str, Setting]
    """Every setting that follows from the proof, by name."""
    server: ModelServerPlan
    picker: PickerPlan
    engine: Engine
    weights: WeightsPlan | None
    """None for a simulator that has none, and for dedicated replicas, which mount those of the stable revision."""

    @property
    def digest(self) -> str:
        """Of what its answers depend on."""
        return self.spec.digest

    @property
    def model(self) -> str:
        """The name that it serves."""
        return self.id.model

    @property
    def name(self) -> str:
        """Of its objects, and of what the plan has of it."""
        return self.id.name

    @property
    def ranks(self) -> bool:
        """Whether it ranks documents."""
        return self.proof.order.model.task == "rerank"

    @property
    def parallel_requests(self) -> int:
        """Requests for the model that one Envoy pod may have under way at once."""
        return self.settings["gateway_parallel_requests"].whole

    @cached_property
    def better(self) -> Proof:
        """The same order with more freedom in its layout. It may not hold."""
        order = self.proof.order
        gpus = self.proof.case.layout.gpus if order.nodes > 1 else order.gpus
        return prove(replace(order, simple=False, layout=None, gpus=gpus), known=self.proof)

    @cached_property
    def split(self) -> SplitVerdict | None:
        """Prompts and answers on replicas of their own, as an estimate beside the proof; None where none is better."""
        return None if one_is_enough(self.proof.order) else compare(self.proof.order)

    def text(self) -> str:
        """The proof as text for people, with the layout that would do better."""
        answer = self.settings.get("gateway_max_tokens")
        most = answer.whole if answer and self.spec.server.engine == "vllm" else None
        apart = self.apart.text(self.proof) if self.apart else ""
        return block(self.proof, better=self.better, split=self.split, most_answer=most, apart=apart)


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """A model on a site: the name that clients ask for, and the revisions that serve it."""

    name: str
    revisions: Mapping[RevisionId, RevisionPlan]
    """The stable one, which every model has, a canary, which serves a share of the model's sessions, and dedicated
    replicas, which serve some tenants."""

    @property
    def stable(self) -> RevisionPlan:
        """The revision that serves the model's name."""
        return self.revisions[RevisionId(self.name)]

    @property
    def canary(self) -> RevisionPlan | None:
        """The revision that serves a share of its sessions; None without one."""
        return next((revision for revision in self.revisions.values() if revision.id.digest), None)

    @property
    def dedicated(self) -> dict[str, RevisionPlan]:
        """Tenant -> its dedicated replicas, of the tenants that have some."""
        return {
            tenant: revision
            for revision in self.revisions.values()
            if revision.id.group
            for tenant in self.stable.spec.dedicated[revision.id.group].tenants
        }

    def serving(self, tenant: str) -> list[RevisionPlan]:
        """The revisions that may answer a tenant."""
        own = self.dedicated.get(tenant)
        if own is None:
            return [revision for revision in self.revisions.values() if not revision.id.group]
        shared = self.stable.spec.dedicated[own.id.group].when_away == "shared"
        return [own, *([self.stable] if shared else [])]

    @property
    def served_names(self) -> tuple[str, ...]:
        """The names that clients may ask for, its own first."""
        return (self.name, *self.stable.spec.aliases)


def declared_loads(models: Mapping[str, ModelPlan]) -> list[tuple[RevisionPlan, Load]]:
    """Revisions that declare a load, with it; no canary, whose requests are some of the stable one's load."""
    revisions = [revision for model in models.values() for revision in model.revisions.values()]
    return [(plan, load) for plan in revisions if not plan.id.digest and (load := plan.proof.order.load)]


def plan_model(
    site: SiteConfig, name: str, images: Images, locks: Locks = NO_LOCKS, image_lock: ImageLock | None = None
) -> ModelPlan:
    """Plan each revision of a model. Raises DoesNotFitError with the nearest fixes, of all its revisions."""
    problems: list[Problem] = []
    revisions: dict[RevisionId, RevisionPlan] = {}
    for revision, spec in site.models[name].revisions(name):
        if revision.group and problems:
            # What is wrong with the model is not wrong again with those that are like it.
            continue
        try:
            revisions[revision] = plan_revision(site, revision, spec, images, locks, image_lock)
        except DoesNotFitError as error:
            problems += error.problems
    if problems:
        raise DoesNotFitError(problems)
    return ModelPlan(name=name, revisions=revisions)


def plan_revision(
    site: SiteConfig,
    revision: RevisionId,
    spec: OrderedModelSpec,
    images: Images,
    locks: Locks = NO_LOCKS,
    image_lock: ImageLock | None = None,
) -> RevisionPlan:
    """Prove a revision of a model on this site's GPUs, its overrides included. Raises DoesNotFitError."""
    name, served_by = revision.model, with_release(images, spec.server.engine_release, image_lock)
    adapters = unadaptable((*revision.path, "adapters"), spec.adapters, spec.entry)
    if unable := [*refused((*revision.path, "server"), spec.server, spec.entry, site.cluster.gpu), *adapters]:
        raise DoesNotFitError(unable)
    order, serving = order_of(site, revision.name, spec, versions.minor_of(served_by.vllm)), serving_of(spec)
    proof, apart = proven(site, revision, order)
    unable = [*unstreamable((*revision.path, "server"), spec.server, spec.entry, proof.case.layout)]
    if problems := [*_misfits(revision, spec, proof)] or [*unable, *broken_overrides(proof, serving)]:
        raise DoesNotFitError(problems)
    of_locks = (revision.name, spec, site.storage.weights, locks)
    if not revision.group and (broken := [*broken_locks(*of_locks)] or [*without_safetensors(*of_locks)]):
        raise DoesNotFitError(broken)
    settings = derive(proof, serving)
    server = _server(spec.server, proof, settings, by_priority=bool(site.tiers) and site.has_gatekeeper)
    return RevisionPlan(
        id=revision,
        spec=spec,
        proof=proof,
        apart=apart,
        settings=settings,
        server=server,
        picker=picker_plan(proof.case, spec.pool, server, settings, {tier.priority for tier in site.tiers.values()}),
        engine=engine_of(name, spec, proof, server, served_by),
        weights=None
        if revision.group
        else plan_weights(
            revision.name,
            spec,
            site.storage.weights,
            locks,
            image=images.vllm,
            namespace=MODELS_NAMESPACE,
            storage_class=site.storage.storage_class,
            file_bytes=server.weight_bytes,
            budget_s=settings["download_budget_s"].whole,
        ),
    )


def _misfits(revision: RevisionId, spec: OrderedModelSpec, proof: Proof) -> Iterator[Problem]:
    """Nothing for a proof that does not fail; else one problem, or one for each size of a layout that cannot be."""
    if proof.verdict != "fails":
        return
    case = proof.case
    model, hardware, layout = case.order.model, case.order.hardware, case.layout
    path: Path = (*revision.path, "server", "replicas" if revision.group else _key_of_size(spec))
    steps = nearest(proof)
    if revision.group:
        # Another size is a key of the model, whose own replicas it would change, too.
        steps = [step for step in steps if step.proof.case.layout == layout] or steps
    fix = "; or ".join(step.text for step in steps) or tried(proof)
    sizes = {refusal.key: refusal for refusal in reversed([*refusals(model, layout)] if spec.server.layout else [])}
    for refusal in reversed(sizes.values()):
        yield Problem(
            path=(*path, refusal.key),
            what=f"{model.repository}: {refusal.why}",
            got=shown(getattr(layout, refusal.key)),
            allowed=", ".join(allowed(model, hardware, layout, refusal.key)),
            fix=fix,
        )
    if not sizes:
        verdict = "does not fit" if case.fit_problems else "does not keep its targets"
        texts = [*(doubt.text for doubt in proof.ends.doubts), out_of_reach(proof), several_nodes.words(proof)]
        texts += [] if case.fit_problems else [_split(proof)]
        reasons = "; ".join(filter(None, texts))
        missed = [doubt.target.key for doubt in proof.ends.doubts if doubt.target]
        # The others have their model's targets.
        if missed and not case.fit_problems and revision == RevisionId(revision.model):
            path = (*revision.path, "slo", missed[0])
        yield Problem(path=path, what=f"{model.repository} {verdict}: {reasons}", fix=fix)


def _key_of_size(spec: OrderedModelSpec) -> str:
    if spec.server.layout:
        return "layout"
    return "nodes" if spec.server.nodes > 1 else "gpus"


def _split(proof: Proof) -> str:
    """The split that holds where no joint layout of this GPU does, in words; empty otherwise."""
    verdict = compare(proof.order)
    if verdict is None or not verdict.joint.problems or verdict.split is None:
        return ""
    return f"a split of prefill and decode, {verdict.line} [estimated], and the platform does not deploy it"


def _server(
    spec: ModelServerSpec, proof: Proof, settings: Mapping[str, Setting], *, by_priority: bool
) -> ModelServerPlan:
    # A field that is called as a setting has its value, save that a replica has the requests of all its ranks.
    same: dict[str, Any] = {
        field.name: settings[field.name].value for field in fields(ModelServerPlan) if field.name in settings
    }
    case, speed = proof.case, proof.speed
    alone, full = case.token_s(1), case.token_s(case.slots)
    same["max_num_seqs"] *= case.layout.data
    return ModelServerPlan(
        **same,
        layout=LayoutSpec(**asdict(case.layout)),
        weight_bytes=volume_files(proof.order),
        long_prefill_token_threshold=proof.order.prompt_step_tokens,
        max_answer_tokens=settings["gateway_max_tokens"].whole if "gateway_max_tokens" in settings else None,
        max_unavailable=settings["disruption_max_unavailable"].whole,
        whole_nodes=takes_whole_nodes(proof),
        by_priority=by_priority,
        priority=pod_priority(spec, whole_nodes=takes_whole_nodes(proof)),
        block_tokens=BLOCK_TOKENS,
        prefill_s_per_token=speed["prefill_per_token"].value / 1e6,
        prefill_overhead_s=REQUEST_OVERHEAD_S,
        decode_s_per_token=alone,
        decode_slowdown_when_full=max(1.0, full / alone),
        nodes=spec.nodes,
        load_s=proof.cold_start["read_weights"].value,
        startup_probe_period_s=PROBE_PERIOD_S,
        scaling=_scaling(spec, settings, proof.order.slo, first_answer_s(proof)),
    )


def _zero(settings: Mapping[str, Setting], start_s: int) -> ZeroPlan:
    return ZeroPlan(
        cooldown_s=settings["autoscale_cooldown_s"].whole,
        start_s=start_s,
        retry_after_s=settings["starting_retry_after_s"].whole,
    )


def _scaling(spec: ModelServerSpec, settings: Mapping[str, Setting], slo: Slo, start_s: int) -> ScalingPlan | None:
    if spec.scaling is None:
        return None
    target = first_token_target(slo)
    return ScalingPlan(
        least=spec.scaling.least,
        most=spec.replicas,
        peaks=spec.scaling.peaks,
        requests=settings["autoscale_requests"].whole,
        kv_share=settings["autoscale_kv_share"].number,
        first_token=None
        if target is None
        else FirstTokens(share=target.share, seconds=settings["autoscale_ttft_s"].number),
        window_s=settings["autoscale_window_s"].whole,
        zero=_zero(settings, start_s) if spec.scaling.least == 0 else None,
    )


def engine_of(name: str, spec: OrderedModelSpec, proof: Proof, plan: ModelServerPlan, images: Images) -> Engine:
    """The engine that the site names for this model."""
    model, adapters = spec.entry, proof.order.adapters
    names = (name, *spec.aliases)
    loaded, places = adapter_modules(spec.adapters), adapters.slots if adapters else 0
    if spec.server.engine == "simulator":
        return simulator_engine(
            spec.server,
            plan,
            image=images.simulator,
            repository=model.repository,
            served_names=names,
            adapters=loaded,
            adapter_places=places,
        )
    return vllm_engine(
        spec.server,
        plan,
        image=images.vllm,
        repository=model.repository,
        served_names=names,
        flags=model.engine_flags,
        generates=model.task == "generate",
        remote_code=model.remote_code is not None,
        speculative=speculative_config(spec.server.speculative),
        adapters=loaded,
        adapter_places=places,
        adapter_rank=adapters.rank if adapters else 0,
        adapted_modules=sorted(adapters.modules) if adapters else (),
    )
