"""What clients send becomes a draft without judgement, and unset never becomes zero."""

from google.protobuf.duration_pb2 import Duration

from gateway.draft import ChatMessage, ChatPrompt, ConstraintDraft, SamplingDraft, StopDraft
from gateway.flatten import draft_of
from gateway.validation.fields import MAX_MESSAGES
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb


def test_unset_is_none_and_zero_is_zero() -> None:
    """For every optional scalar."""
    empty = draft_of(pb.GenerateRequest())
    assert empty.sampling == SamplingDraft()
    assert empty.stop == StopDraft()
    assert empty.hold
    assert not empty.resumable
    assert empty.timeout_s is None
    zero = pb.GenerateRequest(
        sampling=gen.SamplingParams(temperature=0, seed=0, n=0, top_k=0),
        stop=gen.StopConditions(max_tokens=0),
        hold=False,
        timeout=Duration(),
    )
    draft = draft_of(zero)
    assert draft.sampling == SamplingDraft(temperature=0, seed=0, n=0, top_k=0)
    assert draft.stop.max_tokens == 0
    assert not draft.hold
    assert draft.timeout_s == 0


def test_classes() -> None:
    """The request's word counts before the metadata's; a number nobody knows stays visible."""
    assert draft_of(pb.GenerateRequest()).priority == "NORMAL"
    assert draft_of(pb.GenerateRequest(), "HIGH").priority == "HIGH"
    low = pb.GenerateRequest(priority=gen.PRIORITY_BATCH)
    assert draft_of(low, "HIGH").priority == "BATCH"
    unknown = pb.GenerateRequest(priority=77)  # type: ignore[arg-type]
    assert draft_of(unknown).priority == "77"


def test_chat() -> None:
    """Roles by name; the assistant's turn is opened unless that is refused."""
    chat = gen.ChatPrompt(
        messages=[
            gen.ChatMessage(role=gen.ROLE_TOOL, content="x", name="n"),
            gen.ChatMessage(content="y"),
        ]
    )
    draft = draft_of(pb.GenerateRequest(prompt=gen.Prompt(chat=chat)))
    assert draft.prompt.form == ChatPrompt(
        [ChatMessage("tool", "x", "n"), ChatMessage(None, "y")], add_generation_prompt=True
    )
    chat.add_generation_prompt = False
    draft = draft_of(pb.GenerateRequest(prompt=gen.Prompt(chat=chat)))
    assert isinstance(draft.prompt.form, ChatPrompt)
    assert not draft.prompt.form.add_generation_prompt


def test_of_a_flood_of_messages_no_more_than_tell_that_it_is_one() -> None:
    """A message of four megabytes holds two million empty ones, and everybody waits while they are made."""
    chat = gen.ChatPrompt(messages=[gen.ChatMessage()] * (MAX_MESSAGES + 100))
    form = draft_of(pb.GenerateRequest(prompt=gen.Prompt(chat=chat))).prompt.form
    assert isinstance(form, ChatPrompt)
    assert len(form.messages) == MAX_MESSAGES + 1


def test_every_scalar_of_the_contract_has_a_place() -> None:
    """A field that is added to the contract and forgotten here would be silently ignored."""
    for message, draft in (
        (gen.SamplingParams, SamplingDraft),
        (gen.StopConditions, StopDraft),
    ):
        names = {field.name for field in message.DESCRIPTOR.fields}
        assert names == set(draft.__dataclass_fields__)


def test_constraints() -> None:
    """By kind; json_object=false asks for nothing."""
    kinds = {
        "regex": gen.OutputConstraint(regex="a+"),
        "choice": gen.OutputConstraint(choice=gen.ChoiceList(options=["a"])),
    }
    regex = draft_of(pb.GenerateRequest(constraint=kinds["regex"])).constraint
    assert regex == ConstraintDraft("regex", "a+")
    choice = draft_of(pb.GenerateRequest(constraint=kinds["choice"])).constraint
    assert choice is not None
    assert list(choice.options) == ["a"]
    nothing = pb.GenerateRequest(constraint=gen.OutputConstraint(json_object=False))
    assert draft_of(nothing).constraint is None
