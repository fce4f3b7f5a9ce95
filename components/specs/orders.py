"""What a site may set for orders of models: which of them no person has to approve."""

from __future__ import annotations

from pydantic import Field

from floor.spec import Name, Spec


class OrderPolicySpec(Spec):
    """Which orders need no person. An order is one only if it adds no warning to the site's, such as of a proof that
    does not hold over the whole band, and nothing else is left to do for it."""

    most_gpus: int = Field(default=0, ge=0)
    """GPUs that such an order takes at most; with 0 it is one for a model that the site serves already."""
    keep_free_gpus: int = Field(default=0, ge=0)
    """GPUs of the site that stay free after it at least, so that many orders do not take all of them."""
    tenants: tuple[Name, ...] = ()
    """Whose orders these are; of all tenants if none is given."""
