"""What each call does on the machine that it is for. Codes and texts are those of Talos v1.13.9's handlers."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import yaml

from lab.machines import status
from lab.machines.applying import apply_configuration
from lab.machines.failing import refusal
from lab.machines.state import Image
from talos.api import calls
from talos.api.errors import Code, RpcError
from talos.api.messages import new
from talos.api.results import RebootMode, WipeMode
from talos.secrets import pki
from talos.secrets.bundle import system_entropy
from talos.secrets.pki import base64_of

if TYPE_CHECKING:
    from lab.machines.machine import Machine
    from lab.machines.power import Session

Handler = Callable[["Machine", Any, frozenset[str]], Any]

_CHUNK_BYTES = 32 << 10
_DIGEST_BYTES = hashlib.sha256().digest_size
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_TALOS_ROLES = tuple(
    f"os:{role}"
    for role in ("admin", "operator", "reader", "etcd:backup", "image:verifier", "meta:writer", "impersonator")
)


def _require_control_plane(machine: Machine, what: str) -> None:
    if machine.in_maintenance:
        raise refusal(Code.UNIMPLEMENTED, f"machine type is not set, cannot use {what} API")
    if machine.config is None or not machine.config.is_control_plane:
        raise refusal(Code.UNIMPLEMENTED, f"{what} is only available on control plane nodes")


def _version(machine: Machine, _request: Any, _roles: frozenset[str]) -> Any:
    message = new(
        "machine.Version",
        version={
            "tag": machine.running_system.talos_version,
            "sha": "emulated",
            "built": "",
            "go_version": "",
            "os": "linux",
            "arch": "amd64",
        },
        platform={"name": "metal", "mode": "metal"},
    )
    if not machine.in_maintenance:
        message.features.rbac = True
    return new("machine.VersionResponse", messages=[message])


def _service_list(machine: Machine, _request: Any, _roles: frozenset[str]) -> Any:
    services = [
        {
            "id": service.id,
            "state": service.state,
            "health": {
                "unknown": service.healthy is None,
                "healthy": bool(service.healthy),
                "last_message": service.message,
            },
        }
        for service in status.services(machine)
    ]
    return new("machine.ServiceListResponse", messages=[{"services": services}])


def _etcd_member_list(machine: Machine, _request: Any, _roles: frozenset[str]) -> Any:
    _require_control_plane(machine, "member list")
    members = _etcd_with_quorum(machine)
    return new(
        "machine.EtcdMemberListResponse",
        messages=[
            {
                "legacy_members": [member.hostname for member in members],
                "members": [
                    {
                        "id": member.store.disks.etcd,
                        "hostname": member.hostname,
                        "peer_urls": [f"https://{member.address}:2380"],
                        "client_urls": [f"https://{member.address}:2379"],
                        "is_learner": False,
                    }
                    for member in members
                ],
            }
        ],
    )


def _etcd_remove_member(machine: Machine, request: Any, _roles: frozenset[str]) -> Any:
    _require_control_plane(machine, "etcd remove member")
    members = _etcd_with_quorum(machine)
    leaving = next((member for member in members if member.store.disks.etcd == request.member_id), None)
    if leaving is None:
        raise refusal(Code.NOT_FOUND, "etcdserver: member not found")
    others = [member for member in members if member is not leaving]
    reason = "" if others else "etcdserver: re-configuration failed due to not enough started members"
    # etcd lets go of a member that is down, and of one that runs only if a majority of the others does.
    if others and leaving.etcd_up and sum(member.etcd_up for member in others) < 1 + len(others) // 2:
        reason = "etcdserver: unhealthy cluster"
    if reason:
        raise refusal(Code.UNKNOWN, f"failed to remove member: {reason}")
    leaving.log("etcd: removed from the cluster by another member")
    leaving.remove_from_etcd()
    return new("machine.EtcdRemoveMemberByIDResponse", messages=[{}])


def _etcd_with_quorum(machine: Machine) -> list[Machine]:
    config = machine.config
    members = machine.site.etcd_members(config.cluster_id) if config is not None else []
    if config is None or not machine.site.has_quorum(config.cluster_id):
        raise refusal(Code.UNAVAILABLE, "etcdserver: no leader" if members else "etcd does not run: connection refused")
    return members


def _etcd_snapshot(machine: Machine, _request: Any, _roles: frozenset[str]) -> Iterator[Any]:
    _require_control_plane(machine, "etcd snapshot")
    if not machine.etcd_up:
        raise refusal(Code.UNKNOWN, "failed to create etcd client: etcd does not run")
    yield from _chunks(machine.site.cluster.etcd_snapshot())


def _resource_get(machine: Machine, request: Any, roles: frozenset[str]) -> Any:
    for resource in status.resources(machine, request.type, roles):
        if resource.metadata.id == request.id and resource.metadata.namespace == request.namespace:
            return new("cosi.resource.GetResponse", resource=resource)
    name = f"{request.type}({request.namespace}/{request.id}@undefined)"
    raise refusal(Code.NOT_FOUND, f"resource {name} doesn't exist")


def _resource_list(machine: Machine, request: Any, roles: frozenset[str]) -> Iterator[Any]:
    for resource in status.resources(machine, request.type, roles):
        if resource.metadata.namespace == request.namespace:
            yield new("cosi.resource.ListResponse", resource=resource)


def _kubeconfig(machine: Machine, _request: Any, _roles: frozenset[str]) -> Iterator[Any]:
    _require_control_plane(machine, "kubeconfig")
    content = machine.site.cluster.kubeconfig(machine.plane).encode()
    archive = io.BytesIO()
    with gzip.open(archive, "wb") as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        entry = tarfile.TarInfo("kubeconfig")
        entry.size, entry.mode = len(content), 0o600
        tar.addfile(entry, io.BytesIO(content))
    yield from _chunks(archive.getvalue())


def _read(machine: Machine, request: Any, _roles: frozenset[str]) -> Iterator[Any]:
    files = {_BOOT_ID: f"{machine.store.disks.boot_id}\n", **status.kernel_files(machine)}
    if request.path not in files:
        # Talos gives this error no code of its own.
        raise refusal(Code.UNKNOWN, f"stat {request.path}: no such file or directory")
    yield from _chunks(files[request.path].encode())


def _chunks(content: bytes) -> Iterator[Any]:
    for start in range(0, len(content), _CHUNK_BYTES):
        yield new("common.Data", bytes=content[start : start + _CHUNK_BYTES])


def _etcd_recover(machine: Machine, requests: Any, _roles: frozenset[str]) -> Any:
    if not machine.cri_up:
        raise refusal(Code.FAILED_PRECONDITION, "etcd service is not ready for recovery yet")
    _require_control_plane(machine, "etcd recover")
    machine.store.save_recovery(b"".join(chunk.bytes for chunk in requests))
    return new("machine.EtcdRecoverResponse", messages=[{}])


def _recover(machine: Machine, *, skip_hash_check: bool) -> None:
    snapshot = machine.store.recovery
    if snapshot is None:
        raise refusal(Code.UNKNOWN, "error opening etcd recovery snapshot: no such file or directory")
    body, digest = snapshot[:-_DIGEST_BYTES], snapshot[-_DIGEST_BYTES:]
    if not skip_hash_check and hashlib.sha256(body).digest() != digest:
        raise refusal(Code.UNKNOWN, "error recovering etcd from snapshot: expected sha256 does not match")
    machine.site.cluster.recover_etcd(snapshot)
    machine.store.save_recovery(None)
    machine.forget_members()


def _bootstrap(machine: Machine, request: Any, _roles: frozenset[str]) -> Any:
    if not machine.cri_up:
        raise refusal(Code.FAILED_PRECONDITION, "bootstrap is not available yet")
    _require_control_plane(machine, "bootstrap")
    if machine.faults.clock_skew_s():
        raise refusal(Code.FAILED_PRECONDITION, "time is not in sync yet")
    if machine.store.disks.etcd is not None:
        raise refusal(Code.ALREADY_EXISTS, "etcd data directory is not empty")
    if request.recover_etcd:
        _recover(machine, skip_hash_check=request.recover_skip_hash_check)
    machine.join_etcd()
    machine.point("bootstrap")
    return new("machine.BootstrapResponse", messages=[{}])


def _reboot(machine: Machine, request: Any, _roles: frozenset[str]) -> Any:
    machine.log(f"reboot, mode {RebootMode(request.mode).name}")

    def reboot(session: Session) -> None:
        machine.point("reboot")
        machine.restart(session, by=machine.restarts_by(RebootMode(request.mode)))

    machine.go_down("rebooting", reboot)
    return _started("machine.RebootResponse")


def _started(reply: str, **fields: str) -> Any:
    return new(reply, messages=[{"actor_id": str(uuid.uuid4()), **fields}])


def _reset(machine: Machine, request: Any, _roles: frozenset[str]) -> Any:
    mode = WipeMode(request.mode)
    labels = {partition.label for partition in request.system_partitions_to_wipe if partition.wipe}
    devices = {disk.device for disk in machine.spec.disks}
    if request.user_disks_to_wipe and mode is WipeMode.SYSTEM_DISK:
        raise refusal(
            Code.UNKNOWN,
            "reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter",
        )
    for device in request.user_disks_to_wipe:
        if device not in devices:
            raise refusal(Code.UNKNOWN, f"reset user disk failed: device {device} wasn't found")
    if labels and mode is WipeMode.USER_DISKS:
        raise refusal(
            Code.UNKNOWN,
            "reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter",
        )
    machine.log(f"reset, mode {mode.name}, graceful {request.graceful}, reboot {request.reboot}")
    graceful, reboot = request.graceful, request.reboot

    def reset(session: Session) -> None:
        if graceful:
            machine.cordon()
        machine.point("reset")
        if mode is not WipeMode.USER_DISKS:
            machine.wipe(state="STATE" in labels, ephemeral="EPHEMERAL" in labels, system=not labels)
        if reboot:
            machine.restart(session)
        else:
            machine.power_off("the machine was reset")

    machine.go_down("resetting", reset)
    return _started("machine.ResetResponse")


def _generate_client_configuration(machine: Machine, request: Any, _roles: frozenset[str]) -> Any:
    _require_control_plane(machine, "generate client configuration")
    lifetime_s = request.crt_ttl.seconds + request.crt_ttl.nanos / 1e9
    if lifetime_s <= 0 or machine.config is None:
        raise refusal(Code.INVALID_ARGUMENT, "crt_ttl should be positive")
    roles = [role for role in _TALOS_ROLES if role in request.roles]
    authority = machine.config.machine_ca
    issued = pki.client_certificate(
        authority,
        organizations=roles,
        now=machine.now(),
        lifetime=timedelta(seconds=lifetime_s),
        entropy=system_entropy(),
    )
    cluster = str(machine.config.cluster("clusterName", ""))
    name = f"{roles[0].removeprefix('os:')}@{cluster}" if len(roles) == 1 else cluster
    context = {
        "endpoints": [],
        "ca": base64_of(authority.certificate),
        "crt": base64_of(issued.certificate),
        "key": base64_of(issued.key),
    }
    talosconfig = yaml.safe_dump({"context": name, "contexts": {name: context}}, sort_keys=False, width=10**6)
    message = {
        "ca": authority.certificate.encode(),
        "crt": issued.certificate.encode(),
        "key": issued.key.encode(),
        "talosconfig": talosconfig.encode(),
    }
    return new("machine.GenerateClientConfigurationResponse", messages=[message])


def _image_pull(machine: Machine, request: Any, _roles: frozenset[str]) -> Iterator[Any]:
    if machine.in_maintenance:
        raise refusal(Code.FAILED_PRECONDITION, "images cannot be pulled before the machine is configured")
    name = machine.pull(request.image_ref)
    for offset in (1, 2):
        progress = {"status": offset, "offset": offset << 20, "total": 2 << 20}
        yield new("machine.ImageServicePullResponse", pull_progress={"layer_id": "emulated", "progress": progress})
    yield new("machine.ImageServicePullResponse", name=name)


def _lifecycle_upgrade(machine: Machine, request: Any, _roles: frozenset[str]) -> Iterator[Any]:
    if not machine.installing.acquire(blocking=False):
        raise refusal(Code.FAILED_PRECONDITION, "another installation/upgrade is already in progress")
    try:
        if machine.store.disks.installed is None:
            raise refusal(Code.FAILED_PRECONDITION, "machine is not installed")
        reference = request.source.image_name
        if not reference:
            raise refusal(Code.INVALID_ARGUMENT, "installer image name is required")
        image = machine.store.disks.images.get(reference)
        if image is None:
            raise refusal(
                Code.INTERNAL,
                f'upgrade failed: installer image "{reference}" not found in containerd store: '
                f'image "{reference}": not found',
            )
        for message in _install(machine, image, reference):
            progress = {"exit_code": message} if isinstance(message, int) else {"message": message}
            yield new("machine.LifecycleServiceUpgradeResponse", progress=progress)
    finally:
        machine.installing.release()


def _install(machine: Machine, image: Image, reference: str) -> Iterator[str | int]:
    """What the installer prints, and its exit code at the end."""
    session, half_s = machine.session(), machine.speed.install_s / 2
    yield f"emulated installer: writing Talos {image.system.talos_version} to the other slot\n"
    session.wait(half_s)
    machine.point("upgrade")
    session.wait(half_s)
    if machine.faults.installer_fails():
        yield "emulated installer: failed, on request\n"
        yield 1
        return
    machine.boot_next(image, reference)
    yield "emulated installer: done\n"
    yield 0


def _upgrade_legacy(machine: Machine, request: Any, _roles: frozenset[str]) -> Any:
    if machine.store.disks.installed is None:
        raise refusal(Code.FAILED_PRECONDITION, "Talos is not installed")
    try:
        name = machine.pull(request.image)
    except RpcError as error:
        raise refusal(Code.UNKNOWN, f'error validating installer image "{request.image}": {error.message}') from None
    image, reference = machine.store.disks.images[name], request.image

    def upgrade(session: Session) -> None:
        machine.cordon()
        statuses = list(_install(machine, image, reference))
        machine.log(f"upgrade ended with status {statuses[-1]}")
        machine.restart(session, by=machine.restarts_by(RebootMode(request.reboot_mode)))

    machine.go_down("upgrading", upgrade)
    return _started("machine.UpgradeResponse", ack="Upgrade request received")


def _disks(machine: Machine, _request: Any, _roles: frozenset[str]) -> Any:
    installed = machine.store.disks.installed is not None
    nvme = 3
    disks = [
        {
            "device_name": disk.device,
            "size": disk.size,
            "model": disk.model,
            "serial": disk.serial,
            "type": nvme,
            "system_disk": installed and disk == machine.spec.disks[0],
        }
        for disk in machine.spec.disks
    ]
    return new("storage.DisksResponse", messages=[{"disks": disks}])


HANDLERS: dict[str, Handler] = {
    calls.VERSION.path: _version,
    calls.SERVICE_LIST.path: _service_list,
    calls.ETCD_MEMBER_LIST.path: _etcd_member_list,
    calls.ETCD_REMOVE_MEMBER.path: _etcd_remove_member,
    calls.RESOURCE_GET.path: _resource_get,
    calls.RESOURCE_LIST.path: _resource_list,
    calls.KUBECONFIG.path: _kubeconfig,
    calls.READ.path: _read,
    calls.ETCD_SNAPSHOT.path: _etcd_snapshot,
    calls.APPLY_CONFIGURATION.path: apply_configuration,
    calls.BOOTSTRAP.path: _bootstrap,
    calls.ETCD_RECOVER.path: _etcd_recover,
    calls.REBOOT.path: _reboot,
    calls.RESET.path: _reset,
    calls.UPGRADE_LEGACY.path: _upgrade_legacy,
    calls.GENERATE_CLIENT_CONFIGURATION.path: _generate_client_configuration,
    calls.IMAGE_PULL.path: _image_pull,
    calls.LIFECYCLE_UPGRADE.path: _lifecycle_upgrade,
    "/storage.StorageService/Disks": _disks,
}
