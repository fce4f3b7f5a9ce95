"""Weights out of an S3 bucket: signed as AWS documents it, and only what a lock lists."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from services.weights.__main__ import main
from services.weights.bringing import Bringing
from services.weights.bucket import Bucket, BucketKeys, signed_headers
from services.weights.failure import Exit
from services.weights.order import Source, WeightsOrder
from services.weights.volume import Volume
from tests.unit.services.weights_rig import (
    FILES,
    LARGE,
    PATIENCE_S,
    REPOSITORY,
    REVISION,
    VirtualClock,
    refused,
    rig,
    write_order,
)

pytestmark = pytest.mark.row("003.08")

# Of AWS's documentation of signature version 4, which publishes a request and its signature.
DOCUMENTED = BucketKeys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
# As AWS's own test suite of that version has it: aws-sig-v4-test-suite/post-sts-token.
SESSION = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwt"
    "hAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVX"
    "AkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)
KEYS = BucketKeys("site", "bucket-secret")
AT = 1369353600.0


@dataclass
class EmulatedBucket:
    """Objects by path. A request is answered when its signature is the one of these keys at that time."""

    objects: dict[str, bytes]
    keys: BucketKeys | None = KEYS
    requests: list[tuple[str, str]] = field(default_factory=list)
    cut_at: int = 0
    refusal: tuple[int, str] | None = None
    elsewhere: str = ""
    """Address that every request is sent on to."""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        range_ = request.headers.get("Range", "")
        self.requests.append((request.path, range_))
        if self.elsewhere:
            request.send_response(307)
            request.send_header("Location", f"{self.elsewhere}{request.path}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if self.refusal:
            self._send(request, self.refusal[0], self.refusal[1].encode())
            return
        if self.keys and not self._is_signed(request, self.keys):
            self._send(request, 403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
            return
        content = self.objects.get(request.path)
        if content is None:
            self._send(request, 404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        begin = int(range_.removeprefix("bytes=").rstrip("-")) if range_ else 0
        cut = 0
        if request.path.endswith(LARGE):
            cut, self.cut_at = self.cut_at, 0
        self._send(request, 206 if range_ else 200, content[begin:], begin, len(content), cut)

    @staticmethod
    def _is_signed(request: BaseHTTPRequestHandler, keys: BucketKeys) -> bool:
        host = request.headers["Host"]
        again = urllib.request.Request(f"http://{host}{request.path}")
        if request.headers.get("Range"):
            again.add_header("Range", request.headers["Range"])
        at = request.headers.get("X-Amz-Date", "")
        return (
            bool(at)
            and request.headers.get("X-Amz-Security-Token", "") == keys.session
            and request.headers.get("Authorization") == signed_headers(again, keys, "eu-1", at)["Authorization"]
        )

    @staticmethod
    def _send(
        request: BaseHTTPRequestHandler, status: int, body: bytes, begin: int = 0, total: int = 0, cut: int = 0
    ) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        if status == 206:
            request.send_header("Content-Range", f"bytes {begin}-{total - 1}/{total}")
        request.end_headers()
        request.wfile.write(body[:cut] if cut else body)
        request.close_connection = True


@contextmanager
def serving(bucket: EmulatedBucket) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            bucket.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/models/prod"
    finally:
        server.shutdown()
        server.server_close()


def objects() -> dict[str, bytes]:
    return {f"/models/prod/{REPOSITORY}/{REVISION}/{path}": data for path, data in FILES.items()}


@pytest.fixture
def lock(tmp_path: Path) -> str:
    with rig(tmp_path / "hub") as site:
        return site.lock().text()


def program(root: Path, address: str, lock: str, keys: BucketKeys | None = KEYS) -> Bringing:
    with rig(root) as site:
        order = WeightsOrder(
            **{
                **vars(site.order(lock=lock, source="bucket", token_from="inference-models/bucket")),
                "endpoint": address,
            }
        )
        bucket = Bucket(address, region="eu-1", keys=keys, token_from=order.token_from, stall_s=PATIENCE_S)
        return Bringing(order, Volume(site.root), bucket, site.lines.append, VirtualClock())


def test_requests_are_signed_as_aws_documents_it() -> None:
    request = urllib.request.Request("https://examplebucket.s3.amazonaws.com/test.txt", headers={"Range": "bytes=0-9"})
    signed = signed_headers(request, DOCUMENTED, "us-east-1", "20130524T000000Z")
    assert signed["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_a_sessions_token_is_sent_and_signed_as_awss_own_client_does() -> None:
    """The signature is of botocore 1.44.8 (S3SigV4Auth), which without the token gives the documented one above."""
    request = urllib.request.Request("https://examplebucket.s3.amazonaws.com/test.txt", headers={"Range": "bytes=0-9"})
    signed = signed_headers(request, replace(DOCUMENTED, session=SESSION), "us-east-1", "20130524T000000Z")
    assert signed["X-Amz-Security-Token"] == SESSION
    assert signed["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date;x-amz-security-token,"
        "Signature=83550a58e2be44fa0ba3b8668126104d584132f713849584acd2aa6cf6431fca"
    )


def test_temporary_keys_open_a_bucket_with_their_token_alone(
    tmp_path: Path, lock: str, capfd: pytest.CaptureFixture[str]
) -> None:
    bucket = EmulatedBucket(objects(), keys=replace(KEYS, session="of-this-hour"))
    with serving(bucket) as address, rig(tmp_path) as site:
        order = WeightsOrder(**{**vars(site.order(lock=lock, source="bucket")), "endpoint": address, "region": "eu-1"})
        command = ["bring", "--volume", str(tmp_path / "volume"), *write_order(tmp_path / "order", order)]
        environment = {"AWS_ACCESS_KEY_ID": KEYS.key_id, "AWS_SECRET_ACCESS_KEY": KEYS.secret}
        assert main(command, environment) == Exit.TOKEN
        assert main(command, environment | {"AWS_SESSION_TOKEN": "of-this-hour\n"}) == Exit.OK
    printed = capfd.readouterr()
    for secret in ("of-this-hour", KEYS.secret):
        assert secret not in f"{printed.out}{printed.err}{bucket.keys}"


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken"])
def test_keys_that_have_expired_are_named_by_their_secret(tmp_path: Path, lock: str, code: str) -> None:
    ended = EmulatedBucket({}, refusal=(400, f"<Error><Code>{code}</Code><Token-0>of-this-hour</Token-0></Error>"))
    with serving(ended) as address:
        failure = refused(program(tmp_path, address, lock, replace(KEYS, session="of-this-hour")))
    assert failure.status == Exit.TOKEN
    assert "the keys in inference-models/bucket have expired, or session_token is not theirs" in str(failure)
    assert "with their session_token" in failure.fix
    assert "of-this-hour" not in str(failure) + failure.fix


def test_a_locked_revision_comes_out_of_a_bucket_and_goes_on_where_it_broke(tmp_path: Path, lock: str) -> None:
    bucket = EmulatedBucket(objects(), cut_at=1000)
    with serving(bucket) as address:
        bringing = program(tmp_path, address, lock)
        bringing.run()
        folder = bringing.volume.folder(REVISION)
        assert {path: (folder / path).read_bytes() for path in FILES} == FILES
        assert [range_ for path, range_ in bucket.requests if path.endswith(LARGE)] == ["", "bytes=1000-"]


def test_a_bucket_without_a_lock_or_with_another_object_is_refused(tmp_path: Path, lock: str) -> None:
    changed = {path: bytes(len(data)) if path.endswith(LARGE) else data for path, data in objects().items()}
    with serving(EmulatedBucket(changed)) as address:
        corrupt = refused(program(tmp_path / "corrupt", address, lock))
        assert corrupt.status == Exit.CORRUPT
        unlocked = refused(program(tmp_path / "unlocked", address, ""))
    assert unlocked.status == Exit.NOT_FOUND
    assert "weights lock" in unlocked.fix


@pytest.mark.parametrize(
    ("keys", "says", "fix"),
    [
        (BucketKeys("site", "of-yesterday"), "the keys in inference-models/bucket do not open", "s3:GetObject"),
        (None, "there are no keys in inference-models/bucket", "create that Secret"),
    ],
)
def test_keys_that_do_not_open_it_are_named_by_their_secret(
    tmp_path: Path, lock: str, keys: BucketKeys | None, says: str, fix: str
) -> None:
    with serving(EmulatedBucket(objects())) as address:
        failure = refused(program(tmp_path, address, lock, keys))
    assert failure.status == Exit.TOKEN
    assert says in str(failure)
    assert "403 SignatureDoesNotMatch" in str(failure)
    assert fix in failure.fix
    assert "of-yesterday" not in str(failure)


def test_the_job_takes_its_keys_from_the_environment(tmp_path: Path, lock: str) -> None:
    bucket = EmulatedBucket(objects())
    with serving(bucket) as address, rig(tmp_path) as site:
        order = WeightsOrder(**{**vars(site.order(lock=lock, source="bucket")), "endpoint": address, "region": "eu-1"})
        named = write_order(tmp_path / "order", order)
        command = ["bring", "--volume", str(tmp_path / "volume"), *named]
        assert main(command, {}) == Exit.TOKEN
        environment = {"AWS_ACCESS_KEY_ID": KEYS.key_id, "AWS_SECRET_ACCESS_KEY": f"{KEYS.secret}\n"}
        assert main(command, environment) == Exit.OK
        bucket.keys = None
        (tmp_path / "again").mkdir()
        assert main(["bring", "--volume", str(tmp_path / "again"), *named], {}) == Exit.OK, "readable without keys"


def test_a_request_that_is_sent_on_is_signed_for_its_next_server(tmp_path: Path, lock: str) -> None:
    first, second = EmulatedBucket({}), EmulatedBucket(objects())
    with serving(first) as address, serving(second) as other:
        first.elsewhere = other.removesuffix("/models/prod")
        bringing = program(tmp_path, address, lock)
        bringing.run()
        assert (bringing.volume.folder(REVISION) / LARGE).read_bytes() == FILES[LARGE]
        assert second.requests


@pytest.mark.parametrize(
    ("refusal", "keys", "status", "says", "fix"),
    [
        ((403, "AccessDenied"), KEYS, Exit.TOKEN, "do not open", "copy the folder of the commit there, or allow"),
        ((403, "AccessDenied"), KEYS, Exit.TOKEN, "or it is not there", "s3:GetObject"),
        ((403, "AccessDenied"), None, Exit.TOKEN, "403 AccessDenied", "create that Secret with both"),
        ((404, "XAdminUserNotFound"), KEYS, Exit.TOKEN, "do not open", "put others into"),
        ((403, "RequestTimeTooSkewed"), KEYS, Exit.OTHER, "refuses the time of the requests", "set the clock"),
        ((404, "NoSuchKey"), KEYS, Exit.NOT_FOUND, "404 NoSuchKey", f"as /models/prod/{REPOSITORY}/{REVISION}/"),
        ((404, "NoSuchBucket"), KEYS, Exit.NOT_FOUND, "404 NoSuchBucket", "correct storage.weights.bucket.address"),
        (
            (400, "AuthorizationHeaderMalformed</Code><Region>eu-2</Region><Code>"),
            KEYS,
            Exit.OTHER,
            "region eu-1; got status 400 AuthorizationHeaderMalformed",
            "set storage.weights.bucket.region",
        ),
        ((301, "PermanentRedirect"), None, Exit.OTHER, "301 PermanentRedirect", "set storage.weights.bucket.region"),
    ],
)
def test_what_a_bucket_refuses_has_the_fix_of_its_code(
    tmp_path: Path,
    lock: str,
    refusal: tuple[int, str],
    keys: BucketKeys | None,
    status: Exit,
    says: str,
    fix: str,
) -> None:
    refuses = EmulatedBucket({}, refusal=(refusal[0], f"<Error><Code>{refusal[1]}</Code></Error>"))
    with serving(refuses) as address:
        failure = refused(program(tmp_path, address, lock, keys))
    assert failure.status == status
    assert says in str(failure)
    assert fix in failure.fix
    assert "mirror" not in str(failure) and "token" not in str(failure)
    assert ("allowed: region eu-2" in str(failure)) == ("eu-2" in refusal[1])


@pytest.mark.parametrize("source", ["bucket", "hub"])
def test_a_secret_of_two_lines_is_refused_and_not_quoted(
    tmp_path: Path, lock: str, source: Source, capfd: pytest.CaptureFixture[str]
) -> None:
    with rig(tmp_path) as site:
        order = site.order(lock=lock, source=source, token_from="Secret inference-models/own")
        command = ["bring", "--volume", str(tmp_path / "volume"), *write_order(tmp_path / "order", order)]
        lines = "first-line\nsecond-line"
        environment = dict.fromkeys(("HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), lines)
        assert main(command, environment) == Exit.TOKEN
    error = capfd.readouterr().err
    assert "Secret inference-models/own has more than" in error
    assert "-line" not in error
