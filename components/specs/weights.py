"""What a site may set for the weights of its models."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from floor.spec import Spec

# No credentials: the address is in the pods' definition.
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")


class WeightsSpec(Spec):
    """Where the weights come from."""

    source: Literal["hub", "mirror", "volume"] = "hub"
    """`hub`: vLLM downloads them from Hugging Face at its first start. `mirror`: the same from a server of the site.
    `volume`: you fill the volume before the first start, and vLLM downloads nothing."""
    mirror: str | None = None
    """Address of a server with the hub's API; required for the source `mirror`."""
    download_bytes_per_s: float = Field(default=1.25e8, ge=1.0e5, le=1.0e11)
    """Download speed of one replica from hub or mirror into the volume; sets how long the first start may take."""

    @model_validator(mode="after")
    def _mirror_is_named(self) -> WeightsSpec:
        if (self.source == "mirror") != (self.mirror is not None):
            got = f"source {self.source} and {'no mirror' if self.mirror is None else 'a mirror'}"
            raise WrongValueError(
                "source and mirror do not go together",
                got=got,
                fix="write source: mirror and its address as mirror, or neither",
            )
        if self.mirror is not None and not _ADDRESS.fullmatch(self.mirror):
            raise WrongValueError(
                "mirror is no address without credentials", fix="write it like https://hub.site.example"
            )
        return self

    @property
    def downloaded(self) -> bool:
        """Whether the first replica to start fetches them."""
        return self.source != "volume"
