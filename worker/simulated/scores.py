"""The simulated model's "log probabilities": numbers that depend on the hash before a token, and on nothing else."""

from worker.engine.runner import TokenScores
from worker.simulated.vocabulary import VOCAB_SIZE


def scores_of(value: int, token_id: int, num_top: int) -> TokenScores:
    """Of ``token_id`` behind the hash ``value``; halves and quarters, which every float format holds exactly."""
    top = [((value + 7 * i) % VOCAB_SIZE, -i / 4 - (value % 8) / 16) for i in range(num_top)]
    return TokenScores(-((value ^ token_id) % 4096) / 256, tuple(top))
