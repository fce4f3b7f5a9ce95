"""The table of fields that Talos's loader takes: whole, and true of every document that this project makes."""

from __future__ import annotations

import pytest

from talos.documents.contract import V1_13
from talos.documents.document import Document
from talos.documents.fields import misfits, required
from tests.unit.talos import talos_examples as examples


def test_the_table_has_every_kind_of_the_contract() -> None:
    kinds = V1_13.kinds - {"v1alpha1"}
    reported = {kind: list(misfits({"kind": kind, "apiVersion": "v1alpha1", "no": 1})) for kind in kinds}
    assert {kind: [misfit.path for misfit in misfits] for kind, misfits in reported.items()} == {
        kind: [("no",)] for kind in kinds
    }


@pytest.mark.parametrize("document", examples.all_documents(), ids=lambda document: document.kind)
def test_what_this_project_writes_fits(document: Document) -> None:
    written = document.document()
    assert list(misfits(written)) == []
    for group in required(document.kind):
        assert any(field.partition(".")[0] in written for field in group)


def test_whole_configs_fit() -> None:
    for config in (examples.control_plane_config(), examples.hgx_config()):
        for written in config.wire():
            assert list(misfits(written)) == []
