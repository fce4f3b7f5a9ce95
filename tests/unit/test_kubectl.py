"""What kubectl prints when the cluster did not answer, as opposed to having refused."""

from __future__ import annotations

import pytest

from floor.kubectl import is_away

pytestmark = pytest.mark.row("C.04")


@pytest.mark.parametrize(
    "stderr",
    [
        "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
        "Unable to connect to the server: net/http: TLS handshake timeout",
        "error: unexpected error when reading response body. Please retry. Original error: unexpected EOF",
        "Error from server: etcdserver: leader changed",
        "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
    ],
)
def test_no_answer_is_asked_again(stderr: str) -> None:
    assert is_away(stderr)


@pytest.mark.parametrize(
    "stderr",
    [
        'Error from server (NotFound): nodes "hgx-1" not found',
        'Error from server (Forbidden): nodes is forbidden: User "ci" cannot list resource "nodes"',
        "error: You must be logged in to the server (Unauthorized)",
    ],
)
def test_a_refusal_is_none(stderr: str) -> None:
    assert not is_away(stderr)
