"""Definitions out of YAML text: the same bytes always, nothing but what belongs."""

from __future__ import annotations

import json

import pytest

from bundle.definitions import definitions_file
from bundle.errors import BundleError

CRD = """\
---
# a comment
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: NAME
  creationTimestamp: null
spec:
  group: example.org
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: two words
        properties:
          description: {type: string, description: A field of this name., pattern: '1e3'}
          size: {type: object, default: {description: kept}, properties: {properties: {description: A text.}}}
status:
  conditions: []
"""
FIRST, LAST = CRD.replace("NAME", "a.example.org"), CRD.replace("NAME", "z.example.org")
POLICY = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n"


def test_definitions_are_sorted_and_bare() -> None:
    items = json.loads(definitions_file(LAST + POLICY + FIRST, "here"))["items"]
    assert [item["metadata"] for item in items] == [{"name": "a.example.org"}, {"name": "z.example.org"}]
    assert all("status" not in item for item in items)


def test_definitions_lose_their_descriptions_and_nothing_else() -> None:
    ((version,),) = [item["spec"]["versions"] for item in json.loads(definitions_file(FIRST, "here"))["items"]]
    assert version["schema"]["openAPIV3Schema"] == {
        "properties": {
            "description": {"type": "string", "pattern": "1e3"},
            "size": {"type": "object", "default": {"description": "kept"}, "properties": {"properties": {}}},
        }
    }


def test_an_equals_sign_is_text() -> None:
    """YAML 1.1 gives it a type of its own; Kubernetes reads it as the text that it is, in an enum for one."""
    text = FIRST.replace("pattern: '1e3'", "enum: [=, '!=']")
    ((version,),) = [item["spec"]["versions"] for item in json.loads(definitions_file(text, "here"))["items"]]
    assert version["schema"]["openAPIV3Schema"]["properties"]["description"]["enum"] == ["=", "!="]


def test_the_order_of_the_text_does_not_matter() -> None:
    assert definitions_file(FIRST + LAST, "here") == definitions_file(LAST + POLICY + FIRST, "there")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (POLICY, "holds no CustomResourceDefinition"),
        ("a: [", "is not YAML"),
        ("a: 2026-99-99", "is not YAML"),
        ("kind: CustomResourceDefinition", "holds a CustomResourceDefinition that is not whole"),
        (FIRST.replace("'1e3'", "2026-01-01"), "holds a CustomResourceDefinition that is not whole"),
    ],
)
def test_a_text_without_definitions_is_named(text: str, what: str) -> None:
    with pytest.raises(BundleError, match=f"gateway-crds-helm v1 {what}"):
        definitions_file(text, "gateway-crds-helm v1")
