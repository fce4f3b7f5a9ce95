"""The platform's own programs in a namespace, each once for all of its models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pulumi

from components.component import Component
from components.models import own_program
from components.namespace import NamespaceHandle


@dataclass(frozen=True, kw_only=True)
class PodProgramsHandle:
    """Pods that run the programs wait for `ready`."""

    ready: Sequence[pulumi.Resource]


class PodPrograms(Component, token="pod_programs:PodPrograms"):
    """The programs that pods of one namespace run, once for all of its models."""

    def __init__(
        self,
        name: str,
        *,
        programs: Iterable[str],
        namespace: NamespaceHandle,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        self.handle = PodProgramsHandle(
            ready=[
                self.child(program, own_program.config_map(program, namespace.name), depends_on=[namespace.ready])
                for program in sorted(set(programs))
            ]
        )
        self.finish(name=name)
