"""A model as the gateway uses it: its card, and what is built from the card once for each revision."""

from dataclasses import dataclass, replace

from tokenizers import Tokenizer

from common.domain import ModelLimits, Partition, RequestId
from common.model_card import ModelCard
from gateway.template import BadTemplate, ChatTemplate


class BadCard(Exception):
    """The card names a tokenizer or a template that cannot be used."""


@dataclass(frozen=True, slots=True)
class Model:
    """A card with its tokenizer and chat template ready for use, safe to share between threads.

    ``serving_partitions`` have a worker of the card's revision; empty where nobody serves it or nobody knows.
    ``num_waiting`` requests waited for the model at the last look.
    """

    card: ModelCard
    tokenizer: Tokenizer
    template: ChatTemplate | None
    longest_token_chars: int = 1
    num_partitions: int = 1
    serving_partitions: tuple[int, ...] = ()
    num_waiting: int = 0

    @property
    def longest_prompt_chars(self) -> int:
        """A longer text has more tokens than the context holds."""
        return self.card.context_tokens * self.longest_token_chars

    def new_id(self) -> RequestId:
        """An id in a partition where the request can run, if there is one."""
        serving = self.serving_partitions or range(self.num_partitions)
        drawn = RequestId.make(self.card.model, len(serving))
        return replace(drawn, partition=Partition(self.card.model, serving[drawn.partition.index]))

    @property
    def limits(self) -> ModelLimits:
        """What a request has to stay inside."""
        card = self.card
        return ModelLimits(
            context_tokens=card.context_tokens,
            vocab_size=card.vocab_size,
            kv_capacity_tokens=card.kv_capacity_tokens,
            default_max_tokens=card.default_max_tokens,
            kv_block_tokens=card.kv_block_tokens or 1,
            max_choices=card.max_seqs or 1,
            window_tokens=card.sliding_window,
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
    longest = max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=1)
    return Model(card, tokenizer, template, longest)
