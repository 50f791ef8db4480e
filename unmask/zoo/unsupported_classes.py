"""UNREAD: classes of transformers, of families of the catalogue, that are not read, and why."""

from collections.abc import Mapping

_BEAM_HEADS = "it searches for ends with beams, from each start; {} is read"
_DOUBLE_HEADS = "it has two heads at once, one of them on a marked token; {} is read"
_TEXT_TO_TEXT = (
    "this family says labels and answers in words here, as in its paper: fine-tuned so, it is a {}"
)
_ENCODER_ONLY = "it is an encoder alone, and the weights of a decoder are not there"
_DECODER_ONLY = "it is a decoder alone, and the weights of an encoder are not there"


def _of_t5(name: str) -> dict[str, str]:
    words = _TEXT_TO_TEXT.format(f"{name}ForConditionalGeneration")
    return {
        f"{name}ForSequenceClassification": words,
        f"{name}ForTokenClassification": words,
        f"{name}ForQuestionAnswering": words,
        f"{name}EncoderModel": _ENCODER_ONLY,
    }


UNSUPPORTED_CLASSES: Mapping[str, str] = {
    "FlaubertForMultipleChoice": "it scores an option through a map to as many numbers as there "
    "are labels, and a second one, which no head here has",
    "FlaubertForQuestionAnswering": _BEAM_HEADS.format("FlaubertForQuestionAnsweringSimple"),
    "XLNetForQuestionAnswering": _BEAM_HEADS.format("XLNetForQuestionAnsweringSimple"),
    "OpenAIGPTDoubleHeadsModel": _DOUBLE_HEADS.format("OpenAIGPTLMHeadModel"),
    "GPT2DoubleHeadsModel": _DOUBLE_HEADS.format("GPT2LMHeadModel"),
    "BartForCausalLM": _DECODER_ONLY,
    "MBartForCausalLM": _DECODER_ONLY,
    "MarianForCausalLM": _DECODER_ONLY,
    **_of_t5("T5"),
    **_of_t5("MT5"),
}
"""A folder that names one is refused; a test finds all classes that the library has."""
CLASS_SUFFIXES: Mapping[str, str] = {
    "label": "ForSequenceClassification",
    "token_label": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
"""What the names of their classes end with that have our heads."""


def unsupported_reason(head_name: str, class_of_backbone: str) -> str | None:
    """Return why the class with a head of this name is not written, where the library has one."""
    ending = CLASS_SUFFIXES.get(head_name)
    name = class_of_backbone.removesuffix("Model") + (ending or "")
    return (
        None
        if ending is None or name not in UNSUPPORTED_CLASSES
        else f"{name}: {UNSUPPORTED_CLASSES[name]}"
    )
