"""SciBERT: Beltagy et al. 2019, arXiv:1903.10676.

"SciBERT: A Pretrained Language Model for Scientific Text": BERT-base with a vocabulary of papers.
"""

from dataclasses import replace

from unmask.tokenizers.spec import BERT as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.encoders.bert_family import bert
from unmask.zoo.preset import Paper, Published

PAPER = Paper(
    title="SciBERT: A Pretrained Language Model for Scientific Text",
    authors="Beltagy, Lo, Cohan",
    year=2019,
    arxiv="1903.10676",
)


def _with_scivocab(case: str, size: int, parameters: int) -> Published:
    """Return BERT-base with the vocabulary of scientific papers."""
    return replace(
        bert.BERT_BASE_UNCASED,
        name=f"scibert-scivocab-{case}",
        paper=PAPER,
        architecture=replace(bert.BASE, vocab_size=size),  # section 3.3: BERT-base
        tokenizer=TokenizerSpec(WordPiece(size, lowercase=case == "uncased"), FRAME),
        n_parameters=parameters,
        hub_id=f"allenai/scibert_scivocab_{case}",
        note="1.14M papers; first rows of 128 tokens, then of 512 (sections 2 and 3.3).",
    )


# Section 2: 30K pieces; exact sizes are in released configurations.
SCIBERT_UNCASED = _with_scivocab("uncased", 31_090, 110_543_220)
SCIBERT_CASED = _with_scivocab("cased", 31_116, 110_563_214)

PRESETS = (SCIBERT_UNCASED, SCIBERT_CASED)
