"""Word vectors: word2vec, fastText, GloVe, and factorized association matrices."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.model.exchange.config_mapping import native_config_mapping
from unmask.model.exchange.weight_names import NATIVE_WEIGHT_NAMES
from unmask.tokenizers.spec import WORD_LEVEL as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordLevel
from unmask.word_vectors.train.corpus import MAX_DOCUMENT_WORDS
from unmask.word_vectors.train.glove import GloVe
from unmask.word_vectors.train.lsa import LSA
from unmask.word_vectors.train.svd import SVD
from unmask.word_vectors.train.trainer import WORD_VECTOR_FAMILY, WordVectorMethod
from unmask.word_vectors.train.word2vec import CBOW, CHUNK_TOKENS, CharacterNgrams, SkipGram
from unmask.zoo.preset import Paper, Published

WORD2VEC_PAPER = Paper(
    title="Efficient Estimation of Word Representations in Vector Space",
    authors="Mikolov, Chen, Corrado, Dean",
    year=2013,
    arxiv="1301.3781",
)
PHRASES_PAPER = Paper(
    title="Distributed Representations of Words and Phrases and their Compositionality",
    authors="Mikolov, Sutskever, Chen, Corrado, Dean",
    year=2013,
    arxiv="1310.4546",
)
FASTTEXT_PAPER = Paper(
    title="Enriching Word Vectors with Subword Information",
    authors="Bojanowski, Grave, Joulin, Mikolov",
    year=2017,
    arxiv="1607.04606",
)
GLOVE_PAPER = Paper(
    title="GloVe: Global Vectors for Word Representation",
    authors="Pennington, Socher, Manning",
    year=2014,
    url="https://aclanthology.org/D14-1162",
)
LEVY_GOLDBERG_PAPER = Paper(
    title="Improving Distributional Similarity with Lessons Learned from Word Embeddings",
    authors="Levy, Goldberg, Dagan",
    year=2015,
    url="https://aclanthology.org/Q15-1016",
)

LSA_PAPER = Paper(
    title="Indexing by Latent Semantic Analysis",
    authors="Deerwester, Dumais, Furnas, Landauer, Harshman",
    year=1990,
    url="https://doi.org/10.1002/(SICI)1097-4571(199009)41:6<391::AID-ASI1>3.0.CO;2-9",
)

CONFIG_MAPPING = native_config_mapping(WORD_VECTOR_FAMILY, RecurrentArchitecture)
CLASSIFICATION_HEAD = SequenceClassification(
    pooling="mean", dense_layer=False, bias=True, dropout=0.0
)
"""A linear classifier of the mean of a text's vectors (Joulin et al. 2017, arXiv:1607.01759,
section 2)."""
SENTENCE_TRAINING: Mapping[str, Any] = {"row_unit": "sentence", "dev_fraction": 0.0}
"""Windows stay within a sentence, and nothing is held out: there is no comparable loss."""
EPOCHS_NOTE = {**SENTENCE_TRAINING, "log_every": 1, "checkpoint_every": 1}
"""A step is an epoch."""


def _preset(
    name: str, paper: Paper, objective: WordVectorMethod, size: int, d: int, rate: float,
    min_count: int = 5,
) -> Published:  # fmt: skip
    return Published(
        name=name,
        family=WORD_VECTOR_FAMILY,
        paper=paper,
        architecture=RecurrentArchitecture(
            vocab_size=size, d_model=d, d_ff=1, n_layers=0, causal=False
        ),
        heads={},
        classification_head=CLASSIFICATION_HEAD,
        objective=objective,
        tokenizer=TokenizerSpec(
            WordLevel(size, min_count=min_count, lowercase=True, split_punctuation=True), FRAME
        ),
        sequence_length=MAX_DOCUMENT_WORDS,
        batch_tokens=CHUNK_TOKENS,
        learning_rate=rate,
        training_options=SENTENCE_TRAINING,
        n_parameters=size * d,
        weight_names=NATIVE_WEIGHT_NAMES,
        config_mapping=CONFIG_MAPPING,
    )


SKIPGRAM_PRESET = replace(
    _preset("word2vec-skipgram", PHRASES_PAPER, SkipGram(), 692_000, 300, 0.025),
    note="Words are lowercased. Subsampling and the number of epochs are "
    "the released code's (1e-3, 5); in the paper, with a billion words, subsampling is about 1e-5, "
    "and epochs are not given.",
)  # fmt: skip
CBOW_PRESET = replace(
    _preset("word2vec-cbow", WORD2VEC_PAPER, CBOW(), 1_000_000, 300, 0.05),
    note="Words are lowercased. As in the released code: 5 negative samples, "
    "windows of up to 5 words on each side, 5 epochs, at 0.05. In the paper: hierarchical "
    "softmax (--set objective.output_layer=HierarchicalSoftmax), 4 on each side, 3 epochs, at "
    "0.025.",
)  # fmt: skip
_FASTTEXT_OBJECTIVE = SkipGram(character_ngrams=CharacterNgrams(), subsample=1e-4)
FASTTEXT_SKIPGRAM = replace(
    _preset("fasttext", FASTTEXT_PAPER, _FASTTEXT_OBJECTIVE, 2_519_370, 300, 0.05),
    note="Words are lowercased; unknown ones are composed of their n-grams. The vocabulary size "
    "is that of the published vectors of English Wikipedia (wiki.en.vec).",
)
GLOVE_300 = replace(
    _preset("glove", GLOVE_PAPER, GloVe(epochs=100), 400_000, 300, 0.05, min_count=1),
    training_options=EPOCHS_NOTE,
    note="A word's vector is the sum of its two (section 4.2).",
)  # fmt: skip
SVD_PRESET = replace(
    _preset("svd-ppmi", LEVY_GOLDBERG_PAPER, SVD(), 189_533, 500, 1.0, min_count=100),
    training_options=EPOCHS_NOTE,
    note="There is no rate. The sizes were not verified in the paper.",
)  # fmt: skip
LSA_PRESET = replace(
    _preset("lsa", LSA_PAPER, LSA(), 50_000, 300, 1.0, min_count=2),
    training_options={**EPOCHS_NOTE, "row_unit": "document"},
    note="There is no rate. The sizes are not the paper's, which has some thousand words and "
    "about 100 dimensions.",
)  # fmt: skip


def _mini(preset: Published, objective: WordVectorMethod) -> Published:
    d, size = 100, 50_000
    kind = WordLevel(size, min_count=5, lowercase=True, split_punctuation=True)
    return replace(
        preset,
        name=f"{preset.name}-mini",
        architecture=RecurrentArchitecture(
            vocab_size=size, d_model=d, d_ff=1, n_layers=0, causal=False
        ),
        tokenizer=TokenizerSpec(kind, FRAME),
        objective=objective,
        n_parameters=size * d,
        note="Not in the paper: for two CPU cores and some million words.",
    )


MINIS = (
    _mini(SKIPGRAM_PRESET, SkipGram()),
    _mini(CBOW_PRESET, CBOW()),
    _mini(FASTTEXT_SKIPGRAM, SkipGram(character_ngrams=CharacterNgrams(n_buckets=200_000))),
    _mini(GLOVE_300, GloVe(x_max=10.0)),  # as the released demo, which has 17 million words
    _mini(SVD_PRESET, SVD(add_contexts=True)),
    _mini(LSA_PRESET, LSA()),
)
PRESETS = (
    *MINIS,
    SKIPGRAM_PRESET,
    CBOW_PRESET,
    FASTTEXT_SKIPGRAM,
    GLOVE_300,
    SVD_PRESET,
    LSA_PRESET,
)
