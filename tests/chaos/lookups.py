"""What can be asked without generating: how long a prompt is, and which models there are."""

from tests.chaos.calls import Calls
from tests.chaos.checks import insisting


async def look(calls: Calls) -> None:
    """A prompt has the tokens that it had, and every model is there under both its names."""
    counted = await calls.count_tokens(calls.asking())
    if [*counted] != [*calls.known.prompt_ids]:
        calls.journal.fail(f"the prompt has {len(counted)} tokens", calls.history)
    await _look_at_models(calls)
    await _look_at_model(calls)


async def _look_at_models(calls: Calls) -> None:
    client = calls.any_client()
    models = {model.name: model for model in await insisting(calls.journal, client.models)}
    settings = calls.settings
    found = {name: [*model.aliases] for name, model in models.items()}
    if found != {name: [settings.alias(name)] for name in settings.workers}:
        calls.journal.fail(f"the models are {found}", calls.history)


async def _look_at_model(calls: Calls) -> None:
    client, name = calls.any_client(), calls.settings.alias(calls.known.model)
    model = await insisting(calls.journal, lambda: client.model(name))
    if model.name != calls.known.model:
        calls.journal.fail(f"{name} is {model.name}", calls.history)
