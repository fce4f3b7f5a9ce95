"""The messages of the machine API that this client uses, as protobuf classes built at run time.

Names and numbers are Talos v1.13.9's: api/machine/{machine,lifecycle,image}.proto, api/common/common.proto,
api/resource/definitions/{runtime/runtime,block/block}.proto, api/resource/config/config.proto; `cosi.*` is
cosi-project/runtime v1.14.1, api/v1alpha1.
Only fields that are used are named; others are skipped when read. Enums are int32, which is the same on the wire.
The descriptors are proto2, so that every field shows whether it was set: `exit_code: 0` is not `no exit code`.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SCHEMA = """
google.protobuf.Duration: seconds=1:int64 nanos=2:int32
google.protobuf.Timestamp: seconds=1:int64 nanos=2:int32
google.rpc.Status: code=1:int32 message=2:string
common.Metadata: hostname=1:string error=2:string status=3:google.rpc.Status
common.Data: metadata=1:common.Metadata bytes=2:bytes
common.ContainerdInstance: driver=1:int32 namespace=2:int32

machine.Empty:
machine.ApplyConfigurationRequest: data=1:bytes mode=4:int32 dry_run=5:bool try_mode_timeout=6:google.protobuf.Duration
machine.ApplyConfiguration: metadata=1:common.Metadata warnings=2:string* mode=3:int32 mode_details=4:string
machine.ApplyConfigurationResponse: messages=1:machine.ApplyConfiguration*
machine.BootstrapRequest: recover_etcd=1:bool recover_skip_hash_check=2:bool
machine.Acknowledged: metadata=1:common.Metadata
machine.BootstrapResponse: messages=1:machine.Acknowledged*
machine.RebootRequest: mode=1:int32
machine.Started: metadata=1:common.Metadata actor_id=2:string
machine.RebootResponse: messages=1:machine.Started*
machine.ResetPartitionSpec: label=1:string wipe=2:bool
machine.ResetRequest: graceful=1:bool reboot=2:bool system_partitions_to_wipe=3:machine.ResetPartitionSpec*
    user_disks_to_wipe=4:string* mode=5:int32
machine.ResetResponse: messages=1:machine.Started*
machine.UpgradeRequest: image=1:string preserve=2:bool stage=3:bool force=4:bool reboot_mode=5:int32
machine.Upgrade: metadata=1:common.Metadata ack=2:string actor_id=3:string
machine.UpgradeResponse: messages=1:machine.Upgrade*
machine.ServiceHealth: unknown=1:bool healthy=2:bool last_message=3:string
machine.ServiceInfo: id=1:string state=2:string health=4:machine.ServiceHealth
machine.ServiceList: metadata=1:common.Metadata services=2:machine.ServiceInfo*
machine.ServiceListResponse: messages=1:machine.ServiceList*
machine.VersionInfo: tag=1:string sha=2:string built=3:string go_version=4:string os=5:string arch=6:string
machine.FeaturesInfo: rbac=1:bool
machine.PlatformInfo: name=1:string mode=2:string
machine.Version: metadata=1:common.Metadata version=2:machine.VersionInfo platform=3:machine.PlatformInfo
    features=4:machine.FeaturesInfo
machine.VersionResponse: messages=1:machine.Version*
machine.EtcdMember: id=2:uint64 hostname=3:string peer_urls=4:string* client_urls=5:string* is_learner=6:bool
machine.EtcdMembers: metadata=1:common.Metadata legacy_members=2:string* members=3:machine.EtcdMember*
machine.EtcdMemberListRequest: query_local=1:bool
machine.EtcdMemberListResponse: messages=1:machine.EtcdMembers*
machine.EtcdRemoveMemberByIDRequest: member_id=1:uint64
machine.EtcdRemoveMemberByIDResponse: messages=1:machine.Acknowledged*
machine.EtcdSnapshotRequest:
machine.EtcdRecoverResponse: messages=1:machine.Acknowledged*
machine.ReadRequest: path=1:string
machine.GenerateClientConfigurationRequest: roles=1:string* crt_ttl=2:google.protobuf.Duration
machine.GenerateClientConfiguration: metadata=1:common.Metadata ca=2:bytes crt=3:bytes key=4:bytes talosconfig=5:bytes
machine.GenerateClientConfigurationResponse: messages=1:machine.GenerateClientConfiguration*
machine.ImageServicePullLayerProgress: status=1:int32 offset=3:int64 total=4:int64
machine.ImageServicePullProgress: layer_id=1:string progress=2:machine.ImageServicePullLayerProgress
machine.ImageServicePullRequest: containerd=1:common.ContainerdInstance image_ref=3:string
machine.ImageServicePullResponse: name=1:string pull_progress=2:machine.ImageServicePullProgress
machine.InstallArtifactsSource: image_name=1:string
machine.LifecycleServiceUpgradeRequest: containerd=1:common.ContainerdInstance source=2:machine.InstallArtifactsSource
machine.LifecycleServiceInstallProgress: message=1:string exit_code=2:int32
machine.LifecycleServiceUpgradeResponse: progress=1:machine.LifecycleServiceInstallProgress

storage.Disk: size=1:uint64 model=2:string device_name=3:string name=4:string serial=5:string wwid=8:string type=9:int32
    bus_path=10:string system_disk=11:bool
storage.Disks: metadata=1:common.Metadata disks=2:storage.Disk*
storage.DisksResponse: messages=1:storage.Disks*

cosi.resource.Metadata: namespace=1:string type=2:string id=3:string version=4:string owner=5:string phase=6:string
    created=7:google.protobuf.Timestamp updated=8:google.protobuf.Timestamp
cosi.resource.Spec: proto_spec=1:bytes yaml_spec=2:string
cosi.resource.Resource: metadata=1:cosi.resource.Metadata spec=2:cosi.resource.Spec
cosi.resource.GetRequest: namespace=1:string type=2:string id=3:string
cosi.resource.GetResponse: resource=1:cosi.resource.Resource
cosi.resource.ListRequest: namespace=1:string type=2:string
cosi.resource.ListResponse: resource=1:cosi.resource.Resource

config.MachineConfigSpec: yaml_marshalled=1:bytes
runtime.UnmetCondition: name=1:string reason=2:string
runtime.MachineStatusStatus: ready=1:bool unmet_conditions=2:runtime.UnmetCondition*
runtime.MachineStatusSpec: stage=1:int32 status=2:runtime.MachineStatusStatus
runtime.ExtensionMetadata: name=1:string version=2:string
runtime.ExtensionStatusSpec: image=1:string metadata=2:runtime.ExtensionMetadata
runtime.SecurityStateSpec: secure_boot=1:bool pcr_signing_key_fingerprint=3:string booted_with_uki=5:bool
runtime.KernelParamStatusSpec: current=1:string unsupported=3:bool

block.DiskSpec: size=1:uint64 model=5:string serial=6:string wwid=8:string bus_path=10:string dev_path=14:string
block.VolumeStatusSpec: phase=1:int32 location=2:string error_message=3:string parent_location=7:string
    encryption_provider=12:int32
"""
_FIELD = re.compile(r"(\w+)=(\d+):([\w.]+)(\*?)")


def _build(schema: str) -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="machine_api.proto", package="t", syntax="proto2")
    lines = [line for line in re.sub(r"\n +", " ", schema).splitlines() if line]
    for line in lines:
        name, _, fields = line.partition(":")
        message = file.message_type.add(name=_flat(name))
        for field, number, kind, repeated in _FIELD.findall(fields):
            descriptor = message.field.add(name=field, number=int(number))
            descriptor.label = descriptor.LABEL_REPEATED if repeated else descriptor.LABEL_OPTIONAL
            if "." in kind:
                descriptor.type = descriptor.TYPE_MESSAGE
                descriptor.type_name = f".t.{_flat(kind)}"
            else:
                descriptor.type = getattr(descriptor, f"TYPE_{kind.upper()}")
    classes = message_factory.GetMessages([file], descriptor_pool.DescriptorPool())
    names = [line.partition(":")[0] for line in lines]
    return {name: classes[f"t.{_flat(name)}"] for name in names}


def _flat(name: str) -> str:
    return name.replace(".", "_")


_CLASSES = _build(_SCHEMA)


def new(name: str, /, **fields: Any) -> Any:
    """A message with these fields set."""
    return _CLASSES[name](**fields)


def decode(name: str, wire: bytes) -> Any:
    """Read a message; google.protobuf.message.DecodeError for bytes that are none."""
    return _CLASSES[name].FromString(wire)
