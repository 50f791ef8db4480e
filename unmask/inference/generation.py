"""Generation: filling masks, continuing prompts, chatting, ranking choices."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import check_number_arguments
from unmask.conversations.chat import read_chat
from unmask.conversations.template import ChatTemplate
from unmask.conversations.template_files import TEMPLATE_FILE
from unmask.finetuning.formulations.conversations.instructions import template_of_task
from unmask.generation.captions import PictureInput, picture_prompts
from unmask.generation.decode import (
    generate,
    generate_candidates,
    initial_states,
    stream_tokens,
    streamed_strategy,
)
from unmask.generation.fill_mask import FilledText, fill
from unmask.generation.prompts import (
    EncodedChat,
    EncodedPrompts,
    encode_chat_prompt,
    encode_known_text,
    encode_prompts,
)
from unmask.generation.rank_choices import rank_choices
from unmask.generation.settings import GenerationConfig, chooses_strategy, generation_config
from unmask.generation.speculative import DraftModel
from unmask.generation.state import StepObserver
from unmask.generation.streaming import stream_pieces
from unmask.tasks.task import Task
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds

_log = logging.getLogger(__name__)

MAX_RESPONSE_TOKENS = 512
"""Maximum number of tokens of a response in a chat, by default."""
LEFT_OUT = "the earliest exchanges leave no room for a response, and are not read"


@dataclass(frozen=True)
class ScoredText:
    """A candidate text after a prompt."""

    text: str
    score: float
    """Log-probability; of beams, length-normalized as in `BeamSearch`."""


class GenerationPipeline:
    """A model and its tokenizer, for generation."""

    def __init__(self, loaded_model: LoadedModel, task: Task | None = None) -> None:
        """Wrap a model.

        Args:
            loaded_model: the model.
            task: its fine-tuning task, with the columns of its files. None: inferred from a
                classification head, if any.
        """
        self.loaded_model = loaded_model
        self.task = task
        self.model = loaded_model.model
        self.preset = loaded_model.preset

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            ValueError: the folder has none.
        """
        if self.loaded_model.tokenizer is None:
            own = "it reads pictures, neither reads nor writes texts: `predict` or `embed` them"
            reason = own if self.preset.reads_pictures else "this model has no tokenizer"
            raise ValueError(f"{self.preset.name}: {reason}")
        return self.loaded_model.tokenizer

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The special tokens of generation: those of the tokenizer, or of the model's folder.

        Raises:
            ValueError: there is no tokenizer, or the folder names none of its tokens.
        """
        special_ids, stored = self.tokenizer.special_ids, self.loaded_model.generation
        return special_ids if stored is None else stored.special_ids(special_ids)

    def resolve_config(
        self,
        config: GenerationConfig | None,
        settings: Mapping[str, Any],
        *,
        max_new_tokens: int = GenerationConfig.max_new_tokens,
    ) -> GenerationConfig:
        """Return settings by name over those of the model's folder; or `config`, which has all.

        Args:
            config: all settings; None: `settings` are given.
            settings: as for `generate`.
            max_new_tokens: default, if neither settings nor the folder have a maximum length.

        Raises:
            ValueError: settings are inconsistent, or those of the folder are not supported.
        """
        if config is not None and settings:
            raise ValueError(
                f"give a GenerationConfig, or settings by name, not both: got {sorted(settings)}"
            )
        if config is not None:
            return config
        defaults: dict[str, Any] = {"max_new_tokens": max_new_tokens}
        stored = self.loaded_model.generation
        if stored is not None:
            with_strategy = not chooses_strategy(settings)
            defaults = stored.settings(settings, defaults, with_strategy=with_strategy)
        return generation_config(**defaults | dict(settings))

    def _run_config(
        self, config: GenerationConfig | None, settings: Mapping[str, Any], **defaults: int
    ) -> GenerationConfig:
        """Return what `resolve_config` does, without the tokens that an answer must begin with.

        They count as new, as in transformers.
        """
        config = self.resolve_config(config, settings, **defaults)
        forced = self.special_ids.decoder_prefix
        if not forced or not self.model.architecture.is_encoder_decoder:
            return config
        left = config.max_new_tokens - len(forced)
        if left < 1:
            raise ValueError(
                f"max_new_tokens must be above {len(forced)}, since every answer begins with "
                f"{len(forced)} special tokens, got {config.max_new_tokens}"
            )
        n_min = max(0, config.min_new_tokens - len(forced))
        return replace(config, max_new_tokens=left, min_new_tokens=n_min)

    # A string is also a sequence of strings; the first matching overload counts.
    @overload
    def fill(self, text: str, *, top_k: int = 5) -> FilledText: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def fill(self, text: Sequence[str], *, top_k: int = 5) -> list[FilledText]: ...
    def fill(self, text: str | Sequence[str], *, top_k: int = 5) -> FilledText | list[FilledText]:
        """Predict the tokens at each [MASK] of a text, or of several."""
        texts = as_text_list(text, "text")
        filled = fill(self.model, self.tokenizer, texts, top_k=top_k)
        return filled[0] if isinstance(text, str) else filled

    @overload
    def generate(  # pyright: ignore[reportOverlappingOverload]
        self,
        prompt: str | PictureInput,
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        draft: DraftModel | None = None,
        **settings: Any,
    ) -> str: ...
    @overload
    def generate(
        self,
        prompt: Sequence[str | PictureInput],
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        draft: DraftModel | None = None,
        **settings: Any,
    ) -> list[str]: ...
    def generate(
        self,
        prompt: str | PictureInput | Sequence[str | PictureInput],
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        draft: DraftModel | None = None,
        **settings: Any,
    ) -> str | list[str]:
        """Continue a prompt, or several; some models answer instead (`Model.answers`).

        Only the new text is returned. Special tokens typed in a prompt (<extra_id_0>) are encoded
        as such.

        A model that describes pictures is given these: paths, bytes of files, images of Pillow or
        pixels [h w c]. Each is prepared as for training.

        Args:
            prompt: one or several.
            config: generation settings; or by keyword: `generate(prompt, beams=4)`.
            output_prefix: start of each output; its tokens do not count as new ones.
            draft: a smaller model that proposes tokens, made by `draft`.
            settings: fields of `GenerationConfig`, `Sampling`, `BestOfN` and `BeamSearch`.

        Raises:
            ValueError: the model does not generate, a prompt is longer than its positions, a
                picture cannot be read, or the settings are inconsistent.
        """
        config = self._run_config(config, settings)
        encoded = self._encode_prompts(prompt, output_prefix, config)
        found = self._generated_texts(encoded, self.special_ids, config, draft)
        texts = [output_prefix + text for text in found]
        return texts[0] if _is_one(prompt) else texts

    def _generated_texts(
        self,
        encoded: EncodedPrompts,
        special_ids: SpecialTokenIds,
        config: GenerationConfig,
        draft: DraftModel | None,
    ) -> list[str]:
        generated_ids = generate(
            self.model,
            encoded.input_ids,
            special_ids,
            config,
            output_prefixes=encoded.output_prefixes,
            constraints=encoded.streamers,
            draft=draft,
        )
        return [
            streamer.final_text(ids)
            for streamer, ids in zip(encoded.streamers, generated_ids, strict=True)
        ]

    @overload
    def generate_candidates(  # pyright: ignore[reportOverlappingOverload]
        self,
        prompt: str | PictureInput,
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        **settings: Any,
    ) -> list[ScoredText]: ...
    @overload
    def generate_candidates(
        self,
        prompt: Sequence[str | PictureInput],
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        **settings: Any,
    ) -> list[list[ScoredText]]: ...
    def generate_candidates(
        self,
        prompt: str | PictureInput | Sequence[str | PictureInput],
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        **settings: Any,
    ) -> list[ScoredText] | list[list[ScoredText]]:
        """Return the best texts of beam search or sampling, best first, with scores.

        `generate_candidates(prompt, beams=5, n_best=3)`, or `generate_candidates(prompt,
        temperature=0.9, samples=20, n_best=3)`; several prompts give a list each. The arguments are
        those of `generate`.
        """
        config = self._run_config(config, settings)
        encoded = self._encode_prompts(prompt, output_prefix, config)
        results = generate_candidates(
            self.model,
            encoded.input_ids,
            self.special_ids,
            config,
            output_prefixes=encoded.output_prefixes,
            constraints=encoded.streamers,
        )
        candidates = [
            [
                ScoredText(
                    output_prefix + streamer.final_text(candidate.token_ids), candidate.score
                )
                for candidate in best
            ]
            for streamer, best in zip(encoded.streamers, results, strict=True)
        ]
        return candidates[0] if _is_one(prompt) else candidates

    def stream(
        self,
        prompt: str | PictureInput,
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        draft: DraftModel | None = None,
        observer: StepObserver | None = None,
        **settings: Any,
    ) -> Iterator[str]:
        """Yield the text of `generate` in pieces that no later token can change.

        Pieces have whole characters, and never the start of a stop string. `observer` sees each
        token first (`AlternativesRecorder`); then each token has a piece, which may be empty.

        Raises:
            ValueError: as `generate`, immediately; or the best of several texts is chosen at the
                end.
        """
        config = self._run_config(config, settings)
        encoded = self._encode_prompts([prompt], output_prefix, config)
        pieces = self._stream(encoded, self.special_ids, config, draft, observer)
        return chain([output_prefix], pieces) if output_prefix else pieces

    def _stream(
        self,
        encoded: EncodedPrompts,
        special_ids: SpecialTokenIds,
        config: GenerationConfig,
        draft: DraftModel | None,
        observer: StepObserver | None,
    ) -> Iterator[str]:
        """Stream the text after the only prompt; errors are raised immediately."""
        streamed_strategy(config)
        states = initial_states(
            self.model,
            encoded.input_ids,
            special_ids,
            config,
            output_prefixes=encoded.output_prefixes,
            constraints=encoded.streamers,
        )
        steps = stream_tokens(
            self.model, states, special_ids, config, draft=draft, observer=observer
        )
        ids, streamer, every_step = states[0].generated_ids, encoded.streamers[0], bool(observer)
        return stream_pieces(self.model, steps, ids, streamer, every_step=every_step)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        config: GenerationConfig | None = None,
        *,
        draft: DraftModel | None = None,
        **settings: Any,
    ) -> str:
        """Write the next response of a conversation, by the model's chat template.

        `chat([{"role": "user", "content": "Name three colors."}])`. A response ends as the template
        ends one; space around it is left out. Where a conversation leaves no room for a response,
        its earliest exchanges are not read, and a warning says so.

        Args:
            messages: {"role", "content"} of system (first), user and assistant; the user's is last.
            config: generation settings, or by keyword; those of `generate`, except that the default
                of `max_new_tokens` is `MAX_RESPONSE_TOKENS`.
            draft: a smaller model that proposes tokens, made by `draft`.
            settings: as for `generate`.

        Raises:
            ValueError: the model does not generate or has no chat template, the messages are
                invalid, have a special token, or the last one does not fit.
        """
        encoded, config = self._encode_chat(messages, config, settings)
        return self._generated_texts(encoded.prompts, encoded.special_ids, config, draft)[0]

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        config: GenerationConfig | None = None,
        *,
        draft: DraftModel | None = None,
        observer: StepObserver | None = None,
        **settings: Any,
    ) -> Iterator[str]:
        """Yield the response of `chat` in pieces that no later token can change, as `stream`.

        Raises:
            ValueError: as `chat` and `stream`, immediately.
        """
        encoded, config = self._encode_chat(messages, config, settings)
        return self._stream(encoded.prompts, encoded.special_ids, config, draft, observer)

    def fitting_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        config: GenerationConfig | None = None,
        **settings: Any,
    ) -> list[dict[str, str]]:
        """Return the messages that `chat` reads: without the earliest exchanges, if need be.

        Of a decoder's positions `max_new_tokens`, but at most a fourth, are left to the response.

        Raises:
            ValueError: as `chat`.
        """
        encoded, _ = self._encode_chat(messages, config, settings, is_quiet=True)
        return [turn.to_dict() for turn in encoded.turns]

    def _encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        config: GenerationConfig | None,
        settings: Mapping[str, Any],
        *,
        is_quiet: bool = False,
    ) -> tuple[EncodedChat, GenerationConfig]:
        is_default = config is None and "max_new_tokens" not in settings
        config = self._run_config(config, settings, max_new_tokens=MAX_RESPONSE_TOKENS)
        turns, template = read_chat(messages), self._require_chat_template()
        encoded = encode_chat_prompt(
            self.model, self.tokenizer, template, turns, config, self.special_ids
        )
        if len(encoded.turns) < len(turns) and not is_quiet:
            _log.warning(LEFT_OUT)
        if is_default and encoded.n_free is not None and not config.window:
            n_new = min(encoded.n_free, config.max_new_tokens)
            config = replace(config, max_new_tokens=n_new)
        return encoded, config

    @property
    def can_chat(self) -> bool:
        """Whether it writes texts from left to right, and has a chat template."""
        return self._writes and self._chat_template is not None

    @property
    def _writes(self) -> bool:
        is_seq2seq = self.model.is_sequence_to_sequence
        writes = self.model.can_generate and self.preset.reads_texts
        return writes and is_seq2seq == self.model.architecture.is_encoder_decoder

    @property
    def _chat_template(self) -> ChatTemplate | None:
        own = None if self.task is None else template_of_task(self.task)
        return own or self.loaded_model.chat_template

    def _require_chat_template(self) -> ChatTemplate:
        if not self._writes:
            raise ValueError(
                f"{self.preset.name} does not chat: a decoder or an encoder-decoder of texts does"
            )
        if (template := self._chat_template) is None:
            raise ValueError(
                f"{self.preset.name} has no chat template: fine-tune it with --task instruct, or "
                f"put one into its folder as {TEMPLATE_FILE}"
            )
        return template

    @check_number_arguments
    def rank_choices(
        self, prompt: str, choices: Sequence[str], *, beams: int | None = None
    ) -> list[ScoredText]:
        """Rank texts by their likelihood after a prompt; return them with log-probabilities.

        Args:
            prompt: a text, as for `generate`.
            choices: as they follow the prompt: " yes", with its space, for a decoder.
            beams: see `unmask.generation.rank_choices.rank_choices`.

        Raises:
            ValueError: the model does not generate, a prompt is too long, or a choice is empty,
                repeated, or has unknown characters.
        """
        input_ids = self._encode_prompts([prompt], "", None).input_ids
        ids = [self._continuation_ids(prompt, input_ids[0], choice) for choice in choices]
        (best,) = rank_choices(
            self.model, input_ids, [ids], self.tokenizer.special_ids, beams=beams
        )
        return [ScoredText(choices[ranked.choice_index], ranked.log_probability) for ranked in best]

    def draft(self, draft_model: "GenerationPipeline", *, draft_tokens: int = 4) -> DraftModel:
        """Return a smaller model for speculative decoding: `generate(prompt, draft=...)`.

        Greedy output is identical to that without a draft; samples have the same distribution. The
        draft then has the share of accepted tokens (`share`).

        Raises:
            ValueError: their vocabularies differ.
        """
        tokenizer, draft_tokenizer = self.tokenizer, draft_model.tokenizer
        alone = (tokenizer.source_tokenizer is None) == (draft_tokenizer.source_tokenizer is None)
        if not (
            alone
            and _same_vocabulary(tokenizer, draft_tokenizer)
            and _same_vocabulary(tokenizer.input_tokenizer, draft_tokenizer.input_tokenizer)
        ):
            raise ValueError(
                f"{draft_model.preset.name} has another vocabulary "
                f"({draft_tokenizer.vocab_size:,} tokens) "
                f"than {self.preset.name} ({tokenizer.vocab_size:,}), so it cannot be its draft"
            )
        return DraftModel(model=draft_model.model, draft_tokens=draft_tokens)

    def _encode_prompts(
        self, prompt: Any, output_prefix: str, config: GenerationConfig | None
    ) -> EncodedPrompts:
        stop, check = ((), True) if config is None else (config.stop, not config.window)
        encode = partial(
            encode_prompts,
            self.model,
            self.tokenizer,
            output_prefix=output_prefix,
            stop=stop,
            check_positions=check,
        )
        preprocessing = self.loaded_model.preprocessing
        if preprocessing is None:
            return encode(as_text_list(prompt, "prompt"))
        pictures = [prompt] if _is_one(prompt) else list(prompt)
        sources = picture_prompts(self.model, pictures, preprocessing)
        return replace(encode([""] * len(sources)), input_ids=sources)

    def _continuation_ids(
        self, prompt: str, prompt_ids: Sequence[int], continuation: str
    ) -> list[int]:
        """Return the tokens of a text after a prompt."""
        alone = encode_known_text(self.tokenizer, continuation)
        if self.model.is_sequence_to_sequence:
            return alone
        special = self.tokenizer.special_ids
        all_ids = [
            *special.prefix,
            *self.tokenizer.encode(prompt + continuation, allow_special=True).ids.tolist(),
        ]
        return all_ids[len(prompt_ids) :] if all_ids[: len(prompt_ids)] == [*prompt_ids] else alone


def _is_one(prompt: object) -> bool:
    """Return whether this is one prompt, not several."""
    return isinstance(prompt, str | Path | bytes | np.ndarray) or not isinstance(prompt, Iterable)


def _same_vocabulary(a: Tokenizer, b: Tokenizer) -> bool:
    """Return whether all ids of two tokenizers are the same tokens."""
    ids = range(a.vocab_size)
    return (
        a.vocab_size == b.vocab_size
        and a.special_ids == b.special_ids
        and a.pieces(ids) == b.pieces(ids)
    )


def as_text_list(texts: Any, argument_name: str) -> list[str]:
    """Return one text, or several, as a list.

    Raises:
        TypeError: it is neither.
    """
    some = [texts] if isinstance(texts, str) else texts
    texts = list(some) if isinstance(some, Iterable) else [some]
    invalid = next((text for text in texts if not isinstance(text, str)), None)
    if invalid is not None or not isinstance(some, Iterable):
        raise TypeError(f"{argument_name} must be a text or several, each a str, got {invalid!r}")
    return texts
