"""Who asks, what they may do in which tenant, and how their keys are called."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from services.portal.catalogue import Catalogue
from services.portal.failure import missing, refused

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")
_MARK_LENGTH = 8


class Role(IntEnum):
    """In a tenant; a higher one may do all that the lower may."""

    USER = 1
    ADMIN = 2
    OPERATOR = 3


@dataclass(frozen=True)
class Person:
    """As the issuer knows them. `subject` never changes; `name` is for people to read."""

    subject: str
    name: str
    groups: frozenset[str]

    @property
    def mark(self) -> str:
        """Ends the name of each of their keys. Of one length, so that no name can end in another person's."""
        return base64.b32encode(hashlib.sha256(self.subject.encode()).digest()).decode().lower()[:_MARK_LENGTH]

    @property
    def short_name(self) -> str:
        """Begins the names of their keys."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.partition("@")[0].lower()).strip("-")[:10].strip("-") or "key"

    @property
    def actor(self) -> str:
        """As the directory's audit keeps it: printable ASCII, 60 characters."""
        name = re.sub(r"[^\x21-\x7e]", "_", self.name)[:40]
        return f"portal:{name} {self.mark}"

    def key_name(self, label: str) -> str:
        """The directory's name of their key with this label. Raises PortalError."""
        if not _LABEL.fullmatch(label):
            what = "The name of a key has 1 to 20 lower-case letters, digits and inner dashes."
            raise refused(what, "Choose another name, such as ci or laptop.")
        return f"{self.short_name}-{label}-{self.mark}"

    def owns(self, key_name: str) -> bool:
        """Whether this is the name of a key of theirs."""
        return key_name.endswith(f"-{self.mark}")

    def may_rotate(self, key_name: str, playground: str) -> bool:
        """Whether it is theirs, and is not the playground's, which no page shows."""
        return self.owns(key_name) and key_name != self.key_name(playground)

    def shown_key_name(self, key_name: str) -> str:
        """For lists: without the mark, where the key is theirs."""
        return key_name.removesuffix(f"-{self.mark}")


def is_operator(person: Person, catalogue: Catalogue) -> bool:
    """Whether one of their groups runs the platform."""
    return bool(person.groups.intersection(catalogue.operators))


def roles(person: Person, catalogue: Catalogue) -> Mapping[str, Role]:
    """The tenants of a person, by name."""
    if is_operator(person, catalogue):
        return dict.fromkeys(sorted(catalogue.tenants), Role.OPERATOR)
    held: dict[str, Role] = {}
    for name, tenant in sorted(catalogue.tenants.items()):
        if person.groups.intersection(tenant.admins):
            held[name] = Role.ADMIN
        elif person.groups.intersection(tenant.users):
            held[name] = Role.USER
    return held


def role_in(tenant: str, person: Person, catalogue: Catalogue, least: Role = Role.USER) -> Role:
    """Theirs. Raises PortalError, the same for a tenant of others and for one that there is not."""
    role = roles(person, catalogue).get(tenant)
    if role is None or role < least:
        raise missing("There is no such page for you.")
    return role
