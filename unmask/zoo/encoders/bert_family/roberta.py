"""RoBERTa: Liu et al. 2019, arXiv:1907.11692.

"RoBERTa: A Robustly Optimized BERT Pretraining Approach"; and models with its architecture in other
languages and domains.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions, with_is_decoder
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import MASKED_LM
from unmask.tokenizers.spec import ROBERTA as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import ByteBPE, Unigram
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

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
"""Positions in fairseq start from the padding id + 1; there the padding id is 1."""
BASE = replace(
    bert.BASE,
    vocab_size=50_265,  # section 4.4: 50K byte pairs; released code
    n_segments=1,  # in the released weights; section 4.2 has no second segment
    position=LearnedPositions(512, OFFSET),  # section 3.1
    norm=LayerNorm(eps=1e-5),  # released code
    initializer=NormalInit(0.02),  # released code
)
HEADS = {"language": bert.HEADS["language"]}
TRAINING: Mapping[str, Any] = {
    "schedule": {"kind": "Linear", "warmup": 24_000},  # table 9
    "steps": 500_000,  # table 9
    "optimizer": {
        "kind": "AdamW", "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.01,  # table 9
    },
    "max_grad_norm": 0.0,  # table 9
}  # fmt: skip
FULL_SENTENCES: Mapping[str, Any] = {"row_unit": "corpus"}  # section 4.2, "Results"

WEIGHT_NAMES = WeightNames(
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

_READ_CONFIG, _WRITE_CONFIG = with_is_decoder(*config_functions(bert.FIELD_TABLE, BASE, bert.FIXED))


def _read_config(config: Mapping[str, Any]) -> Architecture:
    a, pad = _READ_CONFIG(config), config.get("pad_token_id")
    offset = OFFSET if pad is None else pad + 1
    assert isinstance(a.position, LearnedPositions)
    length = a.position.max_positions - offset
    if length < 1:
        raise ValueError(
            f"max_position_embeddings = {a.position.max_positions} leaves no position after "
            f"pad_token_id = {offset - 1}"
        )
    return replace(a, position=LearnedPositions(length, offset))


def _write_config(a: Architecture) -> dict[str, Any]:
    assert isinstance(a.position, LearnedPositions)
    offset = a.position.offset
    return _WRITE_CONFIG(a) | {
        "max_position_embeddings": a.position.max_positions + offset,
        "pad_token_id": offset - 1,
    }


CONFIG_KEYS = ConfigKeys("pad_token_id used count 1", bert.CAUSAL_CLASS_NAMES)


def config_mapping(model_type: str, name: str) -> ConfigMapping:
    """Return the mapping of a family with the class prefix `name`."""
    return ConfigMapping(
        model_type=model_type,
        config_keys=CONFIG_KEYS,
        to_architecture=_read_config,
        from_architecture=_write_config,
        class_names={
            ("language",): f"{name}ForMaskedLM",
            ("label",): f"{name}ForSequenceClassification",
            ("choice",): f"{name}ForMultipleChoice",
            ("token_label",): f"{name}ForTokenClassification",
            ("spans",): f"{name}ForQuestionAnswering",
            (): f"{name}Model",
        },
        causal_class_names={("language",): f"{name}ForCausalLM"},
    )


CONFIG_MAPPING = config_mapping("roberta", "Roberta")

ROBERTA_BASE = Published(
    name="roberta-base",
    family="roberta",
    paper=PAPER,
    architecture=BASE,
    heads=HEADS,
    classification_head=bert.CLASSIFICATION_HEAD,
    objective=MASKED_LM,  # section 4.1: dynamic masking; section 4.2: no next sentence
    tokenizer=TokenizerSpec(ByteBPE(50_265), FRAME),  # section 4.4
    sequence_length=512,  # section 3.1
    batch_tokens=8192 * 512,  # table 3: 8K sequences
    learning_rate=6e-4,  # table 9
    training_options={**TRAINING, **FULL_SENTENCES},
    n_parameters=124_697_433,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="FacebookAI/roberta-base",
)
_LARGE = {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096}
ROBERTA_LARGE = replace(
    ROBERTA_BASE,
    name="roberta-large",
    architecture=replace(BASE, **_LARGE),  # type: ignore[arg-type]
    learning_rate=4e-4,  # table 9
    training_options={
        **ROBERTA_BASE.training_options,
        "schedule": {"kind": "Linear", "warmup": 30_000},  # table 9
    },
    n_parameters=355_412_057,
    hub_id="FacebookAI/roberta-large",
)

XLM_R_BASE = replace(
    ROBERTA_BASE,
    name="xlm-roberta-base",
    family="xlm-roberta",
    paper=XLM_R,
    architecture=replace(BASE, vocab_size=250_002),
    tokenizer=TokenizerSpec(Unigram(250_002), FRAME),  # section 3, "Masked Language Models"
    training_options={
        **ROBERTA_BASE.training_options,  # streams: released code, `multilingual_masked_lm`
        "steps": 1_500_000,  # section 5.2
    },
    n_parameters=278_295_186,
    config_mapping=config_mapping("xlm-roberta", "XLMRoberta"),
    hub_id="FacebookAI/xlm-roberta-base",
    note="100 languages, smaller ones sampled more often (section 5.2): `--sampling-exponent "
    "0.3`. Rate and warm-up are RoBERTa's.",
)
XLM_R_LARGE = replace(
    XLM_R_BASE,
    name="xlm-roberta-large",
    architecture=replace(XLM_R_BASE.architecture, **_LARGE),  # type: ignore[type-var]
    learning_rate=ROBERTA_LARGE.learning_rate,
    training_options={**ROBERTA_LARGE.training_options, "steps": 1_500_000},  # section 5.2
    n_parameters=560_142_482,
    hub_id="FacebookAI/xlm-roberta-large",
)
CAMEMBERT_BASE = replace(
    ROBERTA_BASE,
    name="camembert-base",
    family="camembert",
    paper=CAMEMBERT,
    architecture=replace(BASE, vocab_size=32_005),
    tokenizer=TokenizerSpec(Unigram(32_005), FRAME),  # section 4.1
    training_options=TRAINING,
    n_parameters=110_655_493,
    config_mapping=config_mapping("camembert", "Camembert"),
    hub_id="almanach/camembert-base",
    note="French; a later version has whole-word masking (section 4.2). Rate, warm-up and steps "
    "are RoBERTa's: the paper's could not be verified.",
)
BERTWEET_BASE = replace(
    ROBERTA_BASE,
    name="bertweet-base",
    paper=BERTWEET,
    architecture=replace(BASE, vocab_size=64_001, position=LearnedPositions(128, OFFSET)),
    sequence_length=128,  # section 2
    batch_tokens=8192 * 128,  # RoBERTa's rows
    training_options=TRAINING,  # each row a Tweet
    n_parameters=134_965_505,
    tokenizer=TokenizerSpec(ByteBPE(64_001), FRAME),
    hub_id="vinai/bertweet-base",
    note="English Tweets. The paper's 64K pieces are fastBPE's; trained here they are byte-level. "
    "Rate, warm-up, batch and steps are RoBERTa's: the paper's could not be verified.",
)
"""Its own tokenizer uses `bpe.codes`; the one trained here is byte BPE."""


def _mini(name: str, parameters: int, base_preset: Published) -> Published:
    """Return a size for small texts, with the width and depth of another mini preset."""
    a = base_preset.architecture
    assert isinstance(a, Architecture)
    return replace(
        ROBERTA_BASE,
        name=name,
        architecture=replace(
            BASE, vocab_size=8_192, d_model=a.d_model, n_layers=a.n_layers, n_heads=a.n_heads,
            d_ff=a.d_ff, initializer=NormalInit(0.05),
        ),
        tokenizer=TokenizerSpec(ByteBPE(8_192), FRAME),
        sequence_length=128,
        batch_tokens=4_096,
        learning_rate=3e-3,
        training_options={**bert.MINI_MULTI_LOSS_TRAINING, **FULL_SENTENCES},
        n_parameters=parameters,
        hub_id=None,
        note=f"Not in the paper: for two CPU cores, as wide and deep as {base_preset.name}.",
    )  # fmt: skip


ROBERTA_MINI = _mini("roberta-mini", 5_463_040, bert.BERT_MINI)
XLM_R_MINI = replace(
    ROBERTA_MINI,
    name="xlm-roberta-mini",
    family=XLM_R_BASE.family,
    paper=XLM_R,
    tokenizer=TokenizerSpec(Unigram(8_192), FRAME),
    config_mapping=XLM_R_BASE.config_mapping,
)
CAMEMBERT_MINI = replace(
    XLM_R_MINI,
    name="camembert-mini",
    family=CAMEMBERT_BASE.family,
    paper=CAMEMBERT,
    training_options=bert.MINI_MULTI_LOSS_TRAINING,
    config_mapping=CAMEMBERT_BASE.config_mapping,
)

PRESETS = (
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
