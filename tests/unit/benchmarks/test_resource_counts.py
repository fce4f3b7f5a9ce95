"""What one thing more of a site costs in resources: each is compared in every preview, and kept in the state."""

from __future__ import annotations

import pytest

from benchmarks.resource_counts import Count, counts

pytestmark = pytest.mark.processes


def test_a_thing_more_is_no_more_resources_than_it_was() -> None:
    """A number that grows here grows every site's previews and `up`s; docs/state.md has the same numbers."""
    assert counts() == {
        "a whole site": Count(objects=72, commands=45),
        "one key more": Count(objects=0, commands=1),
        "one tenant more": Count(objects=1, commands=1),
        "one model more": Count(objects=21, commands=0),
        "one node more": Count(objects=0, commands=2),
    }
