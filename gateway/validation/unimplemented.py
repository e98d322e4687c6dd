"""Valid fields whose feature this version lacks: named all together, never silently ignored."""

from collections.abc import Iterator

from common.errors import NotImplementedYet
from gateway.draft import Draft, SamplingDraft


def refuse_unimplemented(draft: Draft) -> None:
    """Neutral values ask for nothing and pass.

    Raises:
        NotImplementedYet: something is asked for that this version cannot do.
    """
    fields = [*_sampling(draft.sampling), *_rest(draft)]
    if fields:
        raise NotImplementedYet(fields)


def _sampling(sampling: SamplingDraft) -> Iterator[str]:
    if sampling.n not in (None, 1):
        yield "sampling.n"


def _rest(draft: Draft) -> Iterator[str]:
    asked_for = {
        "constraint": draft.constraint is not None,
        "adapter": draft.adapter,
        "use_response_cache": draft.use_response_cache,
    }
    yield from (name for name, value in asked_for.items() if value)
