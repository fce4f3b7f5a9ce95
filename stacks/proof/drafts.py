"""What drafting and verifying take: weights on each GPU, and the time of a step that does both.

A step verifies k drafted tokens of each running request and its last own one, then drafts the next ones. Drafting by a
model is k passes: the first with all tokens that the step had, prompts included, as its own cache needs them; the
others with one token of each request. No timing of a pass is known; each counts as a step of that model, scheduling and
sampling included. Source: vLLM v1/spec_decode/llm_base_proposer.py.
"""

from __future__ import annotations

from stacks.facts.catalogue import CatalogueModel
from stacks.facts.hardware import Gpu
from stacks.proof.cache import KvDtype
from stacks.proof.layouts import Layout, weights_per_gpu, why_illegal
from stacks.proof.roofline import CALIBRATION, Calibration, Roofline
from stacks.proof.speculation import Speculation, drafter, why_unsuited
from stacks.proof.weights import FORMAT_BITS, joining_parameters, weight_bytes

_UNQUANTISED = FORMAT_BITS["none"] / 8


def draft_layout(layout: Layout, speculation: Speculation) -> Layout:
    """How what drafts is cut: a draft model over the tensor-parallel ranks alone (vLLM's default), a layer of the model
    as its other layers."""
    return Layout(tensor=layout.tensor) if speculation.method == "draft" else layout


def why_undrafted(model: CatalogueModel, layout: Layout, speculation: Speculation | None) -> str:
    """The first reason why the engine would not draft on this layout, or nothing.

    Pipelines: https://github.com/vllm-project/vllm/issues/57755.
    """
    if speculation is None:
        return ""
    if unsuited := why_unsuited(model, speculation):
        return unsuited.why
    if layout.pipeline > 1:
        return "vLLM does not start with speculative decoding and pipeline stages"
    if speculation.draft and (illegal := why_illegal(speculation.draft, draft_layout(layout, speculation))):
        return f"{speculation.draft.repository}, which drafts: {illegal}"
    return ""


def why_not_drafted_whole(speculation: Speculation | None, context: int) -> str:
    """Why a draft model does not draft to the end of a request of so many tokens, or nothing."""
    draft = speculation.draft if speculation else None
    if draft is None or context <= draft.max_context_tokens:
        return ""
    most = draft.max_context_tokens
    return (
        f"{draft.repository} drafts nothing beyond {most:,} tokens, and requests may have {context:,}: "
        f"set overrides.max_model_len to {most} or less"
    )


def draft_weights(model: CatalogueModel, layout: Layout, speculation: Speculation | None) -> float:
    """Bytes on the fullest GPU of what drafts; 0 where nothing of its own does.

    Draft layers share the model's embeddings (vLLM v1/spec_decode/llm_base_proposer.py); their projections are whole on
    each rank and not quantised.
    """
    drafts = drafter(model, speculation)
    if drafts is None or speculation is None:
        return 0.0
    size = weights_per_gpu(drafts, draft_layout(layout, speculation))
    if speculation.method == "draft":
        return size
    shared = weight_bytes(drafts).embeddings / layout.tensor
    return size - shared + model.draft_layers * joining_parameters(model) * _UNQUANTISED


def draft_files(speculation: Speculation | None) -> float:
    """Bytes of the files of a draft model; 0 where none is loaded."""
    return weight_bytes(speculation.draft).files if speculation and speculation.draft else 0.0


class SpeculativeRoofline(Roofline):
    """Step times of one model with what drafts for it: each step verifies and drafts."""

    def __init__(
        self,
        model: CatalogueModel,
        gpu: Gpu,
        layout: Layout,
        dtype: KvDtype,
        speculation: Speculation,
        calibration: Calibration = CALIBRATION,
        pace: float = 1.0,
    ) -> None:
        super().__init__(model, gpu, layout, dtype, calibration, pace)
        self._speculation = speculation
        # One pass goes through one of the draft layers.
        drafts = drafter(model, speculation, layers=1)
        cut = draft_layout(layout, speculation)
        self._draft = Roofline(drafts, gpu, cut, dtype, calibration, pace) if drafts else None
        joining = joining_parameters(model) if speculation.method == "mtp" else 0.0
        self._join = self._part("embeddings", joining, joining * _UNQUANTISED)

    def step_s(
        self,
        *,
        prefill: float = 0.0,
        reach: float = 0.0,
        decodes: float = 0.0,
        context: float = 0.0,
        alone: bool = False,
    ) -> float:
        """Seconds of one step, drafts included. decodes: requests, each of which gets `per_step` tokens on average."""
        width = float(self._speculation.width)
        verify = self.wide_step_s(
            prefill=prefill, reach=reach, decodes=decodes, context=context, alone=alone, width=width, sampled=width
        )
        if self._draft is None or not verify:
            return verify
        first = self._draft.wide_step_s(prefill=prefill, reach=reach, decodes=decodes, context=context, width=width)
        others = self._draft.step_s(decodes=decodes, context=context)
        passes = first + (self._speculation.tokens - 1) * others
        return verify + passes + self._joins_s(prefill + decodes * width, decodes)

    def _joins_s(self, tokens: float, decodes: float) -> float:
        """Projections of a draft layer's input: of all tokens in the first pass, then of one for each request."""
        work, read = self._join
        others = self._speculation.tokens - 1 if decodes else 0
        return (work * (tokens + others * decodes) + read * (1 + others)) * self._fit.engine * self._pace

    def at(self, pace: float) -> SpeculativeRoofline:
        return SpeculativeRoofline(
            self._model, self._gpu, self._layout, self._dtype, self._speculation, self._fit, self._pace * pace
        )


def roofline_of(
    model: CatalogueModel, gpu: Gpu, layout: Layout, dtype: KvDtype, speculation: Speculation | None
) -> Roofline:
    """Step times of a model, with or without drafts."""
    if speculation is None:
        return Roofline(model, gpu, layout, dtype)
    return SpeculativeRoofline(model, gpu, layout, dtype, speculation)
