"""Special tokens around texts: those of the tokenizer, or tokens that are added for a task.

Radford et al. 2018, section 3.3: a start token, a delimiter between two texts, and a token after
them whose hidden state is classified. They become special tokens of the tokenizer, which adds them
to texts in this and in other libraries.
"""

from dataclasses import replace

from unmask.tasks.all_kinds import TASK_KINDS, has_two_texts
from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.task import Task
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import TaskTokens
from unmask.zoo.preset import Published

TASK_TOKENS = TaskTokens()
PER_TOKEN_PARAMETERS = (
    "backbone.tokens.weight",
    "backbone.tokens.narrow.weight",
    "heads.language.out.weight",
    "heads.language.bias",
)
"""Parameters with a row for each token."""


def resolve_input_options(
    task: Task, preset: Published, tokenizer: Tokenizer, *, trains_embeddings: bool
) -> Task:
    """Complete the task options on special tokens and on the pooling of two texts.

    Args:
        task: the task; one without these options is unchanged.
        preset: preset of the model, with the defaults of its paper.
        tokenizer: tokenizer of the model, which may have the tokens already.
        trains_embeddings: whether token embeddings are trained. If not, no tokens are added by
            default, since their embeddings would stay random.

    Raises:
        ValueError: the model is not a decoder, or its new tokens would not be trained.
    """
    if not issubclass(TASK_KINDS[task.task_kind].options, PoolingOptions):
        return task
    special_tokens, has_tokens = task.options.get("special_tokens"), has_task_tokens(tokenizer)
    if (
        special_tokens is None
        and preset.finetuning.special_tokens == "added"
        and (trains_embeddings or has_tokens)
    ):
        special_tokens = "added"
    if special_tokens != "added":
        return task
    if not preset.architecture.is_decoder_only:
        raise ValueError(
            f"options.special_tokens must be 'own' for {preset.name}: tokens are added for "
            "decoders, whose last token has read all others; got 'added'"
        )
    if not (trains_embeddings or has_tokens):
        raise ValueError(
            "options.special_tokens 'added' gives a decoder new tokens, and what is tuned here "
            "leaves their vectors random: tune it in full or gradually, or leave the option out"
        )
    options = dict(task.options) | {"special_tokens": special_tokens}
    chosen = options.get("pooling") or options.get("pooled_layers")
    if has_two_texts(task) and not chosen and _is_symmetric(task):
        options["pooling"] = "both"
    return replace(task, options=options)


def _is_symmetric(task: Task) -> bool:
    order_invariant = task.options.get("order_invariant")
    return (
        TASK_KINDS[task.task_kind].predicts_number if order_invariant is None else order_invariant
    )


def has_task_tokens(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer adds the task tokens to texts."""
    return TASK_TOKENS.surround(tokenizer.special_tokens) == tokenizer.special_tokens


def add_task_tokens(task: Task, tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer with the task tokens, if the options of the task require them."""
    if task.options.get("special_tokens") != "added" or has_task_tokens(tokenizer):
        return tokenizer
    return tokenizer.with_special_tokens(TASK_TOKENS.surround(tokenizer.special_tokens))


def with_embeddings_for(preset: Published, tokenizer: Tokenizer) -> Published:
    """Return the preset with at least one embedding for each token of the tokenizer."""
    a = preset.architecture
    return replace(preset, architecture=a.with_vocab_size(max(a.vocab_size, tokenizer.vocab_size)))
