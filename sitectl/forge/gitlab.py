"""GitLab's REST API v4: its pages notes, issues and merge_requests below https://docs.gitlab.com/api/."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from sitectl.forge.model import Client, MergeRequest, Note
from sitectl.shell.errors import SitectlError

API = "https://gitlab.com/api/v4"
_LOOKS, _BETWEEN_LOOKS_S = 12, 5.0


def headers(token: str) -> dict[str, str]:
    """What every request carries. A job's own token may not write notes, so this is a project's access token."""
    return {"PRIVATE-TOKEN": token, "Accept": "application/json"}


class GitLab:
    """One project, by path or id."""

    def __init__(self, client: Client, project: str, author: str = "") -> None:
        self._client = client
        self._root = f"/projects/{quote(project, safe='')}"
        self.author = author or str(client.call("GET", "/user")["username"])

    def comments(self, number: int) -> Iterator[Note]:
        for note in self._client.pages(f"{self._root}/merge_requests/{number}/notes"):
            if not note.get("system"):
                yield Note(
                    id=note["id"], author=(note.get("author") or {}).get("username", ""), body=note["body"] or ""
                )

    def add_comment(self, number: int, body: str) -> None:
        self._client.call("POST", f"{self._root}/merge_requests/{number}/notes", json={"body": body})

    def edit_comment(self, number: int, comment: int, body: str) -> None:
        self._client.call("PUT", f"{self._root}/merge_requests/{number}/notes/{comment}", json={"body": body})

    def open_issues(self, label: str) -> Iterator[Note]:
        for issue in self._client.pages(f"{self._root}/issues", state="opened", labels=label):
            author = (issue.get("author") or {}).get("username", "")
            yield Note(id=issue["iid"], author=author, body=issue.get("description") or "")

    def open_issue(self, title: str, body: str, label: str) -> None:
        self._client.call("POST", f"{self._root}/issues", json={"title": title, "description": body, "labels": label})

    def edit_issue(self, number: int, body: str) -> None:
        self._client.call("PUT", f"{self._root}/issues/{number}", json={"description": body})

    def close_issue(self, number: int, why: str) -> None:
        self._client.call("POST", f"{self._root}/issues/{number}/notes", json={"body": why})
        self._client.call("PUT", f"{self._root}/issues/{number}", json={"state_event": "close"})

    def open_change(self, title: str, body: str, branch: str, into: str) -> MergeRequest:
        change = {"title": title, "description": body, "source_branch": branch, "target_branch": into}
        made = self._client.call("POST", f"{self._root}/merge_requests", json=change)
        return MergeRequest(address=str(made["web_url"]), number=int(made["iid"]))

    def merge_once_checked(self, change: MergeRequest, commit: str) -> None:
        """Once its pipeline has begun: before, GitLab refuses it, or merges unseen (its issues 353984 and 37292)."""
        request = f"{self._root}/merge_requests/{change.number}"
        for _ in range(_LOOKS):
            pipeline = self._client.call("GET", request).get("head_pipeline")
            if pipeline and pipeline["status"] != "created":
                break
            self._client.sleep(_BETWEEN_LOOKS_S)
        else:
            raise SitectlError(
                "GitLab has begun no pipeline for it",
                got=f"none within {_LOOKS * _BETWEEN_LOOKS_S:.0f} s",
                fix="have the project run pipelines of merge requests, and require that they succeed",
            )
        # The second name is that of servers before 17.11.
        merge = {"auto_merge": True, "merge_when_pipeline_succeeds": True, "sha": commit}
        self._client.call("PUT", f"{request}/merge", json=merge)
