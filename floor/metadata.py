"""Labels and annotations that objects of several builders carry."""

from __future__ import annotations

FIELD_MANAGER = "pulumi.com/patchFieldManager"
TALOS = "talos"
"""Manager of the fields of what Talos makes out of manifests (siderolabs/talos v1.13.9 pkg/machinery/constants)."""
DEFINITIONS = "inference-platform/definitions"
"""Label of a custom resource definition: the file of the bundle that it came with."""
# The API server keeps what carries this label from others than the program.
PROTECTED = {"inference-platform/front-door": "protected"}
# Annotation of a volume that may be deleted with its data; a rule asks for it.
DISPOSABLE = "inference-platform/disposable"
# For the AI gateway's kinds. Its controller tries once to remove its finalizer (envoyproxy/ai-gateway#2565). A
# foreground deletion, which is the plugin's default, adds a second finalizer: where the garbage collector removes that
# one at the same moment, the controller's attempt is a conflict, and the object stays for good.
DELETED_IN_BACKGROUND = {"pulumi.com/deletionPropagationPolicy": "background"}
GROUPS_LABEL = "leaderworkerset.sigs.k8s.io/name"
"""Label by which LeaderWorkerSet marks every pod of a set with its name."""
