"""The client against a real gRPC server behind Talos's own kind of certificates: every call, every kind of failure."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from talos.api import calls, errors
from talos.api.client import MachineClient, connect
from talos.api.messages import new
from talos.api.results import ApplyMode, RebootMode, WipeMode
from talos.api.tls import Trust
from tests.unit.talos_api.machine_certificates import LOOPBACK, cluster
from tests.unit.talos_api.machine_server import Machine, carried, data, fail, serving

CANARY = "canary-7a30c4"
CONFIG = f"""\
version: v1alpha1
machine:
  type: worker
  token: {CANARY}-token
  files:
    - content: |
        first {CANARY}-line
        second line of a file
cluster:
  secret: {CANARY}secret/+=
""".encode()


@pytest.fixture
def machine() -> Iterator[Machine]:
    with serving(Machine.of(cluster())) as running:
        yield running


@pytest.fixture
def client(machine: Machine) -> Iterator[MachineClient]:
    with connecting(machine) as connected:
        yield connected


def connecting(machine: Machine, trust: Trust | None = None, **options: Any) -> MachineClient:
    connected = connect(LOOPBACK, trust or cluster().client(), node="cp-1", port=machine.port, **options)
    connected._sleep = lambda _: None
    return connected


def archive(text: str = "kind: Config", name: str = "kubeconfig") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(buffer.getvalue())


def snapshot(pages: int = 3) -> bytes:
    body = bytes(range(256)) * 2 * pages
    return body + hashlib.sha256(body).digest()


def version_reply(tag: str = "v1.13.9", **fields: Any) -> Any:
    version = new("machine.VersionInfo", tag=tag, sha="abc", arch="amd64")
    platform = new("machine.PlatformInfo", name="metal", mode="metal")
    return new(
        "machine.VersionResponse", messages=[new("machine.Version", version=version, platform=platform, **fields)]
    )


def resource(kind: str, **fields: Any) -> Any:
    spec = new(kind, **fields).SerializeToString()
    return new("cosi.resource.Resource", spec={"proto_spec": spec})


def acknowledged(reply: str, message: str, **fields: Any) -> Callable[[Any, Any], Any]:
    return lambda _request, _context: new(reply, messages=[new(message, **fields)])


def test_version(machine: Machine, client: MachineClient) -> None:
    machine.answers["Version"] = lambda _request, _context: version_reply()
    version = client.version()
    assert (version.tag, version.arch, version.platform, version.mode) == ("v1.13.9", "amd64", "metal", "metal")


def test_a_call_may_be_passed_on_to_another_machine(machine: Machine) -> None:
    machine.answers["Version"] = lambda _request, _context: version_reply()
    machine.answers["Bootstrap"] = acknowledged("machine.BootstrapResponse", "machine.Acknowledged")
    with connecting(machine, forward_to="10.0.0.7") as client:
        client.version()
        client.bootstrap()
    assert [seen.metadata["node"] for seen in machine.seen] == ["10.0.0.7", "10.0.0.7"]


def test_services_and_members_and_status(machine: Machine, client: MachineClient) -> None:
    health = new("machine.ServiceHealth", healthy=True, last_message="ok")
    services = [
        new("machine.ServiceInfo", id="etcd", state="Running", health=health),
        new("machine.ServiceInfo", id="udevd", state="Running", health=new("machine.ServiceHealth", unknown=True)),
        new("machine.ServiceInfo", id="trustd", state="Waiting", health=new("machine.ServiceHealth", healthy=False)),
    ]
    machine.answers["ServiceList"] = acknowledged(
        "machine.ServiceListResponse", "machine.ServiceList", services=services
    )
    member = new("machine.EtcdMember", id=5, hostname="cp-1", peer_urls=["https://10.0.0.2:2380"])
    machine.answers["EtcdMemberList"] = acknowledged(
        "machine.EtcdMemberListResponse", "machine.EtcdMembers", members=[member]
    )
    condition = new("runtime.UnmetCondition", name="nodeReady", reason="node is not ready")
    status = new("runtime.MachineStatusStatus", ready=False, unmet_conditions=[condition])
    machine.answers["Get"] = lambda _request, _context: new(
        "cosi.resource.GetResponse", resource=resource("runtime.MachineStatusSpec", stage=4, status=status)
    )
    assert [(s.id, s.healthy) for s in client.services()] == [("etcd", True), ("udevd", None), ("trustd", False)]
    assert client.etcd_members()[0].peer_urls == ("https://10.0.0.2:2380",)
    machine_status = client.machine_status()
    assert (machine_status.stage, machine_status.ready, machine_status.unmet) == (
        "running",
        False,
        ("nodeReady: node is not ready",),
    )
    assert machine.asked(calls.RESOURCE_GET)[0].type == "MachineStatuses.runtime.talos.dev"


def test_extensions_need_the_status_of_their_list(machine: Machine, client: MachineClient) -> None:
    def listed(request: Any, context: Any) -> Iterator[Any]:
        metadata = new("runtime.ExtensionMetadata", name="schematic", version="376567")
        yield new("cosi.resource.ListResponse", resource=resource("runtime.ExtensionStatusSpec", metadata=metadata))
        if len(machine.asked(calls.RESOURCE_LIST)) == 1:
            fail(context, grpc.StatusCode.UNAVAILABLE, "the rest is lost")

    machine.answers["List"] = listed
    assert [(e.name, e.version) for e in client.extensions()] == [("schematic", "376567")]
    assert len(machine.asked(calls.RESOURCE_LIST)) == 2


def test_kubeconfig_comes_in_pieces(machine: Machine, client: MachineClient) -> None:
    whole = archive("kind: Config\nusers: []\n")
    machine.answers["Kubeconfig"] = lambda _request, _context: data(whole[:10], whole[10:])
    assert client.kubeconfig() == "kind: Config\nusers: []\n"


def test_the_reason_of_a_cut_kubeconfig_is_seen(machine: Machine, client: MachineClient) -> None:
    def cut(request: Any, context: Any) -> Iterator[Any]:
        yield new("common.Data", bytes=archive()[:20])
        fail(context, grpc.StatusCode.FAILED_PRECONDITION, "the control plane is not up")

    machine.answers["Kubeconfig"] = cut
    with pytest.raises(errors.NotReadyError, match="the control plane is not up"):
        client.kubeconfig()
    assert len(machine.asked(calls.KUBECONFIG)) == 1


@pytest.mark.parametrize(
    "content",
    [b"no gzip at all", archive(name="other"), gzip.compress(b"no archive" * 100)],
    # The bytes hold the time, and the workers of a parallel run must agree on the tests' names.
    ids=["no gzip", "another file", "no archive"],
)
def test_what_is_no_kubeconfig_is_refused(machine: Machine, client: MachineClient, content: bytes) -> None:
    machine.answers["Kubeconfig"] = lambda _request, _context: data(content)
    with pytest.raises(errors.MachineApiError, match="archive"):
        client.kubeconfig()


def test_a_failure_inside_a_stream_is_found(machine: Machine, client: MachineClient) -> None:
    metadata = carried("rpc error", code=7, text="not for this role")
    machine.answers["Kubeconfig"] = lambda _request, _context: iter([new("common.Data", metadata=metadata)])
    with pytest.raises(errors.DeniedError, match="not for this role"):
        client.kubeconfig()


def test_boot_id(machine: Machine, client: MachineClient) -> None:
    machine.answers["Read"] = lambda _request, _context: data(b"0d3b8c6e-6b0f-4f3e-9d55-0a9df28c1f57\n")
    assert client.boot_id() == "0d3b8c6e-6b0f-4f3e-9d55-0a9df28c1f57"
    machine.answers["Read"] = lambda _request, _context: data(b"0d3b8c6e-6b0f")
    with pytest.raises(errors.UnreachableError, match="not a whole UUID"):
        client.boot_id()


def test_snapshot_is_known_to_be_whole_by_its_own_checksum(machine: Machine, client: MachineClient) -> None:
    whole = snapshot()
    machine.answers["EtcdSnapshot"] = lambda _request, _context: data(whole[:100], whole[100:1540], whole[1540:])
    assert b"".join(client.etcd_snapshot()) == whole


@pytest.mark.parametrize("cut", [snapshot()[:-1], snapshot()[:512], snapshot()[:-32], b"\1" + snapshot()[1:], b""])
def test_a_cut_snapshot_is_an_error(machine: Machine, client: MachineClient, cut: bytes) -> None:
    machine.answers["EtcdSnapshot"] = lambda _request, _context: data(cut)
    with pytest.raises(errors.UnreachableError, match="not whole"):
        list(client.etcd_snapshot())
    machine.answers["EtcdSnapshot"] = lambda _request, context: fail(context, grpc.StatusCode.UNAVAILABLE, "no leader")
    with pytest.raises(errors.UnreachableError, match="no leader"):
        list(client.etcd_snapshot())
    assert len(machine.asked(calls.ETCD_SNAPSHOT)) == 2


def test_recovery_uploads_the_snapshot(machine: Machine, client: MachineClient) -> None:
    machine.answers["EtcdRecover"] = acknowledged("machine.EtcdRecoverResponse", "machine.Acknowledged")
    client.etcd_recover([b"one", b"two"])
    assert [piece.bytes for piece in machine.asked(calls.ETCD_RECOVER)[0]] == [b"one", b"two"]
    machine.answers["EtcdRecover"] = acknowledged(
        "machine.EtcdRecoverResponse", "machine.Acknowledged", metadata=carried("no space left")
    )
    with pytest.raises(errors.MachineApiError, match="EtcdRecover: no space left"):
        client.etcd_recover([b"one"])


@pytest.mark.parametrize("mode", list(ApplyMode))
def test_the_mode_is_always_on_the_wire(machine: Machine, client: MachineClient, mode: ApplyMode) -> None:
    machine.answers["ApplyConfiguration"] = acknowledged(
        "machine.ApplyConfigurationResponse", "machine.ApplyConfiguration", mode=mode.value
    )
    applied = client.apply_configuration(CONFIG, mode=mode)
    request = machine.asked(calls.APPLY_CONFIGURATION)[0]
    assert (request.mode, request.HasField("mode"), request.data) == (mode.value, True, CONFIG)
    assert (applied.mode, applied.changed) == (mode, True)


def test_a_dry_run_says_whether_anything_would_change(machine: Machine, client: MachineClient) -> None:
    summary = "Dry run summary:\nApplied configuration without a reboot (skipped in dry-run).\nConfig diff:\n\n"
    replies = [
        f"{summary}--- a\n+++ b\n   machine:\n-    token: {CANARY}-old\n+    token: {CANARY}\n",
        f"{summary}No changes.\n",
    ]
    machine.answers["ApplyConfiguration"] = lambda _request, _context: new(
        "machine.ApplyConfigurationResponse",
        messages=[
            new("machine.ApplyConfiguration", mode=2, mode_details=replies.pop(0), warnings=[f"see {CANARY}-token"])
        ],
    )
    changed = client.apply_configuration(CONFIG, mode=ApplyMode.AUTO, dry_run=True)
    assert changed.changed
    assert "+    token: ***" in changed.details
    assert CANARY not in repr(changed)
    assert not client.apply_configuration(CONFIG, mode=ApplyMode.AUTO, dry_run=True).changed


def test_no_error_quotes_the_config(machine: Machine, client: MachineClient) -> None:
    def refuse(request: Any, context: Any) -> Any:
        text = request.data.decode()
        fail(context, grpc.StatusCode.INVALID_ARGUMENT, f"yaml: cannot unmarshal `{CANARY}-tok...` in {text}")

    machine.answers["ApplyConfiguration"] = refuse
    with pytest.raises(errors.InvalidError) as raised:
        client.apply_configuration(CONFIG, mode=ApplyMode.AUTO)
    assert "cannot unmarshal" in str(raised.value)
    assert CANARY not in str(raised.value)
    assert raised.value.__suppress_context__
    machine.answers["ApplyConfiguration"] = acknowledged(
        "machine.ApplyConfigurationResponse", "machine.ApplyConfiguration", metadata=carried(f"bad {CANARY}-token")
    )
    with pytest.raises(errors.MachineApiError) as inside:
        client.apply_configuration(CONFIG, mode=ApplyMode.AUTO)
    assert CANARY not in str(inside.value)


def test_bootstrap_tells_done_from_too_early(machine: Machine, client: MachineClient) -> None:
    def too_early(request: Any, context: Any) -> None:
        fail(context, grpc.StatusCode.FAILED_PRECONDITION, "time is not in sync yet")

    machine.answers["Bootstrap"] = too_early
    with pytest.raises(errors.NotReadyError, match="time is not in sync yet"):
        client.bootstrap()
    machine.answers["Bootstrap"] = acknowledged(
        "machine.BootstrapResponse", "machine.Acknowledged", metadata=carried("x", code=6, text="etcd is not empty")
    )
    with pytest.raises(errors.AlreadyDoneError, match="cp-1: Bootstrap: etcd is not empty") as raised:
        client.bootstrap()
    assert (raised.value.node, raised.value.call, raised.value.cause) == ("cp-1", "Bootstrap", "etcd is not empty")
    assert raised.value.fix
    assert len(machine.asked(calls.BOOTSTRAP)) == 2, "neither is repeated by the client"


def test_reads_are_repeated_and_changes_are_not(machine: Machine, client: MachineClient) -> None:
    def away(request: Any, context: Any) -> None:
        fail(context, grpc.StatusCode.UNAVAILABLE, "not now")

    machine.answers |= {"Version": away, "Reboot": away, "GenerateClientConfiguration": away}
    with pytest.raises(errors.UnreachableError):
        client.version()
    with pytest.raises(errors.UnreachableError):
        client.generate_client_configuration(roles=("os:reader",), lifetime_s=60)
    with pytest.raises(errors.UnreachableError):
        client.reboot()
    assert len(machine.asked(calls.VERSION)) >= 4
    assert len(machine.asked(calls.GENERATE_CLIENT_CONFIGURATION)) == 4
    assert len(machine.asked(calls.REBOOT)) == 1


def test_the_reason_of_a_failed_read_is_seen(machine: Machine, client: MachineClient) -> None:
    def refuse(request: Any, context: Any) -> None:
        fail(context, grpc.StatusCode.PERMISSION_DENIED, "not authorized")

    machine.answers["ServiceList"] = refuse
    with pytest.raises(errors.DeniedError, match="not authorized"):
        client.services()


def test_pull_and_upgrade(machine: Machine, client: MachineClient) -> None:
    def pull(request: Any, context: Any) -> Iterator[Any]:
        for offset in (0, 10, 100):
            progress = {"layer_id": "sha256:aa", "progress": {"offset": offset, "total": 100}}
            yield new("machine.ImageServicePullResponse", pull_progress=progress)
        yield new("machine.ImageServicePullResponse", name="factory/installer@sha256:00")

    machine.answers["Pull"] = pull
    reported: list[str] = []
    assert client.pull_image("factory/installer:v1", on_progress=reported.append) == "factory/installer@sha256:00"
    assert reported == ["layer sha256:aa: 0 %", "layer sha256:aa: 100 %"]
    machine.answers["Pull"] = lambda _request, _context: iter([])
    with pytest.raises(errors.UnreachableError, match="without the image's name"):
        client.pull_image("factory/installer:v1")

    def progress(*parts: Any) -> Callable[[Any, Any], Iterator[Any]]:
        kind = "machine.LifecycleServiceUpgradeResponse"
        return lambda _request, _context: iter([new(kind, progress=part) for part in parts])

    machine.answers["Upgrade"] = progress({"message": "writing"}, {"exit_code": 0})
    client.install_upgrade("factory/installer:v1", on_message=reported.append)
    assert reported[-1] == "writing"
    machine.answers["Upgrade"] = progress({"exit_code": 3})
    with pytest.raises(errors.UpgradeFailedError, match="ended with 3"):
        client.install_upgrade("factory/installer:v1")
    machine.answers["Upgrade"] = progress({"message": "writing"})
    with pytest.raises(errors.UnreachableError, match="exit code never came"):
        client.install_upgrade("factory/installer:v1")
    assert [r.source.image_name for r in machine.asked(calls.LIFECYCLE_UPGRADE)] == ["factory/installer:v1"] * 3


def test_reboot_reset_and_issue(machine: Machine, client: MachineClient) -> None:
    machine.answers["Reboot"] = acknowledged("machine.RebootResponse", "machine.Started", actor_id="a1")
    machine.answers["Reset"] = acknowledged("machine.ResetResponse", "machine.Started", actor_id="a2")
    assert client.reboot(mode=RebootMode.POWERCYCLE) == "a1"
    assert client.reset(wipe=WipeMode.SYSTEM_DISK, graceful=True, reboot=True, partitions=("STATE",)) == "a2"
    assert machine.asked(calls.REBOOT)[0].mode == 1
    reset = machine.asked(calls.RESET)[0]
    assert (reset.graceful, reset.reboot, reset.mode) == (True, True, 1)
    assert [(part.label, part.wipe) for part in reset.system_partitions_to_wipe] == [("STATE", True)]
    machine.answers["GenerateClientConfiguration"] = acknowledged(
        "machine.GenerateClientConfigurationResponse",
        "machine.GenerateClientConfiguration",
        key=CANARY.encode(),
        talosconfig=f"context: {CANARY}".encode(),
    )
    issued = client.generate_client_configuration(roles=("os:reader",), lifetime_s=3600)
    assert issued.talosconfig == f"context: {CANARY}"
    assert CANARY not in repr(issued)
    assert machine.asked(calls.GENERATE_CLIENT_CONFIGURATION)[0].crt_ttl.seconds == 3600


def test_a_reply_without_a_message_is_an_error(machine: Machine, client: MachineClient) -> None:
    machine.answers["Reboot"] = lambda _request, _context: new("machine.RebootResponse")
    with pytest.raises(errors.MachineApiError, match="without a message"):
        client.reboot()


def test_an_unreadable_reply_is_an_error(machine: Machine, client: MachineClient) -> None:
    machine.answers["Version"] = lambda _request, _context: b"\xff\xff\xff"
    with pytest.raises(errors.MachineApiError, match="no message of this call"):
        client.version()


def test_a_missing_call_is_reported_as_such(machine: Machine, client: MachineClient) -> None:
    with pytest.raises(errors.NotOfferedError):
        client.install_upgrade("image")
    with pytest.raises(errors.NotOfferedError):
        client.version()
