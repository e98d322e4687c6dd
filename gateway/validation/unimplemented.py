"""Valid fields whose feature this version lacks: named all together, never silently ignored."""

from common.errors import NotImplementedYet
from gateway.draft import Draft


def refuse_unimplemented(draft: Draft) -> None:
    """Neutral values ask for nothing and pass.

    Raises:
        NotImplementedYet: something is asked for that this version cannot do.
    """
    if draft.adapter:
        raise NotImplementedYet(["adapter"])
