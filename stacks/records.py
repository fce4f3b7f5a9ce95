"""The base of files that hold facts. As components.base.Spec, without the engine: the proof runs where no engine is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Facts of one thing. Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
