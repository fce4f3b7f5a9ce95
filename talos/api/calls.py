"""Every call of the machine API that is used, in one table: its wire names, its transport, and what is safe about it.

httpx drops HTTP/2 trailers, where gRPC puts a call's status. A call goes over httpx if its success shows in the body
alone (`proof`) and it changes nothing, so that it may be asked again over grpcio where the status is hidden. Every call
whose status decides what happens next, or that changes the machine, goes over grpcio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Call:
    """One method: full gRPC path, message names, and how it is treated."""

    path: str
    request: str
    reply: str
    streams: bool = False
    """The reply is several messages."""
    uploads: bool = False
    """The request is several messages."""
    transport: Literal["httpx", "grpcio"]
    repeatable: bool
    """May be sent again after a failure in which it may have had its effect."""
    deadline_s: float
    proof: str
    """By what a complete answer is known, where the status is not to be seen."""

    @property
    def name(self) -> str:
        """The method without its service."""
        return self.path.rpartition("/")[2]


_MACHINE = "/machine.MachineService/"
_ONE_REPLY = "one whole reply message; a Talos handler that fails sends none"

VERSION = Call(
    path=f"{_MACHINE}Version",
    request="machine.Empty",
    reply="machine.VersionResponse",
    transport="httpx",
    repeatable=True,
    deadline_s=10,
    proof=_ONE_REPLY,
)
SERVICE_LIST = Call(
    path=f"{_MACHINE}ServiceList",
    request="machine.Empty",
    reply="machine.ServiceListResponse",
    transport="httpx",
    repeatable=True,
    deadline_s=10,
    proof=_ONE_REPLY,
)
ETCD_MEMBER_LIST = Call(
    path=f"{_MACHINE}EtcdMemberList",
    request="machine.EtcdMemberListRequest",
    reply="machine.EtcdMemberListResponse",
    transport="httpx",
    repeatable=True,
    deadline_s=15,
    proof=_ONE_REPLY,
)
RESOURCE_GET = Call(
    path="/cosi.resource.State/Get",
    request="cosi.resource.GetRequest",
    reply="cosi.resource.GetResponse",
    transport="httpx",
    repeatable=True,
    deadline_s=10,
    proof=_ONE_REPLY,
)
KUBECONFIG = Call(
    path=f"{_MACHINE}Kubeconfig",
    request="machine.Empty",
    reply="common.Data",
    streams=True,
    transport="httpx",
    repeatable=True,
    deadline_s=30,
    proof="gzip's closing checksum and length",
)
BOOT_ID = Call(
    path=f"{_MACHINE}Read",
    request="machine.ReadRequest",
    reply="common.Data",
    streams=True,
    transport="httpx",
    repeatable=True,
    deadline_s=10,
    proof="a whole UUID",
)
ETCD_SNAPSHOT = Call(
    path=f"{_MACHINE}EtcdSnapshot",
    request="machine.EtcdSnapshotRequest",
    reply="common.Data",
    streams=True,
    transport="httpx",
    repeatable=True,
    deadline_s=900,
    proof="the SHA-256 that etcd appends",
)
# A list has no last element that is known as such, so only the status says that it is whole.
RESOURCE_LIST = Call(
    path="/cosi.resource.State/List",
    request="cosi.resource.ListRequest",
    reply="cosi.resource.ListResponse",
    streams=True,
    transport="grpcio",
    repeatable=True,
    deadline_s=15,
    proof="none",
)
APPLY_CONFIGURATION = Call(
    path=f"{_MACHINE}ApplyConfiguration",
    request="machine.ApplyConfigurationRequest",
    reply="machine.ApplyConfigurationResponse",
    transport="grpcio",
    repeatable=False,
    deadline_s=60,
    proof=_ONE_REPLY,
)
BOOTSTRAP = Call(
    path=f"{_MACHINE}Bootstrap",
    request="machine.BootstrapRequest",
    reply="machine.BootstrapResponse",
    transport="grpcio",
    repeatable=False,
    deadline_s=60,
    proof=_ONE_REPLY,
)
REBOOT = Call(
    path=f"{_MACHINE}Reboot",
    request="machine.RebootRequest",
    reply="machine.RebootResponse",
    transport="grpcio",
    repeatable=False,
    deadline_s=30,
    proof=_ONE_REPLY,
)
# Sent again it finds no such member; but whether the first one had its effect decides what its caller does next.
ETCD_REMOVE_MEMBER = Call(
    path=f"{_MACHINE}EtcdRemoveMemberByID",
    request="machine.EtcdRemoveMemberByIDRequest",
    reply="machine.EtcdRemoveMemberByIDResponse",
    transport="grpcio",
    repeatable=False,
    deadline_s=30,
    proof=_ONE_REPLY,
)
RESET = Call(
    path=f"{_MACHINE}Reset",
    request="machine.ResetRequest",
    reply="machine.ResetResponse",
    transport="grpcio",
    repeatable=False,
    deadline_s=60,
    proof=_ONE_REPLY,
)
UPGRADE_LEGACY = Call(
    path=f"{_MACHINE}Upgrade",
    request="machine.UpgradeRequest",
    reply="machine.UpgradeResponse",
    transport="grpcio",
    repeatable=False,
    deadline_s=600,
    proof=_ONE_REPLY,
)
GENERATE_CLIENT_CONFIGURATION = Call(
    path=f"{_MACHINE}GenerateClientConfiguration",
    request="machine.GenerateClientConfigurationRequest",
    reply="machine.GenerateClientConfigurationResponse",
    transport="grpcio",
    repeatable=True,
    deadline_s=30,
    proof=_ONE_REPLY,
)
# Pulling what is there already does nothing, so a pull may be repeated.
IMAGE_PULL = Call(
    path="/machine.ImageService/Pull",
    request="machine.ImageServicePullRequest",
    reply="machine.ImageServicePullResponse",
    streams=True,
    transport="grpcio",
    repeatable=True,
    deadline_s=1800,
    proof="the pulled image's name",
)
LIFECYCLE_UPGRADE = Call(
    path="/machine.LifecycleService/Upgrade",
    request="machine.LifecycleServiceUpgradeRequest",
    reply="machine.LifecycleServiceUpgradeResponse",
    streams=True,
    transport="grpcio",
    repeatable=False,
    deadline_s=1800,
    proof="the installer's exit code",
)
# Only puts a file in place, each time from its beginning; a repeat would need the snapshot's source to be read again.
ETCD_RECOVER = Call(
    path=f"{_MACHINE}EtcdRecover",
    request="common.Data",
    reply="machine.EtcdRecoverResponse",
    uploads=True,
    transport="grpcio",
    repeatable=False,
    deadline_s=900,
    proof=_ONE_REPLY,
)

CALLS = (
    VERSION,
    SERVICE_LIST,
    ETCD_MEMBER_LIST,
    RESOURCE_GET,
    RESOURCE_LIST,
    KUBECONFIG,
    BOOT_ID,
    ETCD_SNAPSHOT,
    APPLY_CONFIGURATION,
    BOOTSTRAP,
    REBOOT,
    ETCD_REMOVE_MEMBER,
    RESET,
    UPGRADE_LEGACY,
    GENERATE_CLIENT_CONFIGURATION,
    IMAGE_PULL,
    LIFECYCLE_UPGRADE,
    ETCD_RECOVER,
)
