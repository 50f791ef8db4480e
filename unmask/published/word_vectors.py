"""Word vectors: word2vec, fastText, GloVe, and factors of associations; a table is all there is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.heads.labels import Labels
from unmask.model.names import OWN_NAMES, own_fields
from unmask.model.recurrent import RecurrentArchitecture
from unmask.published.card import Paper, Published
from unmask.tokens.vocabulary import WORDS as FRAME
from unmask.tokens.vocabulary import TokenizerSpec, Words
from unmask.vectors.corpus import LONGEST
from unmask.vectors.glove import Glove
from unmask.vectors.learning import FAMILY, Method
from unmask.vectors.lsa import Lsa
from unmask.vectors.svd import Svd
from unmask.vectors.word2vec import CHUNK, Cbow, Ngrams, Skipgram

WORD2VEC = Paper(
    title="Efficient Estimation of Word Representations in Vector Space",
    authors="Mikolov, Chen, Corrado, Dean",
    year=2013,
    arxiv="1301.3781",
)
PHRASES = Paper(
    title="Distributed Representations of Words and Phrases and their Compositionality",
    authors="Mikolov, Sutskever, Chen, Corrado, Dean",
    year=2013,
    arxiv="1310.4546",
)
FASTTEXT = Paper(
    title="Enriching Word Vectors with Subword Information",
    authors="Bojanowski, Grave, Joulin, Mikolov",
    year=2017,
    arxiv="1607.04606",
)
GLOVE = Paper(
    title="GloVe: Global Vectors for Word Representation",
    authors="Pennington, Socher, Manning",
    year=2014,
    url="https://aclanthology.org/D14-1162",
)
LESSONS = Paper(
    title="Improving Distributional Similarity with Lessons Learned from Word Embeddings",
    authors="Levy, Goldberg, Dagan",
    year=2015,
    url="https://aclanthology.org/Q15-1016",
)

INDEXING = Paper(
    title="Indexing by Latent Semantic Analysis",
    authors="Deerwester, Dumais, Furnas, Landauer, Harshman",
    year=1990,
    url="https://doi.org/10.1002/(SICI)1097-4571(199009)41:6<391::AID-ASI1>3.0.CO;2-9",
)

FIELDS = own_fields(FAMILY, RecurrentArchitecture)
LABELS = Labels(pool="mean", dense=False, bias=True, dropout=0.0)
"""A linear map of the mean of a text's vectors (Joulin et al. 2017, arXiv:1607.01759, section
2)."""
IN_SENTENCES: Mapping[str, Any] = {"unit": "sentence", "dev": 0.0}
"""Windows do not reach beyond a sentence, and nothing is held out: there is no loss to compare."""
BY_EPOCHS = {**IN_SENTENCES, "log_every": 1, "checkpoint_every": 1}
"""A step is an epoch."""


def _card(
    name: str, paper: Paper, objective: Method, size: int, d: int, rate: float, least: int = 5,
    training: Mapping[str, Any] = IN_SENTENCES, note: str = "",
) -> Published:  # fmt: skip
    return Published(
        name=name,
        family=FAMILY,
        paper=paper,
        architecture=RecurrentArchitecture(
            vocab_size=size, d_model=d, d_ff=1, n_layers=0, causal=False
        ),
        heads={},
        labels=LABELS,
        objective=objective,
        tokenizer=TokenizerSpec(Words(size, least=least, lowercase=True, punctuation=True), FRAME),
        length=LONGEST,
        batch_tokens=CHUNK,
        rate=rate,
        training=training,
        parameters=size * d,
        names=OWN_NAMES,
        fields=FIELDS,
        note=note,
    )


SKIPGRAM = _card(
    "word2vec-skipgram", PHRASES, Skipgram(), 692_000, 300, 0.025,
    note="Words are put in lower case. How often words are passed over, and how many epochs there "
    "are, is the released code's (1e-3, 5); in the paper, of a billion words, it is about 1e-5, "
    "and of epochs nothing is said.",
)  # fmt: skip
CBOW = _card(
    "word2vec-cbow", WORD2VEC, Cbow(), 1_000_000, 300, 0.05,
    note="Words are put in lower case. As in the released code, they are told from 5 others that "
    "are drawn, by up to 5 on each side, in 5 epochs, at 0.05. In the paper they are found in a "
    "tree (--set objective.output=Hierarchical), by 4 on each side, in 3 epochs, at 0.025.",
)  # fmt: skip
FASTTEXT_SKIPGRAM = _card(
    "fasttext", FASTTEXT, Skipgram(ngrams=Ngrams(), subsample=1e-4), 2_519_370, 300, 0.05,
    note="Words are put in lower case; those never seen are composed of their n-grams. So many "
    "words have the published vectors of English Wikipedia (wiki.en.vec).",
)  # fmt: skip
GLOVE_300 = _card(
    "glove", GLOVE, Glove(epochs=100), 400_000, 300, 0.05, least=1, training=BY_EPOCHS,
    note="A word's vector is the sum of its two (section 4.2).",
)  # fmt: skip
SVD = _card(
    "svd-ppmi", LESSONS, Svd(), 189_533, 500, 1.0, least=100, training=BY_EPOCHS,
    note="There is no rate. The sizes were not checked against the paper's text.",
)  # fmt: skip
LSA = _card(
    "lsa", INDEXING, Lsa(), 50_000, 300, 1.0, least=2,
    training={**BY_EPOCHS, "unit": "document"},
    note="There is no rate. The sizes are not the paper's, which has some thousand words, and "
    "about 100 numbers for each.",
)  # fmt: skip


def _mini(card: Published, objective: Method) -> Published:
    d, size = 100, 50_000
    kind = Words(size, least=5, lowercase=True, punctuation=True)
    return replace(
        card,
        name=f"{card.name}-mini",
        architecture=RecurrentArchitecture(
            vocab_size=size, d_model=d, d_ff=1, n_layers=0, causal=False
        ),
        tokenizer=TokenizerSpec(kind, FRAME),
        objective=objective,
        parameters=size * d,
        note="Not in the paper: for two CPU cores and some million words.",
    )


MINIS = (
    _mini(SKIPGRAM, Skipgram()),
    _mini(CBOW, Cbow()),
    _mini(FASTTEXT_SKIPGRAM, Skipgram(ngrams=Ngrams(buckets=200_000))),
    _mini(GLOVE_300, Glove(x_max=10.0)),  # as the released demo, which has 17 million words
    _mini(SVD, Svd(contexts=True)),
    _mini(LSA, Lsa()),
)
CARDS = (*MINIS, SKIPGRAM, CBOW, FASTTEXT_SKIPGRAM, GLOVE_300, SVD, LSA)
