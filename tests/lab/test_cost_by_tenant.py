"""What tenants use of the GPUs, by Prometheus's own test tool: the queries of the dashboard on made up series."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.monitoring import cost_queries
from tests.lab.queries_tried import evaluated

pytestmark = pytest.mark.row("004.13", "004.17")

# Per minute, of 60: requests in the first half alone for `chat`, in all of the hour for `code`, in none for `spare`.
RUNNING = {"chat": "1x30 0x29", "code": "1x60", "spare": "0x60"}
GPUS = {"chat": 16, "code": 4, "spare": 2}
# Tenant, model, name that the client asked by, kind of token -> tokens per minute.
TOKENS = {
    ("acme", "chat", "chat", "input"): 200,
    ("acme", "chat", "chat", "cached_input"): 50,
    ("acme", "chat", "openai/chat", "input"): 100,
    ("acme", "chat", "openai/chat", "output"): 100,
    ("acme", "code", "code", "output"): 100,
    ("globex", "chat", "chat", "input"): 100,
    ("globex", "chat", "chat", "output"): 100,
    ("globex", "chat", "chat", "reasoning"): 80,
}


def series() -> dict[str, str]:
    return {
        **{f'model:gpus:assigned{{model="{model}"}}': f"{gpus}x60" for model, gpus in GPUS.items()},
        **{
            f'vllm:num_requests_running{{job="inference-engines", model="{model}", pod="{model}-a"}}': values
            for model, values in RUNNING.items()
        },
        **{
            f'gen_ai_client_token_usage_sum{{job="inference-requests", tenant="{tenant}", pod="envoy-a", '
            f'gen_ai_original_model="{asked}", gen_ai_request_model="{model}", gen_ai_token_type="{sort}"}}': (
                f"0+{tokens}x60"
            )
            for (tenant, model, asked, sort), tokens in TOKENS.items()
        },
    }


def test_tenants_share_the_gpus_of_a_model_while_it_has_requests_and_the_rest_is_of_none(tmp_path: Path) -> None:
    """In sum they are all GPUs: 28 / 3 + 8 / 3 + 10 = 22."""
    evaluated(
        tmp_path,
        series(),
        {
            cost_queries.tenant_gpus(".*", ".*", window="1h"): {
                '{tenant="acme"}': 16 / 2 * 400 / 600 + 4,
                '{tenant="globex"}': 16 / 2 * 200 / 600,
            },
            cost_queries.unused_gpus(".*", window="1h"): {"{}": 8 + 2},
        },
    )


def test_a_tenants_share_is_of_the_tokens_of_all_tenants_whichever_are_shown(tmp_path: Path) -> None:
    evaluated(
        tmp_path,
        series(),
        {
            cost_queries.token_share(".*", "globex", window="1h"): {'{model="chat", tenant="globex"}': 200 / 600},
            cost_queries.tenant_gpus("chat", "acme", window="1h"): {'{tenant="acme"}': 16 / 2 * 400 / 600},
            cost_queries.unused_gpus("chat", window="1h"): {"{}": 8},
        },
    )


def test_cached_tokens_are_a_part_of_those_of_prompts(tmp_path: Path) -> None:
    expected = {'{tenant="acme"}': 50 / 300, '{tenant="globex"}': 0}
    evaluated(tmp_path, series(), {cost_queries.cached_share(".*", window="1h"): expected})
