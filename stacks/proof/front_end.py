"""vLLM's API server in front of its engine: one process of Python, which every request and every token passes.

It parses and tokenises requests, detokenises what each step gives, and writes an event for each piece of a stream. One
process has one core's time (Python's lock), so what a request takes of it is also the limit of requests per second. A
stream that gets several tokens in one piece while the server is behind costs less (vLLM 0.32,
v1/engine/output_processor.py, RequestOutputCollector). That needs steps whose streams all fit in one chunk: the server
lets every stream write between two chunks (v1/engine/async_llm.py, output_handler), so that with more streams each
token is a piece of its own however far it is behind. One H200 shows both (benchmarks/gpu).

The times are CPU time of that process of a real vLLM 0.32 on a core of an AMD EPYC (Zen 4), fitted to thirteen shapes
of requests (benchmarks/front_end.py, benchmarks/results/front_end.json). No published speed had a part in them.
"""

from __future__ import annotations

from dataclasses import dataclass

# API servers of a replica, whatever its data-parallel ranks: components/models/engines.py starts one.
SERVERS = 1
# Streams of a step that it gives their tokens before any of them writes (VLLM_V1_OUTPUT_PROC_CHUNK_SIZE).
CHUNK_STREAMS = 128
# Share of its time that it may be busy: beyond it a small surge becomes a long queue; estimated, as of full steps.
MOST_BUSY_SERVER = 0.9


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """What one API server takes, in CPU seconds of its process."""

    request_s: float = 1.93e-3
    """For a request: HTTP, the chat template, its way to the engine and back."""
    prompt_token_s: float = 2.69e-6
    """More for each token of its prompt."""
    token_s: float = 12.4e-6
    """For each token of an answer, to detokenise it."""
    piece_s: float = 65.1e-6
    """For each event of a stream."""
    step_s: float = 0.63e-3
    """For what a step of one scheduler gives, whatever is in it."""

    def arriving_s(self, prompt: float) -> float:
        """A request of so many prompt tokens, cached ones included, without its answer."""
        return self.request_s + prompt * self.prompt_token_s

    def outputs_s(self, tokens: float, pieces: float) -> float:
        """What a step of one scheduler gives to all streams."""
        return self.step_s + tokens * self.token_s + pieces * self.piece_s

    def streamed_s(self, prompt: float, answer: float, pieces: float) -> float:
        """A request whose answer is streamed in so many pieces; steps are not counted."""
        return self.arriving_s(prompt) + answer * self.token_s + pieces * self.piece_s

    def least_s(self, prompt: float, answer: float, streams: float) -> float:
        """The same of a server that is behind, where so many streams get a token in a step.

        In two pieces, the first token and the rest, or in one for each token where they are more than a chunk.
        """
        together = streams <= CHUNK_STREAMS
        return self.streamed_s(prompt, answer, min(answer, 2.0) if together else answer)


FRONT_END = FrontEnd()


@dataclass(frozen=True, kw_only=True)
class ServerTime:
    """One API server under a load; random arrivals of requests, and of what steps give (M/G/1)."""

    requests_per_s: float
    request_s: float
    """Of a mean request, without its answer."""
    steps_per_s: float
    """Of all schedulers behind it."""
    outputs_s: float
    """Of a mean step."""

    @property
    def busy(self) -> float:
        """Share of its time; 1 and more is too much."""
        return self.requests_per_s * self.request_s + self.steps_per_s * self.outputs_s

    @property
    def wait_s(self) -> float:
        """Mean time that a request waits for what is ahead (Pollaczek and Khinchine)."""
        second = self.requests_per_s * self.request_s**2 + self.steps_per_s * self.outputs_s**2
        return second / 2 / (1 - min(self.busy, MOST_BUSY_SERVER))


NO_SERVER = ServerTime(requests_per_s=0.0, request_s=0.0, steps_per_s=0.0, outputs_s=0.0)
