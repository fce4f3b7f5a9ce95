"""The base of every component: for the engine, a named part with children."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import pulumi

from components.objects import KubeObject, declare
from floor.stateful import Holder, Keeping

R = TypeVar("R", bound=pulumi.Resource)


class Component(pulumi.ComponentResource):
    """A named part of the platform.

    Its type is `inference-platform:<token>` and its children are `<name>-<suffix>`. A subclass states its token once
    and for good: it is in the URN of everything below, and another one replaces all of it on every site. The caller's
    options stay on the component; children inherit the provider alone.
    """

    token: ClassVar[str]

    def __init_subclass__(cls, *, token: str = "", **options: Any) -> None:
        """token: empty for a base of components."""
        super().__init_subclass__(**options)
        if token:
            cls.token = token

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None, *, token: str = "") -> None:
        """token: for a component whose subclasses are data, in place of its class's."""
        super().__init__(f"inference-platform:{token or self.token}", name, None, opts)
        self.name = name
        self.children: list[pulumi.Resource] = []

    def child(
        self,
        suffix: str,
        body: Mapping[str, Any],
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        patience_s: int | None = None,
        is_patch: bool = False,
        retained: bool = False,
        left_to_others: Sequence[str] = (),
    ) -> KubeObject:
        """Declare one Kubernetes object out of its wire-format body; a patch adds to one that others make.

        A patch that the program no longer declares stays where it is. Taken back, the provider would apply an object
        without content (pulumi-kubernetes provider/pkg/ssa, Relinquish), and so make a node again that has left.

        patience_s: how long `up` and `destroy` wait for it, where the provider's ten minutes are too few.
        retained: the engine forgets the object, and never deletes it.
        left_to_others: fields, with dots, whose value is the body's when the object is made, and the cluster's later.
        """
        limit = f"{patience_s}s" if patience_s else None
        timeouts = pulumi.CustomTimeouts(create=limit, update=limit, delete=limit) if limit else None
        resource = declare(
            f"{self.name}-{suffix}",
            body,
            pulumi.ResourceOptions(
                parent=self,
                depends_on=list(depends_on),
                custom_timeouts=timeouts,
                retain_on_delete=is_patch or retained or None,
                ignore_changes=list(left_to_others) or None,
            ),
            is_patch=is_patch,
        )
        self.children.append(resource)
        return resource

    def stateful(
        self,
        suffix: str,
        holder: Holder,
        make: Callable[[str, pulumi.ResourceOptions], R],
        *,
        keeping: Keeping,
        depends_on: Sequence[pulumi.Resource] = (),
        secret_outputs: Sequence[str] = (),
    ) -> R:
        """Declare a resource that holds data: `make` gets its logical name and its options.

        holder: which sort it is. keeping: whether the engine refuses to delete or replace it.
        """
        protected = keeping == "protected"
        return make(
            f"{self.name}-{suffix}",
            pulumi.ResourceOptions(
                parent=self,
                depends_on=list(depends_on),
                protect=protected,
                retain_on_delete=protected if holder.retained else None,
                additional_secret_outputs=list(secret_outputs),
            ),
        )

    def finish(self, **outputs: Any) -> None:
        """Register the component's outputs; call it once, last."""
        self.register_outputs(outputs)
