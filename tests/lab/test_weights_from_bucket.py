"""Weights out of a real S3 server, which checks each signature itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.paths import Lab
from services.weights.__main__ import main
from services.weights.failure import Exit
from services.weights.manifest import Entry, Manifest
from services.weights.order import Wanted, WeightsOrder
from tests.lab.s3_server import KEY_ID, REGION, SECRET, serving
from tests.unit.services.emulated_registry import digest
from tests.unit.services.weights_rig import FILES, LARGE, REPOSITORY, REVISION, write_order

pytestmark = pytest.mark.row("003.08")

KEYS = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
# A name that a signature has in another form than a URL may.
OBJECTS = dict(FILES) | {"extra/a+b (1) ü~.json": b"{}"}
LOCK = Manifest(REPOSITORY, REVISION, {path: Entry(len(data), digest(data)[7:]) for path, data in OBJECTS.items()})


@contextmanager
def bucket(lab: Lab, folder: Path) -> Iterator[str]:
    """The server with the bucket `models`, in which the files of the lock are; its address."""
    for path, data in OBJECTS.items():
        file = folder / "models" / "prod" / REPOSITORY / REVISION / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    with serving(lab, folder) as address:
        yield f"{address}/models/prod"


def bring(volume: Path, address: str, keys: Mapping[str, str], *, region: str = REGION) -> int:
    volume.mkdir(exist_ok=True)
    order = WeightsOrder(
        model="chat",
        source="bucket",
        endpoint=address,
        region=region,
        bytes_per_s=1e12,
        parallel=4,
        keep=1,
        token_from="Secret inference-models/bucket",
        wanted=(Wanted(REPOSITORY, REVISION, LOCK.text()),),
    )
    return main(["bring", "--volume", str(volume), *write_order(volume.with_suffix(".order"), order)], keys)


def test_the_job_brings_a_model_out_of_the_real_server(
    lab_of_tools: Lab, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A part of the largest file is there, as an earlier run left it: the rest is asked for with a signed range."""
    volume = tmp_path / "volume"
    part = volume / "parts" / REVISION / f"{LARGE}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(FILES[LARGE][:1000])
    with bucket(lab_of_tools, tmp_path / "s3") as address:
        assert bring(volume, address, KEYS) == Exit.OK
    brought = volume / "revisions" / REVISION
    assert {path: (brought / path).read_bytes() for path in OBJECTS} == OBJECTS
    output = capfd.readouterr()
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in output.out + output.err


@pytest.mark.parametrize(
    ("keys", "prefix", "region", "status", "states"),
    [
        (KEYS | {"AWS_SECRET_ACCESS_KEY": "of-yesterday"}, "", REGION, Exit.TOKEN, "403 SignatureDoesNotMatch"),
        (KEYS | {"AWS_ACCESS_KEY_ID": "another"}, "", REGION, Exit.TOKEN, "do not open"),
        ({}, "", REGION, Exit.TOKEN, "there are no keys in Secret inference-models/bucket"),
        (KEYS, "/elsewhere", REGION, Exit.NOT_FOUND, "404 NoSuchKey"),
        (KEYS, "", "us-east-1", Exit.OTHER, f"allowed: region {REGION}"),
    ],
    ids=["another secret", "unknown key", "no keys", "not there", "another region"],
)
def test_what_the_real_server_refuses_has_its_own_reason(
    lab_of_tools: Lab,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    keys: Mapping[str, str],
    prefix: str,
    region: str,
    status: Exit,
    states: str,
) -> None:
    with bucket(lab_of_tools, tmp_path / "s3") as address:
        assert bring(tmp_path / "volume", address + prefix, keys, region=region) == status
    error = capfd.readouterr().err
    assert states in error
    assert "of-yesterday" not in error
