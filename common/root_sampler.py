"""Which traces that begin here are recorded; whoever continues a trace does as its beginning decided."""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes


class RootSampler(Sampler):
    """Decides for spans without a parent: a share of them, but a batch goes with its members.

    A batch span that was drawn by itself would be missing from the traces that link to it, and would be there for
    members whose callers did not want to be recorded.
    """

    def __init__(self, ratio: float) -> None:
        self._share = TraceIdRatioBased(ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if not links:
            return self._share.should_sample(
                parent_context, trace_id, name, kind, attributes, links, trace_state
            )
        wanted = any(link.context.trace_flags.sampled for link in links)
        decision = Decision.RECORD_AND_SAMPLE if wanted else Decision.DROP
        return SamplingResult(decision, attributes if wanted else None, trace_state)

    def get_description(self) -> str:
        return f"linked, else {self._share.get_description()}"
