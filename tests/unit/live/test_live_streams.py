"""What the live checks read of a streamed answer."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.live.test_live_models import streamed

pytestmark = pytest.mark.row("opening 5")


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"], ids=["line", "paragraph", "next-line"])
def test_an_answer_may_hold_separators_of_lines(separator: str) -> None:
    event = json.dumps({"choices": [{"delta": {"content": f"one{separator}two"}}]}, ensure_ascii=False)
    body = f"data: {event}\n\ndata: [DONE]\n\n".encode()
    with httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, content=body)), base_url="http://site"
    ) as client:
        assert streamed(client, "qwen3-32b") == (1, True, "")
