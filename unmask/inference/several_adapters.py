"""Several adapters of one model in memory, each text with its own, in one batch."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from unmask.adapters.attach import AdapterSpec, attach, detach, find_adapter, use_adapters
from unmask.adapters.folder import ADAPTER_NAME, is_adapter, open_adapter
from unmask.batch import Batch
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel, resolve_model_folder
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.formulation import (
    LANGUAGE_HEAD,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
)
from unmask.finetuning.results.predict import (
    DEFAULT_BATCH_TOKENS,
    MAX_BATCH_ROWS,
    infer_task,
    inputs_with_warnings,
    read_task,
    with_text_columns,
)
from unmask.heads.model import Model
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.requested_states import RequestedStates
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Task, TaskExample


@dataclass(frozen=True, kw_only=True)
class _LoadedAdapter:
    """A fine-tuned adapter: the shared model with its own heads, and its task."""

    model: Model
    task: Task
    formulation: TaskFormulation
    pair_formulation: TaskFormulation
    """As `formulation`, for pairs of texts, if the folder does not record which it reads."""


class MultiAdapter:
    """One base model with several fine-tuned adapters of kilobytes each."""

    def __init__(self, adapters: Mapping[str, str | Path]) -> None:
        """Load adapters that were tuned on the same model.

        Args:
            adapters: folders by adapter name.

        Raises:
            FileNotFoundError: a folder, or its base model, is missing.
            ValueError: a folder is not such a run, its base model is not that of the first, or its
                weights are changed.
        """
        if not adapters:
            raise ValueError("there are no adapters to load")
        self._adapters: dict[str, _LoadedAdapter] = {}
        self._base: LoadedModel | None = None
        for name, folder in adapters.items():
            self._adapters[name] = self._load_adapter(name, resolve_model_folder(folder))

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """Names of the adapters."""
        return tuple(self._adapters)

    def _load_adapter(self, name: str, folder: Path) -> _LoadedAdapter:
        if not is_adapter(folder):
            raise ValueError(f"{folder}: not an adapter")
        opened = open_adapter(folder)
        if LANGUAGE_HEAD in opened.model.head_specs or not opened.model.head_specs:
            raise ValueError(
                f"{folder}: only adapters with a classification head can share a model"
            )
        if opened.tokenizer is None:
            raise ValueError(f"{folder}: its model has no tokenizer")
        model = opened.model.eval()
        adapter = (
            cast(Any, find_adapter(model, ADAPTER_NAME)) if ADAPTER_NAME in model.adapters else None
        )
        if self._base is None:
            self._base = opened
            if adapter is not None:
                detach(model, ADAPTER_NAME)
        else:
            _check_same_base(folder, model, self._base.model)
        shared = self._base.model
        model.backbone, model.adapters = shared.backbone, shared.adapters
        if adapter is not None:  # before this adapter's heads, which prompts depend on
            own = attach(model, cast(AdapterSpec, adapter.spec), name)
            own.load_state_dict(adapter.state_dict())
            own.eval()
        task = read_task(folder) or infer_task(opened)
        formulation, pair_formulation = (
            formulate(
                task if task.columns.texts else with_text_columns(task, names),
                opened.preset,
                opened.tokenizer,
            )
            for names in (("text",), ("text1", "text2"))
        )
        return _LoadedAdapter(
            model=model, task=task, formulation=formulation, pair_formulation=pair_formulation
        )

    def predict(
        self,
        texts: Sequence[Any],
        adapters: Sequence[str],
        *,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
    ) -> list[PredictionRecord]:
        """Predict texts, each with its own adapter.

        Texts of all adapters share batches if their method allows it (LoRA, bottlenecks, (IA)3);
        those with prefixes and prompts have their own. The predictions are those of each adapter
        alone, up to rounding.

        Args:
            texts: inputs of the adapters' tasks.
            adapters: the adapter name of each text.
            batch_tokens: tokens per forward pass.

        Raises:
            ValueError: the numbers of names and texts differ, an adapter is unknown, or a text is
                invalid for its task.
        """
        if len(texts) != len(adapters):
            raise ValueError(f"{len(texts)} texts, but {len(adapters)} names of adapters")
        for name in adapters:
            if name not in self._adapters:
                raise ValueError(
                    f"adapter must be one of {', '.join(self._adapters)}, got {name!r}"
                )
        items: list[TaskExample] = []
        task_inputs: list[TaskInput] = []
        for i, (text, name) in enumerate(zip(texts, adapters, strict=True)):
            adapter = self._adapters[name]
            item = TASK_KINDS[adapter.task.task_kind].reader.parse_input(
                adapter.task, text, f"text {i + 1}"
            )
            items.append(item)
            is_pair = len(item.texts) == 2
            formulation = adapter.pair_formulation if is_pair else adapter.formulation
            built = inputs_with_warnings(formulation, [item], self._base and self._base.tokenizer)
            task_inputs += [replace(x, item_index=i) for x in built]
        input_scores = self._score_inputs(task_inputs, adapters, batch_tokens)
        records: list[PredictionRecord] = []
        for i, (item, name) in enumerate(zip(items, adapters, strict=True)):
            own = [j for j, x in enumerate(task_inputs) if x.item_index == i]
            formulation = self._adapters[name].formulation
            scores = formulation.merge_scores(
                [task_inputs[j] for j in own], [input_scores[j] for j in own]
            )
            records.append(formulation.prediction_record(item, scores))
        return records

    def _score_inputs(
        self, task_inputs: Sequence[TaskInput], adapters: Sequence[str], batch_tokens: int
    ) -> list[Any]:
        results: list[Any] = [None] * len(task_inputs)
        for together in self._group_inputs(task_inputs, adapters):
            sizes = [example_length(task_inputs[i].example) for i in together]
            for group in group_by_length(sizes, batch_tokens, MAX_BATCH_ROWS):
                indices = [together[i] for i in group]
                names = [adapters[task_inputs[i].item_index] for i in indices]
                batch_scores = self._score_batch([task_inputs[i] for i in indices], names)
                for i, scores in zip(indices, batch_scores, strict=True):
                    results[i] = scores
        return results

    def _group_inputs(
        self, task_inputs: Sequence[TaskInput], adapters: Sequence[str]
    ) -> list[list[int]]:
        """Group inputs that can share a batch: of adapters that select rows, or of one other."""
        assert self._base is not None
        model = self._base.model
        groups: dict[str, list[int]] = {}
        for i, task_input in enumerate(task_inputs):
            name = adapters[task_input.item_index]
            mixes = name not in model.adapters or find_adapter(model, name).supports_row_selection
            groups.setdefault("" if mixes else name, []).append(i)
        return list(groups.values())

    @torch.no_grad()
    def _score_batch(self, task_inputs: Sequence[TaskInput], adapters: Sequence[str]) -> list[Any]:
        """Run the shared model once, and the head of each adapter on its rows."""
        assert self._base is not None
        model = self._base.model
        special = self._adapters[adapters[0]].formulation.special_ids
        examples = [x.example for x in task_inputs]
        selected = [name if name in model.adapters else None for name in adapters]
        only = selected[0] if len(set(selected)) == 1 else selected
        if isinstance(only, str) and not find_adapter(model, only).supports_row_selection:
            batch = model.pad_for_network(pad_examples(examples, special)).to(model.device)
            with use_adapters(model, only):
                adapter = self._adapters[only]
                return list(adapter.formulation.compute_scores(adapter.model, batch, task_inputs))
        plain = model.pad_for_network(
            pad_examples([replace(e, label=None) for e in examples], special)
        )
        all_layers = any(self._adapters[name].model.uses_all_layers for name in adapters)
        summary = any(self._adapters[name].model.uses_summary for name in adapters)
        shared = plain.with_feature(RequestedStates(all_layers=all_layers, summary=summary))
        with use_adapters(model, only):
            hidden = model.backbone(shared.to(model.device))
        results: list[Any] = [None] * len(task_inputs)
        for name in dict.fromkeys(adapters):
            rows = [i for i, adapter_name in enumerate(adapters) if adapter_name == name]
            batch = pad_examples([examples[i] for i in rows], special).to(model.device)
            adapter = self._adapters[name]
            first = int(summary and not adapter.model.uses_summary)
            columns = slice(first, int(summary) + batch.inputs.shape[1])
            with _precomputed_hidden_states(adapter.model, hidden[rows, columns]):
                own_scores = adapter.formulation.compute_scores(
                    adapter.model, batch, [task_inputs[i] for i in rows]
                )
            for i, scores in zip(rows, own_scores, strict=True):
                results[i] = scores
        return results


class _PrecomputedBackbone(nn.Module):
    """A backbone with precomputed hidden states."""

    def __init__(self, hidden_states: Tensor, embedding_table: TokenEmbedding) -> None:
        super().__init__()
        self.hidden_states, self.embedding_table = hidden_states, embedding_table

    @property
    def supports_last_only(self) -> bool:
        """False: all columns are precomputed."""
        return False

    def forward(self, batch: Batch) -> Tensor:
        """Return the precomputed hidden states."""
        return self.hidden_states


@contextmanager
def _precomputed_hidden_states(model: Model, hidden_states: Tensor) -> Generator[None, None, None]:
    """Temporarily run a model's heads on precomputed hidden states."""
    backbone = model.backbone
    cached = (
        hidden_states
        if model.uses_all_layers
        else hidden_states[..., -model.decoder_architecture.d_model :]
    )
    model.backbone = cast(Any, _PrecomputedBackbone(cached, backbone.embedding_table))
    try:
        yield
    finally:
        model.backbone = backbone


def _check_same_base(folder: Path, model: Model, base: Model) -> None:
    base_weights, adapter_weights = (
        m.get_submodule("backbone").state_dict() for m in (base, model)
    )
    is_equal = base_weights.keys() == adapter_weights.keys() and all(
        torch.equal(base_weights[n], adapter_weights[n]) for n in base_weights
    )
    if not is_equal:
        raise ValueError(
            f"{folder}: its base model is not the first adapter's, or it changes base weights "
            "(bitfit, full): load it separately"
        )
