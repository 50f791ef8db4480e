"""Text in, answer out: what `unmask.load` returns."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.adapters.folder import is_adapter, open_model_or_adapter
from unmask.adapters.prefix import encoder_stack, max_text_length
from unmask.batch import Batch
from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.generator import add_generator
from unmask.checkpoints.huggingface.read import (
    HUB_PREFIX,
    LoadedModel,
    is_model_folder,
    max_text_tokens,
    resolve_model_folder,
)
from unmask.checkpoints.subword_head import add_subword_head
from unmask.config import check_number_arguments, from_dict, to_dict
from unmask.evaluation.likelihood import (
    ContinuationLikelihood,
    PseudoLikelihoodMasking,
    continuation_likelihoods,
)
from unmask.evaluation.perplexity import HeldOutEvaluation, evaluate
from unmask.evaluation.sentence_embeddings import EmbeddingPooling, embed
from unmask.finetuning.formulations.formulation import (
    CHOICE_HEAD,
    LABEL_HEAD,
    LANGUAGE_HEAD,
    SPAN_HEAD,
    TOKEN_LABEL_HEAD,
    PredictionRecord,
)
from unmask.finetuning.formulations.text_to_text.formulate import with_task_languages
from unmask.finetuning.results.predict import infer_task, predict, read_task, select_columns
from unmask.finetuning.results.score import score_file
from unmask.finetuning.results.task_metrics import task_of_mixture
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
from unmask.generation.text_batches import TextBatch, evaluation_mode, text_batches
from unmask.heads.classification.sequence_classification import (
    SequenceClassificationHead,
    TokenClassificationHead,
)
from unmask.heads.model import Model, required_term
from unmask.heads.pretraining.contrastive import PAIR_HEADS
from unmask.heads.question_answering import QuestionAnsweringHead
from unmask.heads.tagging.bilstm_crf import BiLSTMCRFHead
from unmask.inference.export import ModelFormat, read_run_file, save_model
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.objectives.published import ObjectiveSpec
from unmask.tasks.kinds.all_kinds import TASK_KINDS
from unmask.tasks.readers import tables
from unmask.tasks.task import Task
from unmask.text.lines import EncodingErrors
from unmask.text.mixtures import read_documents_by_source, split_language_prefix
from unmask.tokenizers.encode import Tokenizer
from unmask.training.data import check_source_languages
from unmask.training.device.distributed import resolve_device
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import ALIASES, MODELS, did_you_mean, get_preset
from unmask.zoo.objectives.adapt import resolve_objective
from unmask.zoo.preset import Published

RUN_FILE = "unmask.json"
DEFAULT_SEQUENCE_LENGTH = 512
"""Tokens that are read together of held-out text, where it is not known how many pretraining read,
and the model has as many positions."""
MAX_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class ScoredText:
    """A text that may follow a prompt."""

    text: str
    score: float
    """Log-probability; of beams, divided as `BeamSearch` says."""


class Pipeline:
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

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes, for a model that classifies."""
        return self.loaded_model.label_names

    @property
    def can_predict(self) -> bool:
        """Whether it labels texts: with a head, or, fine-tuned to do so, as text."""
        specs = self.model.head_specs
        heads = {LABEL_HEAD, TOKEN_LABEL_HEAD, SPAN_HEAD, CHOICE_HEAD}
        return self.task is not None or not heads.isdisjoint(specs)

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

    def with_languages(self, source: str, target: str | None = None) -> "Pipeline":
        """Return this model for texts of a language, answered in another; None: in the same.

        `load("mbart").with_languages("en_XX", "ro_RO").generate("Good morning.")`

        Raises:
            ValueError: there is no such language.
        """
        tokenizer = self.tokenizer.with_languages(source, target)
        return Pipeline(replace(self.loaded_model, tokenizer=tokenizer))

    def mixture_task(self, name: str) -> "Pipeline":
        """Return this model for one task of the mixture that it was fine-tuned on.

        `load("runs/mixture").mixture_task("stsb").predict([("A cat.", "A dog.")])`

        Raises:
            ValueError: it has learned no such task.
        """
        return Pipeline(self.loaded_model, task_of_mixture(self._required_task(), name))

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
            choices: as they would follow it: " yes", with its space, where a decoder goes on.
            beams: see `unmask.generation.rank_choices.rank_choices`.

        Raises:
            ValueError: the model does not generate, a prompt is too long, or a choice is empty, is
                given twice, or has characters that the tokenizer does not know.
        """
        read = self._encode_prompts([prompt], "", None).input_ids
        ids = [self._continuation_ids(prompt, read[0], choice) for choice in choices]
        (best,) = rank_choices(self.model, read, [ids], self.tokenizer.special_ids, beams=beams)
        return [ScoredText(choices[one.choice_index], one.log_probability) for one in best]

    def draft(self, draft_model: "Pipeline", *, draft_tokens: int = 4) -> DraftModel:
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

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: EmbeddingPooling | None = None,
        layer: int = -1,
    ) -> "Float[np.ndarray, 'n d'] | list[Float[np.ndarray, '_ d']]":
        """Return a vector for each text [n d]; with pooling "none" those of its tokens [t d].

        Without a pooling it is the card's: the mean, or the last token of a model that was
        pretrained to let that stand for a sentence.
        """
        texts = as_text_list(texts, "texts")
        pooling = self.preset.pooling if pooling is None else pooling
        return embed(self.model, self.tokenizer, texts, pooling=pooling, layer=layer)

    def logits(self, texts: str | Sequence[str]) -> "list[Float[np.ndarray, '...']]":
        """Return the logits of the model's head for each text.

        Of its labels [labels]; of each token, special ones included, the labels [t labels]; of the
        vocabulary [t v]. Of several heads, those of the language model. An encoder-decoder reads
        the text, and its logits are those of the first token that it would generate [1 v]. The end
        of a text that has more tokens than the model has positions is cut.

        Raises:
            ValueError: the model has no head, or none that has logits of texts as they are.
        """
        texts = as_text_list(texts, "texts")
        if not self.model.head_specs:
            raise ValueError(f"{self.preset.name}: this model has no head; use `embed`")
        found: dict[int, Float[np.ndarray, "..."]] = {}
        with evaluation_mode(self.model):
            labels = LANGUAGE_HEAD not in self.model.heads
            for group in text_batches(
                self.model, self.tokenizer, texts, MAX_BATCH_TOKENS, decoder_reads_text=labels
            ):
                for text, logits in zip(group.text_indices, self._group_logits(group), strict=True):
                    found[text] = logits.float().cpu().numpy()
        return [found[i] for i in range(len(texts))]

    def _group_logits(self, text_batch: TextBatch) -> Iterator[Tensor]:
        heads = self.model.heads
        if LANGUAGE_HEAD in heads:  # text by text: many tokens times the vocabulary
            head, hidden = self.model.language_head, self.model.hidden_states(text_batch.batch)
            yield from (head.logits(x[:n]) for x, n in zip(hidden, text_batch.lengths, strict=True))
            return
        label_heads = (
            SequenceClassificationHead
            | TokenClassificationHead
            | QuestionAnsweringHead
            | BiLSTMCRFHead
        )
        found = ((name, one) for name, one in heads.items() if isinstance(one, label_heads))
        name, head = next(found, ("", None))
        if head is None:
            raise ValueError(
                f"{self.preset.name}: its heads serve pretraining alone "
                f"({', '.join(heads)}); use `embed`"
            )
        logits = self._label_logits(name, head, text_batch.batch)
        if isinstance(head, SequenceClassificationHead):
            yield from logits
        else:
            yield from (x[:n] for x, n in zip(logits, text_batch.lengths, strict=True))

    def _label_logits(
        self, head_name: str, head: nn.Module, batch: Batch
    ) -> Float[Tensor, "b ..."]:
        """Return the logits of a head of labels, which reads all that `predict` lets it read."""
        if isinstance(head, BiLSTMCRFHead):
            return head.logits(self.model.hidden_states(batch), batch)
        assert isinstance(
            head, SequenceClassificationHead | TokenClassificationHead | QuestionAnsweringHead
        )
        if (
            isinstance(head, SequenceClassificationHead)
            and self.model.decoder_architecture.attention.global_tokens
        ):
            first = torch.zeros(len(batch.inputs), 1, dtype=torch.long)
            batch = batch.with_feature(GlobalTokens(first))
        prediction = self.model(batch.to(self.model.device), return_logits=[head_name])
        return prediction.logits[head.spec.term]

    @overload
    def likelihood(  # pyright: ignore[reportOverlappingOverload]
        self, context: str, continuation: str, *, pll_masking: PseudoLikelihoodMasking = "word"
    ) -> ContinuationLikelihood: ...
    @overload
    def likelihood(
        self,
        context: Sequence[str],
        continuation: Sequence[str],
        *,
        pll_masking: PseudoLikelihoodMasking = "word",
    ) -> list[ContinuationLikelihood]: ...
    def likelihood(
        self,
        context: str | Sequence[str],
        continuation: str | Sequence[str],
        *,
        pll_masking: PseudoLikelihoodMasking = "word",
    ) -> ContinuationLikelihood | list[ContinuationLikelihood]:
        """Compute the likelihood of a continuation after a context, or of several.

        `likelihood("", text)` is that of a whole text. See `unmask.evaluation.likelihood`.

        Args:
            context: may be empty.
            continuation: with the space before it, if there is one.
            pll_masking: what is masked while a masked model predicts a token: also what follows it
                in its word (Kauf and Ivanova 2023), or it alone (Salazar et al. 2020).

        Raises:
            ValueError: a continuation has no token, contexts are not as many, or the model predicts
                no tokens.
        """
        contexts = as_text_list(context, "context")
        continuations = as_text_list(continuation, "continuation")
        if len(contexts) != len(continuations):
            raise ValueError(f"{len(contexts)} contexts, but {len(continuations)} continuations")
        found = continuation_likelihoods(
            self.model, self.tokenizer, contexts, continuations, pll_masking=pll_masking
        )
        return found[0] if isinstance(continuation, str) else found

    def predict(
        self, texts: str | Iterable[Any], *, task: Task | None = None
    ) -> list[PredictionRecord]:
        """Label texts, pairs of texts, or sentences given as lists of words.

        Of a text {"label", "probability", "probabilities"}, of a sentence {"labels",
        "probabilities"}, or a number.

        Args:
            texts: one or several of what the task takes.
            task: in place of what the model was fine-tuned for: one that it does zero-shot; see
                `unmask.finetuning.formulations.cloze.blank_filling.cloze_task`.

        Raises:
            ValueError: the model labels nothing, or a text is not what its task takes.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        return predict(self.loaded_model, given, task=self.task if task is None else task)

    def read_inputs(
        self,
        path: str | Path,
        *,
        text: str | Sequence[str] = (),
        choices: str | Sequence[str] = (),
        columns: Sequence[str] = (),
        encoding_errors: EncodingErrors = "strict",
    ) -> list[Any]:
        """Read what `predict` takes from a file of rows: .tsv, .csv, .jsonl, .parquet, .conllu.

        The columns are those of the training file; where it has them not, customary ones. A line
        of .txt is what a line of standard input is to the program: a text, the words of a sentence
        with spaces between, or several texts with tabs between. Of a model that another library
        fine-tuned, whose folder does not say what it reads, two columns of text are pairs, and so
        is a line with a tab.

        Args:
            path: of the file.
            text: the columns of text, in order, as in fine-tuning. None: as above.
            choices: those of options, likewise.
            columns: names of all columns, of a file without a header.
            encoding_errors: what becomes of bytes that are not UTF-8.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it has no such columns, is damaged, or the model labels nothing.
        """
        task = self._required_task()
        reader = TASK_KINDS[task.task_kind].reader
        text, choices = _as_tuple(text), _as_tuple(choices)
        if tables.is_plain_text(Path(path)):
            if text or choices or columns:
                raise ValueError(f"{path}: lines of .txt have no columns to be named")
            return _read_lines(task, tables.read_table(path, encoding_errors=encoding_errors))
        table = tables.read_table(
            path,
            header=tuple(columns),
            word_per_line=reader.word_per_line,
            encoding_errors=encoding_errors,
        )
        task = select_columns(task, table, text, choices)
        items = reader.read_examples(
            table,
            reader.find_text_columns(table, task.columns),
            encoding_errors,
            has_labels=False,
            options=task.options,
        )
        return [reader.format_input(item) for item in items]

    def score(
        self,
        path: str | Path,
        *,
        text: str | Sequence[str] = (),
        label: str | None = None,
        choices: str | Sequence[str] = (),
        columns: Sequence[str] = (),
        encoding_errors: EncodingErrors = "strict",
    ) -> dict[str, float]:
        """Compute all metrics of a model that labels, on a file of labelled rows.

        Args:
            path: of the file.
            text: the columns of text, as of `read_inputs`.
            label: that of labels, numbers or tags.
            choices: those of options.
            columns: names of all columns, of a file without a header.
            encoding_errors: what becomes of bytes that are not UTF-8.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it lacks columns, is damaged, or has labels that the model does not know; or
                the model labels nothing.
        """
        return score_file(
            self.loaded_model,
            path,
            task=self._required_task(),
            text=_as_tuple(text),
            label=label,
            choices=_as_tuple(choices),
            columns=columns,
            encoding_errors=encoding_errors,
        )

    def _required_task(self) -> Task:
        return infer_task(self.loaded_model) if self.task is None else self.task

    @check_number_arguments
    def evaluate(
        self,
        data: str | Path | Sequence[str | Path],
        *,
        sequence_length: int | None = None,
        seed: int = 0,
        memory_length: int | None = None,
        document_separator: Literal["blank", "line", "file"] = "blank",
        text_column: str | None = None,
        encoding_errors: EncodingErrors = "strict",
    ) -> HeldOutEvaluation:
        """Evaluate the objective of pretraining on held-out text: perplexity, bits per byte.

        Args:
            data: files, folders, patterns or `hf:owner/name`; each called by its language where a
                token says it (mBART: "de_DE=FILE").
            sequence_length: tokens that are read together. None: as many as in pretraining.
            seed: random seed of the objective.
            memory_length: positions before each piece that every layer remembers. None: as many as
                in the family's pretraining, if the objective is causal; otherwise none.
            document_separator: what a document of plain text is.
            text_column: the column that holds the text of a record.
            encoding_errors: what becomes of bytes that are not UTF-8.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model has no head for the objective, the text cannot be read, or there
                is none.
        """
        sources, tokenizer = _as_sources(data), self.tokenizer
        if tokenizer.special_ids.languages:
            check_source_languages(
                [split_language_prefix(one)[0] for one in sources], tokenizer.special_ids
            )
            # Each text has its own language, whatever the task's are.
            tokenizer = tokenizer.without_languages()
        return evaluate(
            self.model,
            tokenizer,
            self.preset.objective,
            read_documents_by_source(
                sources,
                document_separator=document_separator,
                text_column=text_column,
                encoding_errors=encoding_errors,
            ),
            sequence_length=self.resolve_sequence_length(sequence_length),
            seed=seed,
            memory_length=self.resolve_memory_length(memory_length),
        )

    def resolve_memory_length(self, memory_length: int | None = None) -> int:
        """Return how many positions each layer remembers: as requested, or as in pretraining."""
        if memory_length is not None:
            return memory_length
        causal = self.preset.objective.causal
        return int(self.preset.training_options.get("memory_length", 0)) if causal else 0

    def resolve_sequence_length(self, sequence_length: int | None = None) -> int:
        """Return how many tokens are read together: as requested, or as in pretraining.

        Raises:
            ValueError: the model has not so many positions.
        """
        longest = max_text_length(self.model, encoder_stack(self.model))
        if sequence_length is None:
            return (
                self.preset.sequence_length
                if longest is None
                else min(self.preset.sequence_length, longest)
            )
        if sequence_length < 1:
            raise ValueError(f"sequence_length must be at least 1, got {sequence_length}")
        if longest is not None and sequence_length > longest:
            raise ValueError(
                f"sequence_length must be at most the model's {longest} positions, got "
                f"{sequence_length}"
            )
        return sequence_length

    def save(self, folder: str | Path, *, format: ModelFormat = "huggingface") -> Path:
        """Write the model into a new folder, whole or not at all.

        The first two formats open here, and in transformers but for heads that it lacks. Both keep
        beside the model what it was fine-tuned for: columns, pattern, words; "unmask" keeps the
        objective and length of pretraining, too. "elmo" is the layout of ELMo's released code.

        Raises:
            ValueError: there is no such format, or the folder exists and holds something.
        """
        facts: dict[str, Any] = {} if self.task is None else {"task": to_dict(self.task)}
        if format == "unmask":
            facts["recipe"] = {
                "objective": to_dict(self.preset.objective),
                "sequence_length": self.preset.sequence_length,
            }
        return save_model(self.loaded_model, Path(folder), format, facts)

    def to(self, device: str, *, dtype: Literal["float32", "bfloat16"] = "float32") -> "Pipeline":
        """Move the model to a device ("cpu", "cuda", ...), and its numbers to another type.

        Raises:
            ValueError: there is no such device or type.
        """
        types = {"float32": torch.float32, "bfloat16": torch.bfloat16}
        if dtype not in types:
            raise ValueError(f"dtype must be one of {list(types)}, got {dtype!r}")
        self.model.to(resolve_device(device), types[dtype])
        return self


def _resolve_config(
    config: GenerationConfig | None, settings: Mapping[str, Any]
) -> GenerationConfig:
    if config is not None and settings:
        raise ValueError(
            f"give a GenerationConfig, or settings by name, not both: got {sorted(settings)}"
        )
    return generation_config(**settings) if config is None else config


def _same_vocabulary(a: Tokenizer, b: Tokenizer) -> bool:
    """Say whether all ids of two tokenizers are the same tokens."""
    ids = range(a.vocab_size)
    return (
        a.vocab_size == b.vocab_size
        and a.special_ids == b.special_ids
        and a.pieces(ids) == b.pieces(ids)
    )


def _read_lines(task: Task, table: tables.Table) -> list[Any]:
    """Read what `predict` takes from each line, and check it while its place is known."""
    reader, found = TASK_KINDS[task.task_kind].reader, list[Any]()
    for i, (line,) in enumerate(fields for _, fields in table.rows):
        try:
            text = reader.parse_line(task, str(line))
        except ValueError as error:
            raise ValueError(f"{table.location(i)}: {error}") from None
        found.append(reader.format_input(reader.parse_input(task, text, table.location(i))))
    return found


@check_number_arguments
def load(model: str | Path, *, seed: int = 0) -> Pipeline:
    """Open a trained model.

    Args:
        model: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a model in the
            package (`unmask.bundled.models`), or a preset's name, whose published weights are
            fetched from the Hub.
        seed: fills the weights that a folder does not have.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
        ValueError: the folder is damaged, of an unknown family, or a run that has not ended; a
            preset has no published weights.
    """
    folder, preset = find_model(model)
    loaded_model = open_model_or_adapter(folder, seed=seed)
    preset = _with_pretraining_options(loaded_model.preset, preset, folder)
    heads = PAIR_HEADS.keys() & set(preset.objective.loss_terms)
    for name in heads - loaded_model.model.head_specs.keys():  # without weights, so in no file
        loaded_model.model.add_head(name, PAIR_HEADS[name])
    add_generator(folder, loaded_model.model)
    add_subword_head(folder, loaded_model.model)
    preset = _with_answerable_objective(preset, loaded_model.model)
    task, tokenizer = read_task(folder), loaded_model.tokenizer
    if tokenizer is not None:
        tokenizer = with_task_languages(tokenizer, task)
    return Pipeline(replace(loaded_model, preset=preset, tokenizer=tokenizer), task)


def find_model(model: str | Path) -> tuple[Path, Published | None]:
    """Return the folder of a model named as for `load`, and the preset of that name, if it is one.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
        ValueError: it is a file, the run has not ended, or the preset has no published weights.
    """
    preset = None if Path(model).is_dir() else _preset_of_name(str(model))
    folder = resolve_model_folder(model if preset is None else f"{HUB_PREFIX}{preset.hub_id}")
    if problem := unfinished_reason(folder):
        raise ValueError(problem)
    return folder, preset


def _preset_of_name(name: str) -> Published | None:
    """Return the preset of this name; None for the name of a folder or a model of the Hub.

    Raises:
        FileNotFoundError: it is neither.
        ValueError: it is a file, or the preset's weights were not published.
    """
    if name in MODELS or name in ALIASES:
        preset = get_preset(name)
        if preset.hub_id is None:
            raise ValueError(
                f"{name} is a description without trained weights: pretrain it "
                f"(`unmask pretrain {name} ...`), or give the folder of a run"
            )
        return preset
    if Path(name).exists():
        raise ValueError(
            f"{name}: is a file; a model is a folder (word vectors are taken by unmask neighbors, "
            "evaluate, picture, convert and show)"
        )
    if not name.startswith(HUB_PREFIX) and os.sep not in name and name not in BUNDLED_MODELS:
        raise FileNotFoundError(
            f"{name}: no such folder, and no model of the catalogue{did_you_mean(name)}"
        )
    return None


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _as_sources(sources: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(one) for one in ((sources,) if isinstance(sources, str | Path) else sources)]


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


@dataclass(frozen=True, kw_only=True)
class _PretrainingOptions:
    """The part of a pretraining recipe that evaluation needs."""

    model: str | None = None
    objective: ObjectiveSpec | WordVectorMethod | str | None = None
    sequence_length: int | None = None


def _with_pretraining_options(
    preset: Published, named_preset: Published | None, folder: Path
) -> Published:
    """Return a preset with the objective and sequence length of its weights' pretraining.

    These are known of a preset that was named, and of a run's folder.
    """
    run = _PretrainingOptions() if named_preset is not None else _read_pretraining(folder)
    if named_preset is None:
        named_preset = MODELS.get(run.model or "")
    source = preset if named_preset is None else named_preset
    objective = (
        source.objective if run.objective is None else resolve_objective(source, run.objective)
    )
    longest = max_text_tokens(preset)
    length = run.sequence_length or (
        DEFAULT_SEQUENCE_LENGTH if named_preset is None else named_preset.sequence_length
    )
    return replace(
        preset,
        objective=objective,
        sequence_length=length if longest is None else min(length, longest),
    )


def _with_answerable_objective(preset: Published, model: Model) -> Published:
    """Return a preset whose objective the model's heads can compute, as another of the family."""
    terms = {required_term(name, spec) for name, spec in model.head_specs.items()}
    if not terms or terms & set(preset.objective.loss_terms):
        return preset
    kin = (one.objective for one in MODELS.values() if one.family == preset.family)
    suitable = (objective for objective in kin if terms & set(objective.loss_terms))
    return replace(preset, objective=next(suitable, preset.objective))


def _read_pretraining(folder: Path) -> _PretrainingOptions:
    if not (folder / RUN_FILE).is_file():
        return _PretrainingOptions()
    facts = read_run_file(folder)
    recipe = facts.get("recipe")
    if facts.get("kind") not in ("pretrain", "model") or not isinstance(recipe, dict):
        return _PretrainingOptions()
    known = {k: recipe[k] for k in ("model", "objective", "sequence_length") if k in recipe}
    return from_dict(_PretrainingOptions, known, f"{folder / RUN_FILE}: recipe")


def unfinished_reason(folder: Path) -> str | None:
    """Say why a folder is not a model yet, if it is a run that has not ended or no model at all."""
    if is_model_folder(folder) or is_adapter(folder):
        return None
    if (folder / RUN_FILE).is_file():
        return f"{folder}: this run has not ended; go on with it by --resume"
    return f"{folder}: not a model: it has no config.json"
