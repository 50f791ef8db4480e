"""Text from a model: blanks filled, prompts continued, answers ranked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import check_number_arguments
from unmask.generation.decode import (
    candidates_noun,
    generate,
    generate_candidates,
    initial_states,
    stream_tokens,
)
from unmask.generation.fill_mask import FilledText, fill
from unmask.generation.prompts import EncodedPrompts, encode_known_text, encode_prompts
from unmask.generation.rank_choices import rank_choices
from unmask.generation.settings import BeamSearch, BestOfN, GenerationConfig, generation_config
from unmask.generation.speculative import DraftModel
from unmask.generation.streaming import TextStreamer
from unmask.generation.text_batches import evaluation_mode
from unmask.tasks.task import Task
from unmask.tokenizers.encode import Tokenizer


@dataclass(frozen=True)
class ScoredText:
    """A text that may follow a prompt."""

    text: str
    score: float
    """Log-probability; of beams, divided as `BeamSearch` says."""


class GenerationPipeline:
    """A model with its tokenizer."""

    def __init__(self, loaded_model: LoadedModel, task: Task | None = None) -> None:
        """Wrap a model.

        Args:
            loaded_model: the model.
            task: what it was fine-tuned for, with the columns of its files. None: what its head
                says, if it has one that labels.
        """
        self.loaded_model = loaded_model
        self.task = task
        self.model = loaded_model.model
        self.preset = loaded_model.preset

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            ValueError: its folder has none.
        """
        if self.loaded_model.tokenizer is None:
            raise ValueError(
                f"{self.preset.name}: this model has no tokenizer, so it cannot read text"
            )
        return self.loaded_model.tokenizer

    # A string is a sequence of strings, too; the first overload that fits counts.
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
        prompt: str,
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        draft: DraftModel | None = None,
        **settings: Any,
    ) -> str: ...
    @overload
    def generate(
        self,
        prompt: Sequence[str],
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        draft: DraftModel | None = None,
        **settings: Any,
    ) -> list[str]: ...
    def generate(
        self,
        prompt: str | Sequence[str],
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        draft: DraftModel | None = None,
        **settings: Any,
    ) -> str | list[str]:
        """Continue a prompt, or several; some models answer them (`Model.answers`).

        Only the new text is returned. Special tokens typed in a prompt (<extra_id_0>) are what they
        name.

        Args:
            prompt: one or several.
            config: how the text is generated; or the same by name: `generate(prompt, beams=4)`.
            output_prefix: what each answer begins with; its tokens do not count as new ones.
            draft: a smaller model that proposes tokens, as `draft` makes it.
            settings: fields of `GenerationConfig`, `Sampling`, `BestOfN` and `BeamSearch`.

        Raises:
            ValueError: the model does not generate, a prompt is longer than its positions, or the
                settings do not go together.
        """
        config = _resolve_config(config, settings)
        encoded = self._encode_prompts(as_text_list(prompt, "prompt"), output_prefix, config)
        special = self.tokenizer.special_ids
        generated_ids = generate(
            self.model,
            encoded.input_ids,
            special,
            config,
            output_prefixes=encoded.output_prefixes,
            constraints=encoded.streamers,
            draft=draft,
        )
        texts = [
            output_prefix + streamer.final_text(ids)
            for streamer, ids in zip(encoded.streamers, generated_ids, strict=True)
        ]
        return texts[0] if isinstance(prompt, str) else texts

    @overload
    def generate_candidates(  # pyright: ignore[reportOverlappingOverload]
        self,
        prompt: str,
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        **settings: Any,
    ) -> list[ScoredText]: ...
    @overload
    def generate_candidates(
        self,
        prompt: Sequence[str],
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        **settings: Any,
    ) -> list[list[ScoredText]]: ...
    def generate_candidates(
        self,
        prompt: str | Sequence[str],
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        **settings: Any,
    ) -> list[ScoredText] | list[list[ScoredText]]:
        """Search with beams, or sample; return the best texts, the best first, with their scores.

        `generate_candidates(prompt, beams=5, n_best=3)`, or `generate_candidates(prompt,
        temperature=0.9, samples=20, n_best=3)`; of several prompts a list for each. The arguments
        are those of `generate`.
        """
        config = _resolve_config(config, settings)
        encoded = self._encode_prompts(
            [prompt] if isinstance(prompt, str) else list(prompt), output_prefix, config
        )
        found = generate_candidates(
            self.model,
            encoded.input_ids,
            self.tokenizer.special_ids,
            config,
            output_prefixes=encoded.output_prefixes,
            constraints=encoded.streamers,
        )
        candidates = [
            [
                ScoredText(output_prefix + streamer.final_text(one.token_ids), one.score)
                for one in best
            ]
            for streamer, best in zip(encoded.streamers, found, strict=True)
        ]
        return candidates[0] if isinstance(prompt, str) else candidates

    def stream(
        self,
        prompt: str,
        config: GenerationConfig | None = None,
        *,
        output_prefix: str = "",
        draft: DraftModel | None = None,
        **settings: Any,
    ) -> Iterator[str]:
        """Give the text of `generate` piece by piece, as soon as no later token can change it.

        A piece has whole characters only, and never the beginning of a stop string.

        Raises:
            ValueError: as `generate`, at once; or one of several texts is chosen, which is known
                when they have ended.
        """
        config = _resolve_config(config, settings)
        if isinstance(config.strategy, BeamSearch | BestOfN):
            raise ValueError(
                f"{candidates_noun(config.strategy)} end before a text is known: no stream"
            )
        encoded = self._encode_prompts([prompt], output_prefix, config)
        special = self.tokenizer.special_ids
        states = initial_states(
            self.model,
            encoded.input_ids,
            special,
            config,
            output_prefixes=encoded.output_prefixes,
            constraints=encoded.streamers,
        )
        steps = stream_tokens(self.model, states, special, config, draft=draft)
        streamer = encoded.streamers[0]
        return self._stream_pieces(steps, states[0].generated_ids, streamer, output_prefix)

    def _stream_pieces(
        self,
        steps: Iterator[object],
        token_ids: Sequence[int],
        streamer: TextStreamer,
        output_prefix: str,
    ) -> Iterator[str]:
        given = ""
        if output_prefix:
            yield output_prefix
        while True:
            with evaluation_mode(self.model):  # not while the caller has its turn
                going = next(steps, None) is not None
            now = streamer.stable_text(token_ids) if going else streamer.final_text(token_ids)
            if len(now) > len(given) and now.startswith(given):
                yield now[len(given) :]
                given = now
            if not going:
                return

    @check_number_arguments
    def rank_choices(
        self, prompt: str, choices: Sequence[str], *, beams: int | None = None
    ) -> list[ScoredText]:
        """Return given texts, those first that are likelier after a prompt, with log-probabilities.

        Args:
            prompt: a text, as for `generate`.
            choices: as they would follow it: " yes", with its space, where a decoder continues.
            beams: see `unmask.generation.rank_choices.rank_choices`.

        Raises:
            ValueError: the model does not generate, a prompt is too long, or a choice is empty, is
                given twice, or has characters that the tokenizer does not know.
        """
        read = self._encode_prompts([prompt], "", None).input_ids
        ids = [self._continuation_ids(prompt, read[0], choice) for choice in choices]
        (best,) = rank_choices(self.model, read, [ids], self.tokenizer.special_ids, beams=beams)
        return [ScoredText(choices[one.choice_index], one.log_probability) for one in best]

    def draft(self, draft_model: "GenerationPipeline", *, draft_tokens: int = 4) -> DraftModel:
        """Let a smaller model guess what this one will say: `generate(prompt, draft=...)`.

        The text is the same as without, greedily, and drawn from the same distribution. What share
        of its guesses was accepted, the draft tells then (`share`).

        Raises:
            ValueError: their vocabularies are not the same.
        """
        mine, its = self.tokenizer, draft_model.tokenizer
        alone = (mine.source_tokenizer is None) == (its.source_tokenizer is None)
        if not (
            alone
            and _same_vocabulary(mine, its)
            and _same_vocabulary(mine.input_tokenizer, its.input_tokenizer)
        ):
            raise ValueError(
                f"{draft_model.preset.name} has another vocabulary ({its.vocab_size:,} tokens) "
                f"than {self.preset.name} ({mine.vocab_size:,}), so it cannot be its draft"
            )
        return DraftModel(model=draft_model.model, draft_tokens=draft_tokens)

    def _encode_prompts(
        self, prompts: Sequence[str], output_prefix: str, config: GenerationConfig | None
    ) -> EncodedPrompts:
        stop, check = ((), True) if config is None else (config.stop, not config.window)
        return encode_prompts(
            self.model,
            self.tokenizer,
            prompts,
            output_prefix=output_prefix,
            stop=stop,
            check_positions=check,
        )

    def _continuation_ids(self, prompt: str, prompt_ids: list[int], continuation: str) -> list[int]:
        """Return the tokens of a text after a prompt."""
        alone = encode_known_text(self.tokenizer, continuation)
        if self.model.is_sequence_to_sequence:
            return alone
        special = self.tokenizer.special_ids
        whole = [
            *special.prefix,
            *self.tokenizer.encode(prompt + continuation, allow_special=True).ids.tolist(),
        ]
        return whole[len(prompt_ids) :] if whole[: len(prompt_ids)] == prompt_ids else alone


def _resolve_config(
    config: GenerationConfig | None, settings: Mapping[str, Any]
) -> GenerationConfig:
    if config is not None and settings:
        raise ValueError(
            f"give a GenerationConfig, or settings by name, not both: got {sorted(settings)}"
        )
    return generation_config(**settings) if config is None else config


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
    other = next((one for one in texts if not isinstance(one, str)), None)
    if other is not None or not isinstance(some, Iterable):
        raise TypeError(f"{argument_name} must be a text or several, each a str, got {other!r}")
    return texts
