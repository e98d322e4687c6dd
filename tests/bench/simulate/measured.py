"""Service times of real workers: measured anew, or as they were measured once."""

from tests.bench.simulate.service import MeasuredStep, ServiceTimes, fit

_REPEATS = 25

MEASURED = ServiceTimes(base_s=0.057, row_s=0.0033, token_s=0.0029)
"""SmolLM2-135M in int8 on the lean decoder, on one thread of a busy EPYC (Zen 4): rounded by hand, since runs differed."""

DEFAULT = MEASURED.faster(10)
"""The same proportions at a tenth of the times: nearer to what deadlines of seconds are asked of."""


def measure_model() -> ServiceTimes:
    """The default model on this machine: decode steps of several widths, and a prompt.

    Each is the fastest of a few: whatever else runs on a machine only makes a step slower.
    """
    from tests.bench.runners import shapes, step_ms
    from worker.engine.model_settings import ModelSettings
    from worker.model.load import load_model

    runner = load_model(ModelSettings(kv_blocks=1024), lambda _: None).runner
    steps: list[MeasuredStep] = []
    for rows in shapes().values():
        times_s = [step_ms(runner, rows) / 1000 for _ in range(_REPEATS)]
        tokens = len(rows[0].token_ids) if len(rows[0].token_ids) > 1 else 0
        decodes = 0 if tokens else len(rows)
        steps.append(MeasuredStep(decodes, tokens, min(times_s)))
    return fit(steps)
