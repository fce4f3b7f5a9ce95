"""Where models come from unless a site names a mirror."""

from __future__ import annotations

HUB = "https://huggingface.co"
