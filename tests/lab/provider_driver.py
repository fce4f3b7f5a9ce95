"""Drives a provider in this process as the engine does, without the engine: its requests, their order, and the state.

What a program declares is a list of `Declared`. As under the engine, each update has a provider of its own, reached by
gRPC. test_plugin_kubernetes_engine.py holds the driver to the engine. It does one thing after the other, and leaves out
what is the engine's alone: replacing what depends on a replacement, components, policies.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import grpc
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from lab.plugins import values
from lab.plugins.protocol import CHANNEL_OPTIONS

Op = Literal["create", "same", "update", "replace", "delete"]
Properties = dict[str, Any]
MakeProvider = Callable[[Any], Any]

_PROJECT, _STACK = "plugin", "dev"
_THREADS = 64
# Only a provider that hangs needs so long.
_HANGS_S = 300.0
_KINDS = {number: name.lower().replace("_", "-") for name, number in provider_pb2.PropertyDiff.Kind.items()}


@dataclass(frozen=True)
class Ref:
    """An output of a resource declared before, and what the program makes of it."""

    name: str
    output: str
    makes: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A resource as a program declares it. `inputs` may hold values.secret(...), values.UNKNOWN and Ref."""

    type: str
    name: str
    inputs: Properties
    ignore_changes: tuple[str, ...] = ()
    timeouts: Mapping[str, float] = field(default_factory=dict)
    """Seconds for `create`, `update` and `delete`."""

    @property
    def urn(self) -> str:
        return f"urn:pulumi:{_STACK}::{_PROJECT}::{self.type}::{self.name}"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A resource in the state."""

    declared: Declared
    id: str
    inputs: Properties
    outputs: Properties
    init_errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """What an update does to a resource; `detailed_diff` is path -> kind, as in the engine's JSON."""

    op: Op
    detailed_diff: Mapping[str, str] = field(default_factory=dict)
    deletes_first: bool = False


class FailedError(Exception):
    """A request that the provider refused, or a resource that is there and not ready."""


@dataclass
class Log:
    """What a provider says, in the place of the engine's display."""

    lines: list[str] = field(default_factory=list)

    def status(self, _urn: str, message: str) -> None:
        self.lines.append(message)

    info = warning = status

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass
class Driver:
    """A stack of one provider; `settings` are the provider's."""

    package: str
    make_provider: MakeProvider
    settings: dict[str, str] = field(default_factory=dict)
    state: dict[str, Kept] = field(default_factory=dict)
    replaced: list[Kept] = field(default_factory=list)
    """What is still to be deleted, as its replacement is there."""
    log: Log = field(default_factory=Log)
    """Of all that was done so far."""

    def preview(self, *program: Declared) -> dict[str, Step]:
        """What `up` would do; the state stays as it is."""
        # What a preview foresees is the state of a copy.
        foreseen = replace(self, state=dict(self.state), replaced=list(self.replaced))
        with self.provider() as stub:
            return _Update(foreseen, stub, preview=True).run(program)

    def up(self, *program: Declared) -> dict[str, Step]:
        """Bring the resources to what the program declares. FailedError at the first that fails; the state stays true.

        As with the engine, what the program does not declare any more is deleted at the end.
        """
        with self.provider() as stub:
            return _Update(self, stub, preview=False).run(program)

    def unchanged(self, *program: Declared) -> None:
        """A preview finds nothing to do."""
        steps = self.preview(*program)
        assert {name: step for name, step in steps.items() if step.op != "same"} == {}

    def destroy(self) -> None:
        self.up()

    def refresh(self) -> None:
        """Read every resource; what is gone leaves the state. A resource that is not ready stays, and is named."""
        with self.provider() as stub:
            for name, kept in list(self.state.items()):
                request = provider_pb2.ReadRequest(
                    id=kept.id,
                    urn=kept.declared.urn,
                    properties=values.to_struct(kept.outputs),
                    inputs=values.to_struct(kept.inputs),
                )
                try:
                    answer = stub.Read(request)
                except grpc.RpcError as error:
                    partial = _partial(error)
                    if partial is None:
                        raise FailedError(error.details()) from None
                    self.log.lines += partial.reasons
                    answer, reasons = partial, tuple(partial.reasons)
                else:
                    reasons = ()
                if not answer.id:
                    del self.state[name]
                    continue
                self.state[name] = Kept(
                    declared=kept.declared,
                    id=answer.id,
                    inputs=values.from_struct(answer.inputs),
                    outputs=values.from_struct(answer.properties),
                    init_errors=reasons,
                )

    def read(self, type_: str, name: str, resource_id: str) -> Kept:
        """What the provider knows of an object of which the state knows nothing: a program's `get`."""
        declared = Declared(type=type_, name=name, inputs={})
        with self.provider() as stub:
            try:
                answer = stub.Read(provider_pb2.ReadRequest(id=resource_id, urn=declared.urn))
            except grpc.RpcError as error:
                raise FailedError(error.details()) from None
        inputs, outputs = values.from_struct(answer.inputs), values.from_struct(answer.properties)
        return Kept(declared=declared, id=answer.id, inputs=inputs, outputs=outputs)

    def take_over(self, type_: str, name: str, resource_id: str) -> Kept:
        """`pulumi import`: the object is read, and the state's from then on."""
        self.state[name] = self.read(type_, name, resource_id)
        return self.state[name]

    def settings_change(self, **changes: str) -> tuple[list[str], list[str]]:
        """Of other settings: what is changed, and what of that makes everything of the provider another cluster's."""
        with self.provider() as stub:
            answer = stub.DiffConfig(
                provider_pb2.DiffRequest(
                    olds=values.to_struct(self.settings), news=values.to_struct({**self.settings, **changes})
                )
            )
        return list(answer.diffs), list(answer.replaces)

    @contextmanager
    def provider(self) -> Iterator[Any]:
        """A stub of a provider of its own, configured as the engine does it."""
        server = grpc.server(ThreadPoolExecutor(_THREADS), options=CHANNEL_OPTIONS)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(self.make_provider(self.log), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
                stub = provider_pb2_grpc.ResourceProviderStub(channel)
                settings = values.to_struct(self.settings)
                checked = stub.CheckConfig(provider_pb2.CheckRequest(news=settings))
                _refuse(f"provider {self.package}", checked.failures)
                variables = {f"{self.package}:config:{key}": value for key, value in self.settings.items()}
                stub.Configure(
                    provider_pb2.ConfigureRequest(
                        variables=variables, args=settings, acceptSecrets=True, sends_old_inputs=True
                    )
                )
                yield stub
        finally:
            server.stop(grace=None).wait()


class _Update:
    """One preview or update."""

    def __init__(self, driver: Driver, stub: Any, *, preview: bool) -> None:
        self._driver, self._stub, self._preview = driver, stub, preview
        self._state = driver.state

    def run(self, program: Sequence[Declared]) -> dict[str, Step]:
        steps = {declared.name: self._bring(declared) for declared in program}
        while self._driver.replaced:
            self._delete(self._driver.replaced[0])
            self._driver.replaced.pop(0)
        # In the reverse of the order in which they came.
        for name in reversed([name for name in self._state if name not in steps]):
            self._delete(self._state[name])
            del self._state[name]
            steps[name] = Step("delete")
        return steps

    def _bring(self, declared: Declared) -> Step:
        old = self._state.get(declared.name)
        given = self._resolved(declared.inputs)
        if old is None:
            self._create(declared, self._checked(declared, given, {}))
            return Step("create")
        for path in declared.ignore_changes:
            _take_over_path(given, old.inputs, path.split("."))
        inputs = self._checked(declared, given, old.inputs)
        answer = self._ask(
            "Diff",
            provider_pb2.DiffRequest(
                id=old.id,
                urn=declared.urn,
                olds=values.to_struct(old.outputs),
                old_inputs=values.to_struct(old.inputs),
                news=values.to_struct(inputs),
                ignoreChanges=declared.ignore_changes,
            ),
        )
        diff = {path: _KINDS[change.kind] for path, change in answer.detailedDiff.items()}
        if answer.replaces:
            if answer.deleteBeforeReplace:
                self._delete(old)
            else:
                self._driver.replaced.append(old)
            del self._state[declared.name]
            # A replacement owes nothing to what it replaces, such as its name.
            self._create(declared, self._checked(declared, self._resolved(declared.inputs), {}))
            return Step("replace", diff, answer.deleteBeforeReplace)
        # A resource that is not ready is taken up again, whether or not anything has changed.
        if answer.changes == provider_pb2.DiffResponse.DIFF_SOME or old.init_errors:
            self._update(declared, old, inputs)
            return Step("update", diff)
        self._keep(Kept(declared=declared, id=old.id, inputs=inputs, outputs=old.outputs))
        return Step("same")

    def _checked(self, declared: Declared, given: Properties, old: Properties) -> Properties:
        request = provider_pb2.CheckRequest(
            urn=declared.urn,
            name=declared.name,
            type=declared.type,
            olds=values.to_struct(old),
            news=values.to_struct(given),
            randomSeed=os.urandom(32),
        )
        answer = self._ask("Check", request)
        _refuse(declared.name, answer.failures)
        return values.from_struct(answer.inputs)

    def _create(self, declared: Declared, inputs: Properties) -> None:
        request = provider_pb2.CreateRequest(
            urn=declared.urn,
            properties=values.to_struct(inputs),
            timeout=declared.timeouts.get("create", 0.0),
            preview=self._preview,
        )
        answer = self._ask("Create", request, keeps=(declared, inputs))
        outputs = values.from_struct(answer.properties)
        self._keep(Kept(declared=declared, id=answer.id, inputs=inputs, outputs=outputs))

    def _update(self, declared: Declared, old: Kept, inputs: Properties) -> None:
        request = provider_pb2.UpdateRequest(
            id=old.id,
            urn=declared.urn,
            olds=values.to_struct(old.outputs),
            old_inputs=values.to_struct(old.inputs),
            news=values.to_struct(inputs),
            timeout=declared.timeouts.get("update", 0.0),
            ignoreChanges=declared.ignore_changes,
            preview=self._preview,
        )
        answer = self._ask("Update", request, keeps=(declared, inputs))
        outputs = values.from_struct(answer.properties)
        self._keep(Kept(declared=declared, id=old.id, inputs=inputs, outputs=outputs))

    def _delete(self, kept: Kept) -> None:
        if self._preview:
            return
        request = provider_pb2.DeleteRequest(
            id=kept.id,
            urn=kept.declared.urn,
            properties=values.to_struct(kept.outputs),
            old_inputs=values.to_struct(kept.inputs),
            timeout=kept.declared.timeouts.get("delete", 0.0),
        )
        self._ask("Delete", request)

    def _keep(self, kept: Kept) -> None:
        self._state[kept.declared.name] = kept

    def _ask(self, method: str, request: Any, keeps: tuple[Declared, Properties] | None = None) -> Any:
        """The provider's answer. A partial failure leaves the resource in the state, with what is wrong with it."""
        try:
            return getattr(self._stub, method)(request, timeout=_HANGS_S)
        except grpc.RpcError as error:
            partial = _partial(error)
            if partial is not None and keeps is not None:
                declared, inputs = keeps
                outputs, reasons = values.from_struct(partial.properties), tuple(partial.reasons)
                self._keep(Kept(declared=declared, id=partial.id, inputs=inputs, outputs=outputs, init_errors=reasons))
            messages = [error.details(), *(partial.reasons if partial is not None else ())]
            raise FailedError("\n".join(dict.fromkeys(filter(None, messages)))) from None

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Ref):
            known = self._state[value.name].outputs.get(value.output, values.UNKNOWN)
            return known if known == values.UNKNOWN else value.makes(known)
        if isinstance(value, dict):
            return {key: self._resolved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolved(inner) for inner in value]
        return copy.copy(value)


def _refuse(what: str, failures: Any) -> None:
    if failures:
        raise FailedError("\n".join(f"{what}: {failure.property}: {failure.reason}" for failure in failures))


def _partial(error: Any) -> Any:
    """The resource that exists although its request failed; None where there is none."""
    for key, content in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(content).details:
                partial = provider_pb2.ErrorResourceInitFailed()
                if detail.Unpack(partial):
                    return partial
    return None


def _take_over_path(target: Any, source: Any, path: list[str]) -> None:
    """Set one place of a tree to what it is in another."""
    name, *rest = path
    if name not in source:
        target.pop(name, None)
    elif rest:
        _take_over_path(target[name], source[name], rest)
    else:
        target[name] = source[name]
