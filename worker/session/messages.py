"""Jobs and reports to and from protobuf; the few messages of a number or a word are made in `session` itself."""

from collections.abc import Iterator

from common.domain import FinishReason, TraceContext
from common.prefix_keys import root_of
from common.records import Failure
from common.wire import vocabulary
from common.wire.logprobs import logprobs_to_pb
from common.wire.records import failure_to_pb
from common.wire.request import request_from_body
from common.wire.session import PROTOCOL
from headrace.internal.v1 import records_pb2
from headrace.internal.v1 import worker_service_pb2 as pb
from headrace.v1 import generation_pb2
from worker.engine.job import Job, Ticket
from worker.engine.report import CacheReport, Credit, Finish, SequenceOutput, StepReport
from worker.session.identity import WorkerIdentity

BAD_ASSIGNMENT = "BAD_ASSIGNMENT"
# Far below any message limit; large enough that a tokenizer of 10 MB takes ten round trips' worth of chunks at most.
CARD_CHUNK_BYTES = 1024 * 1024
# Of eight bytes each; a step brings a few, a session's first message the whole cache.
CACHE_DELTA_HASHES = 16_384


def hello_to_pb(identity: WorkerIdentity) -> pb.ConnectRequest:
    """The first message of a session."""
    card = identity.card
    return pb.ConnectRequest(
        hello=pb.Hello(
            worker_id=identity.worker_id,
            incarnation=identity.incarnation,
            protocol=PROTOCOL,
            model=card.model,
            model_revision=card.revision,
            card_hash=identity.card_hash,
            fingerprint=card.fingerprint,
            kv_blocks=identity.num_blocks,
            block_size=identity.block_size,
            max_seqs=identity.max_seqs,
            max_batch_tokens=identity.max_batch_tokens,
            capabilities=card.capabilities,
            window_tokens=card.sliding_window,
        )
    )


def card_chunks(card: bytes, offset: int) -> Iterator[pb.ConnectRequest]:
    """The card from byte ``offset`` on; the last chunk says so, and is empty when there was nothing left."""
    while True:
        end = offset + CARD_CHUNK_BYTES
        is_last = end >= len(card)
        chunk = pb.CardChunk(offset=offset, data=card[offset:end], last=is_last)
        yield pb.ConnectRequest(card_chunk=chunk)
        if is_last:
            return
        offset = end


def ticket_of(assignment: pb.Assignment) -> Ticket:
    """What names the dispatch."""
    return Ticket(assignment.body.request_id, assignment.epoch, assignment.attempt)


def job_from_pb(assignment: pb.Assignment, now_s: float) -> Job:
    """The job of an assignment; its deadline counts from ``now_s``."""
    request = request_from_body(assignment.body)
    choices = assignment.resume.choices
    return Job(
        ticket=ticket_of(assignment),
        prompt_token_ids=request.prompt_token_ids,
        sampling=request.sampling,
        stop=request.stop,
        deadline_s=now_s + assignment.remaining_ms / 1000 if assignment.remaining_ms else None,
        generated={choice.index: tuple(choice.token_ids) for choice in choices},
        finished_choices=frozenset(c.index for c in choices if c.HasField("finish")),
        output=request.output,
        prefix_root=root_of(request),
        constraint=request.constraint,
    )


def cancel_reason_of(cancel: pb.CancelSequences) -> FinishReason:
    """Why sequences are to end; what a newer scheduler may say beyond DEADLINE counts as CANCELLED."""
    is_late = cancel.reason == generation_pb2.FINISH_REASON_DEADLINE
    return FinishReason.DEADLINE if is_late else FinishReason.CANCELLED


def span_parent_of(assignment: pb.Assignment) -> TraceContext:
    """Where the worker's span belongs: under the dispatch, or under the accepting span."""
    state = assignment.body.tracestate
    return TraceContext(assignment.traceparent or assignment.body.traceparent, state)


def credit_to_pb(credit: Credit) -> pb.Credit:
    """What the worker can take now."""
    return pb.Credit(
        free_seqs=credit.free_seqs,
        free_blocks=credit.free_blocks,
        pending_prefill_tokens=credit.pending_prefill_tokens,
    )


def report_to_pb(report: StepReport, worker_id: str) -> pb.ConnectRequest:
    """Everything a step brought, as one message."""
    return pb.ConnectRequest(
        output=pb.StepOutput(
            step=report.step,
            sequences=[_output_to_pb(output, worker_id) for output in report.outputs],
            returned=[
                pb.SequenceReturned(
                    request_id=returned.ticket.request_id,
                    epoch=returned.ticket.epoch,
                    attempt=returned.ticket.attempt,
                    reason=returned.reason,
                )
                for returned in report.returned
            ],
            credit=credit_to_pb(report.credit),
            step_us=round(report.duration_s * 1e6),
            prefill_tokens=report.prefill_tokens,
            decode_seqs=report.decode_seqs,
        )
    )


def cache_deltas(cache: CacheReport) -> Iterator[pb.ConnectRequest]:
    """What became of the prefix cache, in messages of bounded size; evictions first, so that nothing counts double."""
    for first in range(0, len(cache.evicted), CACHE_DELTA_HASHES):
        gone = cache.evicted[first : first + CACHE_DELTA_HASHES]
        yield pb.ConnectRequest(cache_delta=pb.CacheDelta(evicted=gone))
    for first in range(0, len(cache.added), CACHE_DELTA_HASHES):
        come = cache.added[first : first + CACHE_DELTA_HASHES]
        yield pb.ConnectRequest(cache_delta=pb.CacheDelta(added=come))


def refusal_of(ticket: Ticket) -> SequenceOutput:
    """The end of a request whose assignment makes no sense."""
    failure = Failure("INTERNAL", "the assignment could not be read", BAD_ASSIGNMENT)
    return SequenceOutput(ticket, 0, finish=Finish(FinishReason.ERROR, failure=failure))


def output_alone_to_pb(output: SequenceOutput, worker_id: str) -> pb.ConnectRequest:
    """Output that no step brought: of a request that never reached the engine."""
    return pb.ConnectRequest(output=pb.StepOutput(sequences=[_output_to_pb(output, worker_id)]))


def _output_to_pb(output: SequenceOutput, worker_id: str) -> pb.SequenceOutput:
    ticket = output.ticket
    message = pb.SequenceOutput(
        request_id=ticket.request_id,
        epoch=ticket.epoch,
        attempt=ticket.attempt,
        index=output.index,
        token_ids=output.token_ids,
        text=output.text,
        text_chars=output.text_chars,
        logprobs=logprobs_to_pb(output.logprobs),
    )
    if output.finish is not None:
        message.finish.CopyFrom(_finish_to_pb(output.finish))
    if output.took_up_prompt:
        prompt = records_pb2.PromptRecord(
            worker_id=worker_id,
            cached_tokens=output.cached_tokens,
            logprobs=logprobs_to_pb(output.prompt_logprobs),
        )
        message.prompt.CopyFrom(prompt)
    return message


def _finish_to_pb(finish: Finish) -> pb.SequenceFinish:
    return pb.SequenceFinish(
        reason=vocabulary.finish_reason_to_pb(finish.reason),
        matched_stop=vocabulary.matched_stop_to_pb(finish.matched_stop),
        text=finish.text,
        error=None if finish.failure is None else failure_to_pb(finish.failure),
    )
