"""Nothing of a pull request becomes more than text in a comment, and a comment has a largest size."""

from __future__ import annotations

import re

import pytest

from sitectl.change.changes import Change
from sitectl.change.headroom import Headroom
from sitectl.change.report import SiteReport, report
from sitectl.output.markdown import FENCE, MARK, MOST_CHARACTERS, cut, document, fenced, name, sentence

pytestmark = pytest.mark.row("opening 3")

ATTACKS = [
    "[click](https://evil.example.org)",
    "![](https://evil.example.org/pixel.png)",
    "<img src=x onerror=alert(1)>",
    "<!-- hidden --> shown",
    "@everyone please approve",
    "fixes #1, closes !2",
    "https://evil.example.org and www.evil.example.org",
    "a | b | c",
    "line\n\n## heading\n\n- [x] approved",
    "```\nfence\n```",
    "~~~~~~~~\nfence\n~~~~~~~~",
    "/approve",
    "/merge\n/label ~security",
    "</details>",
    "`code` **bold** _it_ ~~gone~~ $x$",
    "\u202egnp.exe",
    "\x1b[31mred",
    "&lt;b&gt; &#64;x",
    MARK,
]


def attacked(text: str) -> SiteReport:
    before = {"apiVersion": "v1", "kind": "Widget", "metadata": {"name": text, "namespace": text}, "spec": {text: 1}}
    change = Change(
        op="update", type="kubernetes:v1:Widget", name=text, before=before, after={**before, "spec": {text: 2}}
    )
    gone = Change(op="delete", type=f"a:b:{text}", name=text, before={"x": 1})
    tight = Headroom(model=text, figure=text, before_ms=1, before_target_ms=4, after_ms=2, after_target_ms=4)
    return report(text, [change, gone], {text: {text}}, errors=[text], headroom=[tight])


def outside_of_code(body: str) -> str:
    """What a forge reads as Markdown: without fences and code spans."""
    body = re.sub(rf"^{FENCE}\n.*?^{FENCE}$", "", body, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "CODE", body)


@pytest.mark.parametrize("text", ATTACKS)
def test_no_text_of_a_change_gets_out_of_its_place(text: str) -> None:
    body = document([attacked(text)])
    bare = outside_of_code(body)
    assert bare.startswith(MARK) and bare.count(MARK) == 1, "only our own mark, at the start"
    assert "](http" not in bare.replace("\\", "") or "\\]" in bare
    assert not re.search(r"(?<!\\)\[[^\]\\]*\]\(", bare), "no link"
    assert not re.search(r"(?<!\\)!\[", bare), "no image"
    tags = set(re.findall(r"<[^>]*>", bare))
    assert tags <= {MARK, "<details>", "</details>", "<summary>", "</summary>"}
    assert not re.search(r"@\w", bare), "no mention"
    assert not re.search(r"#\d|(?<!\\)![0-9]", bare), "no reference"
    assert "://" not in bare and not re.search(r"(?i)\bwww\.", bare), "no address that links itself"
    assert not re.search(r"^\s*/\w", bare, re.MULTILINE), "no quick action"
    assert bare.count("<details>") == bare.count("</details>")
    assert sum(line == FENCE for line in body.splitlines()) % 2 == 0, "every fence is closed by us"
    assert "\u202e" not in body and "\x1b" not in body


@pytest.mark.parametrize("text", ATTACKS)
def test_tables_keep_their_columns(text: str) -> None:
    lines = [line for line in document([attacked(text)]).splitlines() if line.startswith("|")]
    for line in lines:
        assert len(re.findall(r"(?<!\\)\|", line)) in (4, 6, 9), line


def test_headings_are_ours_alone() -> None:
    body = outside_of_code(document([attacked("line\n\n## heading")]))
    assert re.findall(r"^#+ .*$", body, re.MULTILINE) == ["## What this changes", "### CODE"]


def test_plain_text_reads_as_it_is() -> None:
    assert sentence("the model can be called") == "the model can be called"
    assert name("Deployment models/chat") == "`Deployment models/chat`"


def test_a_secret_in_a_message_is_not_posted() -> None:
    posted = sentence("given sk-abcdefghijklmnop0123 as key") + "".join(
        fenced("x\ntoken ghp_abcdefghijklmnopqrstuvwx1\ny")
    )
    assert "sk-abc" not in posted and "ghp_" not in posted
    assert posted.count("looks like a secret") == 2


def test_a_fence_cannot_be_closed_from_inside() -> None:
    lines = fenced(f"a\n{FENCE}\n/approve\n~~~")
    assert [line for line in lines if line.startswith("~~~")] == [FENCE, FENCE]


@pytest.mark.parametrize("rest", ["", "the artifact of run 7"])
def test_a_long_comment_ends_whole(rest: str) -> None:
    reports = [attacked("x" * 300) for _ in range(200)]
    body = document(reports, rest=rest)
    assert len(body) <= MOST_CHARACTERS
    assert sum(line == FENCE for line in body.splitlines()) % 2 == 0
    assert body.count("<details>") == body.count("</details>")
    assert "**Cut here: a comment holds no more.**" in body
    assert ("The whole of it" in body) == bool(rest)
    assert rest in body


def test_a_short_comment_is_not_cut() -> None:
    assert cut("one\n") == "one\n"
