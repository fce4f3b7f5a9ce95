"""Tests of the whole program: sites of the same models share their proofs."""

from tests.unit.proven_once import each_order_is_proven_once

__all__ = ["each_order_is_proven_once"]
