"""What a lab's ledger has in its database of requests whose prompt ids begin alike."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from lab.cluster import operator_database
from lab.errors import LabError
from lab.paths import Lab

_OF = "FROM requests WHERE prompt_id LIKE :'prompts'"


def sums(lab: Lab, run_id: str) -> tuple[int, int, int]:
    """Rows, and tokens of input and output. Raises LabError while the database is away, as all of these."""
    columns = "count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0)"
    count, input_tokens, output_tokens = _asked(lab, run_id, f"json_build_array({columns}) {_OF}")
    return count, input_tokens, output_tokens


def tokens(lab: Lab, run_id: str) -> dict[str, tuple[int, int]]:
    """Prompt id -> tokens of input and output; none while the database is away."""
    columns = "json_build_array(input_tokens, output_tokens)"
    try:
        rows = _asked(lab, run_id, f"coalesce(json_object_agg(prompt_id, {columns}), '{{}}') {_OF}")
    except LabError:
        return {}
    return {prompt: (counted[0], counted[1]) for prompt, counted in rows.items()}


def doubles(lab: Lab, run_id: str) -> int:
    """Rows more than there are requests."""
    return int(_asked(lab, run_id, f"to_json(count(*) - count(DISTINCT prompt_id)) {_OF}"))


def rows_of(lab: Lab, run_id: str) -> list[dict[str, float]]:
    """Tokens of the answer of each row, and its time at the gateway."""
    columns = "'output_tokens', output_tokens, 'duration_ms', duration_ms"
    rows: list[dict[str, float]] = _asked(lab, run_id, f"coalesce(json_agg(json_build_object({columns})), '[]') {_OF}")
    return rows


def _asked(lab: Lab, run_id: str, what: str) -> Any:
    url = operator_database.url(lab, operator_database.USAGE)
    words = [str(lab.bin / "psql"), "--no-psqlrc", "--tuples-only", "--no-align", f"--set=prompts={run_id}-%", url]
    done = subprocess.run(words, input=f"SELECT {what}", capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise LabError(f"the ledger's database gives nothing: {done.stderr.strip()}", fix="python -m lab logs")
    return json.loads(done.stdout)
