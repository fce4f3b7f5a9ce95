"""Which revision of which model, and the name that it has in the plan, in a cluster and in a verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FURTHER = re.compile(r"(?P<model>.+?)--(?:for-(?P<group>.+)|(?P<digest>[0-9a-f]{8}))")


@dataclass(frozen=True, order=True)
class RevisionId:
    """One revision of a model. Whatever a site has once per revision is keyed by it, or by its name."""

    model: str
    """The name that clients call."""
    digest: str = ""
    """Of a canary, 8 hex digits; empty for all others."""
    group: str = ""
    """Of dedicated replicas, as the site calls them; empty for all others."""

    @property
    def name(self) -> str:
        """Of its objects: the stable one has its model's, so a further one takes no name from it."""
        if self.group:
            return f"{self.model}--for-{self.group}"
        return f"{self.model}--{self.digest}" if self.digest else self.model

    @property
    def path(self) -> tuple[str, ...]:
        """Keys of the site's file that it is made of."""
        below = ("dedicated", self.group) if self.group else ("canary",) if self.digest else ()
        return ("models", self.model, *below)

    @classmethod
    def of(cls, name: str) -> RevisionId:
        """The revision whose objects have this name. No model may be called like a further revision."""
        further = _FURTHER.fullmatch(name)
        return cls(**further.groupdict(default="")) if further else cls(name)
