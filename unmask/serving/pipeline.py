"""Text in, answer out: what `unmask.load` returns."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.adapters.folder import is_adapter, open_any
from unmask.adapters.prefix import reader, room
from unmask.batch import Batch
from unmask.box import BOX
from unmask.checkpoints.generator import add_generator
from unmask.checkpoints.huggingface import HUB, Opened, is_model, locate, longest_text
from unmask.checkpoints.subwords import add_subwords
from unmask.config import from_dict, to_dict
from unmask.evaluation.continuations import Hide, Likelihood, likelihoods
from unmask.evaluation.embed import Pooling, embed
from unmask.evaluation.likelihood import Evaluation, evaluate
from unmask.finetuning.ask import CHOICE, LABEL, LANGUAGE, SPANS, TOKEN_LABEL, Answer
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.finetuning.kinds.generate import in_languages
from unmask.finetuning.predict import named, predict, read_task, task_of
from unmask.finetuning.score import score_file
from unmask.finetuning.task_metrics import of_mixture
from unmask.generation.choose import choose
from unmask.generation.decode import candidates, generate, several, spoken, texts
from unmask.generation.fill import Filled, fill
from unmask.generation.prompted import Asked, ask, known
from unmask.generation.reading import Group, at_rest, groups
from unmask.generation.settings import Beam, Decoding, Ranked, decoding
from unmask.generation.speculate import Draft
from unmask.generation.wording import Wording
from unmask.heads.labels import LabelsHead, TokenLabelsHead
from unmask.heads.model import Model, asked_by
from unmask.heads.neighbors import OF_PARTS
from unmask.heads.recurrent import RecurrentTagsHead
from unmask.heads.spans import SpansHead
from unmask.hiding.objectives import Objective
from unmask.published.card import Published
from unmask.published.catalogue import ALIASES, MODELS, nearest, published
from unmask.published.fit import objective_of
from unmask.serving.folders import Format, read_facts, save_model
from unmask.tasks.readers import tables
from unmask.tasks.task import Task
from unmask.text.lines import EncodingErrors
from unmask.text.mix import called, named_documents
from unmask.tokens.tokenizer import Tokenizer
from unmask.training.data import check_named
from unmask.training.parallel import pick_device
from unmask.vectors.learning import Method

FACTS = "unmask.json"
LENGTH = 512
"""Tokens that are read together of held-out text, where it is not known how many pretraining read,
and the model has as many positions."""
BATCH_TOKENS = 4096

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answered:
    """A text that may follow a prompt."""

    text: str
    score: float
    """Log-probability; of beams, divided as `Beam` says."""


class Pipeline:
    """A model with its tokenizer."""

    def __init__(self, opened: Opened, task: Task | None = None) -> None:
        """Wrap a model.

        Args:
            opened: the model.
            task: what it was fine-tuned for, with the columns of its files. None: what its head
                says, if it has one that labels.
        """
        self.opened = opened
        self.task = task
        self.model = opened.model
        self.card = opened.card

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            ValueError: its folder has none.
        """
        if self.opened.tokenizer is None:
            raise ValueError(
                f"{self.card.name}: this model has no tokenizer, so it cannot read text"
            )
        return self.opened.tokenizer

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, for a model that classifies."""
        return self.opened.labels

    @property
    def labelled(self) -> bool:
        """Whether it labels texts: by a head, or, fine-tuned to do so, in words."""
        specs = self.model.specs
        heads = {LABEL, TOKEN_LABEL, SPANS, CHOICE}
        return self.task is not None or not heads.isdisjoint(specs)

    # A string is a sequence of strings, too; the first overload that fits counts.
    @overload
    def fill(self, text: str, *, top_k: int = 5) -> Filled: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def fill(self, text: Sequence[str], *, top_k: int = 5) -> list[Filled]: ...
    def fill(self, text: str | Sequence[str], *, top_k: int = 5) -> Filled | list[Filled]:
        """Say what may stand at each [MASK] of a text, or of several."""
        texts = listed(text, "text")
        filled = fill(self.model, self.tokenizer, texts, top_k=top_k)
        return filled[0] if isinstance(text, str) else filled

    def told(self, source: str, target: str | None = None) -> "Pipeline":
        """Return this model for texts of a language, answered in another; None: in the same.

        `load("mbart").told("en_XX", "ro_RO").generate("Good morning.")`

        Raises:
            ValueError: there is no such language.
        """
        tokenizer = self.tokenizer.told(source, target)
        return Pipeline(replace(self.opened, tokenizer=tokenizer))

    def part(self, name: str) -> "Pipeline":
        """Return this model for one task of the mixture that it was fine-tuned on.

        `load("runs/mixture").part("stsb").predict([("A cat.", "A dog.")])`

        Raises:
            ValueError: it has learned no such task.
        """
        return Pipeline(self.opened, of_mixture(self._task(), name))

    @overload
    def generate(  # pyright: ignore[reportOverlappingOverload]
        self,
        prompt: str,
        how: Decoding | None = None,
        *,
        begin: str = "",
        draft: Draft | None = None,
        **settings: Any,
    ) -> str: ...
    @overload
    def generate(
        self,
        prompt: Sequence[str],
        how: Decoding | None = None,
        *,
        begin: str = "",
        draft: Draft | None = None,
        **settings: Any,
    ) -> list[str]: ...
    def generate(
        self,
        prompt: str | Sequence[str],
        how: Decoding | None = None,
        *,
        begin: str = "",
        draft: Draft | None = None,
        **settings: Any,
    ) -> str | list[str]:
        """Continue a prompt, or several; some models answer them (`Model.answers`).

        Only the new text is returned. Special tokens typed in a prompt (<extra_id_0>) are what they
        name.

        Args:
            prompt: one or several.
            how: the text is said; or the same by name: `generate(prompt, beams=4)`.
            begin: what each answer begins with; its tokens do not count as new ones.
            draft: a smaller model that guesses what will be said, as `draft` makes it.
            settings: fields of `Decoding`, `Sample`, `Ranked` and `Beam`.

        Raises:
            ValueError: the model does not generate, a prompt is longer than its positions, or the
                settings do not go together.
        """
        how = _how(how, settings)
        asked = self._ask(listed(prompt, "prompt"), begin, how)
        special = self.tokenizer.special
        new = generate(
            self.model,
            asked.read,
            special,
            how,
            begun=asked.begun,
            guides=asked.wordings,
            draft=draft,
        )
        said = [begin + one.text(ids) for one, ids in zip(asked.wordings, new, strict=True)]
        return said[0] if isinstance(prompt, str) else said

    @overload
    def candidates(  # pyright: ignore[reportOverlappingOverload]
        self, prompt: str, how: Decoding | None = None, *, begin: str = "", **settings: Any
    ) -> list[Answered]: ...
    @overload
    def candidates(
        self,
        prompt: Sequence[str],
        how: Decoding | None = None,
        *,
        begin: str = "",
        **settings: Any,
    ) -> list[list[Answered]]: ...
    def candidates(
        self,
        prompt: str | Sequence[str],
        how: Decoding | None = None,
        *,
        begin: str = "",
        **settings: Any,
    ) -> list[Answered] | list[list[Answered]]:
        """Search with beams, or draw; return the best texts, the best first, with their scores.

        `candidates(prompt, beams=5, best=3)`, or `candidates(prompt, temperature=0.9, samples=20,
        best=3)`; of several prompts a list for each. The arguments are those of `generate`.
        """
        how = _how(how, settings)
        asked = self._ask([prompt] if isinstance(prompt, str) else list(prompt), begin, how)
        found = candidates(
            self.model,
            asked.read,
            self.tokenizer.special,
            how,
            begun=asked.begun,
            guides=asked.wordings,
        )
        said = [
            [Answered(begin + wording.text(one.ids), one.score) for one in best]
            for wording, best in zip(asked.wordings, found, strict=True)
        ]
        return said[0] if isinstance(prompt, str) else said

    def stream(
        self,
        prompt: str,
        how: Decoding | None = None,
        *,
        begin: str = "",
        draft: Draft | None = None,
        **settings: Any,
    ) -> Iterator[str]:
        """Give the text of `generate` piece by piece, as soon as no later token can change it.

        A piece has whole characters only, and never the beginning of a stop string.

        Raises:
            ValueError: as `generate`, at once; or one of several texts is chosen, which is known
                when they have ended.
        """
        how = _how(how, settings)
        if isinstance(how.by, Beam | Ranked):
            raise ValueError(f"{several(how.by)} end before a text is known: no stream")
        asked = self._ask([prompt], begin, how)
        special = self.tokenizer.special
        text = texts(self.model, asked.read, special, how, begun=asked.begun, guides=asked.wordings)
        steps = spoken(self.model, text, special, how, draft=draft)
        return self._streamed(steps, text[0].said, asked.wordings[0], begin)

    def _streamed(
        self, steps: Iterator[object], said: Sequence[int], wording: Wording, begin: str
    ) -> Iterator[str]:
        given = ""
        if begin:
            yield begin
        while True:
            with at_rest(self.model):  # not while the caller has its turn
                going = next(steps, None) is not None
            now = wording.settled(said) if going else wording.text(said)
            if len(now) > len(given) and now.startswith(given):
                yield now[len(given) :]
                given = now
            if not going:
                return

    def choose(
        self, prompt: str, choices: Sequence[str], *, beams: int | None = None
    ) -> list[Answered]:
        """Return given texts, those first that are likelier after a prompt, with log-probabilities.

        Args:
            prompt: a text, as for `generate`.
            choices: as they would follow it: " yes", with its space, where a decoder goes on.
            beams: see `unmask.generation.choose.choose`.

        Raises:
            ValueError: the model does not generate, a prompt is too long, or a choice is empty, is
                given twice, or has characters that the tokenizer does not know.
        """
        read = self._ask([prompt], "", None).read
        ids = [self._following(prompt, read[0], choice) for choice in choices]
        (best,) = choose(self.model, read, [ids], self.tokenizer.special, beams=beams)
        return [Answered(choices[one.choice], one.score) for one in best]

    def draft(self, smaller: "Pipeline", *, guesses: int = 4) -> Draft:
        """Let a smaller model guess what this one will say: `generate(prompt, draft=...)`.

        The text is the same as without, greedily, and drawn from the same distribution. What share
        of its guesses was accepted, the draft tells then (`share`).

        Raises:
            ValueError: their vocabularies are not the same.
        """
        mine, its = self.tokenizer, smaller.tokenizer
        alone = (mine.source is None) == (its.source is None)
        if not (alone and _alike(mine, its) and _alike(mine.reader, its.reader)):
            raise ValueError(
                f"{smaller.card.name} has another vocabulary ({its.size:,} tokens) than "
                f"{self.card.name} ({mine.size:,}), so it cannot be its draft"
            )
        return Draft(model=smaller.model, guesses=guesses)

    def _ask(self, prompts: Sequence[str], begin: str, how: Decoding | None) -> Asked:
        stop, fits = ((), True) if how is None else (how.stop, not how.window)
        return ask(self.model, self.tokenizer, prompts, begin=begin, stop=stop, fits=fits)

    def _following(self, prompt: str, read: list[int], text: str) -> list[int]:
        """Return the tokens of a text after a prompt."""
        alone = known(self.tokenizer, text)
        if self.model.answers:
            return alone
        special = self.tokenizer.special
        whole = [
            *special.before,
            *self.tokenizer.encode(prompt + text, special=True).ids.tolist(),
        ]
        return whole[len(read) :] if whole[: len(read)] == read else alone

    def embed(
        self, texts: str | Sequence[str], *, pooling: Pooling | None = None, layer: int = -1
    ) -> "Float[np.ndarray, 'n d'] | list[Float[np.ndarray, '_ d']]":
        """Return a vector for each text [n d]; with pooling "none" those of its tokens [t d].

        Without a pooling it is the card's: the mean, or the last token of a model that was
        pretrained to let that stand for a sentence.
        """
        texts, how = listed(texts, "texts"), self.card.pooling if pooling is None else pooling
        return embed(self.model, self.tokenizer, texts, pooling=how, layer=layer)

    def logits(self, texts: str | Sequence[str]) -> "list[Float[np.ndarray, '...']]":
        """Return the scores of the head that the model has, for each text.

        Of its labels [labels]; of each token, special ones included, the labels [t labels]; of the
        vocabulary [t v]. Of several heads, the one that names tokens speaks. An encoder-decoder
        reads the text, and its scores are of the first token that it would say [1 v]. The end of a
        text that has more tokens than the model has positions is cut.

        Raises:
            ValueError: the model has no head, or none that scores texts as they are.
        """
        texts = listed(texts, "texts")
        if not self.model.specs:
            raise ValueError(f"{self.card.name}: this model has no head; use `embed`")
        found: dict[int, Float[np.ndarray, "..."]] = {}
        with at_rest(self.model):
            marks = LANGUAGE not in self.model.heads
            for group in groups(self.model, self.tokenizer, texts, BATCH_TOKENS, twice=marks):
                for text, scores in zip(group.texts, self._scores(group), strict=True):
                    found[text] = scores.float().cpu().numpy()
        return [found[i] for i in range(len(texts))]

    def _scores(self, group: Group) -> Iterator[Tensor]:
        heads = self.model.heads
        if LANGUAGE in heads:  # text by text: many tokens times the vocabulary
            head, hidden = self.model.language, self.model.hidden(group.batch)
            yield from (head.scores(x[:n]) for x, n in zip(hidden, group.lengths, strict=True))
            return
        marks = LabelsHead | TokenLabelsHead | SpansHead | RecurrentTagsHead
        found = ((name, one) for name, one in heads.items() if isinstance(one, marks))
        name, head = next(found, ("", None))
        if head is None:
            raise ValueError(
                f"{self.card.name}: its heads serve pretraining alone "
                f"({', '.join(heads)}); use `embed`"
            )
        scores = self._marked(name, head, group.batch)
        if isinstance(head, LabelsHead):
            yield from scores
        else:
            yield from (x[:n] for x, n in zip(scores, group.lengths, strict=True))

    def _marked(self, name: str, head: nn.Module, batch: Batch) -> Float[Tensor, "b ..."]:
        """Return what a head of labels says, reading all that `predict` lets it read."""
        if isinstance(head, RecurrentTagsHead):
            return head.scores(self.model.hidden(batch), batch)
        assert isinstance(head, LabelsHead | TokenLabelsHead | SpansHead)
        if isinstance(head, LabelsHead) and self.model.stack.global_attention:
            batch = replace(batch, wide=torch.zeros(len(batch.inputs), 1, dtype=torch.long))
        return self.model(batch.to(self.model.device), scores=[name]).scores[head.spec.term]

    @overload
    def likelihood(self, context: str, continuation: str, *, hide: Hide = "word") -> Likelihood: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def likelihood(
        self, context: Sequence[str], continuation: Sequence[str], *, hide: Hide = "word"
    ) -> list[Likelihood]: ...
    def likelihood(
        self,
        context: str | Sequence[str],
        continuation: str | Sequence[str],
        *,
        hide: Hide = "word",
    ) -> Likelihood | list[Likelihood]:
        """Say how likely a continuation is after a context, or several, each after its own.

        `likelihood("", text)` is that of a whole text. See `unmask.evaluation.continuations`.

        Args:
            context: may be empty.
            continuation: with the space before it, if there is one.
            hide: from a masked model while it is asked for a token: also what follows it in its
                word (Kauf and Ivanova 2023), or it alone (Salazar et al. 2020).

        Raises:
            ValueError: a continuation has no token, contexts are not as many, or the model names no
                tokens.
        """
        contexts, after = listed(context, "context"), listed(continuation, "continuation")
        if len(contexts) != len(after):
            raise ValueError(f"{len(contexts)} contexts, but {len(after)} continuations")
        found = likelihoods(self.model, self.tokenizer, contexts, after, hide=hide)
        return found[0] if isinstance(continuation, str) else found

    def predict(self, texts: str | Iterable[Any], *, task: Task | None = None) -> list[Answer]:
        """Label texts, pairs of texts, or sentences given as lists of words.

        Of a text {"label", "probability", "probabilities"}, of a sentence {"labels",
        "probabilities"}, or a number.

        Args:
            texts: one or several of what the task takes.
            task: in place of what the model was fine-tuned for: one that it does unlearned; see
                `unmask.finetuning.kinds.cloze.cloze`.

        Raises:
            ValueError: the model labels nothing, or a text is not what its task takes.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        return predict(self.opened, given, task=self.task if task is None else task)

    def rows(
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
        task = self._task()
        files = TASK_KINDS[task.does].files
        text, choices = _names(text), _names(choices)
        if tables.is_plain(Path(path)):
            if text or choices or columns:
                raise ValueError(f"{path}: lines of .txt have no columns to be named")
            return _lines(task, tables.read(path, errors=encoding_errors))
        table = tables.read(
            path, header=tuple(columns), tagged=files.tagged, errors=encoding_errors
        )
        task = named(task, table, text, choices)
        items = files.items(
            table,
            files.texts(table, task.columns),
            encoding_errors,
            known=False,
            options=task.options,
        )
        return [files.plain(item) for item in items]

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
        """Compute all figures of a model that labels, on a file of labelled rows.

        Args:
            path: of the file.
            text: the columns of text, as of `rows`.
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
            self.opened,
            path,
            task=self._task(),
            text=_names(text),
            label=label,
            choices=_names(choices),
            columns=columns,
            encoding_errors=encoding_errors,
        )

    def _task(self) -> Task:
        return task_of(self.opened) if self.task is None else self.task

    def evaluate(
        self,
        data: str | Path | Sequence[str | Path],
        *,
        length: int | None = None,
        seed: int = 0,
        memory: int | None = None,
        document: Literal["blank", "line", "file"] = "blank",
        text: str | None = None,
        encoding_errors: EncodingErrors = "strict",
    ) -> Evaluation:
        """Ask what pretraining asked, of held-out text: perplexity, bits per byte, accuracy.

        Args:
            data: files, folders, patterns or `hf:owner/name`; each called by its language where the
                model is told that (mBART: "de_DE=FILE").
            length: tokens that are read together. None: as many as pretraining read.
            seed: of what is hidden.
            memory: places before each piece that every layer remembers. None: as many as in the
                family's pretraining, if it reads forward only; otherwise none.
            document: what a document of plain text is.
            text: the column that holds the text of a record.
            encoding_errors: what becomes of bytes that are not UTF-8.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the model has no head for what is asked, the text cannot be read, or there
                is none.
        """
        named, tokenizer = _places(data), self.tokenizer
        if tokenizer.special.languages:
            check_named([called(one)[0] for one in named], tokenizer.special)
            tokenizer = tokenizer.untold()  # each text has its own, whatever the task's are
        return evaluate(
            self.model,
            tokenizer,
            self.card.objective,
            named_documents(
                named,
                document=document,
                text=text,
                encoding_errors=encoding_errors,
            ),
            length=self.reads(length),
            seed=seed,
            memory=self.remembers(memory),
        )

    def remembers(self, memory: int | None = None) -> int:
        """Return how many places each layer remembers: what is asked for, or as in pretraining."""
        if memory is not None:
            return memory
        causal = self.card.objective.causal
        return int(self.card.training.get("memory", 0)) if causal else 0

    def reads(self, length: int | None = None) -> int:
        """Return how many tokens are read together: what is asked for, or as in pretraining.

        Raises:
            ValueError: the model has not so many positions.
        """
        longest = room(self.model, reader(self.model))
        if length is None:
            return self.card.length if longest is None else min(self.card.length, longest)
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        if longest is not None and length > longest:
            raise ValueError(
                f"length must be at most the model's {longest} positions, got {length}"
            )
        return length

    def save(self, folder: str | Path, *, format: Format = "huggingface") -> Path:
        """Write the model into a new folder, whole or not at all.

        The first two formats open here, and in transformers but for heads that it lacks. Both keep
        beside the model what it was fine-tuned for: columns, pattern, words; "unmask" keeps the
        objective and length of pretraining, too. "elmo" is the layout of ELMo's released code.

        Raises:
            ValueError: there is no such format, or the folder exists and holds something.
        """
        facts: dict[str, Any] = {} if self.task is None else {"task": to_dict(self.task)}
        if format == "unmask":
            asked = {"objective": to_dict(self.card.objective), "length": self.card.length}
            facts["recipe"] = asked
        return save_model(self.opened, Path(folder), format, facts)

    def to(self, device: str, *, dtype: Literal["float32", "bfloat16"] = "float32") -> "Pipeline":
        """Move the model to a device ("cpu", "cuda", ...), and its numbers to another type.

        Raises:
            ValueError: there is no such device or type.
        """
        types = {"float32": torch.float32, "bfloat16": torch.bfloat16}
        if dtype not in types:
            raise ValueError(f"dtype must be one of {list(types)}, got {dtype!r}")
        self.model.to(pick_device(device), types[dtype])
        return self


def _how(how: Decoding | None, settings: Mapping[str, Any]) -> Decoding:
    if how is not None and settings:
        raise ValueError(f"give a Decoding, or settings by name, not both: got {sorted(settings)}")
    return decoding(**settings) if how is None else how


def _alike(a: Tokenizer, b: Tokenizer) -> bool:
    """Say whether all ids of two tokenizers are the same tokens."""
    ids = range(a.size)
    return a.size == b.size and a.special == b.special and a.pieces(ids) == b.pieces(ids)


def _lines(task: Task, table: tables.Table) -> list[Any]:
    """Read what `predict` takes from each line, and check it while its place is known."""
    files, found = TASK_KINDS[task.does].files, list[Any]()
    numbers = {number for number, _ in table.rows if isinstance(number, int)}
    if blank := [n for n in range(1, max(numbers, default=0)) if n not in numbers]:
        some = ", ".join(map(str, blank[:8])) + (" ..." if len(blank) > 8 else "")
        _log.warning(f"{table.path}: blank lines are left out: {some}")
    for i, (line,) in enumerate(fields for _, fields in table.rows):
        try:
            text = files.line(task, str(line))
        except ValueError as error:
            raise ValueError(f"{table.where(i)}: {error}") from None
        found.append(files.plain(files.given(task, text, table.where(i))))
    return found


def load(name: str | Path, *, seed: int = 0) -> Pipeline:
    """Open a trained model.

    Args:
        name: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a model in the
            package (`unmask.box`), or a card's name, whose published weights are fetched from the
            Hub.
        seed: fills the weights that a folder does not have.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
        ValueError: the folder is damaged, of an unknown family, or a run that has not ended; a card
            has no published weights.
    """
    folder, card = find(name)
    opened = open_any(folder, seed=seed)
    card = _asked(opened.card, card, folder)
    asked = OF_PARTS.keys() & set(card.objective.asks)
    for name in asked - opened.model.specs.keys():  # of those without weights no file knows
        opened.model.add(name, OF_PARTS[name])
    add_generator(folder, opened.model)
    add_subwords(folder, opened.model)
    card = _answered(card, opened.model)
    task, tokenizer = read_task(folder), opened.tokenizer
    if tokenizer is not None:
        tokenizer = in_languages(tokenizer, task)
    return Pipeline(replace(opened, card=card, tokenizer=tokenizer), task)


def find(name: str | Path) -> tuple[Path, Published | None]:
    """Return the folder of a model that is named as `load` takes it, and the card that names it.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
        ValueError: it is a file, the run has not ended, or the card has no published weights.
    """
    card = None if Path(name).is_dir() else _named(str(name))
    folder = locate(name if card is None else f"{HUB}{card.hub}")
    if problem := unfinished(folder):
        raise ValueError(problem)
    return folder, card


def _named(text: str) -> Published | None:
    """Return the card of this name; None for what names a folder or a model of the Hub.

    Raises:
        FileNotFoundError: it is neither.
        ValueError: it is a file, or the card's weights were not published.
    """
    if text in MODELS or text in ALIASES:
        card = published(text)
        if card.hub is None:
            raise ValueError(
                f"{text} is a description without trained weights: pretrain it "
                f"(`unmask pretrain {text} ...`), or give the folder of a run"
            )
        return card
    if Path(text).exists():
        raise ValueError(
            f"{text}: is a file; a model is a folder (word vectors are taken by unmask neighbors, "
            "evaluate, picture, convert and show)"
        )
    if not text.startswith(HUB) and os.sep not in text and text not in BOX:
        raise FileNotFoundError(
            f"{text}: no such folder, and no model of the catalogue{nearest(text)}"
        )
    return None


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _places(data: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(one) for one in ((data,) if isinstance(data, str | Path) else data)]


def listed(given: Any, name: str) -> list[str]:
    """Return one text, or several, as a list.

    Raises:
        TypeError: it is neither.
    """
    some = [given] if isinstance(given, str) else given
    texts = list(some) if isinstance(some, Iterable) else [some]
    other = next((one for one in texts if not isinstance(one, str)), None)
    if other is not None or not isinstance(some, Iterable):
        raise TypeError(f"{name} must be a text or several, each a str, got {other!r}")
    return texts


@dataclass(frozen=True, kw_only=True)
class _Pretraining:
    """What a model was asked when it was pretrained: the part of a recipe that evaluation needs."""

    model: str | None = None
    objective: Objective | Method | str | None = None
    length: int | None = None


def _asked(card: Published, named: Published | None, folder: Path) -> Published:
    """Put into a card what its weights were asked in pretraining, and in rows of which length.

    That is known of a card that was named, and of a run's folder.
    """
    run = _Pretraining() if named is not None else _read_pretraining(folder)
    if named is None:
        named = MODELS.get(run.model or "")
    asked = card if named is None else named
    objective = asked.objective if run.objective is None else objective_of(asked, run.objective)
    longest = longest_text(card)
    length = run.length or (LENGTH if named is None else named.length)
    return replace(
        card,
        objective=objective,
        length=length if longest is None else min(length, longest),
    )


def _answered(card: Published, model: Model) -> Published:
    """Let a card ask what the model's heads answer, where another card of the family does."""
    terms = {asked_by(name, spec) for name, spec in model.specs.items()}
    if not terms or terms & set(card.objective.asks):
        return card
    kin = (one.objective for one in MODELS.values() if one.family == card.family)
    found = next((asks for asks in kin if terms & set(asks.asks)), card.objective)
    return replace(card, objective=found)


def _read_pretraining(folder: Path) -> _Pretraining:
    if not (folder / FACTS).is_file():
        return _Pretraining()
    facts = read_facts(folder)
    recipe = facts.get("recipe")
    if facts.get("kind") not in ("pretrain", "model") or not isinstance(recipe, dict):
        return _Pretraining()
    known = {k: recipe[k] for k in ("model", "objective", "length") if k in recipe}
    return from_dict(_Pretraining, known, f"{folder / FACTS}: recipe")


def unfinished(folder: Path) -> str | None:
    """Say why a folder is not a model yet, if it is a run that has not ended or no model at all."""
    if is_model(folder) or is_adapter(folder):
        return None
    if (folder / FACTS).is_file():
        return f"{folder}: this run has not ended; go on with it by --resume"
    return f"{folder}: not a model: it has no config.json"
