"""GitHub's REST API, version 2022-11-28: https://docs.github.com/rest/issues and https://docs.github.com/rest/pulls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sitectl.forge.model import Client, MergeRequest, Note
from sitectl.shell.errors import SitectlError

API = "https://api.github.com"
# Its REST API has no auto-merge: https://docs.github.com/graphql/reference/mutations#enablepullrequestautomerge.
_MERGE = """\
mutation($change: ID!, $commit: GitObjectID!, $method: PullRequestMergeMethod!) {
  enablePullRequestAutoMerge(input: {pullRequestId: $change, expectedHeadOid: $commit, mergeMethod: $method}) {
    clientMutationId
  }
}"""
# It refuses a method that the repository does not allow, and takes merge commits where none is named.
_METHOD = """\
query($change: ID!) { node(id: $change) { ... on PullRequest { repository { viewerDefaultMergeMethod } } } }"""


def headers(token: str) -> dict[str, str]:
    """What every request carries."""
    return {
        "Authorization": f"Bearer {token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }


class GitHub:
    """One repository. A pull request's comments are those of the issue with its number."""

    def __init__(self, client: Client, repository: str, author: str = "github-actions[bot]") -> None:
        self.author = author
        self._client = client
        self._repository = f"/repos/{repository}"
        self._root = f"{self._repository}/issues"

    def comments(self, number: int) -> Iterator[Note]:
        for comment in self._client.pages(f"{self._root}/{number}/comments"):
            yield Note(
                id=comment["id"], author=(comment.get("user") or {}).get("login", ""), body=comment.get("body") or ""
            )

    def add_comment(self, number: int, body: str) -> None:
        self._client.call("POST", f"{self._root}/{number}/comments", json={"body": body})

    def edit_comment(self, number: int, comment: int, body: str) -> None:  # noqa: ARG002 - GitLab needs the number
        self._client.call("PATCH", f"{self._root}/comments/{comment}", json={"body": body})

    def open_issues(self, label: str) -> Iterator[Note]:
        for issue in self._client.pages(self._root, state="open", labels=label):
            # To this part of the API a pull request is an issue.
            if "pull_request" not in issue:
                author = (issue.get("user") or {}).get("login", "")
                yield Note(id=issue["number"], author=author, body=issue.get("body") or "")

    def open_issue(self, title: str, body: str, label: str) -> None:
        self._client.call("POST", self._root, json={"title": title, "body": body, "labels": [label]})

    def edit_issue(self, number: int, body: str) -> None:
        self._client.call("PATCH", f"{self._root}/{number}", json={"body": body})

    def close_issue(self, number: int, why: str) -> None:
        self.add_comment(number, why)
        self._client.call("PATCH", f"{self._root}/{number}", json={"state": "closed", "state_reason": "completed"})

    def open_change(self, title: str, body: str, branch: str, into: str) -> MergeRequest:
        change = {"title": title, "body": body, "head": branch, "base": into}
        made = self._client.call("POST", f"{self._repository}/pulls", json=change)
        return MergeRequest(address=str(made["html_url"]), number=int(made["number"]), node=str(made["node_id"]))

    def merge_once_checked(self, change: MergeRequest, commit: str) -> None:
        known = self._graphql(_METHOD, change=change.node).get("data") or {}
        method = known["node"]["repository"]["viewerDefaultMergeMethod"] if known.get("node") else "MERGE"
        answer = self._graphql(_MERGE, change=change.node, commit=commit, method=method)
        if errors := answer.get("errors"):
            # Also where a branch requires no check: then there is nothing to wait for.
            raise SitectlError(
                "GitHub merges it by no check",
                got=str(errors[0].get("message", ""))[:300],
                fix="allow auto-merge in the repository's settings, and require checks on its branch",
            )

    def _graphql(self, query: str, **variables: str) -> dict[str, Any]:
        # An Enterprise server has its GraphQL beside /v3, not below it.
        address = f"{self._client.base.removesuffix('/v3')}/graphql"
        answer: dict[str, Any] = self._client.call("POST", address, json={"query": query, "variables": variables})
        return answer
