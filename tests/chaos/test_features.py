"""The load of a chaos run uses every field and every call of the contract, or says why not."""

import random
from collections.abc import Iterator, Mapping

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from gateway.http.request_forms import NATIVE
from headrace.client.requests import duration
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos import features
from tests.chaos.features import ASKED, STOPPED, VARIED, Feature
from tests.chaos.http_bodies import body_of
from tests.chaos.schedule import FaultKind
from tests.chaos.settings import ChaosSettings
from tests.chaos.ways import EXCLUDED, WAYS
from tests.support.outcomes import Outcome, Part

_SERVICE = pb.DESCRIPTOR.services_by_name["InferenceService"]
_REQUEST = pb.GenerateRequest.DESCRIPTOR
_SETTINGS = ChaosSettings(seed=1, duration_s=0, kinds=tuple(FaultKind))
_ANSWER = Outcome(choices={0: Part([97, 98, 99], "a mill race")})
_NUM_DRAWS = 600


def in_tables() -> set[str]:
    """Fields of requests that a feature sets, and of all messages those that a way sets."""
    of_requests = {*STOPPED}.union(*(f.fields for f in (*ASKED.values(), *VARIED.values())))
    named = {f"{_REQUEST.name}.{path}" for path in of_requests}
    return named.union(*(way.fields for way in WAYS.values()))


def fields_of(message: Descriptor, prefix: str = "") -> Iterator[str]:
    """Paths of all that can be set; a map or a prompt beside a request's own is one field."""
    for field in message.fields:
        inner = field.message_type
        if inner is None or field.message_type.GetOptions().map_entry or _is_whole(field):
            yield prefix + field.name
        else:
            yield from fields_of(inner, f"{prefix}{field.name}.")


def _is_whole(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return (
        kind.file.package.startswith("google.")
        or kind is _REQUEST
        or (kind.name == "Prompt" and field.containing_type is not _REQUEST)
    )


def set_in(message: Message, prefix: str = "") -> Iterator[str]:
    """Paths of what is set."""
    for field, value in message.ListFields():
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry:
            yield prefix + field.name
        elif field.is_repeated:
            for one in value:
                yield from set_in(one, f"{prefix}{field.name}.")
        else:
            yield from set_in(value, f"{prefix}{field.name}.")


def drawn(table: Mapping[str, Feature]) -> dict[str, set[str]]:
    """What each feature of a table really sets, beside a model."""
    rng = random.Random(1)
    found: dict[str, set[str]] = {}
    for name, feature in table.items():
        for _ in range(_NUM_DRAWS):
            request = pb.GenerateRequest(model="" if name == "model" else "sim-a")
            feature.draw(rng, request, _SETTINGS)
            found.setdefault(name, set()).update(set_in(request))
        if "model" not in feature.fields:
            found[name].discard("model")
    return found


def test_every_field_of_the_contract_is_in_a_table_or_excluded_with_a_reason():
    """Whoever adds a field adds it to the load, or says here why it is left out."""
    known = {
        f"{method.input_type.name}.{path}"
        for method in _SERVICE.methods
        for path in fields_of(method.input_type)
    }
    assert known == in_tables() | EXCLUDED.keys()
    assert not in_tables() & EXCLUDED.keys()
    assert all(EXCLUDED.values())


def test_every_call_of_the_contract_is_made():
    """Whoever adds a call adds it to a way."""
    made = set().union(*(way.calls for way in WAYS.values()))
    assert made == {method.name for method in _SERVICE.methods}


def test_a_feature_sets_what_its_table_says():
    """Nothing else, and each of its fields before long."""
    for table in (ASKED, VARIED):
        assert drawn(table) == {name: {*feature.fields} for name, feature in table.items()}
    rng = random.Random(1)
    stopped = (features.stopped(rng, pb.GenerateRequest(), _ANSWER) for _ in range(_NUM_DRAWS))
    assert {path for request in stopped for path in set_in(request)} == {*STOPPED}


def test_over_http_every_field_is_sent_under_its_name():
    """What a run sends as JSON is the whole of what `/api/generate` takes."""
    rng = random.Random(1)
    sent: set[str] = set()
    for _ in range(_NUM_DRAWS):
        request = features.varied(rng, features.ask(rng, _SETTINGS), _SETTINGS)
        sent |= body_of(features.stopped(rng, request, _ANSWER)).keys()
    ways = pb.GenerateRequest(
        idempotency_key="k",
        use_response_cache=True,
        hold=False,
        adapter="a",
        timeout=duration(1),
    )
    assert sent | body_of(ways).keys() == NATIVE.fields.keys()


def test_equal_seeds_ask_equal_requests():
    """A run can be had again."""
    first, again = (features.ask(random.Random(7), _SETTINGS) for _ in range(2))
    assert first == again
