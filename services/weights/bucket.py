"""An S3 bucket: the files of a lock, each an object OWNER/NAME/COMMIT/FILE below the bucket's address."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from services.weights.failure import Exit, WeightsError
from services.weights.hub import Hub
from services.weights.manifest import Manifest

# What a request without a body is signed with.
_NO_BODY = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"
# A key that the server does not know: S3's code, with status 403, and Versity's, with 404.
_UNKNOWN_KEY = ("InvalidAccessKeyId", "XAdminUserNotFound")
# Of temporary keys; with status 400.
_EXPIRED = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})


@dataclass(frozen=True)
class BucketKeys:
    """Who asks; the secret signs and is never sent."""

    key_id: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)
    """Token of temporary keys, which is sent and signed; empty for keys that do not expire."""


class Bucket(Hub):
    """Answers of one bucket. It lists nothing that can be trusted, so a lock decides what a revision consists of."""

    def __init__(
        self, address: str, *, region: str, keys: BucketKeys | None, now: Callable[[], float] = time.time, **how: Any
    ) -> None:
        """address: `https://HOST/BUCKET[/PREFIX]`. keys: None for a bucket that all may read. how: as Hub takes it."""
        super().__init__(address, **how)
        self._region, self._keys, self._now = region, keys, now

    def manifest(self, repository: str, revision: str) -> Manifest:
        """Raises WeightsError: a bucket does not state sizes and digests of a revision."""
        raise self._no_manifest(f"{repository} at {revision}", "no lock of it")

    def _address(self, manifest: Manifest, path: str) -> str:
        return f"{self.endpoint}/{quote(manifest.repository)}/{manifest.revision}/{quote(path)}"

    def _authorize(self, request: urllib.request.Request) -> None:
        if self._keys:
            at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._now()))
            for name, value in signed_headers(request, self._keys, self._region, at).items():
                request.add_unredirected_header(name, value)

    def _authorize_redirected(self, request: urllib.request.Request, before: urllib.request.Request) -> None:  # noqa: ARG002 - signed alone
        # The secret signs, and a signature opens nothing elsewhere. A link that is signed takes no second one.
        if not urlsplit(request.full_url).query:
            self._authorize(request)

    def _refused(self, error: urllib.error.HTTPError, what: str, asked: str) -> NoReturn:
        """By the codes of https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html."""
        stated = _body(error)
        code, status = _element(stated, "Code"), error.code
        got = f"status {status} {code}".rstrip() + f" of {self.endpoint}"
        if code == "RequestTimeTooSkewed":
            wrong = f"{self.endpoint} refuses the time of the requests: its clock is not that of this node"
            fix = "set the clock of the node, or of the server; then call pulumi up again"
            raise WeightsError(Exit.OTHER, wrong, got=got, fix=fix)
        if code in ("AuthorizationHeaderMalformed", "PermanentRedirect"):
            region = _element(stated, "Region") or str(error.headers.get("x-amz-bucket-region", ""))[:64]
            raise WeightsError(
                Exit.OTHER,
                f"{self.endpoint} is no address of this bucket in the region {self._region}",
                got=got,
                allowed=f"region {region}" if region else "",
                fix="set storage.weights.bucket.region to the bucket's, and the address to its server in that region",
            )
        if self._keys and code in _EXPIRED:
            wrong = f"the keys in {self._token_from} have expired, or session_token is not theirs"
            fix = f"put valid keys into {self._token_from}, with their session_token; then call pulumi up again"
            raise WeightsError(Exit.TOKEN, wrong, got=got, fix=fix)
        if (
            status == http.client.UNAUTHORIZED
            or code in _UNKNOWN_KEY
            or (status == http.client.FORBIDDEN and not urlsplit(error.geturl() or asked).query)
        ):
            raise self._no_access_by(got, what, missing=code == "AccessDenied")
        if status in (404, 410):
            fix = f"copy the folder of the commit there, this file as {urlsplit(asked).path}; then call pulumi up again"
            if code == "NoSuchBucket":
                fix = "correct storage.weights.bucket.address, whose path begins with the bucket's name"
            raise WeightsError(Exit.NOT_FOUND, f"{self.endpoint} has no {what}", got=got, fix=fix)
        super()._refused(error, what, asked)

    def _no_access_by(self, got: str, what: str, *, missing: bool) -> WeightsError:
        """missing: it may also not be there, which S3 states to those alone who may list the bucket."""
        place = self._token_from
        if self._keys:
            wrong = f"the keys in {place} do not open {what}{', or it is not there' if missing else ''}"
            fix = f"allow s3:GetObject to these keys, or put others into {place}; then call pulumi up again"
            fix = f"copy the folder of the commit there, or {fix}" if missing else fix
        elif place:
            wrong, fix = f"there are no keys in {place}, and {what} needs some", "create that Secret with both"
        else:
            wrong, fix = f"{what} needs keys", "name a Secret that has them, as storage.weights.bucket.keys_secret"
            if missing:
                wrong, fix = f"{wrong}, or is not there", f"copy the folder of the commit there, or {fix}"
        return WeightsError(Exit.TOKEN, wrong, got=got, fix=fix)


def signed_headers(request: urllib.request.Request, keys: BucketKeys, region: str, at: str) -> dict[str, str]:
    """Headers that sign a GET, its Range included. at: now, as 20130524T000000Z.

    Signature version 4: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    With a session's token: https://docs.aws.amazon.com/AmazonS3/latest/userguide/RESTAuthentication.html
    """
    url, day = urlsplit(request.full_url), at[:8]
    sent = {"host": url.netloc, "x-amz-content-sha256": _NO_BODY, "x-amz-date": at}
    if request.has_header("Range"):
        sent["range"] = str(request.get_header("Range"))
    if keys.session:
        sent["x-amz-security-token"] = keys.session
    names = ";".join(sorted(sent))
    canonical = [f"{name}:{sent[name]}" for name in sorted(sent)]
    asked = "\n".join([request.get_method(), url.path, url.query, *canonical, "", names, _NO_BODY])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join([_ALGORITHM, at, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = _hmac(key, part)
    signature = _hmac(key, text).hex()
    return {
        "X-Amz-Content-Sha256": _NO_BODY,
        "X-Amz-Date": at,
        **({"X-Amz-Security-Token": keys.session} if keys.session else {}),
        "Authorization": f"{_ALGORITHM} Credential={keys.key_id}/{scope},SignedHeaders={names},Signature={signature}",
    }


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _body(error: urllib.error.HTTPError) -> str:
    """Begin of an answer that refuses; S3's is XML."""
    try:
        return error.read(4096).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""


def _element(text: str, name: str) -> str:
    """The first of that name, such as AccessDenied for Code; empty without one."""
    return text.partition(f"<{name}>")[2].partition(f"</{name}>")[0][:64]
