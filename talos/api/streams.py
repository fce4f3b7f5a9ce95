"""Replies that come in pieces, and how the client knows that the last piece has come."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from talos.api.errors import Code, CutShortError, RpcError

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DRIVER = re.compile(r"\s(\d+\.\d+(?:\.\d+)?)\s")
_DIGEST_BYTES = hashlib.sha256().digest_size
# bbolt, etcd's store, writes whole pages; a snapshot is those and the digest.
_SNAPSHOT_UNIT_BYTES = 512
_LARGEST_KUBECONFIG_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS


def carried_error(message: Any) -> RpcError | None:
    """The failure in a reply message: Talos reports a node's failure inside an answer that is well."""
    if not message.HasField("metadata"):
        return None
    metadata = message.metadata
    code = Code.of(metadata.status.code)
    if code is Code.OK and not metadata.error:
        return None
    return RpcError(Code.UNKNOWN if code is Code.OK else code, metadata.status.message or metadata.error)


def kubeconfig(chunks: Iterator[bytes]) -> str:
    """The file `kubeconfig` of a gzipped archive; CutShortError unless gzip's closing checksum has come."""
    unpacking = zlib.decompressobj(_GZIP)
    unpacked = bytearray()
    try:
        for chunk in chunks:
            unpacked += unpacking.decompress(chunk, _LARGEST_KUBECONFIG_BYTES)
            if unpacking.unconsumed_tail or len(unpacked) > _LARGEST_KUBECONFIG_BYTES:
                raise RpcError(Code.DATA_LOSS, "the kubeconfig's archive is larger than any kubeconfig")
    except zlib.error:
        raise RpcError(Code.DATA_LOSS, "the kubeconfig's archive is damaged") from None
    if not unpacking.eof:
        raise CutShortError("the kubeconfig's archive is not whole")
    try:
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
            for member in archive:
                if member.name.rpartition("/")[2] == "kubeconfig" and (file := archive.extractfile(member)):
                    return file.read().decode()
    except (tarfile.TarError, UnicodeDecodeError):
        raise RpcError(Code.DATA_LOSS, "the kubeconfig's archive is no archive of text") from None
    raise RpcError(Code.DATA_LOSS, "the archive has no file called kubeconfig")


def boot_id(chunks: Iterator[bytes]) -> str:
    """A whole UUID; CutShortError for less."""
    text = b"".join(chunks).decode(errors="replace").strip()
    if not _UUID.fullmatch(text):
        raise CutShortError("the boot id is not a whole UUID")
    return text


def lines(chunks: Iterator[bytes]) -> list[str]:
    """The lines of a file; CutShortError where the last one has no end."""
    text = b"".join(chunks).decode(errors="replace")
    if text and not text.endswith("\n"):
        raise CutShortError("the file's last line is not whole")
    return text.splitlines()


def driver_version(chunks: Iterator[bytes]) -> str:
    """Of the line that NVIDIA's kernel module shows; RpcError for another text."""
    for line in lines(chunks):
        if line.startswith("NVRM version:") and (match := _DRIVER.search(line)):
            return match[1]
    raise RpcError(Code.DATA_LOSS, "no line of the file has the driver's version")


def checked_snapshot(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks as they come; at their end CutShortError unless they end in the SHA-256 of all before it."""
    digest, held, size = hashlib.sha256(), b"", 0
    for chunk in chunks:
        size += len(chunk)
        held += chunk
        # The last bytes are held back: only at the end it is known that they were the digest.
        digest.update(held[:-_DIGEST_BYTES])
        held = held[-_DIGEST_BYTES:]
        yield chunk
    if size % _SNAPSHOT_UNIT_BYTES != _DIGEST_BYTES or digest.digest() != held:
        raise CutShortError(f"the snapshot is not whole: {size} bytes do not end in their own checksum")


def pulled_name(replies: Iterator[Any], on_progress: Callable[[str], None]) -> str:
    """The pulled image's name with digest, after reporting each layer whose state changes."""
    name = ""
    reported: dict[str, int] = {}
    for reply in replies:
        if reply.HasField("name"):
            name = reply.name
            continue
        layer = reply.pull_progress
        share = layer.progress.offset * 4 // layer.progress.total if layer.progress.total else 0
        if reported.get(layer.layer_id) != share:
            reported[layer.layer_id] = share
            on_progress(f"layer {layer.layer_id[:19]}: {share * 25} %")
    if not name:
        raise CutShortError("the pull ended without the image's name")
    return name


def exit_code(replies: Iterator[Any], on_message: Callable[[str], None]) -> int:
    """The installer's exit code, after reporting what it prints. CutShortError where it never came."""
    code: int | None = None
    for reply in replies:
        if reply.progress.HasField("exit_code"):
            code = reply.progress.exit_code
        elif reply.progress.message:
            on_message(reply.progress.message.rstrip())
    if code is None:
        raise CutShortError("the installer's exit code never came; it may still be running")
    return code
