"""Sources of a recipe, and whether they fit its tokenizer, its rows and its objective."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from unmask.objectives.objective import AnyObjective
from unmask.objectives.sentence_pairs.tasks import SINGLE_DOCUMENT_TERMS
from unmask.objectives.sentence_pairs.translation import TranslationLM
from unmask.shards.read import TokenShards
from unmask.shards.remote.access import RemoteAccess
from unmask.shards.remote.location import is_remote, parse_location
from unmask.shards.remote.shards import open_remote
from unmask.text.documents import Document
from unmask.text.mixtures import (
    pair_languages,
    read_documents_by_source,
    source_languages,
    source_names,
)
from unmask.tokenizers.load import with_data_languages
from unmask.tokenizers.spec import SpecialTokenIds, SpecialTokens, TokenizerSpec
from unmask.tokenizers.vocabulary import ByteLevel, CharacterCoverageVocabulary, CodePoints
from unmask.training.config import Recipe
from unmask.zoo.preset import Published


def resolve_tokenizer_spec(recipe: Recipe, preset: Published) -> TokenizerSpec:
    """Return the card's kind of tokenizer, of the size and coverage that the recipe says.

    Its language embeddings are those of the recipe's sources.

    Raises:
        ValueError: the card's kind has no coverage, or reads no text.
    """
    if not preset.reads_texts:
        raise ValueError(f"{preset.name} reads pictures: it has no tokenizer, and reads no text")
    spec, coverage = preset.tokenizer, recipe.character_coverage
    if recipe.data:
        spec = replace(spec, special_tokens=with_data_languages(spec.special_tokens, recipe.data))
    if coverage is not None:
        if not isinstance(spec.vocabulary, CharacterCoverageVocabulary):
            raise ValueError(
                f"character_coverage = {coverage}: is of word pieces and SentencePiece's kinds, "
                f"but {preset.name} learns {type(spec.vocabulary).__name__}"
            )
        spec = replace(spec, vocabulary=replace(spec.vocabulary, character_coverage=coverage))
    if recipe.vocab_size is None or isinstance(spec.vocabulary, ByteLevel | CodePoints):
        return spec
    return replace(spec, vocabulary=replace(spec.vocabulary, vocab_size=recipe.vocab_size))


def open_documents(recipe: Recipe) -> Iterator[Document]:
    """Open the recipe's documents anew; of several sources, each says of which it is."""
    return read_documents_by_source(
        recipe.data,
        document_separator=recipe.document_separator,
        text_column=recipe.text_column,
        encoding_errors=recipe.encoding_errors,
    )


def open_prepared(sources: Sequence[str], access: RemoteAccess | None = None) -> TokenShards | None:
    """Open a folder written by `unmask prepare`, if the sources name one.

    Args:
        sources: of the recipe; a URL is that of a prepared folder.
        access: how a folder at a URL is read.

    Raises:
        ValueError: there are further sources beside the folder.
    """
    folders = [s for s in sources if is_remote(s) or (Path(s) / "shards.json").is_file()]
    if folders and len(sources) > 1:
        name = parse_location(folders[0]).url if is_remote(folders[0]) else folders[0]
        raise ValueError(f"{name} is prepared already: give it alone, without other data")
    if not folders:
        return None
    if is_remote(folders[0]):
        return open_remote(folders[0], access)
    return TokenShards.open(Path(folders[0]))


def check_sampling(recipe: Recipe, shards: TokenShards | None) -> None:
    """Check that there are several sources, and which, if the recipe samples from sources.

    Args:
        recipe: the recipe with the sources.
        shards: the tokenized sources, if there are any yet.

    Raises:
        ValueError: there is one source, the shards do not tell them apart, or they are not those
            that have weights.
    """
    if not recipe.samples_sources:
        return
    told = recipe.sampling_name
    if recipe.row_unit == "stream":
        raise ValueError(
            f"{told}: row_unit = stream keeps the order of the text; take another row_unit"
        )
    if shards is not None and shards.sources_of_documents is None:
        raise ValueError(
            f"{told}: {shards.location} does not say of several sources which document is of "
            "which; prepare it anew, with a folder, pattern or file for each"
        )
    if shards is None and len(names := set(source_names(recipe.data))) < 2:
        raise ValueError(
            f"{told} needs several sources, and {', '.join(names)} is one; name a folder, pattern "
            "or file for each with --data"
        )
    sources = None if shards is None else shards.sources_of_documents
    names = [*dict.fromkeys(source_names(recipe.data))] if sources is None else sources[0]
    recipe.sampling_shares(names, [1] * len(names))


def check_languages(
    recipe: Recipe, special_ids: SpecialTokenIds | SpecialTokens, shards: TokenShards | None
) -> None:
    """Check that the language of each text is known, if the tokenizer has language tokens.

    Args:
        recipe: the recipe with the sources.
        special_ids: the tokenizer's special tokens.
        shards: the tokenized sources, if there are any yet.

    Raises:
        ValueError: a language is not known, or has no token.
    """
    if shards is None:
        names = source_languages(recipe.data)
    elif shards.sources_of_documents is None:
        names = [None]
    else:
        found = shards.sources_of_documents[0]
        names = [language for name in found for language in pair_languages(name) or (name,)]
    check_source_languages(names, special_ids)


def check_source_languages(
    names: Iterable[str | None], special_ids: SpecialTokenIds | SpecialTokens
) -> None:
    """Check that sources are called by languages, where the tokenizer has tokens for these.

    Raises:
        ValueError: one is not.
    """
    known = (
        special_ids.languages
        if isinstance(special_ids, SpecialTokens)
        else [n for n, _ in special_ids.languages]
    )
    for name in names:
        if known and name not in known:
            got = "one without a language" if name is None else repr(name)
            raise ValueError(
                f"this model says of each text in which language it is: name each source as "
                f"LANGUAGE=PATH with one of {', '.join(known)}; got {got}"
            )


def check_row_unit(recipe: Recipe, objective: AnyObjective) -> None:
    """Check that the objective can be computed on the recipe's rows.

    Raises:
        ValueError: the objective needs rows of one document, and these hold several; or rows that
            stay the same, and these do not.
    """
    if recipe.reshuffle_documents and objective.n_variants is not None:
        raise ValueError(
            "reshuffle_documents: this objective hides the same tokens of a row in later epochs, "
            "and there would be other rows; leave it false"
        )
    about_one = [name for name in SINGLE_DOCUMENT_TERMS if name in objective.loss_terms]
    if recipe.row_unit == "stream" and recipe.packing == "pack":
        raise ValueError(
            "row_unit = stream: its rows are full, and cannot be packed; leave 'bucket'"
        )
    if recipe.bidirectional_data and objective.causal:
        raise ValueError("bidirectional_data: this objective is causal; leave it false")
    if recipe.row_unit in ("corpus", "stream") and about_one:
        raise ValueError(
            f"row_unit = {recipe.row_unit}: its rows are of several documents, and "
            f"{about_one[0]} is asked about one; take 'document', 'paragraph', 'sentence' or "
            "'sentences', or an objective without a question"
        )


def check_translation_pairs(
    recipe: Recipe, objective: AnyObjective, source_names: Iterable[str]
) -> None:
    """Check that translation pairs are read by an objective that hides both sides.

    Raises:
        ValueError: they are not, or rows are those of a stream.
    """
    name = next((name for name in source_names if pair_languages(name) is not None), None)
    if name is None:
        return
    if not isinstance(objective, TranslationLM):
        raise ValueError(
            f"{name}: translation pairs need an objective that hides both sides: --objective tlm"
        )
    if recipe.row_unit == "stream":
        raise ValueError(
            f"{name}: a translation pair is a row of its own; take another row_unit than stream"
        )
