"""Simulated talos-backup: what one run of the CronJob's pod does by the variables that the CronJob states.

Read from siderolabs/talos-backup@v0.1.0-beta.3 cmd/talos-backup/service/service.go:23-73, pkg/config/service.go:36-47,
pkg/talos/talos.go:41-85, pkg/encryption/encryption.go and pkg/s3/s3.go:24-72. The Talos client is the project's own and
`age` the real program. The request that puts the object is signed; a large snapshot would be put in parts.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.lab import s3_server


def variables_of(job: Mapping[str, Any], secrets: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The container's environment, with what a kubelet takes out of the Secrets."""
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    made = {}
    for entry in container["env"]:
        source = entry.get("valueFrom", {}).get("secretKeyRef")
        made[entry["name"]] = secrets[source["name"]][source["key"]] if source else entry["value"]
    return made


def run(variables: Mapping[str, str], folder: Path, *, age: Path, take: Callable[[Path], object]) -> str:
    """Take a snapshot into a file of the folder, encrypt it and put it into the bucket; the object's key."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    taken = folder / f"{variables['CLUSTER_NAME']}-{stamp}.snap"
    take(taken)
    # Otherwise it would be put as it is.
    assert variables.get("DISABLE_ENCRYPTION") != "true"
    encrypted = taken.with_name(f"{taken.name}.age")
    recipient = variables["AGE_X25519_PUBLIC_KEY"]
    subprocess.run([age, "--recipient", recipient, "--output", encrypted, taken], check=True, timeout=60)
    key = f"{variables['S3_PREFIX']}/{encrypted.name}"
    # The bucket is in the path where the text is "false", and in the host's name otherwise.
    assert variables["USE_PATH_STYLE"] == "false"
    s3_server.call(
        "PUT",
        f"{variables['CUSTOM_S3_ENDPOINT']}/{variables['BUCKET']}/{quote(key)}",
        key_id=variables["AWS_ACCESS_KEY_ID"],
        secret=variables["AWS_SECRET_ACCESS_KEY"],
        region=variables["AWS_REGION"],
        body=encrypted.read_bytes(),
    )
    for file in (taken, encrypted):
        file.unlink()
    return key
