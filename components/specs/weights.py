"""What a site may set for the weights of its models."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from floor.images import is_repository
from floor.problems import WrongValueError
from floor.spec import Spec

# Names of volumes are made of it, and they have 253 characters at most.
_LONGEST_FOLDER = 64
_FOLDER = re.compile(r"(/[a-z0-9]([a-z0-9-]*[a-z0-9])?){1,8}")
# What fills up here ends the node.
_OF_THE_SYSTEM = re.compile(
    r"(/(bin|boot|dev|etc|lib|lib64|proc|root|run|sbin|sys|usr|var/(log|run))"
    r"|/var/lib/(cni|containerd|docker|etcd|kubelet|longhorn))(/.*)?|/var(/lib)?"
)
# No credentials: the address is in the pods' definition.
_ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(?P<path>/[A-Za-z0-9._~/-]*)?")


Place = Literal["shared", "nodes"]
SERVED, DRAFT = "weights", "draft"
"""Roles of the repositories that a server reads; each is a folder of its own."""
_ADAPTER = "adapter-"
WEIGHTS = "model-weights"
"""Value of the label app.kubernetes.io/name of what writes weights."""
NODE_CLASS = "node-weights"
"""Class of volumes on nodes' own disks. No StorageClass has this name, so that no provisioner takes their claims."""


def adapter_role(name: str) -> str:
    """Role of an adapter's repository."""
    return f"{_ADAPTER}{name}"


def adapter_of(role: str) -> str | None:
    """The adapter that has this role; None for another role."""
    return role.removeprefix(_ADAPTER) if role.startswith(_ADAPTER) else None


class BucketSpec(Spec):
    """An S3 bucket of the site."""

    address: str
    """`https://HOST[:PORT]/BUCKET[/PREFIX]`; the file of a commit is the object `OWNER/NAME/COMMIT/FILE` below it."""
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,64}$")
    """Region that requests are signed for; most servers other than AWS take this one."""
    keys_secret: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """Secret in the namespace inference-models with `access_key_id` and `secret_access_key`, and `session_token` for
    temporary keys; without it the bucket must be readable without keys. The Job alone gets it."""

    @model_validator(mode="after")
    def _has_a_form(self) -> BucketSpec:
        match = _ADDRESS.fullmatch(self.address)
        if not match or not (match["path"] or "").strip("/"):
            raise WrongValueError(
                "address is no address of a bucket without credentials",
                fix="write it like https://s3.site.example/models",
            )
        return self


class WeightsRegistrySpec(Spec):
    """An OCI registry of the site."""

    address: str
    """`https://HOST[:PORT][/PREFIX]`; a file is the blob of its sha256 in the repository `PREFIX/OWNER/NAME`, in
    lower-case letters."""
    login_secret: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """Secret in the namespace inference-models with `username` and `password`; without it the repositories must be
    readable without a login. The Job alone gets it."""

    @model_validator(mode="after")
    def _has_a_form(self) -> WeightsRegistrySpec:
        example = "https://registry.site.example/models"
        match = _ADDRESS.fullmatch(self.address)
        if not match:
            raise WrongValueError(
                "address is no address of a registry without credentials", fix=f"write it like {example}"
            )
        path = (match["path"] or "").rstrip("/")
        first, last = path[1:].partition("/")[0], path.rpartition("/")[2]
        # Clients add v2 themselves, before the prefix; at the end of the address it is the same mistake.
        if path and ("v2" in (first, last) or not is_repository(path[1:])):
            lower = f"{path.lower()}/".removeprefix("/v2/").removesuffix("/v2/")
            parts = [part for part in lower.split("/") if part]
            right = "/".join([self.address.removesuffix(match["path"]), *parts])
            raise WrongValueError(
                "address has a path that no repository's name begins with",
                got=path,
                allowed="lower-case letters and digits, with / between its parts and . _ or - within them, without v2",
                fix=f"write {right}" if not parts or is_repository("/".join(parts)) else f"write it like {example}",
            )
        return self


class WeightsSpec(Spec):
    """Where the weights come from, and where they are kept."""

    place: Place = "shared"
    """`shared`: a volume per model that all replicas read. `nodes`: a folder on each GPU node's own disk, filled once
    per node, which needs `revisions` of 2 or more."""
    node_path: str = "/var/mnt/weights"
    """With `place: nodes`: the folder that each GPU node has for all models. On machines of this program it is
    `/var/mnt/NAME` of `cluster.machines.roles.hgx.volumes.NAME`; elsewhere you make it."""
    node_read_bytes_per_s: float = Field(default=3.0e9, ge=1.0e6, le=1.0e11)
    """With `place: nodes`: what one replica reads from its node's disk, in place of `storage.read_bytes_per_s`. The
    default is an estimate: less than half of what PCIe 4 NVMe disks are specified for."""
    source: Literal["hub", "mirror", "bucket", "oci", "volume"] = "hub"
    """`hub`: a Job downloads them from Hugging Face before the servers start. `mirror`: the same from a server of the
    site, `bucket` from an S3 bucket, `oci` from an OCI registry. `volume`: you fill the volume, and the Job compares
    what is there. No server downloads anything."""
    mirror: str | None = None
    """Address of a server with the hub's API; required for the source `mirror`."""
    bucket: BucketSpec | None = None
    """The bucket; required for the source `bucket`, which serves models with a lock alone."""
    oci: WeightsRegistrySpec | None = None
    """The registry; required for the source `oci`, which serves models with a lock alone."""
    download_bytes_per_s: float = Field(default=1.25e8, ge=1.0e5, le=1.0e11)
    """Most bytes per second that a model's Job downloads. It is a limit, and what preview expects;
    the Job fails after twice the time that follows from it, and the next run continues."""
    token_secret: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """Secret in the namespace inference-models that holds the hub's token under its key `token`; gated models need
    one. The Job alone gets it."""
    ca_config_map: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """ConfigMap in the namespace inference-models that holds authorities of the site in PEM, under its key `ca.crt`.
    The Job trusts them beside those that the engine's image has, at the source and at the stores that it redirects to;
    a mirror, bucket or registry with a certificate of the site needs one."""
    revisions: int = Field(default=1, ge=1, le=16)
    """Revisions of a model that have room in its volume. A new commit is brought beside the one that is served, so
    with 1 there must be other room for it, or the Job ends, which `sitectl plan` warns of; with 2 there is. With 3, an
    earlier one stays to go back to, and so on. Earlier ones go when all servers run on the new one. Volumes grow by
    this, and never shrink. With `place: nodes` the earlier one stays with 2, and goes when the next commit comes."""
    simulated: Literal["nothing", "bring"] = "nothing"
    """Whether the weights of simulated models are brought, checked and mounted as well, for a trial of the way they
    take. The simulator reads none of them."""

    @model_validator(mode="after")
    def _keys_go_together(self) -> WeightsSpec:
        if (self.source == "mirror") != (self.mirror is not None):
            got = f"source {self.source} and {'no mirror' if self.mirror is None else 'a mirror'}"
            raise WrongValueError(
                "source and mirror do not go together",
                got=got,
                fix="write source: mirror and its address as mirror, or neither",
            )
        if (self.source == "bucket") != (self.bucket is not None):
            raise WrongValueError(
                "source and bucket do not go together",
                got=f"source {self.source} and {'a' if self.bucket else 'no'} bucket",
                fix="write source: bucket and a bucket with its address, or neither",
            )
        if (self.source == "oci") != (self.oci is not None):
            raise WrongValueError(
                "source and oci do not go together",
                got=f"source {self.source} and {'a' if self.oci else 'no'} registry",
                fix="write source: oci and a registry with its address as oci, or neither",
            )
        if self.bucket is not None and self.token_secret is not None:
            raise WrongValueError(
                "token_secret is for a hub or mirror, and a bucket takes keys",
                fix="name the Secret of the keys as bucket.keys_secret",
            )
        if self.oci is not None and self.token_secret is not None:
            raise WrongValueError(
                "token_secret is for a hub or mirror, and a registry takes a login",
                fix="name the Secret of the login as oci.login_secret",
            )
        if self.place == "nodes" and self.revisions < 2:
            raise WrongValueError(
                "revisions is too small for place nodes: servers read the earlier commit until nodes have the new one",
                got=str(self.revisions),
                allowed="2 to 16",
                fix="write revisions: 2, or place: shared",
            )
        unread = sorted({"node_path", "node_read_bytes_per_s"} & self.model_fields_set)
        if self.place == "shared" and unread:
            raise WrongValueError(
                f"{' and '.join(unread)} {'are' if unread[1:] else 'is'} set, and place shared reads nothing of it",
                fix=f"take {' and '.join(unread)} out, or write place: nodes",
            )
        if not _FOLDER.fullmatch(self.node_path) or len(self.node_path) > _LONGEST_FOLDER:
            raise WrongValueError(
                "node_path is no folder of a node in lower-case letters, digits and inner dashes",
                got=self.node_path,
                allowed=f"up to {_LONGEST_FOLDER} characters",
                fix="write it like /var/mnt/weights",
            )
        if _OF_THE_SYSTEM.fullmatch(self.node_path):
            raise WrongValueError(
                "node_path is a folder of the system, which weights would fill",
                got=self.node_path,
                fix="name a folder that has a disk of its own, such as /var/mnt/weights",
            )
        if self.mirror is not None and not _ADDRESS.fullmatch(self.mirror):
            raise WrongValueError(
                "mirror is no address without credentials", fix="write it like https://hub.site.example"
            )
        if self.ca_config_map is not None and not self.downloaded:
            raise WrongValueError(
                "ca_config_map is for a server, and with source volume none is asked",
                got=f"ca_config_map {self.ca_config_map}",
                fix="take ca_config_map out, or write the source that has the certificate",
            )
        return self

    @property
    def address(self) -> str | None:
        """Of the server that the site names; None for the hub and for volumes."""
        section = self.bucket or self.oci
        return section.address if section else self.mirror

    @property
    def secret(self) -> str | None:
        """Name of the Secret that opens the source; None where the site names none."""
        if self.bucket:
            return self.bucket.keys_secret
        return self.oci.login_secret if self.oci else self.token_secret

    @property
    def downloaded(self) -> bool:
        """Whether they come over the network."""
        return self.source != "volume"
