"""Valid fields whose feature this version lacks: named all together, never silently ignored."""

from common.errors import NotImplementedYet
from gateway.draft import Draft


def refuse_unimplemented(draft: Draft, *, follows_constraints: bool) -> None:
    """Neutral values ask for nothing and pass; ``follows_constraints`` says what the model's workers can.

    Raises:
        NotImplementedYet: something is asked for that this version cannot do.
    """
    asked_for = {
        "adapter": draft.adapter,
        "constraint": draft.constraint is not None and not follows_constraints,
    }
    fields = [name for name, value in asked_for.items() if value]
    if fields:
        raise NotImplementedYet(fields)
