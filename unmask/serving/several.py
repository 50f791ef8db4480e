"""Several fine-tuned parts on one model in memory: each text is read with its own, in one batch."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from unmask.adapters.attach import AdapterSpec, attach, detach, find, use
from unmask.adapters.folder import NAME, is_adapter, open_adapter
from unmask.batch import Batch
from unmask.checkpoints.huggingface import Opened, locate
from unmask.finetuning.ask import LANGUAGE, Answer, Ask, Question
from unmask.finetuning.kinds.catalogue import TASK_KINDS, ask
from unmask.finetuning.predict import BATCH_TOKENS, ROWS, of_texts, read_task, task_of
from unmask.heads.model import Model
from unmask.hiding.collate import by_size, pad, size
from unmask.model.canine import Table
from unmask.tasks.task import Item, Task


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A fine-tuned part: the shared model with its own heads, and what it was tuned for."""

    model: Model
    task: Task
    asked: Ask
    pairs: Ask
    """As `asked`, for two texts, where the folder does not say which it reads."""


class Several:
    """One model below several fine-tuned parts, which are kilobytes each."""

    def __init__(self, parts: Mapping[str, str | Path]) -> None:
        """Open some runs that tuned small parts of the same model.

        Args:
            parts: folders by the names that the parts shall have.

        Raises:
            FileNotFoundError: a folder, or the model below it, is not there.
            ValueError: a folder is no such run, its part belongs to another model than the first
                one's, or changes the model's own weights.
        """
        if not parts:
            raise ValueError("there are no parts to open")
        self._parts: dict[str, _Part] = {}
        self._shared: Opened | None = None
        for name, folder in parts.items():
            self._parts[name] = self._opened(name, locate(folder))

    @property
    def names(self) -> tuple[str, ...]:
        """What the parts are called."""
        return tuple(self._parts)

    def _opened(self, name: str, folder: Path) -> _Part:
        if not is_adapter(folder):
            raise ValueError(f"{folder}: not a small part of a model: it has no adapter")
        opened = open_adapter(folder)
        if LANGUAGE in opened.model.specs or not opened.model.specs:
            raise ValueError(f"{folder}: only parts with a head of labels can share a model")
        if opened.tokenizer is None:
            raise ValueError(f"{folder}: its model has no tokenizer, which reading text needs")
        model = opened.model.eval()
        adapter = cast(Any, find(model, NAME)) if NAME in model.adapters else None
        if self._shared is None:
            self._shared = opened
            if adapter is not None:
                detach(model, NAME)
        else:
            _check_same(folder, model, self._shared.model)
        shared = self._shared.model
        model.backbone, model.adapters = shared.backbone, shared.adapters
        if adapter is not None:  # to this part's heads: what they read, prompts must know
            own = attach(model, cast(AdapterSpec, adapter.spec), name)
            own.load_state_dict(adapter.state_dict())
            own.eval()
        task = read_task(folder) or task_of(opened)
        one, two = (
            ask(
                task if task.columns.texts else of_texts(task, names), opened.card, opened.tokenizer
            )
            for names in (("text",), ("text1", "text2"))
        )
        return _Part(model=model, task=task, asked=one, pairs=two)

    def predict(
        self,
        texts: Sequence[Any],
        parts: Sequence[str],
        *,
        batch_tokens: int = BATCH_TOKENS,
    ) -> list[Answer]:
        """Answer texts, each with the part that is named for it.

        Texts of all parts are read together where their kind of part allows it (LoRA, bottlenecks,
        (IA)3); those with prefixes and prompts are read by themselves. The answers are those that
        each part gives alone, but for rounding.

        Args:
            texts: what each part's task takes.
            parts: for each text the name of a part.
            batch_tokens: tokens that go through the model at once.

        Raises:
            ValueError: there are not as many names as texts, there is no such part, or a text is
                not what its task takes.
        """
        if len(texts) != len(parts):
            raise ValueError(f"{len(texts)} texts, but {len(parts)} names of parts")
        for name in parts:
            if name not in self._parts:
                raise ValueError(f"no part {name!r} (there are {', '.join(self._parts)})")
        items: list[Item] = []
        questions: list[Question] = []
        for i, (text, name) in enumerate(zip(texts, parts, strict=True)):
            part = self._parts[name]
            item = TASK_KINDS[part.task.does].files.given(part.task, text, f"text {i + 1}")
            items.append(item)
            asked = part.pairs if len(item.texts) == 2 else part.asked
            questions += [replace(q, item=i) for q in asked.questions([item])]
        said = self._say(questions, parts, batch_tokens)
        answers: list[Answer] = []
        for i, (item, name) in enumerate(zip(items, parts, strict=True)):
            mine = [j for j, q in enumerate(questions) if q.item == i]
            asked = self._parts[name].asked
            scores = asked.joined([questions[j] for j in mine], [said[j] for j in mine])
            answers.append(asked.answer(item, scores))
        return answers

    def _say(
        self, questions: Sequence[Question], parts: Sequence[str], batch_tokens: int
    ) -> list[Any]:
        said: list[Any] = [None] * len(questions)
        for together in self._together(questions, parts):
            sizes = [size(questions[i].example) for i in together]
            for group in by_size(sizes, batch_tokens, ROWS):
                places = [together[i] for i in group]
                names = [parts[questions[i].item] for i in places]
                found = self._read([questions[i] for i in places], names)
                for i, scores in zip(places, found, strict=True):
                    said[i] = scores
        return said

    def _together(self, questions: Sequence[Question], parts: Sequence[str]) -> list[list[int]]:
        """Say which questions may share a batch: those of parts that mix, and of each other one."""
        assert self._shared is not None
        model = self._shared.model
        groups: dict[str, list[int]] = {}
        for i, question in enumerate(questions):
            name = parts[question.item]
            mixes = name not in model.adapters or find(model, name).mixes
            groups.setdefault("" if mixes else name, []).append(i)
        return list(groups.values())

    @torch.no_grad()
    def _read(self, questions: Sequence[Question], names: Sequence[str]) -> list[Any]:
        """Run the shared model once, and the head of each part over its own rows."""
        assert self._shared is not None
        model = self._shared.model
        special = self._parts[names[0]].asked.special
        examples = [q.example for q in questions]
        which = [name if name in model.adapters else None for name in names]
        only = which[0] if len(set(which)) == 1 else which
        if isinstance(only, str) and not find(model, only).mixes:
            batch = model.roomy(pad(examples, special)).to(model.device)
            with use(model, only):
                part = self._parts[only]
                return list(part.asked.scores(part.model, batch, questions))
        plain = model.roomy(pad([replace(e, label=None) for e in examples], special))
        every = any(self._parts[name].model.reads_all_layers for name in names)
        summary = any(self._parts[name].model.reads_summary for name in names)
        read = replace(plain, all_layers=every, summary=summary)
        with use(model, only):
            hidden = model.backbone(read.to(model.device))
        said: list[Any] = [None] * len(questions)
        for name in dict.fromkeys(names):
            rows = [i for i, other in enumerate(names) if other == name]
            batch = pad([examples[i] for i in rows], special).to(model.device)
            part = self._parts[name]
            first = int(summary and not part.model.reads_summary)
            columns = slice(first, int(summary) + batch.inputs.shape[1])
            with _knowing(part.model, hidden[rows, columns]):
                found = part.asked.scores(part.model, batch, [questions[i] for i in rows])
            for i, scores in zip(rows, found, strict=True):
                said[i] = scores
        return said


class _Known(nn.Module):
    """Stands for a backbone whose hidden states are known."""

    def __init__(self, hidden: Tensor, table: Table) -> None:
        super().__init__()
        self.hidden, self.table = hidden, table

    @property
    def narrows(self) -> bool:
        """All columns are there already."""
        return False

    def forward(self, batch: Batch) -> Tensor:
        """Return what is known."""
        return self.hidden


@contextmanager
def _knowing(model: Model, hidden: Tensor) -> Generator[None, None, None]:
    """Let a model's heads read hidden states that are known, for a while."""
    backbone = model.backbone
    read = hidden if model.reads_all_layers else hidden[..., -model.stack.d_model :]
    model.backbone = cast(Any, _Known(read, backbone.table))
    try:
        yield
    finally:
        model.backbone = backbone


def _check_same(folder: Path, model: Model, shared: Model) -> None:
    ours, theirs = shared.backbone.state_dict(), model.backbone.state_dict()
    same = ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    if not same:
        raise ValueError(
            f"{folder}: its model is not the first part's, or it changes the model's own weights "
            "(bitfit, full): open it by itself"
        )
