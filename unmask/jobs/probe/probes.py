"""The analysis by probes: reads labels and trees, probes a network and its control, and reports."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from unmask.analysis.probes.analyze import AnalyzeSettings, ProbeParts, analyze_probes
from unmask.analysis.probes.annotations import (
    AnnotatedFile,
    ProbeTask,
    check_tasks,
    read_annotated,
)
from unmask.analysis.probes.findings import ProbeFindings
from unmask.analysis.probes.probe import ProbeSettings
from unmask.analysis.probes.spans.targets import spans_per_target
from unmask.analysis.probes.structural import StructuralSettings
from unmask.jobs.probe.analysis import ProbeInputs, ProbeReport
from unmask.reports.analysis.probes.probes_page import draw_probes_figure, render_probes_page
from unmask.reports.analysis.probes.probes_tables import (
    best_layer_table,
    format_probes_markdown,
    probe_sentences,
)


@dataclass(frozen=True, kw_only=True)
class ProbesAnalysis:
    """What probes read from each layer, beside control tasks, code lengths and random weights."""

    tasks: tuple[str, ...] = ()
    """Tasks joined by plus signs: tags, relations, distances, depths (CoNLL-U), labels (a file of
    tags), spans (a file of tags that mark spans, or of spans). Empty: all that the data have."""
    sentences: int = 300
    """Scored sentences, and as many to fit probes and stop their training, the first of each
    file."""
    label_column: int | None = None
    """Number of the column of labels of a file of tags, from 2. None: the last."""
    hidden_size: int | None = None
    """Size of the hidden layer of the probes of labels. None: linear."""
    projection_size: int = 256
    """Size to which the probes of spans project tokens."""
    rank: int = 64
    """Rows of the projection of structural probes."""
    max_epochs: int = 200
    """Passes of the probes of labels over the training words, at most."""
    mix: bool = True
    """Whether scalar mixes of layers are probed, too."""

    def __post_init__(self) -> None:
        """Check numbers and words.

        Raises:
            ValueError: one is not allowed.
        """
        check_tasks(self.tasks)
        for name, least in {"sentences": 2, "rank": 1}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        self._probe_settings(seed=0)

    def run(self, inputs: ProbeInputs) -> ProbeReport:
        """Probe a model.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the data have no labels or trees, or too few, or no texts can be read by the
                model.
            FloatingPointError: hidden states are not finite.
        """
        parts, tasks = self._read(inputs)
        networks = inputs.networks()
        found = analyze_probes(
            networks, inputs.pipeline.tokenizer, parts, self._settings(tasks, inputs), inputs.show
        )
        findings = ProbeFindings(
            model=inputs.model_name,
            data=inputs.required_data.name,
            hidden_size=self.hidden_size,
            n_fit=len(parts.fit),
            n_stop=len(parts.stop),
            n_scored=len(parts.scored),
            n_skipped=found.n_skipped,
            labels=found.labels,
            trees=found.trees,
        )
        return ProbeReport(
            findings=findings,
            json=findings.to_json(),
            markdown=format_probes_markdown(findings),
            html=render_probes_page(findings, inputs.written),
            table=best_layer_table(findings),
            sentences=tuple(probe_sentences(findings)),
            figures={"layers": draw_probes_figure(findings)},
        )

    def _settings(self, tasks: tuple[ProbeTask, ...], inputs: ProbeInputs) -> AnalyzeSettings:
        return AnalyzeSettings(
            tasks=tasks,
            mix=self.mix,
            probe=self._probe_settings(inputs.seed),
            structural=StructuralSettings(rank=self.rank, seed=inputs.seed),
        )

    def _probe_settings(self, seed: int) -> ProbeSettings:
        return ProbeSettings(
            hidden_size=self.hidden_size,
            projection_size=self.projection_size,
            max_epochs=self.max_epochs,
            seed=seed,
        )

    def _read(self, inputs: ProbeInputs) -> tuple[ProbeParts, tuple[ProbeTask, ...]]:
        """Return the sentences, and the tasks that the data have."""
        data = self._read_file(inputs.required_data, inputs)
        if inputs.train is None:
            half = len(data.sentences) // 2
            train = data.sentences.select(range(half))
            scored = data.sentences.select(range(half, len(data.sentences)))
        else:
            other = self._read_file(inputs.train, inputs)
            if other.tasks != data.tasks:
                raise ValueError(
                    f"{inputs.train} has {', '.join(other.tasks)}, {inputs.data} has "
                    f"{', '.join(data.tasks)}; both must be CoNLL-U files, files of tags, or files "
                    "of spans"
                )
            n, m = (spans_per_target(one.sentences.spans) for one in (other, data))
            if n != m:
                raise ValueError(
                    f"{inputs.train} has targets of {n} and {inputs.data} of {m} spans; both must "
                    "have one, or two"
                )
            train, scored = other.sentences, data.sentences
        if len(train) < 2:
            raise ValueError(
                f"{inputs.train or inputs.data}: two sentences or more are needed to fit probes "
                f"and to stop their training, got {len(train)}"
                + ("" if inputs.train else " in its first half; name a file by train (--train)")
            )
        train, scored = (
            part.select(range(min(len(part), self.sentences))) for part in (train, scored)
        )
        fit, stop = train.split_to_stop()
        return ProbeParts(fit=fit, stop=stop, scored=scored), data.tasks

    def _read_file(self, path: Path, inputs: ProbeInputs) -> AnnotatedFile:
        return read_annotated(
            path,
            cast("tuple[ProbeTask, ...]", self.tasks),
            label_column=self.label_column,
            encoding_errors=inputs.encoding_errors,
        )
