"""The machine API's client: typed calls to one machine, deadlines, safe retries, errors with a fix."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from talos.api import calls, resources, streams
from talos.api.calls import Call
from talos.api.errors import Code, RpcError, UntrustedMachineError, UpgradeFailedError, api_error
from talos.api.messages import decode, new
from talos.api.redaction import config_texts, redacted_diff, without_texts
from talos.api.results import (
    STAGES,
    Applied,
    ApplyMode,
    BootState,
    ClientConfig,
    EtcdMember,
    ExtensionStatus,
    MachineDisk,
    MachineStatus,
    MachineVolume,
    NodeVersion,
    RebootMode,
    Service,
    WipeMode,
)
from talos.api.tls import Trust, context
from talos.api.transport import MACHINE_API_PORT, GrpcTransport, Metadata

# common.ContainerDriver and common.ContainerdNamespace of Talos v1.13.9: installer images live with the system's.
_CONTAINERD_SYSTEM = {"driver": 0, "namespace": 1}
_LONGEST_PAUSE_S = 5.0
_NO_CHANGES = "No changes."
# ABORTED and FAILED_PRECONDITION pass too, but in minutes: a wait for a state allows for that.
_PASSING = {Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED}
_Result = TypeVar("_Result")


def connect(
    host: str,
    trust: Trust,
    *,
    node: str = "",
    port: int = MACHINE_API_PORT,
    forward_to: str | None = None,
    attempts: int = 4,
    connect_timeout_s: float = 10.0,
    call_timeout_s: float | None = None,
    longest_pause_s: float = _LONGEST_PAUSE_S,
) -> MachineClient:
    """A client for the machine at an address; nothing is sent before the first call.

    With `forward_to` the machine at `host` passes calls on to the one of that address. No call takes longer than
    `call_timeout_s`, or its own limit where that is shorter. No pause before a repetition is longer than
    `longest_pause_s`. UntrustedError if our own certificate or key cannot be used.
    """
    name = node or forward_to or host
    try:
        tls = context(trust)
    except UntrustedMachineError as error:
        raise api_error(name, "connect", error) from None
    return MachineClient(
        GrpcTransport(host, port, tls, connect_timeout_s=connect_timeout_s),
        node=name,
        forward_to=forward_to,
        attempts=attempts,
        call_timeout_s=call_timeout_s,
        longest_pause_s=longest_pause_s,
        shown_key=lambda: tls.shown,
    )


class MachineClient:
    """One machine. Close it, or use it in a `with`.

    Every method raises MachineApiError or one of its subclasses. What only reads is repeated until its deadline after
    a failure that may pass; what changes the machine is repeated only where the request certainly did not arrive.
    """

    def __init__(
        self,
        transport: GrpcTransport,
        *,
        node: str,
        forward_to: str | None = None,
        attempts: int = 4,
        call_timeout_s: float | None = None,
        longest_pause_s: float = _LONGEST_PAUSE_S,
        sleep: Callable[[float], None] = time.sleep,
        shown_key: Callable[[], str] = lambda: "",
    ) -> None:
        """`node` is the machine's name in errors; `forward_to` has the address's machine pass calls on to another."""
        self.node = node
        self._transport = transport
        self._metadata: Metadata = (("node", forward_to),) if forward_to else ()
        self._attempts = attempts
        self._call_timeout_s = math.inf if call_timeout_s is None else call_timeout_s
        self._longest_pause_s = longest_pause_s
        self._sleep = sleep
        self._shown_key = shown_key

    def __enter__(self) -> MachineClient:
        """Itself; leaving closes its connections."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._transport.close()

    @property
    def shown_key(self) -> str:
        """In maintenance mode, the fingerprint of the key that the machine showed last; a boot changes it."""
        return self._shown_key()

    def version(self) -> NodeVersion:
        """What runs on the machine."""
        message = self._only_message(calls.VERSION, new("machine.Empty"))
        version, platform = message.version, message.platform
        return NodeVersion(version.tag, version.sha, version.arch, platform.name, platform.mode)

    def apply_configuration(
        self, config: bytes, *, mode: ApplyMode, dry_run: bool = False, try_timeout_s: int | None = None
    ) -> Applied:
        """Give the machine its config, or ask what it would do with it.

        `changed` is False only after a dry run that found the config in effect. Errors quote nothing of the config.
        """
        request = new("machine.ApplyConfigurationRequest", data=config, mode=ApplyMode(mode).value, dry_run=dry_run)
        if try_timeout_s is not None:
            request.try_mode_timeout.seconds = try_timeout_s
        texts = config_texts(config)
        message = self._only_message(calls.APPLY_CONFIGURATION, request, hide=texts)
        details = message.mode_details
        return Applied(
            mode=ApplyMode(message.mode),
            changed=not (dry_run and details.rstrip().endswith(_NO_CHANGES)),
            details=redacted_diff(details) if dry_run else without_texts(details, texts),
            warnings=tuple(without_texts(warning, texts) for warning in message.warnings),
        )

    def bootstrap(self, *, recover_etcd: bool = False, recover_skip_hash_check: bool = False) -> None:
        """Start etcd's first member here. AlreadyDoneError where it is there; NotReadyError while it is too early."""
        request = new(
            "machine.BootstrapRequest", recover_etcd=recover_etcd, recover_skip_hash_check=recover_skip_hash_check
        )
        self._only_message(calls.BOOTSTRAP, request)

    def kubeconfig(self) -> str:
        """An administrator's kubeconfig; a secret."""
        return self._repeat(
            calls.KUBECONFIG, lambda: streams.kubeconfig(self._chunks(calls.KUBECONFIG, new("machine.Empty")))
        )

    def services(self) -> tuple[Service, ...]:
        """Talos's services and their health."""
        message = self._only_message(calls.SERVICE_LIST, new("machine.Empty"))
        return tuple(
            Service(
                service.id,
                service.state,
                None if service.health.unknown or not service.HasField("health") else service.health.healthy,
                service.health.last_message,
            )
            for service in message.services
        )

    def etcd_members(self) -> tuple[EtcdMember, ...]:
        """The members of etcd, as this machine's cluster knows them."""
        message = self._only_message(calls.ETCD_MEMBER_LIST, new("machine.EtcdMemberListRequest"))
        return tuple(EtcdMember(m.id, m.hostname, tuple(m.peer_urls), m.is_learner) for m in message.members)

    def etcd_remove_member(self, member_id: int) -> None:
        """Take a member out of etcd, by this machine's vote: for one whose machine will not answer again.

        AbsentError where etcd has no such member.
        """
        self._only_message(calls.ETCD_REMOVE_MEMBER, new("machine.EtcdRemoveMemberByIDRequest", member_id=member_id))

    def machine_status(self) -> MachineStatus:
        """The machine's stage and readiness."""
        spec = self._resource("runtime", "MachineStatuses.runtime.talos.dev", "machine", "runtime.MachineStatusSpec")
        stage = STAGES[spec.stage] if 0 <= spec.stage < len(STAGES) else f"stage {spec.stage}"
        unmet = tuple(f"{it.name}: {it.reason}" for it in spec.status.unmet_conditions)
        return MachineStatus(stage, spec.status.ready, unmet)

    def machine_config(self) -> str:
        """The config that the machine runs by; a secret. DeniedError for roles other than os:admin."""
        kind, message = "MachineConfigs.config.talos.dev", "config.MachineConfigSpec"
        return str(self._resource("config", kind, "v1alpha1", message).yaml_marshalled.decode())

    def extensions(self) -> tuple[ExtensionStatus, ...]:
        """What is built into the running image; the one called `schematic` has the schematic's id as its version."""
        return self._all(resources.EXTENSIONS)

    def boot_state(self) -> BootState | None:
        """How it booted; None where its Talos does not report that."""
        return next(iter(self._all(resources.BOOT_STATE)), None)

    def volumes(self) -> tuple[MachineVolume, ...]:
        """Volumes of its config and of Talos itself."""
        return self._all(resources.VOLUMES)

    def disks(self) -> tuple[MachineDisk, ...]:
        """Its disks, as selectors of volumes see them."""
        return self._all(resources.DISKS)

    def kernel_parameters(self) -> frozenset[str]:
        """Settings that Talos has written into the kernel, such as `proc.sys.vm.swappiness`."""
        return frozenset(self._all(resources.KERNEL_PARAMETERS)) - {""}

    def _resource(self, namespace: str, kind: str, id_: str, message: str) -> Any:
        request = new("cosi.resource.GetRequest", namespace=namespace, type=kind, id=id_)
        return decode(message, self._unary(calls.RESOURCE_GET, request).resource.spec.proto_spec)

    def _all(self, wanted: resources.ResourceType[_Result]) -> tuple[_Result, ...]:
        """Every resource of a type."""

        def attempt() -> tuple[_Result, ...]:
            request = new("cosi.resource.ListRequest", namespace="runtime", type=wanted.kind)
            return tuple(wanted.of(reply.resource) for reply in self._stream(calls.RESOURCE_LIST, request))

        return self._repeat(calls.RESOURCE_LIST, attempt)

    def boot_id(self) -> str:
        """A UUID that is another one after every boot."""
        return self._read("/proc/sys/kernel/random/boot_id", streams.boot_id)

    def kernel_modules(self) -> frozenset[str]:
        """Names of the kernel modules that are loaded."""
        lines = self._read("/proc/modules", streams.lines)
        return frozenset(line.split()[0] for line in lines if line.strip())

    def nvidia_driver(self) -> str:
        """Version of NVIDIA's driver in the kernel. MachineApiError where its module is not loaded."""
        return self._read("/proc/driver/nvidia/version", streams.driver_version)

    def _read(self, path: str, parse: Callable[[Iterator[bytes]], _Result]) -> _Result:
        request = new("machine.ReadRequest", path=path)
        return self._repeat(calls.READ, lambda: parse(self._chunks(calls.READ, request)))

    def pull_image(self, image: str, *, on_progress: Callable[[str], None] = lambda _: None) -> str:
        """Have the machine pull an installer image; returns its name with digest. Does nothing if it is there."""
        request = new("machine.ImageServicePullRequest", containerd=_CONTAINERD_SYSTEM, image_ref=image)
        return self._repeat(
            calls.IMAGE_PULL, lambda: streams.pulled_name(self._stream(calls.IMAGE_PULL, request), on_progress)
        )

    def install_upgrade(self, image: str, *, on_message: Callable[[str], None] = lambda _: None) -> None:
        """Write an installer's system to the slot that boots next; does not reboot. UpgradeFailedError if it fails."""
        request = new(
            "machine.LifecycleServiceUpgradeRequest", containerd=_CONTAINERD_SYSTEM, source={"image_name": image}
        )
        call = calls.LIFECYCLE_UPGRADE
        with self._as_api_errors(call):
            exit_code = streams.exit_code(self._stream(call, request), on_message)
        if exit_code != 0:
            raise UpgradeFailedError(node=self.node, call=call.name, cause=f"the installer ended with {exit_code}")

    def upgrade_legacy(self, image: str, *, force: bool = False, reboot: RebootMode = RebootMode.DEFAULT) -> str:
        """Install and reboot in one call, as before Talos 1.13; returns the id of what was started."""
        if reboot is RebootMode.FORCE:
            raise ValueError("the legacy upgrade cannot reboot by force; fix: DEFAULT or POWERCYCLE")
        request = new("machine.UpgradeRequest", image=image, preserve=True, force=force, reboot_mode=reboot.value)
        return str(self._only_message(calls.UPGRADE_LEGACY, request).actor_id)

    def reboot(self, *, mode: RebootMode = RebootMode.DEFAULT) -> str:
        """Restart the machine; returns at once, with the id of what was started."""
        return str(self._only_message(calls.REBOOT, new("machine.RebootRequest", mode=mode.value)).actor_id)

    def reset(
        self,
        *,
        wipe: WipeMode,
        graceful: bool,
        reboot: bool,
        partitions: tuple[str, ...] = (),
        disks: tuple[str, ...] = (),
    ) -> str:
        """Erase the machine. `graceful` leaves etcd and drains first; partitions (labels) and disks narrow the wipe."""
        request = new(
            "machine.ResetRequest",
            graceful=graceful,
            reboot=reboot,
            mode=wipe.value,
            system_partitions_to_wipe=[{"label": label, "wipe": True} for label in partitions],
            user_disks_to_wipe=list(disks),
        )
        return str(self._only_message(calls.RESET, request).actor_id)

    def generate_client_configuration(self, *, roles: tuple[str, ...], lifetime_s: int) -> ClientConfig:
        """Issue a client certificate with these roles (`os:reader`, ...); only control planes can."""
        request = new("machine.GenerateClientConfigurationRequest", roles=list(roles), crt_ttl={"seconds": lifetime_s})
        message = self._only_message(calls.GENERATE_CLIENT_CONFIGURATION, request)
        return ClientConfig(message.ca, message.crt, message.key, message.talosconfig.decode())

    def etcd_snapshot(self) -> Iterator[bytes]:
        """A snapshot of etcd's data, as it comes. Raises at the end if it is not whole: then throw away what came."""
        call = calls.ETCD_SNAPSHOT
        with self._as_api_errors(call):
            yield from streams.checked_snapshot(self._chunks(call, new("machine.EtcdSnapshotRequest")))

    def etcd_recover(self, snapshot: Iterable[bytes]) -> None:
        """Give the machine a snapshot that `bootstrap(recover_etcd=True)` starts etcd from; changes nothing yet."""
        call = calls.ETCD_RECOVER
        pieces = (new("common.Data", bytes=piece).SerializeToString() for piece in snapshot)
        with self._as_api_errors(call):
            wire = self._transport.unary(call, pieces, metadata=self._metadata, deadline_s=self._deadline_s(call))
            self._first(call, decode(call.reply, wire))

    def _only_message(self, call: Call, request: Any, *, hide: frozenset[str] = frozenset()) -> Any:
        """The reply's only message, after looking for the error that it may carry."""
        return self._unary(call, request, hide=hide, unpack=lambda reply: self._first(call, reply))

    def _first(self, call: Call, reply: Any) -> Any:
        for message in reply.messages:
            if failure := streams.carried_error(message):
                raise failure
        if not reply.messages:
            raise RpcError(Code.INTERNAL, f"{call.name} was answered without a message")
        return reply.messages[0]

    def _unary(
        self,
        call: Call,
        request: Any,
        *,
        hide: frozenset[str] = frozenset(),
        unpack: Callable[[Any], Any] = lambda reply: reply,
    ) -> Any:
        wire = request.SerializeToString()

        def attempt() -> Any:
            reply = self._transport.unary(call, [wire], metadata=self._metadata, deadline_s=self._deadline_s(call))
            return unpack(decode(call.reply, reply))

        return self._repeat(call, attempt, hide=hide)

    def _stream(self, call: Call, request: Any) -> Iterator[Any]:
        wire = request.SerializeToString()
        for reply in self._transport.stream(call, [wire], metadata=self._metadata, deadline_s=self._deadline_s(call)):
            yield decode(call.reply, reply)

    def _chunks(self, call: Call, request: Any) -> Iterator[bytes]:
        """The bytes of a stream of common.Data; raises the error that a message may carry."""
        for message in self._stream(call, request):
            if failure := streams.carried_error(message):
                raise failure
            yield message.bytes

    def _repeat(self, call: Call, attempt: Callable[[], _Result], *, hide: frozenset[str] = frozenset()) -> _Result:
        """The attempt's result, repeated with growing pauses after what may pass, where repeating is safe."""
        ends = time.monotonic() + self._deadline_s(call)
        with self._as_api_errors(call, hide=hide):
            for number in range(1, self._attempts):
                try:
                    return attempt()
                except RpcError as failure:
                    pause_s = _pause_s(number, self._longest_pause_s)
                    safe = call.repeatable or not failure.sent
                    if failure.code not in _PASSING or not safe or time.monotonic() + pause_s > ends:
                        raise
                    self._sleep(pause_s)
            return attempt()

    def _deadline_s(self, call: Call) -> float:
        return min(call.deadline_s, self._call_timeout_s)

    @contextmanager
    def _as_api_errors(self, call: Call, *, hide: frozenset[str] = frozenset()) -> Iterator[None]:
        """Turn what a transport or a decoder raises into a MachineApiError."""
        try:
            yield
        except RpcError as failure:
            raise api_error(self.node, call.name, _hidden(failure, hide)) from None
        except DecodeError:
            garbled = RpcError(Code.INTERNAL, "an answer that is no message of this call")
            raise api_error(self.node, call.name, garbled) from None


def _hidden(failure: RpcError, texts: frozenset[str]) -> RpcError:
    """The failure without quotations of these texts."""
    failure.message = without_texts(failure.message, texts) if texts else failure.message
    return failure


def _pause_s(number: int, longest_s: float) -> float:
    # Jitter, so that clients of one broken machine do not come back at once.
    return random.uniform(0.5, 1.0) * min(0.25 * 2.0 ** (number - 1), longest_s)  # noqa: S311
