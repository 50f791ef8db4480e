"""Probe: what a model knows and where, by one or several analyses, each with its control."""

from collections.abc import Mapping
from pathlib import Path

from unmask.config import parse_variant
from unmask.files import write_atomically
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.options.probe import ProbeOptions
from unmask.jobs.probe.alignment import AlignmentAnalysis
from unmask.jobs.probe.analysis import Analysis, ProbeInputs, ProbeReport
from unmask.jobs.probe.attention import AttentionAnalysis
from unmask.jobs.probe.cloze import ClozeAnalysis
from unmask.jobs.probe.hidden_states.contextuality import ContextualityAnalysis
from unmask.jobs.probe.hidden_states.lens import LensAnalysis
from unmask.jobs.probe.hidden_states.senses import SensesAnalysis
from unmask.jobs.probe.hidden_states.similarity import SimilarityAnalysis
from unmask.jobs.probe.importance import ImportanceAnalysis
from unmask.jobs.probe.judgments import JudgmentsAnalysis
from unmask.jobs.probe.pairs import PairsAnalysis
from unmask.jobs.probe.probes import ProbesAnalysis
from unmask.jobs.probe.reading import ReadingAnalysis
from unmask.jobs.probe.saliency import SaliencyAnalysis
from unmask.options import takes_options
from unmask.output import print_line, to_safe_json

ANALYSES: Mapping[str, type[Analysis]] = {
    "attention": AttentionAnalysis,
    "alignment": AlignmentAnalysis,
    "cloze": ClozeAnalysis,
    "importance": ImportanceAnalysis,
    "judgments": JudgmentsAnalysis,
    "pairs": PairsAnalysis,
    "probes": ProbesAnalysis,
    "saliency": SaliencyAnalysis,
    "reading": ReadingAnalysis,
    "lens": LensAnalysis,
    "senses": SensesAnalysis,
    "similarity": SimilarityAnalysis,
    "contextuality": ContextualityAnalysis,
}
"""The options of each analysis by its word."""


@takes_options(ProbeOptions)
def probe(options: ProbeOptions) -> dict[str, ProbeReport]:
    """Analyze a model, and write the results into a folder.

    The fields of `ProbeOptions` are its keywords. Nothing is written before all analyses are done.

    Raises:
        FileNotFoundError: there is no such model or file.
        ValueError: there is no such analysis, the folder holds it already, or the model or the data
            are not of a kind that can be analyzed so.
    """
    given = [options.analysis] if isinstance(options.analysis, str) else list(options.analysis)
    if not given:
        raise ValueError(f"no analysis: name one or more of {', '.join(ANALYSES)} (--analysis)")
    analyses = dict(_parse(one) for one in given)
    folder = Path(options.out)
    _check_folder(folder, analyses)
    pipeline = options.model if isinstance(options.model, Pipeline) else load(options.model)
    pipeline = pipeline.to(options.device)
    source = pipeline.loaded_model.source
    inputs = ProbeInputs(
        pipeline=pipeline,
        model_name=pipeline.preset.name if source is None else Path(source).name,
        data=None if options.data is None else Path(options.data),
        train=None if options.train is None else Path(options.train),
        texts=(options.text,) if isinstance(options.text, str) else tuple(options.text),
        control=options.control,
        seed=options.seed,
        encoding_errors=options.encoding_errors,
        show=lambda text: None if options.terminal is None else print_line(text, options.terminal),
    )
    reports = {name: one.run(inputs) for name, one in analyses.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, report in reports.items():
        write_atomically(folder / f"{name}.html", report.html)
        write_atomically(folder / f"{name}.md", report.markdown)
        write_atomically(folder / f"{name}.json", f"{to_safe_json(report.json)}\n")
        for figure, svg in report.figures.items():
            write_atomically(folder / f"{name}-{figure}.svg", svg)
    return reports


def _parse(given: "str | Analysis") -> tuple[str, Analysis]:
    """Return the word of an analysis and its options."""
    if isinstance(given, str):
        return given.partition(":")[0], parse_variant(ANALYSES, given, "analysis")
    return next(word for word, kind in ANALYSES.items() if isinstance(given, kind)), given


def _check_folder(folder: Path, analyses: Mapping[str, Analysis]) -> None:
    """Check that nothing would be overwritten.

    Raises:
        ValueError: the folder is a file, or has the files of an analysis.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is a file, must be a folder")
    for name in analyses:
        pages = [folder / f"{name}{suffix}" for suffix in (".json", ".md", ".html")]
        for path in (*pages, *sorted(folder.glob(f"{name}-*.svg"))):
            if path.exists():
                raise ValueError(f"{path}: exists already; name another folder")
