"""Every call of the machine API that is used, in one table: its wire names, its deadline, and whether it may repeat."""

from __future__ import annotations

from dataclasses import dataclass


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
    repeatable: bool
    """May be sent again after a failure in which it may have had its effect."""
    deadline_s: float

    @property
    def name(self) -> str:
        """The method without its service."""
        return self.path.rpartition("/")[2]


_MACHINE = "/machine.MachineService/"

VERSION = Call(
    path=f"{_MACHINE}Version",
    request="machine.Empty",
    reply="machine.VersionResponse",
    repeatable=True,
    deadline_s=10,
)
SERVICE_LIST = Call(
    path=f"{_MACHINE}ServiceList",
    request="machine.Empty",
    reply="machine.ServiceListResponse",
    repeatable=True,
    deadline_s=10,
)
ETCD_MEMBER_LIST = Call(
    path=f"{_MACHINE}EtcdMemberList",
    request="machine.EtcdMemberListRequest",
    reply="machine.EtcdMemberListResponse",
    repeatable=True,
    deadline_s=15,
)
RESOURCE_GET = Call(
    path="/cosi.resource.State/Get",
    request="cosi.resource.GetRequest",
    reply="cosi.resource.GetResponse",
    repeatable=True,
    deadline_s=10,
)
KUBECONFIG = Call(
    path=f"{_MACHINE}Kubeconfig",
    request="machine.Empty",
    reply="common.Data",
    streams=True,
    repeatable=True,
    deadline_s=30,
)
READ = Call(
    path=f"{_MACHINE}Read",
    request="machine.ReadRequest",
    reply="common.Data",
    streams=True,
    repeatable=True,
    deadline_s=10,
)
ETCD_SNAPSHOT = Call(
    path=f"{_MACHINE}EtcdSnapshot",
    request="machine.EtcdSnapshotRequest",
    reply="common.Data",
    streams=True,
    repeatable=True,
    deadline_s=900,
)
RESOURCE_LIST = Call(
    path="/cosi.resource.State/List",
    request="cosi.resource.ListRequest",
    reply="cosi.resource.ListResponse",
    streams=True,
    repeatable=True,
    deadline_s=15,
)
APPLY_CONFIGURATION = Call(
    path=f"{_MACHINE}ApplyConfiguration",
    request="machine.ApplyConfigurationRequest",
    reply="machine.ApplyConfigurationResponse",
    repeatable=False,
    deadline_s=60,
)
BOOTSTRAP = Call(
    path=f"{_MACHINE}Bootstrap",
    request="machine.BootstrapRequest",
    reply="machine.BootstrapResponse",
    repeatable=False,
    deadline_s=60,
)
REBOOT = Call(
    path=f"{_MACHINE}Reboot",
    request="machine.RebootRequest",
    reply="machine.RebootResponse",
    repeatable=False,
    deadline_s=30,
)
# Sent again it finds no such member; but whether the first one had its effect decides what its caller does next.
ETCD_REMOVE_MEMBER = Call(
    path=f"{_MACHINE}EtcdRemoveMemberByID",
    request="machine.EtcdRemoveMemberByIDRequest",
    reply="machine.EtcdRemoveMemberByIDResponse",
    repeatable=False,
    deadline_s=30,
)
RESET = Call(
    path=f"{_MACHINE}Reset",
    request="machine.ResetRequest",
    reply="machine.ResetResponse",
    repeatable=False,
    deadline_s=60,
)
UPGRADE_LEGACY = Call(
    path=f"{_MACHINE}Upgrade",
    request="machine.UpgradeRequest",
    reply="machine.UpgradeResponse",
    repeatable=False,
    deadline_s=600,
)
GENERATE_CLIENT_CONFIGURATION = Call(
    path=f"{_MACHINE}GenerateClientConfiguration",
    request="machine.GenerateClientConfigurationRequest",
    reply="machine.GenerateClientConfigurationResponse",
    repeatable=True,
    deadline_s=30,
)
# Pulling what is there already does nothing, so a pull may be repeated.
IMAGE_PULL = Call(
    path="/machine.ImageService/Pull",
    request="machine.ImageServicePullRequest",
    reply="machine.ImageServicePullResponse",
    streams=True,
    repeatable=True,
    deadline_s=1800,
)
LIFECYCLE_UPGRADE = Call(
    path="/machine.LifecycleService/Upgrade",
    request="machine.LifecycleServiceUpgradeRequest",
    reply="machine.LifecycleServiceUpgradeResponse",
    streams=True,
    repeatable=False,
    deadline_s=1800,
)
# Only puts a file in place, each time from its beginning; a repeat would need the snapshot's source to be read again.
ETCD_RECOVER = Call(
    path=f"{_MACHINE}EtcdRecover",
    request="common.Data",
    reply="machine.EtcdRecoverResponse",
    uploads=True,
    repeatable=False,
    deadline_s=900,
)

CALLS = (
    VERSION,
    SERVICE_LIST,
    ETCD_MEMBER_LIST,
    RESOURCE_GET,
    RESOURCE_LIST,
    KUBECONFIG,
    READ,
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
