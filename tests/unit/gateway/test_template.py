"""Chat templates are data from model files: they render what they should, and can do nothing else."""

import pytest

from common.errors import InvalidRequest
from gateway.draft import ChatMessage, ChatPrompt
from gateway.template import BadTemplate, ChatTemplate

CHAT = ChatPrompt([ChatMessage("system", "be kind"), ChatMessage("user", "hi <b>", name="ann")])


def rendered(source: str, chat: ChatPrompt = CHAT) -> str:
    """What the template makes of the conversation."""
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}).render(chat)


def test_the_conventions_of_model_files() -> None:
    """Special tokens, trimmed blocks, loop controls, names, and no escaping."""
    source = """{{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'system' %}{% continue %}{% endif %}
    {{- m['role'] + (m.name or '') + ': ' + m['content'] }}{{ eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}assistant: {% endif %}"""
    assert rendered(source) == "<s>userann: hi <b></s>assistant: "


def test_blocks_are_trimmed() -> None:
    """A block on a line of its own leaves no line."""
    assert rendered("{% if true %}\n    a\n  {% endif %}\nb") == "    a\nb"


def test_marks_for_training_mean_nothing() -> None:
    """Templates that carry them render as if they were not there."""
    source = "{% for m in messages %}{% generation %}{{ m.role }},{% endgeneration %}{% endfor %}"
    assert rendered(source) == "system,user,"


def test_tojson_keeps_characters() -> None:
    """Text goes to a model, not into a page."""
    chat = ChatPrompt([ChatMessage("user", "<ü>")])
    assert rendered("{{ messages[0].content | tojson }}", chat) == '"<ü>"'


def test_a_template_may_refuse() -> None:
    """Its message reaches the caller, at the field."""
    with pytest.raises(InvalidRequest) as caught:
        rendered("{{ raise_exception('roles must alternate') }}")
    assert caught.value.violations[0].field == "prompt.chat"
    assert "alternate" in caught.value.violations[0].description


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ strftime_now.__code__.co_consts }}",
        "{% for m in messages %}{{ messages.append(m) }}{% endfor %}",
        "{{ messages[0].clear() }}",
        "{{ ('%s' | format)['__class__'].__init__ }}",
        "{{ range(999999999) | list }}",
        "{{ undefined_name.attribute }}",
        "{{ 1 / 0 }}",
    ],
)
def test_escapes_and_errors_are_refusals(source: str) -> None:
    """Nothing of the process can be reached or changed; every error is the request's."""
    with pytest.raises(InvalidRequest):
        rendered(source)


def test_output_is_bounded() -> None:
    """A template that writes without end is stopped on the way."""
    with pytest.raises(InvalidRequest):
        rendered(
            "{% for i in range(90000) %}{% for j in range(90000) %}{{ 'x' * 1000 }}"
            "{% endfor %}{% endfor %}"
        )


def test_a_template_that_does_not_compile() -> None:
    """Is refused with the card, before any request."""
    with pytest.raises(BadTemplate):
        rendered("{% for %}")
