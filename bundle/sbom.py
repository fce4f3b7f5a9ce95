"""A bill of materials in CycloneDX's JSON: what sites take from outside, with digests and package URLs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from bundle.fetching import PackedChart
from bundle.plugins import Plugin
from bundle.supplies import COMMANDS, Supplies
from bundle.wheels import Package
from floor.images import ImageReference
from services.weights.manifest import Manifest

_PREFIX = "inference-platform"


def sbom(supplies: Supplies, chart_digests: dict[str, str]) -> str:
    """The same supplies give the same text: it has no date, and its serial number follows from the content.

    chart_digests: sha256 in hex of locked charts by file.
    """
    bom = Bom(components=_components(supplies, chart_digests))
    bom.metadata.timestamp = None  # type: ignore[assignment]  # the library has one always, and JSON may leave it out
    sites = " ".join(supplies.sites)
    bom.metadata.component = Component(name=sites, type=ComponentType.PLATFORM, bom_ref=f"sites:{sites}")
    bom.register_dependency(bom.metadata.component, bom.components)
    bom.serial_number = uuid.UUID(int=0)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, JsonV1Dot6(bom).output_as_string())
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _components(supplies: Supplies, chart_digests: dict[str, str]) -> Iterator[Component]:
    for image in supplies.images:
        yield _image(image, supplies.used_by.get(image.tagged, []))
    for packed in supplies.charts:
        yield _chart(packed, chart_digests.get(packed.file))
    for package in supplies.packages:
        yield _package(package)
    for command in COMMANDS:
        # Which version is a matter of the machine that packs: it is in the bundle's inventory.
        yield Component(name=command, type=ComponentType.APPLICATION, bom_ref=f"program:{command}")
    for plugin in supplies.plugins:
        yield _plugin(plugin)
    for manifest in supplies.weights:
        yield _weights(manifest)
    for repository, revision in supplies.unlocked_weights:
        yield _model(repository, revision)
    if supplies.talos:
        system = ComponentType.OPERATING_SYSTEM
        yield Component(name="talos", version=supplies.talos, type=system, bom_ref=f"talos:{supplies.talos}")
    for extension in supplies.extensions:
        yield Component(name=extension, version=supplies.talos, type=ComponentType.DEVICE_DRIVER, bom_ref=extension)


def _image(image: ImageReference, users: list[str]) -> Component:
    # The form of the type oci: https://github.com/package-url/purl-spec
    name = image.path.rpartition("/")[2]
    qualifiers = {"repository_url": image.name, **({"tag": image.tag} if image.tag else {})}
    return Component(
        name=image.name,
        version=image.tag or image.digest,
        type=ComponentType.CONTAINER,
        purl=PackageURL("oci", None, name, image.digest or None, qualifiers),
        hashes=[_sha256(image.digest.partition(":")[2])] if image.digest else [],
        properties=[Property(name=f"{_PREFIX}:used-by", value=user) for user in users],
        bom_ref=str(image),
    )


def _chart(packed: PackedChart, digest: str | None) -> Component:
    return Component(
        name=packed.file,
        version=packed.chart.version if packed.chart else packed.release,
        type=ComponentType.FILE,
        hashes=[_sha256(digest)] if digest else [],
        properties=[Property(name=f"{_PREFIX}:source", value=packed.published)],
        bom_ref=packed.file,
    )


def _package(package: Package) -> Component:
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", None, package.name.lower().replace("_", "-"), package.version),
        bom_ref=f"pypi:{package.name}",
    )


def _plugin(plugin: Plugin) -> Component:
    return Component(
        name=plugin.program,
        version=plugin.version,
        type=ComponentType.APPLICATION,
        purl=PackageURL("github", "pulumi", f"pulumi-{plugin.name}", f"v{plugin.version}"),
        bom_ref=f"program:{plugin.key}",
    )


def _weights(manifest: Manifest) -> Component:
    model = _model(manifest.repository, manifest.revision)
    model.hashes.add(_sha256(manifest.digest))
    model.properties.add(Property(name=f"{_PREFIX}:bytes", value=str(manifest.size)))
    model.properties.add(Property(name=f"{_PREFIX}:hash-of", value="the lock, which has the sha256 of each file"))
    return model


def _model(repository: str, revision: str) -> Component:
    owner, _, name = repository.rpartition("/")
    return Component(
        name=repository,
        version=revision,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        purl=PackageURL("huggingface", owner, name, revision),
        bom_ref=f"{repository}@{revision}",
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
