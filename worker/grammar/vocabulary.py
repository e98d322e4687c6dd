"""A model's vocabulary as llguidance sees it: the bytes of each token, arranged for lookups."""

from llguidance import LLTokenizer

from common.model_card import ModelCard


class GrammarVocabulary:
    """Takes a second to build, so it is built when the first grammar comes."""

    def __init__(self, card: ModelCard) -> None:
        """From the card's tokenizer; what ends an output is what ends a choice.

        Raises:
            ValueError: the library does not know such tokenizers.
        """
        self.tokenizer = LLTokenizer(
            card.tokenizer_json.decode(),
            n_vocab=card.vocab_size,
            eos_token=[*card.eos_token_ids] or None,
        )
