"""One comment that is edited in place, and one issue per site: found again by a mark, only among the account's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sitectl.forge.model import Forge, Note

DRIFT_LABEL = "drift"
Did = Literal["added", "edited", "unchanged"]


def keep_comment(forge: Forge, number: int, body: str, mark: str) -> Did:
    """Make `body` the one comment with this mark.

    Any account can write the mark into its own comment, so only the account's own comments count.
    """
    own = next(
        (note for note in forge.comments(number) if note.author == forge.author and note.body.startswith(mark)), None
    )
    if own is None:
        forge.add_comment(number, body)
        return "added"
    if own.body.strip() == body.strip():
        return "unchanged"
    forge.edit_comment(number, own.id, body)
    return "edited"


def drift_mark(site: str) -> str:
    """First line of the issue of a site."""
    return f"<!-- inference-platform: drift of {site} -->"


def keep_issues(forge: Forge, bodies: Mapping[str, str | None]) -> dict[str, str]:
    """One open issue for each site with a body, none for each site with None; what was done, by site."""
    there: dict[str, Note] = {}
    for issue in forge.open_issues(DRIFT_LABEL):
        if issue.author == forge.author:
            there.setdefault(issue.body.partition("\n")[0].strip(), issue)
    done = {}
    for site, body in bodies.items():
        old = there.get(drift_mark(site))
        if body is None:
            if old:
                forge.close_issue(old.id, "A later look found the site as its file states.")
            done[site] = "closed" if old else "no drift"
        elif old is None:
            forge.open_issue(f"Drift on {site}", body, DRIFT_LABEL)
            done[site] = "opened"
        elif old.body.strip() != body.strip():
            forge.edit_issue(old.id, body)
            done[site] = "updated"
        else:
            done[site] = "unchanged"
    return done
