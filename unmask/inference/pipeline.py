"""Pipeline: prediction, embedding and generation for texts, as returned by `unmask.load`."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Float

from unmask.adapters.prefix import max_text_length
from unmask.checkpoints.gguf.write import GgufDtype
from unmask.checkpoints.huggingface.sentence_vectors import MODULES_FILE, read_sentence_vectors
from unmask.config import check_number_arguments, to_dict
from unmask.evaluation.likelihood import (
    ContinuationLikelihood,
    PseudoLikelihoodMasking,
    continuation_likelihoods,
)
from unmask.evaluation.perplexity import HeldOutConfig, HeldOutEvaluation, evaluate
from unmask.evaluation.sentence_embeddings import EmbeddingPooling, embed, embed_sentences
from unmask.finetuning.formulations.formulation import (
    CHOICE_HEAD,
    LABEL_HEAD,
    SPAN_HEAD,
    TOKEN_LABEL_HEAD,
    PredictionRecord,
)
from unmask.finetuning.results.predict import (
    DEFAULT_BATCH_TOKENS,
    infer_task,
    predict,
    select_columns,
)
from unmask.finetuning.results.predict_pictures import predict_pictures
from unmask.finetuning.results.score import FileOptions, score_file
from unmask.finetuning.results.task_metrics import task_of_mixture
from unmask.inference.export import MODEL_FORMATS, ModelFormat, save_gguf, save_model
from unmask.inference.generation import as_text_list
from unmask.inference.logits import text_logits
from unmask.inference.pictures import PicturePipeline
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.readers import tables
from unmask.tasks.task import Task
from unmask.text.lines import EncodingErrors
from unmask.text.mixtures import read_documents_by_source, source_languages
from unmask.tokenizers.load import with_text_language
from unmask.training.data.sources import check_source_languages
from unmask.training.device.distributed import resolve_device

_log = logging.getLogger(__name__)

RUN_FILE = "unmask.json"
DEFAULT_SEQUENCE_LENGTH = 512
"""Default sequence length for held-out text if that of pretraining is unknown and the model has as
many positions."""


class Pipeline(PicturePipeline):
    """A model with its tokenizer: labels, scores, embeds and generates text."""

    @property
    def label_names(self) -> tuple[str, ...]:
        """Class names of a classifier."""
        return self.loaded_model.label_names

    @property
    def can_predict(self) -> bool:
        """Whether it labels texts, with a head or as generated text."""
        specs = self.model.head_specs
        heads = {LABEL_HEAD, TOKEN_LABEL_HEAD, SPAN_HEAD, CHOICE_HEAD}
        return self.task is not None or not heads.isdisjoint(specs)

    @property
    def has_weights(self) -> bool:
        """Whether its weights are at hand, with gradients and losses."""
        return True

    @property
    def continues_prompt(self) -> bool:
        """Whether generated text goes on from its prompt; otherwise it answers."""
        return "next_token" in self.preset.objective.loss_terms

    def with_languages(self, source: str, target: str | None = None) -> "Pipeline":
        """Return a copy for sources of a language and targets of another; None: the same.

        `load("mbart").with_languages("en_XX", "ro_RO").generate("Good morning.")`

        Raises:
            ValueError: there is no such language.
        """
        tokenizer = self.tokenizer.with_languages(source, target)
        return type(self)(replace(self.loaded_model, tokenizer=tokenizer, source=None))

    def with_text_language(self, language: str) -> "Pipeline":
        """Return a copy for texts of a language, or of pairs in two ("de+en").

        Raises:
            ValueError: it has no language embeddings, or not this one.
        """
        tokenizer = with_text_language(self.tokenizer, language)
        return type(self)(replace(self.loaded_model, tokenizer=tokenizer, source=None), self.task)

    def mixture_task(self, name: str) -> "Pipeline":
        """Return a copy for one task of the mixture that the model was fine-tuned on.

        `load("runs/mixture").mixture_task("stsb").predict([("A cat.", "A dog.")])`

        Raises:
            ValueError: the mixture has no such task.
        """
        return type(self)(self.loaded_model, task_of_mixture(self.required_task(), name))

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: EmbeddingPooling | None = None,
        layer: int = -1,
    ) -> "Float[np.ndarray, 'n d'] | list[Float[np.ndarray, '_ d']]":
        """Return a vector for each text [n d]; with pooling "none" those of its tokens [t d].

        The default pooling is that of the preset: the mean, the last token if pretraining uses it
        as the sentence vector, or the projection into the space of pictures. Pictures:
        `embed_pictures`.

        A folder of sentence-transformers has defaults of its own: pooling, layers after it, length,
        prompt. A pooling or a layer that is given is used in their place, with a warning.

        Raises:
            ValueError: the folder's defaults are not supported; the message names file and key.
        """
        if not self.preset.reads_texts:
            raise ValueError(f"{self.preset.name} reads pictures: use embed_pictures")
        texts = as_text_list(texts, "texts")
        sentence_folder = self.loaded_model.sentence_folder
        if sentence_folder is not None and pooling is None and layer == -1:
            vectors = read_sentence_vectors(sentence_folder)
            return embed_sentences(self.model, self.tokenizer, texts, vectors)
        pooling = self.preset.pooling if pooling is None else pooling
        if sentence_folder is not None:
            _log.warning(
                "%s is not followed: pooling %s of layer %d was asked for",
                sentence_folder / MODULES_FILE, pooling, layer,
            )  # fmt: skip
        return embed(self.model, self.tokenizer, texts, pooling=pooling, layer=layer)

    def logits(self, texts: str | Sequence[str]) -> "list[Float[np.ndarray, '...']]":
        """Return the logits of the model's head for each text; see `text_logits`.

        Raises:
            ValueError: the model has no head, or none with logits of plain texts.
        """
        texts = as_text_list(texts, "texts")
        return text_logits(self.loaded_model, self.tokenizer, texts)

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
            continuation: the continuation, with a leading space if there is one.
            pll_masking: masking in a masked model: the token and the rest of its word (Kauf and
                Ivanova 2023), or the token only (Salazar et al. 2020).

        Raises:
            ValueError: a continuation has no token, the numbers of contexts and continuations
                differ, or the model has no language head.
        """
        contexts = as_text_list(context, "context")
        continuations = as_text_list(continuation, "continuation")
        if len(contexts) != len(continuations):
            raise ValueError(f"{len(contexts)} contexts, but {len(continuations)} continuations")
        likelihoods = continuation_likelihoods(
            self.model, self.tokenizer, contexts, continuations, pll_masking=pll_masking
        )
        return likelihoods[0] if isinstance(continuation, str) else likelihoods

    def predict(
        self, texts: str | Iterable[Any], *, task: Task | None = None
    ) -> list[PredictionRecord]:
        """Label texts, pairs of texts, sentences given as lists of words, or pictures.

        Returns {"label", "probability", "probabilities"} for a text, {"labels", "probabilities"}
        for a sentence, or a number.

        Args:
            texts: one or several inputs of the task; of pictures: paths, uint8 arrays [h w c], or
                pictures of Pillow.
            task: a zero-shot task in place of the fine-tuning task; see
                `unmask.finetuning.formulations.cloze.blank_filling.cloze_task`.

        Raises:
            ValueError: the model does not label texts, or an input is invalid for its task.
        """
        inputs = [texts] if isinstance(texts, str) else list(texts)
        if not self.preset.reads_texts:
            labels = self.required_task() if task is None else task
            return predict_pictures(self.loaded_model, inputs, labels, DEFAULT_BATCH_TOKENS)
        return predict(self.loaded_model, inputs, task=self.task if task is None else task)

    def read_inputs(
        self,
        path: str | Path,
        *,
        text: str | Sequence[str] = (),
        choices: str | Sequence[str] = (),
        columns: Sequence[str] = (),
        encoding_errors: EncodingErrors = "strict",
    ) -> list[Any]:
        """Read inputs of `predict` from a file of rows: .tsv, .csv, .jsonl, .parquet, .conllu.

        The columns are those of the training file, or else usual names. A line of .txt is a text,
        the words of a sentence separated by spaces, or several texts separated by tabs, as in
        standard input of the command. For a model fine-tuned by another library, whose folder does
        not record its inputs, two columns of text are pairs, and so is a line with a tab.

        Args:
            path: of the file.
            text: columns of text, in order, as in fine-tuning. None: as above.
            choices: columns of options, likewise.
            columns: names of all columns, of a file without a header.
            encoding_errors: what becomes of bytes that are not UTF-8.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it has no such columns, is damaged, or the model does not label texts.
        """
        task = self.required_task()
        reader = TASK_KINDS[task.task_kind].reader
        text, choices = _as_tuple(text), _as_tuple(choices)
        if tables.is_plain_text(Path(path)):
            if text or choices or columns:
                raise ValueError(f"{path}: a .txt file has no columns")
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
        """Compute all metrics of a model that labels texts, on a file of labeled rows.

        Args:
            path: of the file.
            text: columns of text, as for `read_inputs`.
            label: column of labels, numbers or tags.
            choices: columns of options.
            columns: names of all columns, of a file without a header.
            encoding_errors: what becomes of bytes that are not UTF-8.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it lacks columns, is damaged, or has unknown labels; or the model does not
                label texts.
        """
        return score_file(
            self.loaded_model,
            path,
            FileOptions(
                text=_as_tuple(text),
                label=label,
                choices=_as_tuple(choices),
                columns=columns,
                encoding_errors=encoding_errors,
            ),
            task=self.required_task(),
        )

    def required_task(self) -> Task:
        """Return its task, inferred from its head where its folder has no record of it.

        Raises:
            ValueError: it has no head that labels texts.
        """
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
        on_progress: Callable[[int], None] | None = None,
    ) -> HeldOutEvaluation:
        """Evaluate the pretraining objective on held-out text: perplexity, bits per byte.

        Args:
            data: files, folders, patterns or `hf:owner/name`; with a language if there are language
                tokens (mBART: "de_DE=FILE").
            sequence_length: sequence length in tokens. None: that of pretraining.
            seed: random seed of the objective.
            memory_length: memory length of each layer in positions. None: that of the family's
                pretraining if the objective is causal; otherwise none.
            document_separator: separator of documents in plain text.
            text_column: column with the text of a record.
            encoding_errors: what becomes of bytes that are not UTF-8.
            on_progress: called after each batch with the number of tokens read so far.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model has no head for the objective, the text cannot be read, or there
                is none.
        """
        sources, tokenizer = _as_sources(data), self.tokenizer
        if tokenizer.special_ids.languages:
            check_source_languages(source_languages(sources), tokenizer.special_ids)
            # Each text has its own language, independent of the task's.
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
            HeldOutConfig(
                sequence_length=self.resolve_sequence_length(sequence_length),
                seed=seed,
                memory_length=self.resolve_memory_length(memory_length),
                on_progress=on_progress,
            ),
        )

    def resolve_memory_length(self, memory_length: int | None = None) -> int:
        """Return the memory length: the requested one, or that of pretraining."""
        if memory_length is not None:
            return memory_length
        causal = self.preset.objective.causal
        return int(self.preset.training_options.get("memory_length", 0)) if causal else 0

    def resolve_sequence_length(self, sequence_length: int | None = None) -> int:
        """Return the sequence length: the requested one, or that of pretraining.

        Raises:
            ValueError: it exceeds the model's positions.
        """
        longest = max_text_length(self.model, self.model.backbone.encoder_stack)
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

    def save(
        self,
        folder: str | Path,
        *,
        format: ModelFormat = "huggingface",
        int8: bool = False,
        dtype: GgufDtype = "float32",
    ) -> Path:
        """Write the model to a new folder, atomically.

        The first two formats can be loaded here and in transformers, except for heads that it
        lacks. Both save the fine-tuning task: columns, pattern, words; "unmask" also saves the
        objective and length of pretraining. "elmo" is the layout of ELMo's released code. "onnx" is
        a graph for onnxruntime, with 8-bit weights if `int8`, which can be loaded here to label,
        fill, embed and generate; see `unmask.inference.onnx.export`. "gguf" is a file for llama.cpp
        with matrices of `dtype`; see `unmask.checkpoints.gguf.write`.

        Raises:
            ImportError: the format needs a library that is not installed.
            ValueError: there is no such format, it is not one of this model, or the folder is not
                empty.
        """
        if format not in MODEL_FORMATS:
            raise ValueError(f"format must be one of {list(MODEL_FORMATS)}, got {format!r}")
        if int8 and format != "onnx":
            raise ValueError(f"int8 is of format onnx alone, got format {format}")
        if dtype != "float32" and format != "gguf":
            raise ValueError(f"dtype is of format gguf alone, got format {format}")
        if format == "onnx":
            from unmask.inference.onnx.export import export_onnx

            return export_onnx(self.loaded_model, Path(folder), self.saved_facts(), int8=int8)
        if format == "gguf":
            return save_gguf(self.loaded_model, Path(folder), dtype)
        facts = self.saved_facts() if format == "unmask" else self._task_facts()
        return save_model(self.loaded_model, Path(folder), format, facts)

    def saved_facts(self) -> dict[str, Any]:
        """Return the facts that the format "unmask" saves: task, objective and length."""
        recipe = {
            "objective": to_dict(self.preset.objective),
            "sequence_length": self.preset.sequence_length,
        }
        return self._task_facts() | {"recipe": recipe}

    def _task_facts(self) -> dict[str, Any]:
        return {} if self.task is None else {"task": to_dict(self.task)}

    def to(self, device: str, *, dtype: Literal["float32", "bfloat16"] = "float32") -> "Pipeline":
        """Move the model to a device ("cpu", "cuda", ...), and optionally to another type.

        Raises:
            ValueError: there is no such device or type.
        """
        types = {"float32": torch.float32, "bfloat16": torch.bfloat16}
        if dtype not in types:
            raise ValueError(f"dtype must be one of {list(types)}, got {dtype!r}")
        self.model.to(resolve_device(device), types[dtype])
        return self


def _read_lines(task: Task, table: tables.Table) -> list[Any]:
    """Parse each line as an input of `predict`, reporting errors with the line number."""
    reader, inputs = TASK_KINDS[task.task_kind].reader, list[Any]()
    for i, (line,) in enumerate(fields for _, fields in table.rows):
        try:
            text = reader.parse_line(task, str(line))
        except ValueError as error:
            raise ValueError(f"{table.location(i)}: {error}") from None
        inputs.append(reader.format_input(reader.parse_input(task, text, table.location(i))))
    return inputs


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _as_sources(sources: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(source) for source in ((sources,) if isinstance(sources, str | Path) else sources)]
