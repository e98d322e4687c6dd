"""The models that can be asked for, kept in step with the cards in Redis; a gateway has no model files.

A known revision is decoded once. While Redis is away what is known stays known: admission will say what is wrong.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from common.errors import HeadraceError, InternalFailure, NotFound, Unavailable
from common.logs import Log
from common.model_card import ModelCard
from common.streams import cards
from common.streams.node import Node
from common.wire.card import decode_card
from common.wire.records import UndecodableError
from gateway.model import BadCard, Model, build_model

# With the two seconds of an admission, a caller learns within about three that Redis is away.
_LOOKUP_BOUND_S = 1.0
REFRESH_S = 1.0


class Catalogue:
    """Models by name, at their current revision."""

    def __init__(self, node: Node, log: Log) -> None:
        """Knows nothing before the first refresh."""
        self._node = node
        self._log = log
        self._models: dict[str, Model] = {}
        self._broken: dict[tuple[str, str], str] = {}
        self._refreshing = asyncio.Lock()
        self._has_looked = False

    @property
    def models(self) -> Sequence[Model]:
        """What is known now, by name."""
        return [self._models[name] for name in sorted(self._models)]

    async def get(self, name: str) -> Model:
        """The model, looked up in Redis if it is not known.

        Raises:
            NotFound: nobody ever served a model of this name.
            Unavailable: not known here, and Redis cannot be reached.
            InternalFailure: its card cannot be used.
        """
        if (model := self._models.get(name)) is not None:
            return model
        async with self._refreshing:
            if name not in self._models:
                await self._load()
        if (model := self._models.get(name)) is not None:
            return model
        for (broken, _), problem in self._broken.items():
            if broken == name:
                raise InternalFailure(
                    f"the card of {name} cannot be used: {problem}", reason="BAD_MODEL_CARD"
                )
        raise model_not_found(name)

    @property
    def _knows_some(self) -> bool:
        # Models come one by one into a first look; a list that is cut short would be taken for all.
        return self._has_looked and bool(self._models)

    async def first_look(self) -> None:
        """Look now if no model is known: the first worker of a stack has just come, or this process has.

        Raises:
            Unavailable: Redis cannot be reached.
        """
        if not self._knows_some:
            async with self._refreshing:
                if not self._knows_some:
                    await self._load()

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            try:
                async with self._refreshing:
                    await self._load()
            except Unavailable:
                self._log.debug("models not refreshed", error=self._node.last_error)
            await asyncio.sleep(REFRESH_S)

    async def _load(self) -> None:
        index = await cards.read_index(self._node, bound_s=_LOOKUP_BOUND_S)
        for name in self._models.keys() - index.keys():
            del self._models[name]
        self._broken = {k: v for k, v in self._broken.items() if index.get(k[0]) == k[1]}
        for name, revision in index.items():
            count = await cards.partition_count(self._node, name, bound_s=_LOOKUP_BOUND_S)
            model = self._models.get(name)
            if model is None or model.card.revision != revision:
                model = await self._build(name, revision)
            if model is not None and model.num_partitions != count:
                model = replace(model, num_partitions=count)
            if model is not None:
                self._models[name] = model
        self._has_looked = True

    async def _build(self, name: str, revision: str) -> Model | None:
        if (name, revision) in self._broken:
            return None
        try:
            card = await self._read(name, revision)
            model = None if card is None else await asyncio.to_thread(build_model, card)
        except (UndecodableError, BadCard) as error:
            self._log.error("model card refused", model=name, revision=revision, error=str(error))
            self._broken[name, revision] = str(error)
            return None
        if model is not None:
            self._log.info("model known", model=name, revision=revision)
        return model

    async def _read(self, name: str, revision: str) -> ModelCard | None:
        data = await cards.read_card(self._node, name, revision, bound_s=_LOOKUP_BOUND_S)
        return None if data is None else decode_card(data)


def model_not_found(name: str) -> HeadraceError:
    """What a caller is told who asks for a model that nobody knows."""
    return NotFound(
        f"there is no model {name[:100]!r}",
        reason="MODEL_NOT_FOUND",
        metadata={"resource_type": "model", "resource_name": name},
    )
