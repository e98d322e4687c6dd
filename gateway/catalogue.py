"""The models that can be asked for, kept in step with the cards in Redis; a gateway has no model files.

A known revision is decoded once. While Redis is away what is known stays known: admission will say what is wrong.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from common.aliases import Alias, Target, choose
from common.domain import Partition
from common.errors import HeadraceError, InternalFailure, NotFound, Unavailable
from common.logs import Log
from common.model_card import ModelCard
from common.streams import cards
from common.streams.aliases import read_aliases
from common.streams.node import Node
from common.wire.aliases import decode_alias
from common.wire.card import decode_card
from common.wire.records import UndecodableError
from common.wire.snapshot import PartitionStatus
from gateway.model import BadCard, Model, build_model
from gateway.queue_views import QueueViews
from gateway.revision import partitions_serving, served_revision

# With the two seconds of an admission, a caller learns within about three that Redis is away.
_LOOKUP_BOUND_S = 1.0
REFRESH_S = 1.0


class Catalogue:
    """Models by name, at the revision that new requests get, and names that point at models."""

    def __init__(self, node: Node, views: QueueViews, log: Log) -> None:
        """Knows nothing before the first refresh; ``views`` are looked at with each."""
        self._node = node
        self._views = views
        self._log = log
        self._models: dict[str, Model] = {}
        self._aliases: dict[str, Alias] = {}
        self._pinned: dict[tuple[str, str], Model] = {}
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
        if (model := self._resolve(name)) is not None:
            return model
        async with self._refreshing:
            if self._resolve(name) is None:
                await self._load()
        if (model := self._resolve(name)) is not None:
            return model
        for (broken, _), problem in self._broken.items():
            if broken == name:
                raise InternalFailure(
                    f"the card of {name} cannot be used: {problem}", reason="BAD_MODEL_CARD"
                )
        raise model_not_found(name)

    @property
    def aliases(self) -> Sequence[Alias]:
        """The names that point at models, in order."""
        return [self._aliases[name] for name in sorted(self._aliases)]

    def alias(self, name: str) -> Alias | None:
        """What a name stands for, if it is one."""
        return self._aliases.get(name)

    def names_of(self, model: str) -> Sequence[str]:
        """The names that point at a model, beside its own."""
        return [
            alias.name
            for alias in self.aliases
            if alias.name != model and any(target.model == model for target in alias.current)
        ]

    async def has_revision(self, model: str, revision: str) -> bool:
        """Whether a worker ever served it.

        Raises:
            Unavailable: Redis cannot be reached.
        """
        return await cards.has_card(self._node, model, revision, bound_s=_LOOKUP_BOUND_S)

    async def refresh(self) -> None:
        """Look now.

        Raises:
            Unavailable: Redis cannot be reached.
        """
        async with self._refreshing:
            await self._load()

    def _resolve(self, name: str) -> Model | None:
        """The model that a request for ``name`` gets; a name is resolved anew for each, by the shares of its targets."""
        alias = self._aliases.get(name)
        if alias is None:
            return self._models.get(name)
        return self._at(choose(alias, self._is_served, self._num_waiting, random.random()))  # noqa: S311 - no secret

    def _at(self, target: Target) -> Model | None:
        model = self._models.get(target.model)
        if model is not None and target.revision not in ("", model.card.revision):
            return self._pinned.get((target.model, target.revision))
        return model

    def _is_served(self, target: Target) -> bool:
        model = self._at(target)
        return model is not None and bool(model.serving_partitions)

    def _num_waiting(self, target: Target) -> int:
        model = self._models.get(target.model)
        return 0 if model is None else model.num_waiting

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
                    self._views.looked_at(self.models)
            except Unavailable:
                self._log.debug("models not refreshed", error=self._node.last_error)
            await asyncio.sleep(REFRESH_S)

    async def _load(self) -> None:
        index = await cards.read_index(self._node, bound_s=_LOOKUP_BOUND_S)
        for name in self._models.keys() - index.keys():
            del self._models[name]
        self._broken = {k: v for k, v in self._broken.items() if k[0] in index}
        for name, newest in index.items():
            await self._refresh(name, newest)
        await self._load_aliases()
        self._has_looked = True

    async def _load_aliases(self) -> None:
        found: dict[str, Alias] = {}
        for name, data in (await read_aliases(self._node, bound_s=_LOOKUP_BOUND_S)).items():
            try:
                found[name] = decode_alias(data)
            except UndecodableError as error:
                self._log.error("alias skipped", alias=name, error=str(error))
        wanted = {
            (target.model, target.revision)
            for alias in found.values()
            for target in (*alias.current, *alias.fallback)
            if target.revision and target.model in self._models
        }
        for gone in self._pinned.keys() - wanted:
            del self._pinned[gone]
        for model, revision in wanted:
            if self._models[model].card.revision != revision:
                await self._pin(model, revision)
        self._aliases = found

    async def _pin(self, name: str, revision: str) -> None:
        count = self._models[name].num_partitions
        model = self._pinned.get((name, revision)) or await self._build(name, revision)
        if model is not None:
            views = self._kept_views(name, count)
            self._pinned[name, revision] = replace(
                model,
                num_partitions=count,
                serving_partitions=partitions_serving(revision, views),
            )

    async def _refresh(self, name: str, newest: str) -> None:
        count = await cards.partition_count(self._node, name, bound_s=_LOOKUP_BOUND_S)
        for index in range(count):
            await self._look_at(Partition(name, index))
        views = self._kept_views(name, count)
        served = served_revision(newest, views)
        model = self._models.get(name)
        if model is None or model.card.revision != served.revision:
            model = await self._build(name, served.revision)
        if model is not None:
            self._models[name] = replace(
                model,
                num_partitions=count,
                serving_partitions=served.partitions,
                num_waiting=sum(view.num_waiting for view in views.values()),
            )

    async def _look_at(self, partition: Partition) -> None:
        try:
            await self._views.look(partition)
        except Unavailable:  # what was seen last stands: it is no reason not to know the model
            self._log.debug("snapshot not read", partition=str(partition))

    def _kept_views(self, name: str, num_partitions: int) -> Mapping[int, PartitionStatus]:
        return {
            index: view
            for index in range(num_partitions)
            if (view := self._views.view(Partition(name, index))) is not None
        }

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
