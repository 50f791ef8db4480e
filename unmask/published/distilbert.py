"""DistilBERT: Sanh et al. 2019, arXiv:1910.01108.

"DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter"; the network alone:
it is trained like BERT without its second task.
"""

from dataclasses import replace

from unmask.heads.labels import Labels
from unmask.hiding.objectives import MASKED
from unmask.model.initialize import Normal
from unmask.model.keys import COMMON, Keys
from unmask.model.names import Fields, Names, activation, by_table
from unmask.published import bert
from unmask.published.card import Paper, Published

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
    initialize=Normal(0.02),  # released code
)
NAMES = Names(
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
_READ, _WRITE = by_table(
    {
        "vocab_size": "vocab_size",
        "d_model": "dim",
        "n_layers": "n_layers",
        "n_heads": "n_heads",
        "d_ff": "hidden_dim",
        "position.length": "max_position_embeddings",
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "initialize.std": "initializer_range",
    },
    BASE,
    {"sinusoidal_pos_embds": False},
)
KEYS = Keys(
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
    COMMON,
)
FIELDS = Fields(
    model_type="distilbert",
    keys=KEYS,
    read=_READ,
    write=_WRITE,
    classes={
        ("language",): "DistilBertForMaskedLM",
        ("label",): "DistilBertForSequenceClassification",
        ("choice",): "DistilBertForMultipleChoice",
        ("token_label",): "DistilBertForTokenClassification",
        ("spans",): "DistilBertForQuestionAnswering",
        (): "DistilBertModel",
    },
    language=lambda theirs: {"transform": activation(theirs.get("activation", "gelu"))},
)

DISTILBERT_BASE = Published(
    name="distilbert-base-uncased",
    family="distilbert",
    paper=PAPER,
    architecture=BASE,
    heads={"language": bert.HEADS["language"]},
    labels=Labels(activation="relu", dropout=0.2),  # released code
    objective=MASKED,  # section 3: no next sentence, hidden anew in every epoch
    tokenizer=bert.BERT_BASE_UNCASED.tokenizer,
    length=512,
    batch_tokens=4_000 * 512,  # section 3: up to 4K examples a batch
    rate=5e-4,  # released code, `train.py`
    training={  # same place
        "schedule": {"kind": "Linear", "warmup": 0.05},
        "optimizer": {"kind": "AdamW", "eps": 1e-6, "weight_decay": 0.0},
        "clip": 5.0,
    },
    parameters=66_985_530,
    names=NAMES,
    fields=FIELDS,
    hub="distilbert/distilbert-base-uncased",
    note="The network alone; its weights were learned from BERT's scores.",
)
_MINI = bert.BERT_MINI
DISTILBERT_MINI = replace(
    DISTILBERT_BASE,
    name="distilbert-mini",
    architecture=replace(_MINI.architecture, n_layers=2, n_segments=0, initialize=Normal(0.05)),  # type: ignore[type-var]
    tokenizer=_MINI.tokenizer,
    length=_MINI.length,
    batch_tokens=_MINI.batch_tokens,
    rate=_MINI.rate,
    training={**_MINI.training, **bert.SENTENCES},
    parameters=3_882_752,
    hub=None,
    note="Not in the paper: half of the layers of bert-mini, and rows of full sentences.",
)

CARDS = (DISTILBERT_MINI, DISTILBERT_BASE)
