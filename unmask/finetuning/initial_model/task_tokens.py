"""What is around texts: what the tokenizer puts there, or tokens that are added for a task.

Radford et al. 2018, section 3.3: a start token, a delimiter between two texts, and a token after
them whose hidden state is read. A tokenizer that has them in its special tokens puts them there by
itself, in this library and in others, so that nothing that reads texts asks which these are.
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
    "heads.language.out.weight",
    "heads.language.bias",
)
"""Parameters that have a row for each token."""


def resolve_input_options(
    task: Task, preset: Published, tokenizer: Tokenizer, *, trains_embeddings: bool
) -> Task:
    """Complete the options of a task: what is around texts, and what of two texts is read.

    Args:
        task: of any kind; of one that has no such option nothing changes.
        preset: says what its paper does where nothing was asked for.
        tokenizer: of the model. The tokens may have been added to it before.
        trains_embeddings: vectors of tokens are learned. Otherwise those of new tokens would stay
            random, and so none are added unless asked for.

    Raises:
        ValueError: the model is no decoder, or its new tokens would not be learned.
    """
    if not issubclass(TASK_KINDS[task.task_kind].options, PoolingOptions):
        return task
    said, there = task.options.get("special_tokens"), has_task_tokens(tokenizer)
    if (
        said is None
        and preset.finetuning.special_tokens == "added"
        and (trains_embeddings or there)
    ):
        said = "added"
    if said != "added":
        return task
    if not preset.architecture.is_decoder_only:
        raise ValueError(
            f"options.special_tokens must be 'own' for {preset.name}: tokens are added for "
            "decoders, whose last token has read all others; got 'added'"
        )
    if not (trains_embeddings or there):
        raise ValueError(
            "options.special_tokens 'added' gives a decoder new tokens, and what is tuned here "
            "leaves their vectors random: tune it in full or gradually, or leave the option out"
        )
    options = dict(task.options) | {"special_tokens": said}
    chosen = options.get("pooling") or options.get("pooled_layers")
    if has_two_texts(task) and not chosen and _is_symmetric(task):
        options["pooling"] = "both"
    return replace(task, options=options)


def _is_symmetric(task: Task) -> bool:
    said = task.options.get("order_invariant")
    return TASK_KINDS[task.task_kind].predicts_number if said is None else said


def has_task_tokens(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer puts the tokens around texts."""
    return TASK_TOKENS.surround(tokenizer.special_tokens) == tokenizer.special_tokens


def add_task_tokens(task: Task, tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer that a task reads with: the same one, or one that knows more tokens."""
    if task.options.get("special_tokens") != "added" or has_task_tokens(tokenizer):
        return tokenizer
    return tokenizer.with_special_tokens(TASK_TOKENS.surround(tokenizer.special_tokens))


def with_embeddings_for(preset: Published, tokenizer: Tokenizer) -> Published:
    """Return the card with a vector for each token of its tokenizer, at least."""
    a = preset.architecture
    return replace(preset, architecture=a.with_vocab_size(max(a.vocab_size, tokenizer.vocab_size)))
