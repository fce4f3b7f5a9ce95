"""Labels and annotations by which the platform recognises its own objects and fields."""

from __future__ import annotations

FIELD_MANAGER = "pulumi.com/patchFieldManager"
# The API server keeps what carries this label from others than the program.
PROTECTED = {"inference-platform/front-door": "protected"}
# Annotation of a volume that may be deleted with its data; a rule asks for it.
DISPOSABLE = "inference-platform/disposable"
