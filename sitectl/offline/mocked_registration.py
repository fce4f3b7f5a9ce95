"""Registers a resource for `mocked_program` as the SDK does in a preview, at once where its inputs are at hand.

What the SDK does to wait for inputs and to send them is more than half of a program's time.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pulumi
from pulumi.output import Unknown, _OutputData, contains_unknowns
from pulumi.runtime.settings import _get_rpc_manager, get_root_resource

SECRET = "[secret]"  # noqa: S105
LATER = "[known after up]"
COMMAND = "command:local:Command"
_UNKNOWN: Any = Unknown()  # type: ignore[no-untyped-call]
# Where the SDK translates names of its typed resources.
_sdk_types: Any = importlib.import_module("pulumi._types")


class Records(Protocol):
    """What keeps the resources that a program declares."""

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """The URN of a resource."""

    def keep(self, type_: str, name: str, inputs: Any, *, protect: bool | None, retain: bool | None) -> None:
        """Record a resource of a provider."""


@dataclass
class _Read:
    """An input whose outputs have been read."""

    value: Any
    """As an output of the resource has it again."""
    shown: Any
    """The same without secrets, as it is recorded."""
    is_secret: bool = False


class _Settled(pulumi.Output[Any]):
    """An output that has its value at once, or when it is settled. The SDK's own begins a task for each."""

    def __init__(self, resource: pulumi.Resource, value: Any = None, *, is_secret: bool = False) -> None:
        self._resource, self._read = resource, _Read(value, None, is_secret=is_secret)
        self._answer: asyncio.Future[_OutputData[Any]] | None = None

    @property
    def _data(self) -> asyncio.Future[_OutputData[Any]]:  # type: ignore[override]
        if self._answer is None:
            self.wait()
            self.settle(self._read)
        assert self._answer is not None  # noqa: S101 - `wait` made it
        return self._answer

    def wait(self) -> None:
        """From now on it has its value when it is settled."""
        self._answer = asyncio.get_event_loop().create_future()

    def settle(self, read: _Read | Exception) -> None:
        """The value of one that waits, or what it failed with. None is not known, as in a preview."""
        assert self._answer is not None  # noqa: S101 - it waits
        if isinstance(read, Exception):
            self._answer.set_exception(read)
            return
        value, known = read.value, read.value is not None
        self._answer.set_result(
            _OutputData(resources={self._resource}, value=value, is_known=known, is_secret=read.is_secret)
        )


class _NotPlainError(Exception):
    """A value that the SDK has to resolve."""


def _copy(value: Any) -> Any:
    """A copy of values as the engine gets them: data, and outputs as they are. Raises _NotPlainError."""
    if value is None or isinstance(value, str | bool | int | pulumi.Output):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if type(value) is dict:
        if not all(isinstance(key, str) for key in value):
            raise _NotPlainError
        return {key: _copy(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(inner) for inner in value]
    raise _NotPlainError


def _has_outputs(value: Any) -> bool:
    if type(value) is dict:
        return any(map(_has_outputs, value.values()))
    return any(map(_has_outputs, value)) if type(value) is list else isinstance(value, pulumi.Output)


async def _read(value: Any) -> _Read:
    """An input, with the outputs in it read. Raises what an output fails with, and _NotPlainError."""
    if isinstance(value, pulumi.Output):
        data = await value._data
        if not data.is_known:
            return _Read(_UNKNOWN, LATER)
        if contains_unknowns(data.value):
            return _Read(None, SECRET if data.is_secret else None, is_secret=data.is_secret)
        inner = await _read(_copy(data.value))
        return _Read(inner.value, SECRET, is_secret=True) if data.is_secret else inner
    if type(value) is dict:
        parts = {key: await _read(inner) for key, inner in value.items()}
        return _Read(
            {key: part.value for key, part in parts.items()},
            {key: part.shown for key, part in parts.items()},
            is_secret=any(part.is_secret for part in parts.values()),
        )
    if type(value) is list:
        items = [await _read(inner) for inner in value]
        secret = any(item.is_secret for item in items)
        return _Read([item.value for item in items], [item.shown for item in items], is_secret=secret)
    return _Read(value, value)


def _names_of(typ: type | None, properties: Mapping[str, Any]) -> dict[str, str]:
    """The engine's names of these properties. Raises _NotPlainError for a type with types of its own inside."""
    if typ is None:
        return {key: key for key in properties}
    names, types = _sdk_types.input_type_py_to_pulumi_names(typ), _sdk_types.input_type_types(typ)
    for key, value in properties.items():
        inner = types.get(names.get(key, key))
        if value is not None and inner and _sdk_types.is_input_type(_sdk_types.unwrap_type(inner)):
            raise _NotPlainError
    return {key: names.get(key, key) for key in properties}


def registered_at_once(records: Records, sdk_register: Callable[..., None]) -> Callable[..., None]:
    """The SDK's `register_resource`, without its tasks for a resource whose inputs are data and outputs alone."""

    def register(
        resource: pulumi.Resource,
        type_: str,
        name: str,
        custom: bool,  # noqa: FBT001 - the SDK's form
        remote: bool,  # noqa: FBT001 - the SDK's form
        new_dependency: Any,
        properties: Any,
        options: pulumi.ResourceOptions,
        typ: Any = None,
        *more: Any,
    ) -> None:
        try:
            parent, inputs, names = _inputs(resource, properties, options, typ)
            if remote:
                raise _NotPlainError
        except _NotPlainError:
            sdk_register(resource, type_, name, custom, remote, new_dependency, properties, options, typ, *more)
            return

        def keep(inputs: Mapping[str, Any]) -> None:
            if custom:
                sent = {names[key]: value for key, value in inputs.items()}
                records.keep(type_, name, sent, protect=options.protect, retain=options.retain_on_delete)

        outputs = {key: _Settled(resource, inputs.get(key)) for key in properties}
        resource.__dict__.update(outputs)
        resource.__dict__["urn"] = _Settled(resource, records.make_urn(parent, type_, name))
        if custom:
            # To the program it is known after `up` alone, as in a preview.
            resource.__dict__["id"] = _Settled(resource)
        if type_ == COMMAND:
            resource.__dict__["stdout"] = _Settled(resource, _UNKNOWN, is_secret=True)
        if _has_outputs(inputs):
            _settle_later(inputs, outputs, keep)
        else:
            keep(inputs)

    return register


def _inputs(
    resource: pulumi.Resource, properties: Mapping[str, Any], options: pulumi.ResourceOptions, typ: type | None
) -> tuple[str, dict[str, Any], dict[str, str]]:
    """URN of the parent, inputs, and the engine's names of the properties. Raises _NotPlainError."""
    above = options.parent or get_root_resource()
    parent = _urn(above) if above else ""
    if parent is None or type(resource).translate_input_property is not pulumi.Resource.translate_input_property:
        raise _NotPlainError
    inputs = {key: _copy(value) for key, value in properties.items() if value is not None}
    return parent, inputs, _names_of(typ, properties)


def _settle_later(
    inputs: Mapping[str, Any], outputs: Mapping[str, _Settled], keep: Callable[[Mapping[str, Any]], None]
) -> None:
    """Read the inputs, settle the outputs by them, and keep what is recorded of them."""

    async def settle() -> None:
        try:
            values = {key: await _read(value) for key, value in inputs.items()}
        except Exception as error:
            for output in outputs.values():
                output.settle(error)
            raise
        for key, output in outputs.items():
            output.settle(values.get(key, _Read(None, None)))
        keep({key: value.shown for key, value in values.items()})

    for output in outputs.values():
        output.wait()
    asyncio.ensure_future(_get_rpc_manager().do_rpc("register resource", settle)())  # noqa: RUF006 - the SDK waits for it


def _urn(resource: pulumi.Resource) -> str | None:
    """The URN of a resource that was registered at once. The SDK knows that of the others, and when they have it."""
    urn: Any = resource.urn
    return urn._read.value if isinstance(urn, _Settled) else None
