"""Chromium without a screen, for people at the portal's pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

from lab.errors import LabError

_QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@contextmanager
def chromium(names: Mapping[str, str] | None = None) -> Iterator[Browser]:
    """The machine's. names: what DNS would have, by name. Raises LabError where there is none."""
    if (program := shutil.which("chromium")) is None:
        raise LabError("there is no Chromium", fix="python -m lab install")
    arguments = [*_QUIET, "--disable-sync", "--no-first-run"]
    if names:
        rules = ", ".join(f"MAP {name} {address}" for name, address in names.items())
        arguments.append(f"--host-resolver-rules={rules}")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=arguments)


def logged_in(page: Page, portal: str, person: str) -> Page:
    """The list of models, for this person of the issuer's."""
    page.goto(f"{portal}/login")
    page.get_by_placeholder("sub").fill(person)
    page.get_by_role("button", name="Authorize", exact=True).click()
    page.wait_for_url(f"{portal}/")
    return page


def order(page: Page, portal: str, model: str, name: str) -> str:
    """The text of a new key, as the page shows it once."""
    page.goto(f"{portal}/models/{model}")
    page.get_by_label("Name of the key").fill(name)
    page.get_by_role("button", name="Order", exact=True).click()
    return page.locator("#key").inner_text()
