"""Valid fields whose feature this version lacks: named all together, never silently ignored."""

from common.errors import NotImplementedYet
from gateway.draft import Draft


def refuse_unimplemented(draft: Draft) -> None:
    """Neutral values ask for nothing and pass.

    Raises:
        NotImplementedYet: something is asked for that this version cannot do.
    """
    asked_for = {
        "adapter": draft.adapter,
        "use_response_cache": draft.use_response_cache,
    }
    fields = [name for name, value in asked_for.items() if value]
    if fields:
        raise NotImplementedYet(fields)
