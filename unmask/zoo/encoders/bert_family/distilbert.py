"""DistilBERT: Sanh et al. 2019, arXiv:1910.01108.

"DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter"; only the
architecture: trained as BERT without next-sentence prediction.
"""

from dataclasses import replace

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.model.exchange.config_keys import COMMON_KEYS, ConfigKeys
from unmask.model.exchange.config_mapping import ConfigMapping, config_functions, read_activation
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import NormalInit
from unmask.objectives.published import MASKED_LM
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
    authors="Sanh, Debut, Chaumond, Wolf",
    year=2019,
    arxiv="1910.01108",
)

BASE = replace(
    bert.BASE,
    n_layers=6,  # section 3: half of BERT's
    n_segments=0,  # section 3
    initializer=NormalInit(0.02),  # released code
)
WEIGHT_NAMES = WeightNames(
    """
    backbone.tokens                            distilbert.embeddings.word_embeddings
    backbone.position.table                    distilbert.embeddings.position_embeddings
    backbone.embed_norm                        distilbert.embeddings.LayerNorm
    backbone.layers.*.attention.q              distilbert.transformer.layer.*.attention.q_lin
    backbone.layers.*.attention.k              distilbert.transformer.layer.*.attention.k_lin
    backbone.layers.*.attention.v              distilbert.transformer.layer.*.attention.v_lin
    backbone.layers.*.attention.o              distilbert.transformer.layer.*.attention.out_lin
    backbone.layers.*.attention_norm.after     distilbert.transformer.layer.*.sa_layer_norm
    backbone.layers.*.feed_forward.up          distilbert.transformer.layer.*.ffn.lin1
    backbone.layers.*.feed_forward.down        distilbert.transformer.layer.*.ffn.lin2
    backbone.layers.*.feed_forward_norm.after  distilbert.transformer.layer.*.output_layer_norm
    heads.language.dense                       vocab_transform
    heads.language.norm                        vocab_layer_norm
    heads.language.bias                        vocab_projector.bias
    heads.language.out                         vocab_projector
    backbone.tokens                            vocab_projector                            tied
    heads.label.dense                          pre_classifier
    heads.choice.dense                         pre_classifier
    heads.label.out                            classifier
    heads.choice.out                           classifier
    heads.token_label.out                      classifier
    heads.spans.out                            qa_outputs
    -                                          distilbert.embeddings.position_ids
    """,
    prefix="distilbert.",
)
_READ_CONFIG, _WRITE_CONFIG = config_functions(
    {
        "vocab_size": "vocab_size",
        "d_model": "dim",
        "n_layers": "n_layers",
        "n_heads": "n_heads",
        "d_ff": "hidden_dim",
        "position.max_positions": "max_position_embeddings",
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "initializer.std": "initializer_range",
    },
    BASE,
    {"sinusoidal_pos_embds": False},
)
CONFIG_KEYS = ConfigKeys(
    """
    vocab_size               used      size
    dim                      used      size
    n_layers                 used      layers
    n_heads                  used      size@dim
    hidden_size              alias     dim
    num_hidden_layers        alias     n_layers
    num_attention_heads      alias     n_heads
    hidden_dim               used      size       3072
    max_position_embeddings  used      size       512
    sinusoidal_pos_embds     fixed     false
    activation               used      word       gelu
    dropout                  used      share      0.1
    attention_dropout        used      share      0.1
    qa_dropout               harmless  share
    seq_classif_dropout      harmless  share
    initializer_range        used      number     0.02
    tie_word_embeddings      used      flag       true
    """,
    COMMON_KEYS,
)
CONFIG_MAPPING = ConfigMapping(
    model_type="distilbert",
    config_keys=CONFIG_KEYS,
    to_architecture=_READ_CONFIG,
    from_architecture=_WRITE_CONFIG,
    class_names={
        ("language",): "DistilBertForMaskedLM",
        ("label",): "DistilBertForSequenceClassification",
        ("choice",): "DistilBertForMultipleChoice",
        ("token_label",): "DistilBertForTokenClassification",
        ("spans",): "DistilBertForQuestionAnswering",
        (): "DistilBertModel",
    },
    read_language_head=lambda theirs: {
        "transform": read_activation(theirs.get("activation", "gelu"))
    },
)

DISTILBERT_BASE = Published(
    name="distilbert-base-uncased",
    family="distilbert",
    paper=PAPER,
    architecture=BASE,
    heads={"language": bert.HEADS["language"]},
    classification_head=SequenceClassification(activation="relu", dropout=0.2),  # released code
    objective=MASKED_LM,  # section 3: no next sentence, dynamic masking
    tokenizer=bert.BERT_BASE_UNCASED.tokenizer,
    sequence_length=512,
    batch_tokens=4_000 * 512,  # section 3: up to 4K examples a batch
    learning_rate=5e-4,  # released code, `train.py`
    training_options={  # same place
        "schedule": {"kind": "Linear", "warmup": 0.05},
        "optimizer": {"kind": "AdamW", "eps": 1e-6, "weight_decay": 0.0},
        "max_grad_norm": 5.0,
    },
    n_parameters=66_985_530,
    weight_names=WEIGHT_NAMES,
    config_mapping=CONFIG_MAPPING,
    hub_id="distilbert/distilbert-base-uncased",
    note="Only the architecture; the released weights were distilled from BERT.",
)
_MINI = bert.BERT_MINI
DISTILBERT_MINI = replace(
    DISTILBERT_BASE,
    name="distilbert-mini",
    architecture=replace(
        _MINI.architecture, n_layers=2, n_segments=0, initializer=NormalInit(0.05)
    ),  # type: ignore[type-var]
    tokenizer=_MINI.tokenizer,
    sequence_length=_MINI.sequence_length,
    batch_tokens=_MINI.batch_tokens,
    learning_rate=_MINI.learning_rate,
    training_options={**_MINI.training_options, **bert.NEXT_SENTENCE_TRAINING},
    n_parameters=3_882_752,
    hub_id=None,
    note="Not in the paper: half of the layers of bert-mini, and rows of full sentences.",
)

PRESETS = (DISTILBERT_MINI, DISTILBERT_BASE)
