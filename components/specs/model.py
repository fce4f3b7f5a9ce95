"""What a site may say of a model."""

from __future__ import annotations

from pydantic import Field

from components.base import MOST_SECONDS, Spec
from components.specs.inference_pool import InferencePoolSpec
from components.specs.model_server import ModelServerSpec
from components.weights import Keeping


class ModelSpec(Spec):
    """A model that a site serves, under the name that its clients use."""

    catalogue: str
    """Name of the model's file in the catalogue."""
    server: ModelServerSpec = Field(default_factory=ModelServerSpec)
    """How the model is served."""
    pool: InferencePoolSpec = Field(default_factory=InferencePoolSpec)
    """How requests are spread over its replicas."""
    volume: Keeping | None = None
    """`protected` or `disposable`, where it is not as `storage.volumes` says for all models."""
    request_timeout_s: int = Field(default=3600, ge=60, le=MOST_SECONDS)
    """Longest time from request to last token."""
