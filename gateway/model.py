"""A model as the gateway uses it: its card, and what is built from the card once for each revision."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from common.domain import ModelLimits
from common.model_card import ModelCard
from gateway.template import BadTemplate, ChatTemplate


class BadCard(Exception):
    """The card names a tokenizer or a template that cannot be used."""


@dataclass(frozen=True, slots=True)
class Model:
    """A card with its tokenizer and chat template ready for use, safe to share between threads."""

    card: ModelCard
    tokenizer: Tokenizer
    template: ChatTemplate | None
    num_partitions: int = 1

    @property
    def limits(self) -> ModelLimits:
        """What a request has to stay inside."""
        card = self.card
        return ModelLimits(
            context_tokens=card.context_tokens,
            vocab_size=card.vocab_size,
            kv_capacity_tokens=card.kv_capacity_tokens,
            default_max_tokens=card.default_max_tokens,
        )


def build_model(card: ModelCard) -> Model:
    """Decode the card's tokenizer and compile its template; takes a while, so call it from a thread.

    Raises:
        BadCard: one of them cannot be used.
    """
    try:
        tokenizer = Tokenizer.from_str(card.tokenizer_json.decode())
    except Exception as error:  # the library raises bare Exception
        raise BadCard(f"tokenizer: {error}") from error
    # Files often carry the settings of training; requests are never padded or cut silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    template = None
    if card.chat_template:
        try:
            template = ChatTemplate(card.chat_template, card.special_tokens)
        except BadTemplate as error:
            raise BadCard(f"chat template: {error}") from error
    return Model(card, tokenizer, template)
