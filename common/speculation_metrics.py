"""Metrics of speculation: what is guessed, how much of it is right, and the memory of a draft model."""

from opentelemetry.metrics import Meter

from common.instruments import Gauge, counter


class SpeculationMetrics:
    """Labels are the model's name, and of guesses their kind: lookup or draft."""

    def __init__(self, meter: Meter) -> None:
        """Instruments of ``meter``."""
        self.guessed_tokens = counter(
            meter, "guessed_tokens", "tokens computed on speculation, by what guessed them"
        )
        self.accepted_tokens = counter(
            meter, "accepted_tokens", "tokens computed on speculation that were right"
        )
        self.guess_acceptance = Gauge(
            meter,
            "headrace_guess_acceptance_ratio",
            "share of the last thousand or so guessed tokens that were right",
        )
        self.draft_blocks_used = Gauge(
            meter, "headrace_draft_kv_blocks_used", "KV blocks of the draft model in use"
        )
        self.draft_blocks_total = Gauge(
            meter, "headrace_draft_kv_blocks", "KV blocks in the draft model's pool"
        )
