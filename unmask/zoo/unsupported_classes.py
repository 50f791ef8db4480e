"""UNSUPPORTED_CLASSES: classes of transformers that are not supported, with reasons."""

from collections.abc import Mapping

_BEAM_HEADS = "it searches for ends with beams, from each start; {} is supported"
_DOUBLE_HEADS = "it has two heads, one of them on a marked token; {} is supported"
_TEXT_TO_TEXT = "this family predicts labels and answers as words, as in its paper, with class {}"
_ENCODER_ONLY = "it is only an encoder, without the weights of a decoder"
_DECODER_ONLY = "it is only a decoder, without the weights of an encoder"


def _of_t5(name: str) -> dict[str, str]:
    words = _TEXT_TO_TEXT.format(f"{name}ForConditionalGeneration")
    return {
        f"{name}ForSequenceClassification": words,
        f"{name}ForTokenClassification": words,
        f"{name}ForQuestionAnswering": words,
        f"{name}EncoderModel": _ENCODER_ONLY,
    }


UNSUPPORTED_CLASSES: Mapping[str, str] = {
    "FlaubertForMultipleChoice": "it scores an option through a projection to the number of "
    "labels, and a second one, which is not supported",
    "FlaubertForQuestionAnswering": _BEAM_HEADS.format("FlaubertForQuestionAnsweringSimple"),
    "XLMForMultipleChoice": "it scores an option through a projection to the number of "
    "labels, and a second one, which is not supported",
    "XLMForQuestionAnswering": _BEAM_HEADS.format("XLMForQuestionAnsweringSimple"),
    "XLNetForQuestionAnswering": _BEAM_HEADS.format("XLNetForQuestionAnsweringSimple"),
    "OpenAIGPTDoubleHeadsModel": _DOUBLE_HEADS.format("OpenAIGPTLMHeadModel"),
    "GPT2DoubleHeadsModel": _DOUBLE_HEADS.format("GPT2LMHeadModel"),
    "CLIPForImageClassification": "it labels pictures by the mean of the patches of one of two "
    "networks; ViTForImageClassification is supported",
    "BartForCausalLM": _DECODER_ONLY,
    "MBartForCausalLM": _DECODER_ONLY,
    "MarianForCausalLM": _DECODER_ONLY,
    **_of_t5("T5"),
    **_of_t5("MT5"),
}
"""Folders with these classes are rejected; a test lists all classes of the library."""
CLASS_SUFFIXES: Mapping[str, str] = {
    "label": "ForSequenceClassification",
    "token_label": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
"""Suffixes of the class names with supported heads."""


def unsupported_reason(head_name: str, class_of_backbone: str) -> str | None:
    """Return why the class with a head of this name is not written, if it exists."""
    ending = CLASS_SUFFIXES.get(head_name)
    name = class_of_backbone.removesuffix("Model") + (ending or "")
    return (
        None
        if ending is None or name not in UNSUPPORTED_CLASSES
        else f"{name}: {UNSUPPORTED_CLASSES[name]}"
    )
