"""Proofs are shared: what is tested here is what follows from them, and what a site may not set."""

from __future__ import annotations

from tests.unit.proven_once import each_order_is_proven_once

__all__ = ["each_order_is_proven_once"]
