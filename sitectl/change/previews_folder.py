"""A folder with one saved preview per site, as the jobs of CI pass it on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sitectl.change import saved_previews
from sitectl.change.report import SiteReport, of_preview_document
from sitectl.shell.errors import Exit, SitectlError

SUFFIX = ".json"


def failed(message: str) -> dict[str, Any]:
    """A preview that could not be made, in the engine's own form."""
    return {"steps": [], "diagnostics": [{"severity": "error", "message": message}]}


def reports(folder: Path) -> list[SiteReport]:
    """A report for each preview, by site. A file that is no preview is a report of its own, so that it is seen."""
    files = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not files:
        raise SitectlError(
            f"{folder} holds no preview",
            fix=f"python -m sitectl plan SITE --save {folder}/SITE.json",
            status=Exit.USAGE,
        )
    site_reports = []
    for file in files:
        site = file.name.removesuffix(SUFFIX)
        try:
            site_reports.append(of_preview_document(site, saved_previews.read(file, site=site)))
        except SitectlError as error:
            site_reports.append(of_preview_document(site, failed(f"the saved preview cannot be read: {error}")))
    return site_reports
