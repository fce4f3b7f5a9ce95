"""What a site needs and the program does not make: Secrets, own images, and the parts that are `external`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.models.weights import CA_KEY
from floor import namespaces
from stacks.facts.own_images import is_built_here, service_of
from stacks.plan.site_plan import SitePlan
from stacks.site.loader import PROJECT
from stacks.site.secret_references import secret_references


def by_hand(plan: SitePlan) -> list[str]:
    """A line for each: what the stack's configuration lacks, parts of the cluster, then objects with their keys."""
    names = plan.machines.secret_names if plan.machines else ()
    stack = [f"pulumi config set --secret {PROJECT}:{name}" for name in names]
    return [*stack, *_hosts(plan), *_images(plan), *_parts(plan), *_objects(plan)]


def _hosts(plan: SitePlan) -> Iterator[str]:
    """Names that a site kept of the one that it was copied from: no DNS has one that ends so (RFC 2606)."""
    left = set(re.findall(r"[a-z0-9.-]+\.example(?![\w.-])", plan.site.model_dump_json()))
    if left:
        yield f"hosts of your own in the place of {', '.join(sorted(left))}"


def _images(plan: SitePlan) -> Iterator[str]:
    # One with a digest is in the lock, so it was built.
    unbuilt = sorted(service_of(image) for image in plan.images if is_built_here(image) and "@" not in image)
    if unbuilt:
        yield f"images of own services: {', '.join(unbuilt)} (sitectl bundle services)"


def _parts(plan: SitePlan) -> Iterator[str]:
    site = plan.site
    machines, weights = site.cluster.machines, site.storage.weights
    if machines and machines.cni == "external":
        yield "a pod network that enforces NetworkPolicies (cluster.machines.cni)"
    if site.cluster.gpu_stack == "external" and any(model.server.engine == "vllm" for _, model in site.revisions):
        yield "what makes Kubernetes offer the GPUs (cluster.gpu_stack)"
    if site.storage.system == "external" and plan.stores and weights.place == "shared":
        yield f"the storage class {site.storage.storage_class}, with ReadWriteMany (storage.system)"
    if site.addresses.announced_by == "external":
        yield "what gives the gateway's Service an address (addresses.announced_by)"
    if site.gateway.controllers == "external":
        yield "Envoy Gateway and the AI gateway (gateway.controllers)"
    if site.certificates.system == "external":
        yield "cert-manager (certificates.system)"
    if site.certificates.cluster_issuer:
        yield f"the ClusterIssuer {site.certificates.cluster_issuer}"
    if site.secrets.system == "external":
        yield "external-secrets (secrets.system)"
    if site.secrets.store and site.secrets.store.existing:
        yield f"the ClusterSecretStore {site.secrets.store.existing}"
    if site.monitoring.system == "external":
        yield "the Prometheus operator (monitoring.system)"
    if weights.source == "volume" and plan.stores:
        yield "the models' files in their volumes (storage.weights.source)"


def _objects(plan: SitePlan) -> Iterator[str]:
    site = plan.site
    secrets: dict[tuple[str, str], set[str]] = {}
    for reference in secret_references(site.model_dump(mode="json", exclude_unset=True)):
        if site.secrets.system == "none" or reference.name not in site.secrets.remote:
            secrets.setdefault((reference.namespace, reference.name), set()).update(reference.keys)
    store = site.secrets.store and site.secrets.store.kubernetes
    if store and store.token_secret:
        secrets[namespaces.SECRETS, store.token_secret] = {"token"}
    for (namespace, name), keys in sorted(secrets.items()):
        yield f"Secret {namespace}/{name} with {' and '.join(sorted(keys))}"
    if site.storage.weights.ca_config_map and plan.stores:
        yield f"ConfigMap {namespaces.MODELS}/{site.storage.weights.ca_config_map} with {CA_KEY}"
