"""A Transformer with learned language embeddings (XLM)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.architecture import AttentionPattern
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.tokenizers.spec import TextLanguages


@dataclass(frozen=True, kw_only=True)
class MultilingualArchitecture(Architecture):
    """One stack of Transformer blocks that is told the language of each token."""

    n_languages: int = 1
    """Languages of the texts; of several, each has an embedding."""
    language_embeddings: bool = True
    """Whether it has."""

    positive_fields: ClassVar[tuple[str, ...]] = (*Architecture.positive_fields, "n_languages")
    size_fields: ClassVar[tuple[str, ...]] = (*Architecture.size_fields, "n_languages")

    @property
    def has_language_embeddings(self) -> bool:
        """Whether there is one for each of several languages."""
        return self.n_languages > 1 and self.language_embeddings

    def with_languages(self, n: int) -> "MultilingualArchitecture":
        """Return a copy for n languages, at least one."""
        return replace(self, n_languages=max(n, 1))

    def with_attention_pattern(self, pattern: AttentionPattern, *, generates: bool = False) -> Self:
        """Return the same network with another attention pattern.

        Raises:
            ValueError: it generates text, whose language nothing would tell it.
        """
        if generates:
            raise ValueError(
                "a network with language embeddings does not generate text: nothing tells it the "
                "language of what comes next; take an objective that masks tokens (mlm, tlm)"
            )
        return super().with_attention_pattern(pattern, generates=generates)

    def build(self) -> "MultilingualTransformer":
        """Build the network."""
        return MultilingualTransformer(self)


class MultilingualTransformer(Transformer):
    """Token, position and language embeddings are added (Conneau and Lample 2019, section 3.3).

    The formula is that of arXiv:1901.07291, figure 1. To a token whose language is not given
    (`TextLanguages`) none is added, as in transformers without `langs`.
    """

    def __init__(self, a: MultilingualArchitecture) -> None:
        super().__init__(a)
        told = a.has_language_embeddings
        self.languages = nn.Embedding(a.n_languages, a.d_embed) if told else None

    def token_embeddings(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Return the token embeddings with those of their languages, without positions."""
        x = super().token_embeddings(batch)
        given = batch.feature(TextLanguages)
        if self.languages is None or given is None:
            return x
        language = given.language
        added = self.languages(language.clamp(min=0)) * (language >= 0)[..., None]
        return x + added.to(x.dtype)
