"""Names that point at models, as messages: what operators send and what is stored."""

from google.protobuf.message import DecodeError

from common.aliases import Alias, Target
from common.wire.records import UndecodableError
from headrace.v1 import admin_service_pb2 as pb


def alias_to_pb(alias: Alias) -> pb.ModelAlias:
    """A name as operators see it."""
    return pb.ModelAlias(
        alias=alias.name,
        current=[_target_to_pb(target) for target in alias.current],
        fallback=[_target_to_pb(target) for target in alias.fallback],
        fallback_above_waiting=alias.fallback_above_waiting,
    )


def alias_of(message: pb.ModelAlias) -> Alias:
    """A name as it was sent."""
    return Alias(
        message.alias,
        tuple(_target_of(target) for target in message.current),
        tuple(_target_of(target) for target in message.fallback),
        message.fallback_above_waiting if message.HasField("fallback_above_waiting") else None,
    )


def encode_alias(alias: Alias) -> bytes:
    """For the store."""
    return alias_to_pb(alias).SerializeToString()


def decode_alias(data: bytes) -> Alias:
    """From the store.

    Raises:
        UndecodableError: it holds something else.
    """
    try:
        return alias_of(pb.ModelAlias.FromString(data))
    except DecodeError as error:
        raise UndecodableError(f"alias: {error}") from error


def _target_to_pb(target: Target) -> pb.AliasTarget:
    return pb.AliasTarget(model=target.model, revision=target.revision, weight=target.weight)


def _target_of(message: pb.AliasTarget) -> Target:
    return Target(message.model, message.revision, message.weight)
