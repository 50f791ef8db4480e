"""Open a tokenizer of any kind from a folder in the Hugging Face layout."""

from pathlib import Path

from unmask.tokenizers.characters.byte_tokenizers import ByT5Tokenizer, WordByteTokenizer
from unmask.tokenizers.characters.code_point_tokenizer import CodePointTokenizer
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.formats.folder import read_pipeline
from unmask.tokenizers.formats.unlearned import byt5_special_tokens, code_point_special_tokens
from unmask.tokenizers.output_vocabularies import wordpieces
from unmask.tokenizers.output_vocabularies import words as word_vocabularies


def load_tokenizer(folder: Path) -> Tokenizer:
    """Read a tokenizer from a folder in the Hugging Face layout.

    It is read from the first of these that is there: tokenizer.json; vocab.txt (BERT);
    vocab.json and merges.txt (GPT-2, RoBERTa, GPT); a SentencePiece file (spiece.model,
    tokenizer.model, ...). tokenizer_config.json, special_tokens_map.json, added_tokens.json and
    config.json beside it say the roles of special tokens. Where they say that the tokens are
    code points, there is no other file but, where a loss needs them, subwords.txt; and none
    where they are ByT5's bytes. Where a loss asks for words that are read in bytes, words.txt
    has these.

    Raises:
        FileNotFoundError: none of these is there.
        ValueError: a file is damaged, or does not say what must be known.
    """
    frame = code_point_special_tokens(Path(folder))
    if frame is not None:
        return CodePointTokenizer(frame, wordpieces.read_wordpiece_vocabulary(Path(folder)))
    of_bytes = byt5_special_tokens(Path(folder))
    if of_bytes is not None:
        return ByT5Tokenizer(*of_bytes)
    known = word_vocabularies.read_word_vocabulary(Path(folder))
    backend, frame = read_pipeline(Path(folder))
    try:
        made = (
            Tokenizer(backend, frame) if known is None else WordByteTokenizer(backend, frame, known)
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    made.origin = str(folder)
    return made
