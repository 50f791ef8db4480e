"""RoBERTa: Liu et al. 2019, arXiv:1907.11692.

"RoBERTa: A Robustly Optimized BERT Pretraining Approach"; and models of its shape in other
languages and domains.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.hiding.objectives import MASKED
from unmask.model.architecture import Architecture
from unmask.model.initialize import Normal
from unmask.model.keys import Keys
from unmask.model.names import Fields, Names, by_table, or_forward
from unmask.model.parts import LayerNorm
from unmask.model.positions import Learned
from unmask.published import bert
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import ROBERTA as FRAME
from unmask.tokens.vocabulary import ByteBPE, TokenizerSpec, Unigram

PAPER = Paper(
    title="RoBERTa: A Robustly Optimized BERT Pretraining Approach",
    authors="Liu, Ott, Goyal, Du, Joshi, Chen, Levy, Lewis, Zettlemoyer, Stoyanov",
    year=2019,
    arxiv="1907.11692",
)
XLM_R = Paper(
    title="Unsupervised Cross-lingual Representation Learning at Scale",
    authors="Conneau, Khandelwal, Goyal, Chaudhary, Wenzek, Guzmán, Grave, Ott, Zettlemoyer, "
    "Stoyanov",
    year=2020,
    arxiv="1911.02116",
)
CAMEMBERT = Paper(
    title="CamemBERT: a Tasty French Language Model",
    authors="Martin, Muller, Ortiz Suárez, Dupont, Romary, de la Clergerie, Seddah, Sagot",
    year=2020,
    arxiv="1911.03894",
)
BERTWEET = Paper(
    title="BERTweet: A pre-trained language model for English Tweets",
    authors="Nguyen, Vu, Nguyen",
    year=2020,
    arxiv="2005.10200",
)

OFFSET = 2
"""fairseq counts places from the padding's id + 1; there, and in its vocabularies, that is 1."""
BASE = replace(
    bert.BASE,
    vocab_size=50_265,  # section 4.4: 50K byte pairs; released code
    n_segments=1,  # in the released weights; section 4.2 has no second segment
    position=Learned(512, OFFSET),  # section 3.1
    norm=LayerNorm(eps=1e-5),  # released code
    initialize=Normal(0.02),  # released code
)
HEADS = {"language": bert.HEADS["language"]}
TRAINING: Mapping[str, Any] = {
    "schedule": {"kind": "Linear", "warmup": 24_000},  # table 9
    "steps": 500_000,  # table 9
    "optimizer": {
        "kind": "AdamW", "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.01,  # table 9
    },
    "clip": 0.0,  # table 9
}  # fmt: skip
FULL_SENTENCES: Mapping[str, Any] = {"unit": "corpus"}  # section 4.2, "Results"

NAMES = Names(
    bert.backbone_names("roberta")
    + """
    heads.next_sentence.dense                    roberta.pooler.dense
    heads.choice.dense                           roberta.pooler.dense
    pooler.dense                                 roberta.pooler.dense
    heads.label.dense                            classifier.dense
    heads.label.out                              classifier.out_proj
    heads.choice.out                             classifier
    heads.token_label.out                        classifier
    heads.spans.out                              qa_outputs
    heads.language.dense                         lm_head.dense
    heads.language.norm                          lm_head.layer_norm
    heads.language.bias                          lm_head.bias
    heads.language.bias                          lm_head.decoder.bias                     instead
    heads.language.out                           lm_head.decoder
    backbone.tokens                              lm_head.decoder                          tied
    -                                            roberta.embeddings.position_ids
    """,
    prefix="roberta.",
)

_READ, _WRITE = or_forward(*by_table(bert.TABLE, BASE, bert.FIXED))


def _read(theirs: Mapping[str, Any]) -> Architecture:
    a, pad = _READ(theirs), theirs.get("pad_token_id")
    offset = OFFSET if pad is None else pad + 1
    assert isinstance(a.position, Learned)
    length = a.position.length - offset
    if length < 1:
        raise ValueError(
            f"max_position_embeddings = {a.position.length} leaves no place behind "
            f"pad_token_id = {offset - 1}"
        )
    return replace(a, position=Learned(length, offset))


def _write(a: Architecture) -> dict[str, Any]:
    assert isinstance(a.position, Learned)
    offset = a.position.offset
    return _WRITE(a) | {
        "max_position_embeddings": a.position.length + offset,
        "pad_token_id": offset - 1,
    }


KEYS = Keys("pad_token_id used count 1", bert.FORWARD)


def fields(model_type: str, name: str) -> Fields:
    """Return the table of a family of theirs whose classes begin with `name`."""
    return Fields(
        model_type=model_type,
        keys=KEYS,
        read=_read,
        write=_write,
        classes={
            ("language",): f"{name}ForMaskedLM",
            ("label",): f"{name}ForSequenceClassification",
            ("choice",): f"{name}ForMultipleChoice",
            ("token_label",): f"{name}ForTokenClassification",
            ("spans",): f"{name}ForQuestionAnswering",
            (): f"{name}Model",
        },
        forward={("language",): f"{name}ForCausalLM"},
    )


FIELDS = fields("roberta", "Roberta")

ROBERTA_BASE = Published(
    name="roberta-base",
    family="roberta",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    labels=bert.LABELS,
    objective=MASKED,  # section 4.1: hidden anew in every epoch; section 4.2: no next sentence
    tokenizer=TokenizerSpec(ByteBPE(50_265), FRAME),  # section 4.4
    length=512,  # section 3.1
    batch_tokens=8192 * 512,  # table 3: 8K sequences
    rate=6e-4,  # table 9
    training={**TRAINING, **FULL_SENTENCES},
    parameters=124_697_433,
    names=NAMES,
    fields=FIELDS,
    hub="FacebookAI/roberta-base",
)
_LARGE = {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096}
ROBERTA_LARGE = replace(
    ROBERTA_BASE,
    name="roberta-large",
    architecture=replace(BASE, **_LARGE),  # type: ignore[arg-type]
    rate=4e-4,  # table 9
    training={
        **ROBERTA_BASE.training,
        "schedule": {"kind": "Linear", "warmup": 30_000},  # table 9
    },
    parameters=355_412_057,
    hub="FacebookAI/roberta-large",
)

XLM_R_BASE = replace(
    ROBERTA_BASE,
    name="xlm-roberta-base",
    family="xlm-roberta",
    paper=XLM_R,
    architecture=replace(BASE, vocab_size=250_002),
    tokenizer=TokenizerSpec(Unigram(250_002), FRAME),  # section 3, "Masked Language Models"
    training={
        **ROBERTA_BASE.training,  # streams: released code, `multilingual_masked_lm`
        "steps": 1_500_000,  # section 5.2
    },
    parameters=278_295_186,
    fields=fields("xlm-roberta", "XLMRoberta"),
    hub="FacebookAI/xlm-roberta-base",
    note="100 languages, smaller ones sampled more often (section 5.2): `--sampling 0.3`. Rate and "
    "warm-up are RoBERTa's.",
)
XLM_R_LARGE = replace(
    XLM_R_BASE,
    name="xlm-roberta-large",
    architecture=replace(XLM_R_BASE.architecture, **_LARGE),  # type: ignore[type-var]
    rate=ROBERTA_LARGE.rate,
    training={**ROBERTA_LARGE.training, "steps": 1_500_000},  # section 5.2
    parameters=560_142_482,
    hub="FacebookAI/xlm-roberta-large",
)
CAMEMBERT_BASE = replace(
    ROBERTA_BASE,
    name="camembert-base",
    family="camembert",
    paper=CAMEMBERT,
    architecture=replace(BASE, vocab_size=32_005),
    tokenizer=TokenizerSpec(Unigram(32_005), FRAME),  # section 4.1
    training=TRAINING,
    parameters=110_655_493,
    fields=fields("camembert", "Camembert"),
    hub="almanach/camembert-base",
    note="French; whole words are hidden in a later version (section 4.2). Rate, warm-up and steps "
    "are RoBERTa's: those of the paper could not be checked.",
)
BERTWEET_BASE = replace(
    ROBERTA_BASE,
    name="bertweet-base",
    paper=BERTWEET,
    architecture=replace(BASE, vocab_size=64_001, position=Learned(128, OFFSET)),
    length=128,  # section 2
    batch_tokens=8192 * 128,  # RoBERTa's rows
    training=TRAINING,  # each row a Tweet
    parameters=134_965_505,
    tokenizer=TokenizerSpec(ByteBPE(64_001), FRAME),
    hub="vinai/bertweet-base",
    note="English Tweets. The paper's 64K pieces are fastBPE's; learned anew here they are bytes'. "
    "Rate, warm-up, batch and steps are RoBERTa's: those of the paper could not be checked.",
)
"""Its own tokenizer reads `bpe.codes`; ours, learned from your text, is byte BPE."""


def _for_two_cores(name: str, parameters: int, like: Published) -> Published:
    """Return a size of ours for small texts, with the width and depth of another of ours."""
    a = like.architecture
    assert isinstance(a, Architecture)
    return replace(
        ROBERTA_BASE,
        name=name,
        architecture=replace(
            BASE, vocab_size=8_192, d_model=a.d_model, n_layers=a.n_layers, n_heads=a.n_heads,
            d_ff=a.d_ff, initialize=Normal(0.05),
        ),
        tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
        length=128,
        batch_tokens=4_096,
        rate=3e-3,
        training={**bert.SMALL_BESIDE, **FULL_SENTENCES},
        parameters=parameters,
        hub=None,
        note=f"Not in the paper: for two CPU cores, with the width and depth of {like.name}.",
    )  # fmt: skip


ROBERTA_MINI = _for_two_cores("roberta-mini", 5_463_040, bert.BERT_MINI)
XLM_R_MINI = replace(
    ROBERTA_MINI,
    name="xlm-roberta-mini",
    family=XLM_R_BASE.family,
    paper=XLM_R,
    tokenizer=TokenizerSpec(Unigram(8_192), FRAME),
    fields=XLM_R_BASE.fields,
)
CAMEMBERT_MINI = replace(
    XLM_R_MINI,
    name="camembert-mini",
    family=CAMEMBERT_BASE.family,
    paper=CAMEMBERT,
    training=bert.SMALL_BESIDE,
    fields=CAMEMBERT_BASE.fields,
)

CARDS = (
    ROBERTA_MINI,
    ROBERTA_BASE,
    ROBERTA_LARGE,
    XLM_R_MINI,
    XLM_R_BASE,
    XLM_R_LARGE,
    CAMEMBERT_MINI,
    CAMEMBERT_BASE,
    BERTWEET_BASE,
)
