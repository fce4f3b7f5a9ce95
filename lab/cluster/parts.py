"""Parts that each object of the API server has, and that the Kubernetes client types as optional."""

from __future__ import annotations

from typing import Protocol, TypeVar

from kubernetes import client

_Part = TypeVar("_Part")
_Part_co = TypeVar("_Part_co", covariant=True)


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> client.V1ObjectMeta | None: ...


class _HasSpec(Protocol[_Part_co]):
    @property
    def spec(self) -> _Part_co | None: ...


class _HasStatus(Protocol[_Part_co]):
    @property
    def status(self) -> _Part_co | None: ...


def present(part: _Part | None) -> _Part:
    """The part itself. Raises LookupError where it is missing."""
    if part is None:
        raise LookupError("an object of the API server lacks a part that each of its kind has")
    return part


def metadata_of(resource: _HasMetadata) -> client.V1ObjectMeta:
    return present(resource.metadata)


def spec_of(resource: _HasSpec[_Part]) -> _Part:
    return present(resource.spec)


def status_of(resource: _HasStatus[_Part]) -> _Part:
    return present(resource.status)


def name_of(resource: _HasMetadata) -> str:
    return present(metadata_of(resource).name)


def namespace_of(resource: _HasMetadata) -> str:
    return present(metadata_of(resource).namespace)
