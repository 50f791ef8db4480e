"""Skip-thoughts and quick-thoughts: Kiros et al. 2015, Logeswaran and Lee 2018.

Sentence vectors trained by predicting adjacent sentences. "Released code" is that of
github.com/ryankiros/skip-thoughts and of github.com/lajanugen/S2V.
"""

from dataclasses import replace

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.pretraining.sentence_reconstruction import QuickThoughts, SkipThoughts
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.model.initialize import UniformInit
from unmask.objectives.published import QUICK_THOUGHTS as FOUND
from unmask.objectives.published import SKIP_THOUGHTS as SAID
from unmask.tokenizers.spec import BERT, SpecialTokens, TokenizerSpec
from unmask.tokenizers.vocabulary import WordLevel, WordPiece
from unmask.zoo.encoders.bert_family.bert import MINI_TRAINING, NEXT_SENTENCE_TRAINING
from unmask.zoo.preset import Paper, Published

SKIP_THOUGHTS_PAPER = Paper(
    title="Skip-Thought Vectors",
    authors="Kiros, Zhu, Salakhutdinov, Zemel, Torralba, Urtasun, Fidler",
    year=2015,
    arxiv="1506.06726",
)
QUICK_THOUGHTS_PAPER = Paper(
    title="An Efficient Framework for Learning Sentence Representations",
    authors="Logeswaran, Lee",
    year=2018,
    arxiv="1803.02893",
)
FRAME = SpecialTokens(
    pad="<pad>", start="<s>", end="</s>", unknown="<unk>",
    prefix=("<s>",), separator=("</s>",), suffix=("</s>",),
)  # fmt: skip
CLASSIFICATION_HEAD = SequenceClassification(pooling="last", dense_layer=False, dropout=0.0)
"""A linear classifier on top of a sentence's vector (Kiros et al. 2015, section 3)."""
MINI_NOTE = (
    "Not in the paper: for two CPU cores, about as large as bilstm-mini, with word pieces, not "
    "words."
)

SKIP_THOUGHTS = Published(
    name="skip-thoughts",
    family="skip-thoughts",
    paper=SKIP_THOUGHTS_PAPER,
    architecture=RecurrentArchitecture(
        vocab_size=20_000,  # section 3.1
        d_model=2400,  # section 3.1: uni-skip
        embedding_size=620,  # released code
        n_layers=1,
        d_ff=2400,
        cell="gru",  # section 2.1
        causal=True,
        dropout=0.0,
        initializer=UniformInit(0.1, orthogonal=True),  # section 3.1
    ),
    heads={"beside": SkipThoughts()},
    classification_head=CLASSIFICATION_HEAD,
    pooling="last",  # section 2.1
    objective=SAID,
    tokenizer=TokenizerSpec(WordLevel(20_000), FRAME),
    sequence_length=256,
    batch_tokens=2_048,  # section 3.1: 128 sentences
    learning_rate=2e-4,  # released code, `adam`
    training_options={
        **NEXT_SENTENCE_TRAINING,
        "optimizer": {"kind": "AdamW", "weight_decay": 0.0},  # section 3.1: Adam
        "schedule": {"kind": "Constant"},
        "max_grad_norm": 10.0,  # section 3.1; released code: 5
    },
    n_parameters=160_233_600,
    weight_names=NATIVE_WEIGHT_NAMES,
    config_mapping=native_config_mapping("skip-thoughts", RecurrentArchitecture),
    note="Uni-skip. A row is consecutive sentences, each of which predicts the adjacent "
    "ones; in the paper three, of which the middle one predicts. <s> precedes each "
    "sentence, and the initial input of decoders is not zero. Words are separated by white space: "
    "the text must be tokenized. The rate is the released code's; the paper gives none. Gradients "
    "are of the mean over words when clipped; in that code, of the sum.",
)
BI_SKIP = replace(
    SKIP_THOUGHTS,
    name="skip-thoughts-bi",
    family="skip-thoughts-bi",
    architecture=replace(SKIP_THOUGHTS.architecture, direction="together", causal=False),
    heads={"beside": SkipThoughts(pooling="ends")},
    classification_head=replace(CLASSIFICATION_HEAD, pooling="ends"),
    pooling="ends",
    n_parameters=151_593_600,
    config_mapping=native_config_mapping("skip-thoughts-bi", RecurrentArchitecture),
    note="Bi-skip: 1200 of each direction. Combine-skip concatenates its vectors with those of "
    f"skip-thoughts. {SKIP_THOUGHTS.note.removeprefix('Uni-skip. ')}",
)
SKIP_THOUGHTS_MINI = replace(
    SKIP_THOUGHTS,
    name="skip-thoughts-mini",
    architecture=replace(
        SKIP_THOUGHTS.architecture, vocab_size=8_192, d_model=256, embedding_size=None, d_ff=256
    ),
    tokenizer=TokenizerSpec(WordPiece(8_192), BERT),
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options={**MINI_TRAINING, **NEXT_SENTENCE_TRAINING},
    n_parameters=5_777_664,
    note=MINI_NOTE,
)
QUICK_THOUGHTS = replace(
    SKIP_THOUGHTS,
    name="quick-thoughts",
    family="quick-thoughts",
    paper=QUICK_THOUGHTS_PAPER,
    architecture=RecurrentArchitecture(
        vocab_size=50_001,  # released configuration
        d_model=2400,  # as in the released configuration, of bi-QT: 1200 each of f and g
        embedding_size=2 * 620,  # released configuration
        n_layers=1,
        d_ff=2400,
        cell="gru",
        direction="twice",
        dropout=0.0,
        initializer=UniformInit(
            0.1
        ),  # released code, `uniform_init_scale`: there for word vectors only
    ),
    heads={"beside": QuickThoughts()},
    objective=FOUND,
    tokenizer=TokenizerSpec(WordLevel(50_001), FRAME),
    batch_tokens=6_400,  # released code: 400 sentences
    learning_rate=5e-4,  # released code
    training_options={
        **NEXT_SENTENCE_TRAINING,
        "optimizer": {"kind": "AdamW", "weight_decay": 0.0},
        "schedule": {"kind": "Constant"},
        "max_grad_norm": 5.0,  # released code, for each matrix separately
    },
    n_parameters=75_112_440,
    config_mapping=native_config_mapping("quick-thoughts", RecurrentArchitecture),
    note="Uni-QT: word vectors are trained, and f and g are unidirectional GRUs. A sentence "
    "retrieves its neighbors among the sentences of all rows of a batch; in the released code a "
    "batch is 400 consecutive sentences, GRUs are initialized as TensorFlow's, and the "
    "configuration is bi-QT's. <s> and </s> surround each. Words are separated by white space: "
    "the text must be tokenized.",
)
QUICK_THOUGHTS_MINI = replace(
    QUICK_THOUGHTS,
    name="quick-thoughts-mini",
    architecture=replace(
        QUICK_THOUGHTS.architecture, vocab_size=8_192, d_model=512, embedding_size=512, d_ff=512
    ),
    tokenizer=SKIP_THOUGHTS_MINI.tokenizer,
    sequence_length=128,
    batch_tokens=4_096,
    learning_rate=3e-3,
    training_options=SKIP_THOUGHTS_MINI.training_options,
    n_parameters=4_982_272,
    note=MINI_NOTE,
)

PRESETS = (SKIP_THOUGHTS_MINI, SKIP_THOUGHTS, BI_SKIP, QUICK_THOUGHTS_MINI, QUICK_THOUGHTS)
