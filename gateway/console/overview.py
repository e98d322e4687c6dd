"""What the console shows of the whole: queues, workers and models, as the leaders' newest snapshots say."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from common.wire import admin
from common.wire.aliases import alias_to_pb
from gateway.catalogue import Catalogue
from gateway.queue_views import QueueViews, partitions_of


class Overview:
    """Reads what this gateway knows anyway: many consoles cost Redis nothing."""

    def __init__(self, gateway_id: str, catalogue: Catalogue, views: QueueViews) -> None:
        """Of the gateway with this id."""
        self._gateway_id = gateway_id
        self._catalogue = catalogue
        self._views = views

    async def now(self) -> dict[str, Any]:
        """Messages of ``headrace.v1.AdminService`` in their JSON form."""
        models = self._catalogue.models
        partitions = [partition for model in models for partition in partitions_of(model)]
        statuses = [view for model in models for view in self._views.of_model(model)]
        workers = sorted(
            (
                admin.worker_to_pb(status, worker)
                for status in statuses
                for worker in status.workers
            ),
            key=lambda worker: worker.worker_id,
        )
        return {
            "gateway": self._gateway_id,
            "models": [
                {
                    "name": model.card.model,
                    "revision": model.card.revision,
                    "context_tokens": model.card.context_tokens,
                    "num_workers": self._views.num_workers(model),
                }
                for model in models
            ],
            "aliases": _listed([alias_to_pb(alias) for alias in self._catalogue.aliases]),
            "queues": _listed([admin.queue_to_pb(p, self._views.view(p)) for p in partitions]),
            "workers": _listed(workers),
        }


def _listed(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    return [
        MessageToDict(
            message,
            always_print_fields_with_no_presence=True,
            preserving_proto_field_name=True,
        )
        for message in messages
    ]
