"""Programs run once for each site's text, and proofs are shared, as in the tests of sitectl."""

from __future__ import annotations

from tests.unit.proven_once import each_order_is_proven_once
from tests.unit.sitectl.sites_to_work_on import each_program_runs_once

__all__ = ["each_order_is_proven_once", "each_program_runs_once"]
