"""SUITES: the explicit table of published benchmarks, by name."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unmask.config import unknown
from unmask.finetuning.benchmark import (
    Benchmark,
    Files,
    Found,
    Suite,
    in_folder,
    on_hub,
    read_suite,
)

_GLUE_PAPER = "Wang et al. 2018, arXiv:1804.07461"
_SUPERGLUE_PAPER = "Wang et al. 2019, arXiv:1905.00537"
_TWO = ("sentence1", "sentence2")
_NLI = ("premise", "hypothesis")
_GLUE_HUB, _SUPERGLUE_HUB = "hf:nyu-mll/glue", "hf:aps/super_glue"
_STORY = tuple(f"InputSentence{n}" for n in range(1, 5))
_CHUNKS = ("ADJP", "ADVP", "CONJP", "INTJ", "LST", "NP", "PP", "PRT", "SBAR", "UCP", "VP")
_ENDINGS = ("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2")


def _glue(folder: str, text: tuple[str, ...], label: str = "label", dev: str = "dev") -> Files:
    """GLUE's own files, of which those of tests have no labels."""
    return Files(train=f"{folder}/train.tsv", dev=f"{folder}/{dev}.tsv", text=text, label=label)


def _glue_hub(config: str, text: tuple[str, ...], *, dev: str = "", test: str = "") -> Files:
    return Files(
        train=f"{_GLUE_HUB}:{config}:train",
        dev=f"{_GLUE_HUB}:{config}:{dev or 'validation'}",
        test=f"{_GLUE_HUB}:{config}:{test}" if test else None,
        text=text,
        label="label",
    )


GLUE = Suite(
    name="glue",
    within=("", "glue", "GLUE", "glue_data"),
    note="GLUE's own average takes for MRPC, QQP and STS-B the mean of two metrics",
    benchmarks=(
        Benchmark(
            name="CoLA",
            task="classify",
            files=(
                _glue("CoLA", ("sentence",)),
                Files(
                    train="CoLA/train.tsv", dev="CoLA/dev.tsv", text=("sentence",), label="label",
                    columns=("source", "label", "original_mark", "sentence"),
                ),
                _glue_hub("cola", ("sentence",)),
            ),
            labels=("unacceptable", "acceptable"),
            metric="matthews",
            paper="Warstadt et al. 2019, arXiv:1805.12471",
        ),
        Benchmark(
            name="SST-2",
            task="classify",
            files=(_glue("SST-2", ("sentence",)), _glue_hub("sst2", ("sentence",))),
            labels=("negative", "positive"),
            metric="accuracy",
            paper="Socher et al. 2013, aclanthology.org/D13-1170",
        ),
        Benchmark(
            name="MRPC",
            task="pairs",
            files=(
                Files(
                    train="MRPC/train.tsv", dev="MRPC/dev.tsv", test="MRPC/test.tsv",
                    text=_TWO, label="label",
                ),
                _glue("MRPC", ("#1 String", "#2 String"), "Quality"),
                _glue_hub("mrpc", _TWO),
            ),
            labels=("not_equivalent", "equivalent"),
            metric="f1",
            options={"symmetric": True},
            paper="Dolan and Brockett 2005, aclanthology.org/I05-5002",
        ),
        Benchmark(
            name="STS-B",
            task="regress",
            files=(
                Files(
                    train="STS-B/train.tsv", dev="STS-B/dev.tsv", test="STS-B/test.tsv",
                    text=_TWO, label="score",
                ),
                _glue_hub("stsb", _TWO),
            ),
            metric="pearson",
            paper="Cer et al. 2017, aclanthology.org/S17-2001",
        ),
        Benchmark(
            name="QQP",
            task="pairs",
            files=(
                _glue("QQP", ("question1", "question2")),
                _glue("QQP", ("question1", "question2"), "is_duplicate"),
                _glue_hub("qqp", ("question1", "question2")),
            ),
            labels=("not_duplicate", "duplicate"),
            metric="f1",
            options={"symmetric": True},
            paper=_GLUE_PAPER,
        ),
        Benchmark(
            name="MNLI",
            task="pairs",
            files=(
                Files(
                    train="MNLI/train.tsv", dev="MNLI/dev_matched.tsv",
                    test="MNLI/dev_mismatched.tsv", text=_TWO, label="gold_label",
                ),
                _glue_hub("mnli", _NLI, dev="validation_matched", test="validation_mismatched"),
            ),
            metric="accuracy",
            paper="Williams et al. 2018, aclanthology.org/N18-1101",
        ),
        Benchmark(
            name="QNLI",
            task="pairs",
            files=(
                _glue("QNLI", ("question", "sentence")),
                _glue_hub("qnli", ("question", "sentence")),
            ),
            metric="accuracy",
            paper="Rajpurkar et al. 2016, arXiv:1606.05250",
        ),
        Benchmark(
            name="RTE",
            task="pairs",
            files=(_glue("RTE", _TWO), _glue_hub("rte", _TWO)),
            metric="accuracy",
            paper=_GLUE_PAPER,
        ),
        Benchmark(
            name="WNLI",
            task="pairs",
            files=(_glue("WNLI", _TWO), _glue_hub("wnli", _TWO)),
            labels=("not_entailment", "entailment"),
            metric="accuracy",
            paper=_GLUE_PAPER,
        ),
    ),
)  # fmt: skip


def _of(suite: Suite, name: str) -> Benchmark:
    """Return a benchmark of another suite."""
    return next(one for one in suite.benchmarks if one.name == name)


def _written(name: str, *, of: Suite, prefix: str, longest: int) -> Benchmark:
    """Return a benchmark of labels whose labels are written, token by token."""
    return replace(
        _of(of, name), task="generate", labels=(), metric="exact_match",
        options={"prefix": prefix, "longest": longest},
    )  # fmt: skip


def _sick(label: str, theirs: str) -> tuple[Files, ...]:
    hub = "hf:RobZamp/sick::"
    return (
        Files(
            train="SICK/train.tsv", dev="SICK/dev.tsv", test="SICK/test.tsv",
            text=("sentence_a", "sentence_b"), label=label,
        ),
        Files(
            train=f"{hub}train", dev=f"{hub}validation", test=f"{hub}test",
            text=("sentence_A", "sentence_B"), label=theirs,
        ),
    )  # fmt: skip


SICK = Suite(
    name="sick",
    within=("", "nli"),
    benchmarks=(
        Benchmark(
            name="SICK entailment",
            task="pairs",
            files=_sick("label", "label"),
            metric="accuracy",
            paper="Marelli et al. 2014, aclanthology.org/L14-1314",
        ),
        Benchmark(
            name="SICK relatedness",
            task="regress",
            files=_sick("relatedness", "relatedness_score"),
            metric="pearson",
            paper="Marelli et al. 2014, aclanthology.org/L14-1314",
        ),
    ),
)

NLI = Suite(
    name="nli",
    within=("", "nli"),
    benchmarks=(
        Benchmark(
            name="MNLI subset",
            task="pairs",
            files=(
                Files(
                    train="mnli_subset/train.tsv", dev="mnli_subset/dev.tsv",
                    test="mnli_subset/mismatched_1k.tsv", text=_NLI, label="label",
                ),
            ),
            metric="accuracy",
            paper="Williams et al. 2018, aclanthology.org/N18-1101",
        ),
        Benchmark(
            name="CommitmentBank",
            task="pairs",
            files=(
                Files(
                    train="CommitmentBank/train.tsv", dev="CommitmentBank/dev.tsv",
                    text=_NLI, label="label",
                ),
                Files(train="CB/train.jsonl", dev="CB/val.jsonl", text=_NLI, label="label"),
                Files(
                    train=f"{_SUPERGLUE_HUB}:cb:train", dev=f"{_SUPERGLUE_HUB}:cb:validation",
                    text=_NLI, label="label",
                ),
            ),
            metric="accuracy",
            paper="de Marneffe et al. 2019, doi:10.18148/sub/2019.v23i2.601",
        ),
    ),
)  # fmt: skip


def _trec(label: str, theirs: str) -> tuple[Files, ...]:
    hub = "hf:CogComp/trec::"
    return (
        Files(train="TREC/train.tsv", test="TREC/test.tsv", text=("text",), label=label),
        Files(train=f"{hub}train", test=f"{hub}test", text=("text",), label=theirs),
    )


TOPICS = Suite(
    name="topics",
    within=("", "classification"),
    benchmarks=(
        Benchmark(
            name="AG News",
            task="classify",
            files=(
                Files(
                    train="AG_News/train.tsv", test="AG_News/test.tsv", text=("text",),
                    label="label",
                ),
                Files(
                    train="hf:fancyzhx/ag_news::train", test="hf:fancyzhx/ag_news::test",
                    text=("text",), label="label",
                ),
            ),
            metric="accuracy",
            paper="Zhang et al. 2015, arXiv:1509.01626",
        ),
        Benchmark(
            name="TREC coarse",
            task="classify",
            files=_trec("label", "coarse_label"),
            metric="accuracy",
            paper="Li and Roth 2002, aclanthology.org/C02-1150",
        ),
        Benchmark(
            name="TREC fine",
            task="classify",
            files=_trec("fine_label", "fine_label"),
            metric="accuracy",
            paper="Li and Roth 2002, aclanthology.org/C02-1150",
        ),
    ),
)  # fmt: skip

_IMDB = Benchmark(
    name="IMDb",
    task="classify",
    files=(
        Files(train="imdb/train.jsonl", test="imdb/test.jsonl", text=("text",), label="label"),
        Files(
            train="hf:stanfordnlp/imdb:plain_text:train",
            test="hf:stanfordnlp/imdb:plain_text:test", text=("text",), label="label",
        ),
    ),
    labels=("negative", "positive"),
    metric="accuracy",
    paper="Maas et al. 2011, aclanthology.org/P11-1015",
)  # fmt: skip

SENTIMENT = Suite(
    name="sentiment",
    within=("", "classification"),
    benchmarks=(
        Benchmark(
            name="SST-5",
            task="classify",
            files=(
                Files(
                    train="SST-5/train.tsv", dev="SST-5/dev.tsv", test="SST-5/test.tsv",
                    text=("text",), label="label",
                ),
                Files(
                    train="hf:SetFit/sst5::train", dev="hf:SetFit/sst5::validation",
                    test="hf:SetFit/sst5::test", text=("text",), label="label",
                ),
            ),
            labels=("very negative", "negative", "neutral", "positive", "very positive"),
            metric="accuracy",
            paper="Socher et al. 2013, aclanthology.org/D13-1170",
        ),
        _IMDB,
    ),
)  # fmt: skip


def _with_few(name: str, one: Benchmark) -> Suite:
    """Learn one task from 100 rows, from 1,000 and from as many as a run says."""
    few = (replace(one, name=f"{one.name}, {rows:,} rows", rows=rows) for rows in (100, 1000))
    return Suite(name=name, within=("", "classification"), benchmarks=(*few, one))


FEW_LABELS = (
    _with_few("imdb-few", _IMDB),
    _with_few("trec-few", next(one for one in TOPICS.benchmarks if one.name == "TREC coarse")),
)
"""Of how few labels a model learns (Howard and Ruder 2018, arXiv:1801.06146, figure 3)."""


def _conll2003(dev: str, test: str) -> Files:
    return Files(
        train="conll2003/train.txt", dev=f"conll2003/{dev}.txt", test=f"conll2003/{test}.txt",
        text=("words",), label="ner", columns=("words", "pos", "chunks", "ner"),
    )  # fmt: skip


def _tokens(name: str, label: str, dev: str | None = "validation") -> Files:
    return Files(
        train=f"hf:{name}:train", dev=f"hf:{name}:{dev}" if dev else None, test=f"hf:{name}:test",
        text=("tokens",), label=label,
    )  # fmt: skip


TAGS = Suite(
    name="tags",
    benchmarks=(
        Benchmark(
            name="CoNLL-2003",
            task="tag",
            files=(
                _conll2003("testa", "testb"),
                _conll2003("valid", "test"),
                _tokens("eriktks/conll2003:conll2003", "ner_tags"),
            ),
            metric="entity_f1",
            paper="Tjong Kim Sang and De Meulder 2003, aclanthology.org/W03-0419",
        ),
        Benchmark(
            name="CoNLL-2000",
            task="tag",
            files=(
                Files(
                    train="conll2000/train.txt", test="conll2000/test.txt",
                    text=("words",), label="chunks", columns=("words", "pos", "chunks"),
                ),
                _tokens("eriktks/conll2000:conll2000", "chunk_tags", dev=None),
            ),
            # Two words of the test file have a tag, I-LST, that the training file has not.
            labels=("O", *(f"{part}-{chunk}" for chunk in _CHUNKS for part in "BI")),
            metric="entity_f1",
            paper="Tjong Kim Sang and Buchholz 2000, aclanthology.org/W00-0726",
        ),
        Benchmark(
            name="WikiANN",
            task="tag",
            files=(
                Files(
                    train="wikiann_en/train.txt", dev="wikiann_en/dev.txt",
                    test="wikiann_en/test.txt", text=("words",), label="ner",
                    columns=("words", "ner"),
                ),
                _tokens("unimelb-nlp/wikiann:en", "ner_tags"),
            ),
            metric="entity_f1",
            paper="Rahimi et al. 2019, aclanthology.org/P19-1015",
        ),
        Benchmark(
            name="UD English EWT",
            task="tag",
            files=tuple(
                Files(
                    train=f"{folder}/en_ewt-ud-train.conllu", dev=f"{folder}/en_ewt-ud-dev.conllu",
                    test=f"{folder}/en_ewt-ud-test.conllu", text=("form",), label="upos",
                )
                for folder in ("ud_english_ewt", "UD_English-EWT")
            ),
            metric="token_accuracy",
            paper="Silveira et al. 2014, aclanthology.org/L14-1067",
        ),
    ),
)  # fmt: skip


def _squad(train: str, dev: str | None, test: str | None = None) -> Files:
    return Files(
        train=train, dev=dev, test=test, text=("question", "context"), label="answers"
    )  # fmt: skip


QUESTIONS = Suite(
    name="questions",
    benchmarks=(
        Benchmark(
            name="SQuAD",
            task="answer",
            files=(
                _squad("squad/train-v1.1.json", "squad/dev-v1.1.json"),
                _squad("train-v1.1.json", "dev-v1.1.json"),
                _squad(
                    "hf:rajpurkar/squad:plain_text:train",
                    "hf:rajpurkar/squad:plain_text:validation",
                ),
            ),
            metric="answer_f1",
            paper="Rajpurkar et al. 2016, arXiv:1606.05250",
        ),
        Benchmark(
            name="SQuAD 2.0",
            task="answer",
            files=(
                _squad("squad/train-v2.0.json", "squad/dev-v2.0.json"),
                _squad("train-v2.0.json", "dev-v2.0.json"),
                _squad(
                    "hf:rajpurkar/squad_v2:squad_v2:train",
                    "hf:rajpurkar/squad_v2:squad_v2:validation",
                ),
            ),
            metric="answer_f1",
            paper="Rajpurkar et al. 2018, arXiv:1806.03822",
        ),
        Benchmark(
            name="SQuADShifts Wikipedia",
            task="answer",
            # Published as a test set alone: only a folder that splits it has what to learn from.
            files=(_squad("qa_squadshifts_wiki/train.json", "qa_squadshifts_wiki/dev.json"),),
            metric="answer_f1",
            paper="Miller et al. 2020, arXiv:2004.14444",
        ),
        Benchmark(
            name="XQuAD English",
            task="answer",
            # XQuAD is a part of SQuAD's dev file, which therefore must not choose the model.
            files=(
                _squad("squad/train-v1.1.json", None, "xquad/xquad.en.json"),
                _squad("train-v1.1.json", None, "xquad.en.json"),
                _squad(
                    "qa_squadshifts_wiki/train.json",
                    "qa_squadshifts_wiki/dev.json",
                    "xquad/xquad.en.json",
                ),
                _squad(
                    "hf:rajpurkar/squad:plain_text:train", None,
                    "hf:google/xquad:xquad.en:validation",
                ),
            ),
            needs_test=True,
            metric="answer_f1",
            paper="Artetxe et al. 2020, arXiv:1910.11856",
        ),
    ),
)  # fmt: skip

CHOICES = Suite(
    name="choices",
    within=("", "multiple_choice"),
    benchmarks=(
        Benchmark(
            name="DREAM",
            task="choose",
            files=(
                Files(
                    train="dream/train.jsonl", dev="dream/dev.jsonl", test="dream/test.jsonl",
                    text=("dialogue", "question"), choices=("choices",), label="answer",
                ),
                Files(
                    train="hf:dataset-org/dream:plain_text:train",
                    dev="hf:dataset-org/dream:plain_text:validation",
                    test="hf:dataset-org/dream:plain_text:test",
                    text=("dialogue", "question"), choices=("choice",), label="answer",
                ),
            ),
            metric="accuracy",
            paper="Sun et al. 2019, aclanthology.org/Q19-1014",
        ),
        Benchmark(
            name="COPA",
            task="choose",
            files=tuple(
                Files(
                    train=train, dev=dev, text=("premise", "question"),
                    choices=("choice1", "choice2"), label="label",
                )
                for train, dev in (
                    ("COPA/train.jsonl", "COPA/val.jsonl"),
                    (f"{_SUPERGLUE_HUB}:copa:train", f"{_SUPERGLUE_HUB}:copa:validation"),
                )
            ),
            metric="accuracy",
            paper=_SUPERGLUE_PAPER,
        ),
        Benchmark(
            name="ROC story cloze",
            task="choose",
            # Learned from the published dev file, as the first GPT was (Radford et al. 2018).
            files=(
                Files(
                    train="roc_story_cloze/dev.jsonl", test="roc_story_cloze/test.jsonl",
                    text=("context",), choices=("choices",), label="answer",
                ),
                Files(
                    train="cloze_test_val__spring2016 - cloze_test_ALL_val.csv",
                    test="cloze_test_test__spring2016 - cloze_test_ALL_test.csv",
                    text=_STORY, choices=_ENDINGS, label="AnswerRightEnding",
                ),
            ),
            metric="accuracy",
            paper="Mostafazadeh et al. 2016, aclanthology.org/N16-1098",
        ),
    ),
)  # fmt: skip

TEXT_TO_TEXT = Suite(
    name="text-to-text",
    within=("", "glue", "GLUE", "nli"),
    benchmarks=(
        _of(GLUE, "SST-2"),
        _of(SICK, "SICK entailment"),
        Benchmark(
            name="AESLC",
            task="generate",
            files=(
                Files(
                    train="aeslc/train.jsonl", dev="aeslc/dev.jsonl", test="aeslc/test.jsonl",
                    text=("body",), label="subject",
                ),
            ),
            metric="rougeL",
            options={"longest": 24},
            paper="Zhang and Tetreault 2019, arXiv:1906.03497",
        ),
    ),
)  # fmt: skip

AS_TEXT = Suite(
    name="as-text",
    within=TEXT_TO_TEXT.within,
    note="labels are written as text, and what is written may be no label",
    benchmarks=(
        _written("SST-2", of=GLUE, prefix="sst2 sentence: ", longest=4),
        _written("SICK entailment", of=SICK, prefix="sick ", longest=12),
        _of(TEXT_TO_TEXT, "AESLC"),
    ),
)
"""The same tasks, all of them text for text (Raffel et al. 2020, section 2.4), so that networks of
one stack and of two are asked alike."""

SUMMARIES = Suite(
    name="summaries",
    within=("", "SciTLDR-Data"),
    benchmarks=(
        _of(TEXT_TO_TEXT, "AESLC"),
        Benchmark(
            name="SciTLDR",
            task="generate",
            # Its own files have abstracts as lists of sentences, which are no dialog: an abstract
            # that is too long keeps its beginning.
            files=(
                Files(
                    train="scitldr_abstract/train.jsonl", dev="scitldr_abstract/dev.jsonl",
                    test="scitldr_abstract/test.jsonl", text=("source",), label="targets",
                ),
                Files(
                    train="SciTLDR-A/train.jsonl", dev="SciTLDR-A/dev.jsonl",
                    test="SciTLDR-A/test.jsonl", text=("source",), label="target",
                ),
                Files(
                    train="hf:allenai/scitldr:Abstract:train",
                    dev="hf:allenai/scitldr:Abstract:validation",
                    test="hf:allenai/scitldr:Abstract:test", text=("source",), label="target",
                ),
            ),
            metric="rougeL",
            options={"longest": 64, "form": {"keep": "start"}},
            paper="Cachola et al. 2020, arXiv:2004.15011",
        ),
    ),
)  # fmt: skip

TAGGER = Suite(
    name="tagger",
    benchmarks=tuple(
        replace(_of(TAGS, name), options={"head": "recurrent"})
        for name in ("CoNLL-2003", "UD English EWT")
    ),
)
"""Two of the same by an LSTM in both directions and a CRF, whatever makes the vectors that it reads
(Peters et al. 2018, arXiv:1802.05365, section 4)."""

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        GLUE, SICK, NLI, TOPICS, SENTIMENT, TAGS, QUESTIONS, CHOICES, TEXT_TO_TEXT,
        AS_TEXT, SUMMARIES, TAGGER, *FEW_LABELS,
    )
}  # fmt: skip


def find(suite_name: str, folder: Path | None = None, *, tested: bool = True) -> Found:
    """Find the files of a suite: its entries, and what a user should be told is missing.

    Args:
        suite_name: a name of `SUITES`, or a TOML file with a suite of one's own (see `Suite`),
            whose paths begin at its own folder if none is given.
        folder: where the files are. None: on the Hub, from where `benchmark.fetched` gets them.
        tested: test files are looked for, too.

    Raises:
        FileNotFoundError: there is no such file or folder, or nothing of the suite in it.
        ValueError: there is no such suite, or its file is not what it should be.
    """
    path = Path(suite_name)
    own = suite_name not in SUITES and path.suffix.lower() == ".toml"
    if not own and suite_name not in SUITES:
        raise ValueError(f"{_no_suite(suite_name)}; or name a TOML file")
    suite = read_suite(path) if own else SUITES[suite_name]
    suite = suite if tested else suite.untested
    if folder is None and not own:
        return on_hub(suite)
    return in_folder(suite, folder or path.parent, hub=own)


def _no_suite(name: str) -> str:
    return unknown(name, SUITES).replace("unknown key", "unknown suite", 1)
