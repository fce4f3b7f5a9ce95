"""The plan of a model's weights: which commits, by which locks, in a volume of which size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from components.models.weights import CA_KEY, HEADROOM, WeightsPlan, egress
from components.specs.weights import DRAFT, SERVED, WeightsSpec, adapter_role
from floor.images import is_repository
from floor.model_hub import HUB
from floor.problems import Problem, shown
from floor.revision_ids import RevisionId
from services.weights import variables
from services.weights.failure import WeightsError
from services.weights.manifest import file_name, parse
from services.weights.order import Wanted, WeightsOrder
from stacks.plan.hub_revisions import served_revision
from stacks.proof.adapters import adapter_files
from stacks.proof.order import Order
from stacks.site.demand import OrderedModelSpec

# What serves locked models alone: what it does not state.
_LACKS = {"bucket": "a bucket lists no files of a commit", "oci": "a registry has files by their sha256 alone"}
LOCKS = "weights"
"""Folder of a project's locks, beside its sites."""
# One stream from a store is often slower than a link; hashing takes a core for each 1 to 2 GB/s.
_PARALLEL = 4

Locks = Mapping[str, str]
"""Text of each lock by the name of its file."""
NO_LOCKS: Locks = MappingProxyType({})


def read_locks(project: Path) -> Locks:
    """The locks of a project; none without the folder."""
    files = sorted((project / LOCKS).glob("*.sha256"))
    return {file.name: file.read_text(encoding="utf-8", errors="replace") for file in files}


def wanted_of(spec: OrderedModelSpec, locks: Locks) -> dict[str, Wanted]:
    """The model, the smaller one that drafts for it, and its adapters, by role."""
    pairs = {SERVED: (spec.entry.repository, served_revision(spec))}
    if draft := spec.draft:
        pairs[DRAFT] = (draft.repository, draft.revision)
    pairs |= {
        adapter_role(name): (adapter.repository, adapter.revision) for name, adapter in sorted(spec.adapters.items())
    }
    return {role: Wanted(*pair, locks.get(file_name(*pair), "")) for role, pair in pairs.items()}


def volume_files(order: Order) -> float:
    """Bytes of files that a model's volume is made for.

    A claim never shrinks, so that adapters which fit beside the rest do not make it larger: it would stay so without
    them, and no `up` could take them out.
    """
    adapters = adapter_files(order.model, order.adapters)
    others = order.file_bytes - adapters
    return others if adapters <= others * (HEADROOM - 1) / 2 else others + adapters


def brings(spec: OrderedModelSpec, source: WeightsSpec) -> bool:
    """Whether the model's servers read weights, so that a Job has to bring them."""
    return spec.server.engine == "vllm" or source.simulated == "bring"


def plan_weights(
    name: str,
    spec: OrderedModelSpec,
    source: WeightsSpec,
    locks: Locks,
    *,
    image: str,
    namespace: str,
    storage_class: str,
    file_bytes: float,
    budget_s: int,
) -> WeightsPlan | None:
    """None for a model without weights. file_bytes: of one revision by the catalogue."""
    if not brings(spec, source):
        return None
    on_nodes = source.place == "nodes"
    secret, keys = source.secret, variables.keys_of(source.source)
    called = "keys" if len(keys) > 1 else "key"
    wanted = wanted_of(spec, locks)
    manifests = [entry.manifest() for entry in wanted.values()]
    locked = sum(manifest.size for manifest in manifests if manifest)
    # A claim that exists cannot shrink, nor grow on every class: a lock changes it only where it would not fit.
    fits = not all(manifests) or locked <= file_bytes * HEADROOM
    return WeightsPlan(
        order=WeightsOrder(
            model=name,
            source=source.source,
            endpoint=(source.address or HUB).rstrip("/"),
            bytes_per_s=source.download_bytes_per_s,
            parallel=_PARALLEL,
            # On nodes' own disks earlier ones go before a new one comes, and one of them is still served then.
            keep=(source.revisions if on_nodes else max(source.revisions - 1, 1)) * len(wanted),
            token_from=f"Secret {namespace}/{secret}, {called} {' and '.join(keys)}" if secret else "",
            wanted=tuple(wanted.values()),
            ca_from=f"ConfigMap {namespace}/{source.ca_config_map}, key {CA_KEY}" if source.ca_config_map else "",
            region=source.bucket.region if source.bucket else "",
        ),
        roles=tuple(wanted),
        image=image,
        storage_class=storage_class,
        volume_bytes=(file_bytes if fits else locked) * source.revisions,
        budget_s=budget_s,
        token_secret=secret or "",
        ca_config_map=source.ca_config_map or "",
        egress=egress(source),
        node_path=source.node_path if on_nodes else "",
    )


def broken_locks(name: str, spec: OrderedModelSpec, source: WeightsSpec, locks: Locks) -> Iterator[Problem]:
    """Locks of the model that cannot be read, or are of another revision than their names."""
    for entry in wanted_of(spec, locks).values() if brings(spec, source) else ():
        file = file_name(entry.repository, entry.revision)
        try:
            if entry.lock:
                parse(entry.lock, file)
                entry.manifest()
        except WeightsError as error:
            yield Problem(path=RevisionId.of(name).path, what=f"{LOCKS}/{error.what}", fix=error.fix)


def without_safetensors(name: str, spec: OrderedModelSpec, source: WeightsSpec, locks: Locks) -> Iterator[Problem]:
    """Files that vLLM's streamer does not read; it ends where it finds no others. Of locks that can be read."""
    server = spec.server
    if server.loading != "streamer" or not brings(spec, source):
        return
    entries = {SERVED: spec.entry, **({DRAFT: spec.draft} if spec.draft else {})}
    for role, wanted in wanted_of(spec, locks).items():
        if (entry := entries.get(role)) is None:
            # vLLM reads adapters by themselves (lora/lora_model.py).
            continue
        manifest = wanted.manifest()
        # Another commit than the entry's may have another form.
        streamed = entry.file_form == "safetensors" or wanted.revision != entry.revision
        if manifest:
            streamed = any(path.endswith(".safetensors") for path in manifest.files)
        if not streamed:
            yield Problem(
                path=(*RevisionId.of(name).path, "server", "loading"),
                what=f"{wanted.repository} has no safetensors at {wanted.revision[:8]}, and the streamer reads nothing "
                "else: its engine would end at its start",
                got=shown(server.loading),
                allowed="default, lazy, eager, prefetch",
                fix="write default",
            )


def _lock(site: str) -> str:
    return f"python -m sitectl weights lock {site}, on a machine that reaches the hub; then commit the folder {LOCKS}"


def lacking_locks(models: Mapping[str, WeightsPlan], site: str) -> Iterator[Problem]:
    """Models whose files a bucket or registry has: it does not state what a revision consists of."""
    for name, plan in models.items():
        lacks = _LACKS.get(plan.order.source)
        lacking = [entry for entry in plan.order.wanted if not entry.lock]
        if lacks and lacking:
            # As the draft's alone may be missing. Of a whole commit, errors hide the digits.
            commits = " and ".join(f"{entry.repository} at {entry.revision[:8]}" for entry in lacking)
            yield Problem(
                path=RevisionId.of(name).path,
                what=f"has no lock of {commits}, and {lacks}",
                fix=_lock(site),
            )


def lacking_repositories(models: Mapping[str, WeightsPlan]) -> Iterator[Problem]:
    """Models whose files a registry should have, and whose repository can have no name there."""
    for name, plan in models.items():
        for entry in plan.order.wanted if plan.order.source == "oci" else ():
            if not is_repository(entry.repository.lower()):
                yield Problem(
                    path=RevisionId.of(name).path,
                    what=f"has the repository {entry.repository}, and no registry can have that name in lower-case "
                    "letters",
                    allowed="letters, digits, and between them a dot, one or two underscores, or dashes",
                    fix="take another source of weights, such as bucket or mirror, as storage.weights.source",
                )


def _is_locked(plan: WeightsPlan) -> bool:
    return all(entry.lock for entry in plan.order.wanted)


def unlocked(models: Mapping[str, WeightsPlan], site: str) -> Iterator[Problem]:
    """Models of a production site whose files are what the source states them to be."""
    names = [name for name, plan in models.items() if plan.order.source not in _LACKS and not _is_locked(plan)]
    if names:
        yield Problem(
            path=("storage", "weights"),
            what=f"no lock lists the files of {', '.join(names)}, so their source alone decides what is served",
            fix=_lock(site),
        )
