"""The ledger of usage: a request has its row in time, nothing waits at the gateway, a bill is what its rows cost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import yaml

from components.gateway.gateway import proxy_labels
from floor.namespaces import ENVOY_GATEWAY
from services.ledger.bills import BY_TIME
from services.ledger.currencies import rounded
from services.ledger.months import Month
from sitectl.live import ledger
from sitectl.live.ledger import AskedLedger
from sitectl.live.site_cluster import SiteCluster
from stacks.program.platform import GATEWAY_NAMESPACE
from tests.live.conftest import Seen
from tests.live.running import ROOT, Object, RunningSite
from tests.live.test_live_models import generators

_DAY = timedelta(days=1)
# The page states seconds; a gateway that has much to send takes longer.
ROW_S, LOOK_EVERY_S = 60.0, 2.0
_BEHIND_S = 60.0
OLDEST = 'max by (pod) (inference_usage_shipper_oldest_seconds{job="usage-shipper"})'


@contextmanager
def _asked(site: RunningSite) -> Iterator[AskedLedger]:
    if not site.plan.site.has_ledger:
        pytest.skip("the site's file has no ledger of usage")
    cluster = SiteCluster(project=ROOT, site=site.name, kubeconfig=yaml.safe_dump(site.kubeconfig))
    with ledger.of_cluster(cluster) as asked:
        yield asked


@pytest.mark.row("000.35")
def test_a_request_has_its_row_in_time(site: RunningSite, seen: Seen) -> None:
    """Others with the same key may come between: at least one request more, with at least its tokens."""
    with _asked(site) as usage:
        model = generators(site)[0].id.model
        key = site.key_for(model)
        client_id = next(name for name, text in site.keys.items() if text == key)
        tenant, _, purpose = client_id.partition(".")
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

        def counted() -> tuple[int, int, int]:
            # A request at the end of a day may have its row in the next.
            rows = usage.used(today, today + 2 * _DAY, ["key", "model"], tenant)
            mine = [row for row in rows if row.group == (purpose, model)]
            figures = [(row.requests, row.input_tokens, row.output_tokens) for row in mine] or [(0, 0, 0)]
            return figures[0]

        before = counted()
        with site.http(key) as http:
            body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
            answer = http.post("chat/completions", json=body)
        assert answer.is_success, f"{model} answers {answer.status_code}"
        tokens = answer.json()["usage"]
        wanted = (before[0] + 1, before[1] + tokens["prompt_tokens"], before[2] + tokens["completion_tokens"])
        began = time.monotonic()
        while any(have < want for have, want in zip(counted(), wanted, strict=True)):
            waited = time.monotonic() - began
            page = "docs/runbooks/usage-behind.md"
            assert waited < ROW_S, f"no row of a request of {client_id} after {waited:.0f} s ({page})"
            # Rows arrive within seconds.
            time.sleep(LOOK_EVERY_S)
        seen(f"{client_id} at {model}: a row within {time.monotonic() - began:.0f} s")


@pytest.mark.row("000.35")
def test_no_usage_waits_at_the_gateway(site: RunningSite, seen: Seen) -> None:
    """By each shipper's own measure; one that is not measured has not passed."""
    if not site.plan.site.has_ledger:
        pytest.skip("the site's file has no ledger of usage")
    if site.plan.site.monitoring.system != "prometheus_operator":
        pytest.skip("the site has no Prometheus of the program's")
    samples = site.prometheus("query", query=OLDEST)["result"]
    oldest = {sample["metric"]["pod"]: float(sample["value"][1]) for sample in samples}
    pods = [pod["metadata"]["name"] for pod in site.pods(ENVOY_GATEWAY, proxy_labels(GATEWAY_NAMESPACE))]
    wrong = [f"{pod} is not measured" for pod in pods if pod not in oldest]
    for pod, seconds in sorted(oldest.items()):
        seen(f"{pod}: the oldest line is of {seconds:.0f} s ago")
        wrong += [f"{pod} has had a line for {seconds:.0f} s"] if seconds > _BEHIND_S else []
    assert pods, "there is no Envoy pod"
    assert not wrong, f"{'; '.join(wrong)} (docs/runbooks/usage-behind.md)"


@pytest.mark.row("000.35")
def test_each_bill_is_what_its_rows_cost(site: RunningSite, seen: Seen) -> None:
    """Of the running month: rows come meanwhile, so each is between what they cost before it and after it."""
    month, wrong = Month.of(time.time()), list[str]()
    with _asked(site) as usage:
        for tenant in sorted(site.plan.site.tenants):
            before = _cost(usage, month, tenant)
            bill = json.loads(usage.bill(tenant, str(month), "json"))
            wrong += [f"{tenant}: {problem}" for problem in not_added_up(bill, before, _cost(usage, month, tenant))]
            totals = ", ".join(f"{own['total']} {own['currency']}" for own in bill["totals"]) or "nothing"
            seen(f"{tenant}, {month}: {totals} of {len(bill['lines'])} lines")
    assert not wrong, "; ".join(wrong)


def _cost(usage: AskedLedger, month: Month, tenant: str) -> dict[str, Decimal]:
    """By currency, which a day has one of unless the site changed it on that day."""
    costs = dict[str, Decimal]()
    for row in usage.used(month.start, (month + 1).start, ["day", "tenant"], tenant):
        for currency, cost in row.costs.items():
            costs[currency] = costs.get(currency, Decimal(0)) + cost
    return costs


def not_added_up(bill: Object, before: dict[str, Decimal], after: dict[str, Decimal]) -> list[str]:
    """What of a bill is not the sum of its parts. before, after: what its rows cost, by currency."""
    wrong, tokens, whole = list[str](), dict[str, Decimal](), dict[str, Decimal]()
    for line in bill["lines"]:
        cost, own = Decimal(line["cost"]), line["currency"]
        if cost != line["quantity"] * Decimal(line["unit_price"]) / 10**6:
            wrong.append(f"{line['quantity']} of {line['model']} at {line['unit_price']} do not cost {line['cost']}")
        whole[own] = whole.get(own, Decimal(0)) + cost
        if line["kind"] not in BY_TIME:
            tokens[own] = tokens.get(own, Decimal(0)) + cost
    for total in bill["totals"]:
        own = total["currency"]
        if total["total"] != rounded(int(whole.get(own, Decimal(0)) * 10**12), own):
            wrong.append(f"{total['total']} {own} in all, and its lines come to {whole.get(own, 0)}")
    for own in sorted({*tokens, *before}):
        least, most, billed = (costs.get(own, Decimal(0)) for costs in (before, after, tokens))
        if not least <= billed <= most:
            wrong.append(f"{billed} {own} billed, and its rows cost {least} to {most}")
    return wrong
