"""Prompt caches that tenants have of their own: how many a model has, and what that costs, as text for people."""

from __future__ import annotations

from dataclasses import dataclass, replace

from floor.revision_ids import RevisionId
from stacks.proof.figures import shown
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove
from stacks.proof.tenant_caches import TenantCaches, tenant_caches
from stacks.site.model import SiteConfig

_SHOWN = {"ttft_p95": "TTFT p95", "capacity": "capacity"}
# Of the prompts' tokens; below it, no figure of a proof changes.
_COUNTS = 0.001


@dataclass(frozen=True)
class Apart:
    """Tenants' caches of one revision, and its proof if all had one."""

    caches: TenantCaches
    together: Proof

    def text(self, proof: Proof) -> str:
        """What they cost. proof: of the revision with them."""
        caches, load = self.caches, self.together.order.load
        common = 100 * load.common_prefix if load else 0.0
        text = f"{caches.count:,} side by side, so no tenant finds what another one asked"
        times = (
            f"a prefix stays for {shown(caches.kept_s)} s, and a tenant asks a replica every {shown(caches.asked_s)} s"
        )
        if proof is self.together:
            return f"{text}; it costs nothing: {times}"
        changes = [
            f"{label} {proof.serving[key]} in place of {self.together.serving[key]}"
            for key, label in _SHOWN.items()
            if key in proof.serving
        ]
        if price := proof.cost.get("break_even"):
            changes.append(f"{price} in place of {shown(self.together.cost['break_even'].value)}")
        lost = 100 * caches.lost
        again = (
            f"up to {shown(lost)} % of the prompt tokens, of {shown(common)} % in common, are computed again: {times}"
        )
        return "; ".join([text, again, *changes])


def proven(site: SiteConfig, revision: RevisionId, order: Order) -> tuple[Proof, Apart | None]:
    """The proof of a revision's order with the caches that its tenants have, and what one for all would change."""
    together = prove(order)
    caches = tenant_caches(together.case, _count(site, revision))
    if caches is None or order.load is None:
        return together, None
    if caches.lost < _COUNTS:
        return together, Apart(caches, together)
    load = replace(order.load, prefix_hit=order.load.prefix_hit - caches.lost)
    return prove(replace(order, load=load)), Apart(caches, together)


def _count(site: SiteConfig, revision: RevisionId) -> int:
    """One of each tenant that keeps its own, one of all that share."""
    if not site.has_gatekeeper:
        return 1
    callers = [site.tenants[tenant] for tenant in site.answered_by(revision)]
    sharing = sum(tenant.prefix_cache == "shared" for tenant in callers)
    return len(callers) - sharing + (sharing > 0)
