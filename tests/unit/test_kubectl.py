"""What kubectl prints when the cluster did not answer, as opposed to having refused."""

from __future__ import annotations

import pytest

from floor.kubectl import is_away

pytestmark = pytest.mark.row("C.04")


@pytest.mark.parametrize(
    ("message", "away"),
    [
        ("The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?", True),
        ("Unable to connect to the server: net/http: TLS handshake timeout", True),
        ("net/http: request canceled (Client.Timeout exceeded while awaiting headers)", True),
        ("error: read tcp 10.0.0.1:5->10.0.0.2:6443: read: connection reset by peer", True),
        ("error: unexpected error when reading response body. Please retry. Original error: unexpected EOF", True),
        ("Error from server: etcdserver: leader changed", True),
        ("Error from server (ServiceUnavailable): the server is currently unable to handle the request", True),
        ("Error from server (Forbidden): nodes is forbidden", False),
        ('Error from server (NotFound): nodes "hgx-1" not found', False),
        ("error: You must be logged in to the server (Unauthorized)", False),
        ("error: Cannot evict pod as it would violate the pod's disruption budget.", False),
    ],
)
def test_an_api_server_that_starts_is_away_and_one_that_refuses_is_not(message: str, away: bool) -> None:
    assert is_away(message) == away
