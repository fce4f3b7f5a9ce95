"""A fake of the few calls of GitHub's and GitLab's REST APIs that we make. It is no forge: it keeps lists in memory.

It refuses what the forges' documentation does not describe: a path, a missing header, a body with a wrong key or type.
Sources: docs.github.com/rest/issues (version 2022-11-28), docs.gitlab.com/api/notes and docs.gitlab.com/api/issues;
docs.github.com/rest/pulls and docs.gitlab.com/api/merge_requests; docs.github.com/graphql/reference/mutations, with
what issues quote of its refusal where a branch requires no check.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-token-of-the-fake"
GITHUB_BOT, GITLAB_BOT = "github-actions[bot]", "project_7_bot"
# GitHub's limit for a comment's body, in characters.
LONGEST_BODY = 65_536


class FakeForge:
    """What the server keeps, and every request that it got as (method, path)."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.issues: list[dict[str, Any]] = []
        self.changes: list[dict[str, Any]] = []
        """Pull or merge requests, as they were asked for."""
        self.checks = True
        """Whether its branch requires any."""
        self.looks = self.pipeline_after = 0
        """At a request of GitLab, and after how many its pipeline is there."""
        self.merging: list[str] = []
        """Commits that are merged once they are checked."""
        self.closing_words: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.refusals: list[str] = []
        self.busy = 0
        """Answer this many requests with 429 first."""
        self.url = ""

    def comment(self, author: str, body: str) -> int:
        self.comments.append({"id": 100 + len(self.comments), "author": author, "body": body})
        return int(self.comments[-1]["id"])

    def issue(self, author: str, body: str, *, pull_request: bool = False) -> None:
        number = 1 + len(self.issues)
        self.issues.append(
            {"number": number, "author": author, "body": body, "open": True, "labels": ["drift"], "pr": pull_request}
        )

    def writes(self) -> list[tuple[str, str]]:
        return [request for request in self.requests if request[0] != "GET"]


Answer = tuple[int, Any]


def _github(forge: FakeForge, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> Answer:
    def shown(comment: dict[str, Any]) -> dict[str, Any]:
        return {"id": comment["id"], "user": {"login": comment["author"], "type": "Bot"}, "body": comment["body"]}

    def card(issue: dict[str, Any]) -> dict[str, Any]:
        more = {"pull_request": {"url": "..."}} if issue["pr"] else {}
        return {"number": issue["number"], "user": {"login": issue["author"]}, "body": issue["body"], **more}

    root = "/repos/owner/site/issues"
    if path == f"{root}/7/comments" and method == "GET":
        return 200, _page([shown(comment) for comment in forge.comments], query)
    if re.fullmatch(rf"{root}/\d+/comments", path) and method == "POST":
        _keys(body, {"body": str})
        if path == f"{root}/7/comments":
            forge.comment(GITHUB_BOT, body["body"])
        else:
            forge.closing_words.append(body["body"])
        return 201, {"id": 1}
    if (match := re.fullmatch(rf"{root}/comments/(\d+)", path)) and method == "PATCH":
        _keys(body, {"body": str})
        target = next(comment for comment in forge.comments if comment["id"] == int(match[1]))
        target["body"] = body["body"]
        return 200, shown(target)
    if path == root and method == "GET":
        assert query["state"] == ["open"] and query["labels"] == ["drift"]
        return 200, _page([card(issue) for issue in forge.issues if issue["open"]], query)
    if path == root and method == "POST":
        _keys(body, {"title": str, "body": str, "labels": list})
        forge.issue(GITHUB_BOT, body["body"])
        return 201, {"number": len(forge.issues)}
    if (match := re.fullmatch(rf"{root}/(\d+)", path)) and method == "PATCH":
        target = forge.issues[int(match[1]) - 1]
        if "state" in body:
            _keys(body, {"state": str, "state_reason": str})
            assert (body["state"], body["state_reason"]) == ("closed", "completed")
            target["open"] = False
        else:
            _keys(body, {"body": str})
            target["body"] = body["body"]
        return 200, card(target)
    return 404, {"message": "Not Found"}


def _gitlab(forge: FakeForge, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> Answer:
    def shown(comment: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": comment["id"],
            "author": {"username": comment["author"]},
            "body": comment["body"],
            "system": False,
        }

    def card(issue: dict[str, Any]) -> dict[str, Any]:
        return {"iid": issue["number"], "author": {"username": issue["author"]}, "description": issue["body"]}

    root = "/api/v4/projects/group%2Fsub%2Fsite"
    notes = f"{root}/merge_requests/7/notes"
    if path == "/api/v4/user" and method == "GET":
        return 200, {"username": GITLAB_BOT}
    if path == notes and method == "GET":
        system = {"id": 1, "author": {"username": GITLAB_BOT}, "body": "added 1 commit", "system": True}
        return 200, _page([system, *(shown(comment) for comment in forge.comments)], query)
    if path == notes and method == "POST":
        _keys(body, {"body": str})
        forge.comment(GITLAB_BOT, body["body"])
        return 201, {}
    if (match := re.fullmatch(rf"{notes}/(\d+)", path)) and method == "PUT":
        _keys(body, {"body": str})
        next(comment for comment in forge.comments if comment["id"] == int(match[1]))["body"] = body["body"]
        return 200, {}
    if path == f"{root}/issues" and method == "GET":
        assert query["state"] == ["opened"] and query["labels"] == ["drift"]
        return 200, _page([card(issue) for issue in forge.issues if issue["open"]], query)
    if path == f"{root}/issues" and method == "POST":
        _keys(body, {"title": str, "description": str, "labels": str})
        forge.issue(GITLAB_BOT, body["description"])
        return 201, {}
    if re.fullmatch(rf"{root}/issues/\d+/notes", path) and method == "POST":
        _keys(body, {"body": str})
        forge.closing_words.append(body["body"])
        return 201, {}
    if (match := re.fullmatch(rf"{root}/issues/(\d+)", path)) and method == "PUT":
        issue = forge.issues[int(match[1]) - 1]
        if "state_event" in body:
            _keys(body, {"state_event": str})
            issue["open"] = body["state_event"] != "close"
        else:
            _keys(body, {"description": str})
            issue["body"] = body["description"]
        return 200, card(issue)
    return 404, {"message": "404 Not Found"}


def _change(forge: FakeForge, method: str, path: str, body: dict[str, Any]) -> Answer | None:
    """A pull or merge request; None for what is none."""
    if (method, path) == ("POST", "/repos/owner/site/pulls"):
        _keys(body, {"title": str, "body": str, "head": str, "base": str})
        forge.changes.append(body)
        return 201, {"number": 7, "node_id": "PR_7", "html_url": "https://forge.example/owner/site/pull/7"}
    if (method, path) == ("POST", "/graphql"):
        _keys(body, {"query": str, "variables": dict})
        assert body["variables"]["change"] == "PR_7"
        if body["query"].startswith("query"):
            assert "... on PullRequest { repository { viewerDefaultMergeMethod } }" in body["query"]
            return 200, {"data": {"node": {"repository": {"viewerDefaultMergeMethod": "SQUASH"}}}}
        given = "pullRequestId: $change, expectedHeadOid: $commit, mergeMethod: $method"
        assert f"enablePullRequestAutoMerge(input: {{{given}}})" in body["query"]
        if body["variables"]["method"] != "SQUASH":
            refusal = "Merge method merge commits are not allowed on this repository"
            return 200, {"data": None, "errors": [{"message": refusal}]}
        if not forge.checks:
            return 200, {"data": None, "errors": [{"message": "Pull request Pull request is in clean status"}]}
        forge.merging.append(body["variables"]["commit"])
        return 200, {"data": {"enablePullRequestAutoMerge": {"clientMutationId": None}}}
    if (method, path) == ("POST", "/api/v4/projects/group%2Fsub%2Fsite/merge_requests"):
        _keys(body, {"title": str, "description": str, "source_branch": str, "target_branch": str})
        names = {"body": "description", "head": "source_branch", "base": "target_branch", "title": "title"}
        forge.changes.append({name: body[key] for name, key in names.items()})
        return 201, {"iid": 7, "web_url": "https://forge.example/group/sub/site/-/merge_requests/7"}
    request = "/api/v4/projects/group%2Fsub%2Fsite/merge_requests/7"
    if (method, path) == ("GET", request):
        forge.looks += 1
        # The look before is of one that is there and has not begun.
        there = forge.checks and forge.looks >= forge.pipeline_after
        status = "pending" if forge.looks > forge.pipeline_after else "created"
        return 200, {"iid": 7, "head_pipeline": {"id": 1, "status": status} if there else None}
    if (method, path) == ("PUT", f"{request}/merge"):
        _keys(body, {"auto_merge": bool, "merge_when_pipeline_succeeds": bool, "sha": str})
        if forge.looks <= forge.pipeline_after:
            return 405, {"message": "405 Method Not Allowed"}
        forge.merging.append(body["sha"])
        return 200, {"iid": 7}
    return None


def _keys(body: dict[str, Any], kinds: dict[str, type]) -> None:
    assert set(body) == set(kinds), f"keys {sorted(body)}"
    for key, kind in kinds.items():
        assert isinstance(body[key], kind), f"{key} is no {kind.__name__}"
    assert len(body.get("body", "")) <= LONGEST_BODY, "body is too long"


def _page(entries: list[Any], query: dict[str, list[str]]) -> list[Any]:
    size, number = int(query["per_page"][0]), int(query["page"][0])
    assert size <= 100
    return entries[size * (number - 1) : size * number]


def _headers_right(kind: str, headers: Any) -> bool:
    if kind == "gitlab":
        return bool(headers.get("PRIVATE-TOKEN") == TOKEN)
    return bool(
        headers.get("Authorization") == f"Bearer {TOKEN}"
        and headers.get("Accept") == "application/vnd.github+json"
        and headers.get("X-GitHub-Api-Version") == "2022-11-28"
    )


@contextmanager
def fake_forge(kind: str) -> Iterator[FakeForge]:
    """The fake of `github` or `gitlab` on a port of loopback."""
    forge = FakeForge()
    answer = _github if kind == "github" else _gitlab

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            forge.requests.append((self.command, parts.path))
            if forge.busy:
                forge.busy -= 1
                return self._say(429, {"message": "slow down"}, {"Retry-After": "3"})
            if not _headers_right(kind, self.headers):
                return self._say(401, {"message": "Bad credentials"})
            try:
                body = json.loads(raw or b"{}")
                status, content = _change(forge, self.command, parts.path, body) or answer(
                    forge, self.command, parts.path, parse_qs(parts.query), body
                )
            except (AssertionError, KeyError, StopIteration) as error:
                forge.refusals.append(f"{self.command} {parts.path}: {error}")
                return self._say(422, {"message": f"Validation Failed: {error}"})
            return self._say(status, content)

        do_GET = do_POST = do_PATCH = do_PUT = _serve  # noqa: N815 - the base class's names

        def _say(self, status: int, payload: Any, headers: dict[str, str] | None = None) -> None:
            content = json.dumps(payload).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    forge.url = base if kind == "github" else f"{base}/api/v4"
    try:
        yield forge
    finally:
        server.shutdown()
        server.server_close()
