"""What a site may set for the weights of its models."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from floor.spec import Spec

# No credentials: the address is in the pods' definition.
_ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(?P<path>/[A-Za-z0-9._~/-]*)?")


class BucketSpec(Spec):
    """An S3 bucket of the site."""

    address: str
    """`https://HOST[:PORT]/BUCKET[/PREFIX]`; the file of a commit is the object `OWNER/NAME/COMMIT/FILE` below it."""
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,64}$")
    """Region that requests are signed for; most servers other than AWS take this one."""
    keys_secret: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """Secret in the namespace inference-models with `access_key_id` and `secret_access_key`; without it the bucket must
    be readable without keys. The Job alone gets it."""

    @model_validator(mode="after")
    def _has_a_form(self) -> BucketSpec:
        match = _ADDRESS.fullmatch(self.address)
        if not match or not (match["path"] or "").strip("/"):
            raise WrongValueError(
                "address is no address of a bucket without credentials",
                fix="write it like https://s3.site.example/models",
            )
        return self


class WeightsSpec(Spec):
    """Where the weights come from."""

    source: Literal["hub", "mirror", "bucket", "volume"] = "hub"
    """`hub`: a Job downloads them from Hugging Face before the servers start. `mirror`: the same from a server of the
    site, and `bucket` from an S3 bucket. `volume`: you fill the volume, and the Job compares what is there. No server
    downloads anything."""
    mirror: str | None = None
    """Address of a server with the hub's API; required for the source `mirror`."""
    bucket: BucketSpec | None = None
    """The bucket; required for the source `bucket`, which serves models with a lock alone."""
    download_bytes_per_s: float = Field(default=1.25e8, ge=1.0e5, le=1.0e11)
    """Most bytes per second that a model's Job downloads. It is a limit, and what preview expects;
    the Job fails after twice the time that follows from it, and the next run continues."""
    token_secret: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """Secret in the namespace inference-models that holds the hub's token under its key `token`; gated models need
    one. The Job alone gets it."""
    ca_config_map: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """ConfigMap in the namespace inference-models that holds authorities of the site in PEM, under its key `ca.crt`.
    The Job trusts them beside those that the engine's image has, at the source and at the stores that it redirects to;
    a mirror or bucket with a certificate of the site needs one."""
    revisions: int = Field(default=1, ge=1, le=16)
    """Revisions of a model that have room in its volume. A new commit is brought beside the one that is served, so
    with 1 there must be other room for it; with 2 there is. With 3, an earlier one stays to go back to, and so on.
    Earlier ones go when all servers run on the new one. Volumes grow by this, and never shrink."""
    simulated: Literal["nothing", "bring"] = "nothing"
    """Whether the weights of simulated models are brought, checked and mounted as well, for a trial of the way they
    take. The simulator reads none of them."""

    @model_validator(mode="after")
    def _mirror_is_named(self) -> WeightsSpec:
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
        if self.bucket is not None and self.token_secret is not None:
            raise WrongValueError(
                "token_secret is for a hub or mirror, and a bucket takes keys",
                fix="name the Secret of the keys as bucket.keys_secret",
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
    def downloaded(self) -> bool:
        """Whether they come over the network."""
        return self.source != "volume"
