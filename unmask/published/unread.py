"""UNREAD: classes of transformers, of families of the catalogue, that are not read, and why."""

from collections.abc import Mapping

_BEAMS = "it searches for ends with beams, from each start; {} is read"
_TWO = "it has two heads at once, one of them on a marked token; {} is read"
_IN_WORDS = (
    "this family says labels and answers in words here, as in its paper: fine-tuned so, it is a {}"
)
_ALONE = "it is an encoder alone, and the weights of a decoder are not there"
_DECODER = "it is a decoder alone, and the weights of an encoder are not there"


def _of_t5(name: str) -> dict[str, str]:
    words = _IN_WORDS.format(f"{name}ForConditionalGeneration")
    return {
        f"{name}ForSequenceClassification": words,
        f"{name}ForTokenClassification": words,
        f"{name}ForQuestionAnswering": words,
        f"{name}EncoderModel": _ALONE,
    }


UNREAD: Mapping[str, str] = {
    "FlaubertForMultipleChoice": "it scores an option through a map to as many numbers as there "
    "are labels, and a second one, which no head here has",
    "FlaubertForQuestionAnswering": _BEAMS.format("FlaubertForQuestionAnsweringSimple"),
    "XLNetForQuestionAnswering": _BEAMS.format("XLNetForQuestionAnsweringSimple"),
    "OpenAIGPTDoubleHeadsModel": _TWO.format("OpenAIGPTLMHeadModel"),
    "GPT2DoubleHeadsModel": _TWO.format("GPT2LMHeadModel"),
    "BartForCausalLM": _DECODER,
    "MBartForCausalLM": _DECODER,
    "MarianForCausalLM": _DECODER,
    **_of_t5("T5"),
    **_of_t5("MT5"),
}
"""A folder that names one is refused; a test finds all classes that the library has."""
KINDS: Mapping[str, str] = {
    "label": "ForSequenceClassification",
    "token_label": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
"""What the names of their classes end with that have our heads."""


def why_not(head: str, class_of_backbone: str) -> str | None:
    """Say why the class with a head of this name is not written, where the library has one."""
    ending = KINDS.get(head)
    name = class_of_backbone.removesuffix("Model") + (ending or "")
    return None if ending is None or name not in UNREAD else f"{name}: {UNREAD[name]}"
