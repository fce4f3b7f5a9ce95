"""A month on the command line."""

from __future__ import annotations

from typing import Any

import click

from services.ledger.months import Month


class _MonthType(click.ParamType[Month]):
    name = "month"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Month:
        if isinstance(value, Month):
            return value
        if (month := Month.named(str(value))) is None:
            self.fail(f"got '{value}'; allowed: a year and a month of UTC, such as 2026-11", param, ctx)
        return month


MONTH = _MonthType()
