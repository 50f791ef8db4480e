"""Settings of generation in a folder: generation_config.json, or config.json without one.

What transformers' `generate` does by these settings is done here, too, or refused by key.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from unmask.checkpoints.tensors import read_json_file
from unmask.conversations.encode import end_of_response
from unmask.conversations.template import ChatTemplate
from unmask.files import encode_utf8
from unmask.heads.model import Model
from unmask.model.exchange.config_keys import ConfigKeys
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds

GENERATION_FILE = "generation_config.json"
TOKEN_KEYS = ConfigKeys(
    """
    eos_token_id                     used      ids        -
    bos_token_id                     used      integer    -
    decoder_start_token_id           used      integer    -
    forced_bos_token_id              used      integer    -
    forced_eos_token_id              used      integer    -
    pad_token_id                     harmless
    """
)
"""Keys of tokens, which hold for all settings. Padding has no effect here."""
TEXT_KEYS = ConfigKeys(
    """
    max_length                       used      count      -
    max_new_tokens                   used      size       -
    min_length                       used      count      0
    min_new_tokens                   used      count      -
    repetition_penalty               used      positive   1
    no_repeat_ngram_size             used      count      0
    bad_words_ids                    used      sequences  []
    suppress_tokens                  used      ids        []
    begin_suppress_tokens            used      ids        []
    encoder_repetition_penalty       fixed     1
    encoder_no_repeat_ngram_size     fixed     0
    exponential_decay_length_penalty fixed
    guidance_scale                   fixed     1
    sequence_bias                    fixed
    watermarking_config              fixed
    remove_invalid_values            fixed     false
    renormalize_logits               fixed     false
    stop_strings                     fixed
    token_healing                    fixed     false
    max_time                         fixed
    is_assistant                     fixed     false
    cache_implementation             fixed     dynamic|static|offloaded|offloaded_static|hybrid|hybrid_chunked|sliding_window|offloaded_hybrid|offloaded_hybrid_chunked
    cache_config                     harmless
    max_cache_len                    harmless
    use_cache                        harmless
    prefill_chunk_size               harmless
    compile_config                   harmless
    disable_compile                  harmless
    continuous_batching_config       harmless
    num_assistant_tokens             harmless
    num_assistant_tokens_schedule    harmless
    assistant_confidence_threshold   harmless
    assistant_lookbehind             harmless
    target_lookbehind                harmless
    assistant_ensemble_weight        harmless
    speculation_type                 harmless
    max_matching_ngram_size          harmless
    output_attentions                harmless
    output_hidden_states             harmless
    output_scores                    harmless
    output_logits                    harmless
    return_dict_in_generate          harmless
    transformers_version             harmless
    _from_model_config               harmless
    """  # noqa: E501 - a line is a key
)
"""Keys of any strategy. Stop strings are not in the text here, but they are there. An assistant has
no effect where no model is given for it."""
STRATEGY_KEYS = ConfigKeys(
    """
    do_sample                        used      flag       false
    num_beams                        used      size       1
    num_beam_groups                  fixed     1
    diversity_penalty                fixed     0
    num_return_sequences             fixed     1
    penalty_alpha                    fixed     0
    dola_layers                      fixed
    constraints                      fixed
    force_words_ids                  fixed
    assistant_early_exit             fixed
    prompt_lookup_num_tokens         fixed
    use_mtp                          fixed     false
    """
)
"""Keys that choose a strategy."""
SAMPLING_KEYS = ConfigKeys(
    """
    temperature                      used      positive   1
    top_k                            used      count      50
    top_p                            used      probability -
    min_p                            used      fraction     -
    typical_p                        used      probability -
    top_h                            fixed
    epsilon_cutoff                   fixed     0
    eta_cutoff                       fixed     0
    """
)
"""Keys that are read where tokens are drawn."""
BEAM_KEYS = ConfigKeys(
    """
    length_penalty                   used      real       1
    early_stopping                   fixed     false|true|never
    low_memory                       fixed     false
    """
)
"""Keys that are read in a search with beams."""
GENERATION_KEYS = ConfigKeys(
    "", TOKEN_KEYS, TEXT_KEYS, STRATEGY_KEYS, SAMPLING_KEYS, BEAM_KEYS
).table
"""All keys of transformers' GenerationConfig; it ignores others."""


@dataclass(frozen=True)
class FolderGeneration:
    """What a folder says of generation."""

    file: Path
    keys: Mapping[str, Any]
    """Of the file, without those that are null."""
    is_encoder_decoder: bool
    """Whether lengths count the tokens of an answer, and not of a prompt."""

    def settings(
        self, chosen: Mapping[str, Any], defaults: Mapping[str, Any], *, with_strategy: bool
    ) -> dict[str, Any]:
        """Return the settings of `unmask.generation.settings.generation_config` beside `chosen`.

        Args:
            chosen: settings that replace those of the file.
            defaults: `max_new_tokens`, where there is none.
            with_strategy: whether the file's strategy counts.

        Raises:
            ValueError: a key asks for what is not computed here; the message names file and key.
        """
        keys, tokens = self._complete(TEXT_KEYS), self._complete(TOKEN_KEYS)
        lengths = {**defaults, **self._lengths(keys)}
        if "max_new_tokens" in chosen:
            lengths |= {"max_new_tokens": chosen["max_new_tokens"], "max_length": None}
        if "min_new_tokens" in chosen:
            lengths["min_length"] = 0
        elif isinstance(longest := lengths["max_new_tokens"], int):
            lengths["min_new_tokens"] = min(lengths.get("min_new_tokens", 0), longest)
        strategy = self._strategy() if with_strategy else {}
        suppressed, forced = keys["suppress_tokens"], tokens.get("forced_eos_token_id")
        if forced in _as_list(suppressed):
            raise ValueError(f"{self.file}: forced_eos_token_id = {forced} is in suppress_tokens")
        ends = _as_list(tokens.get("eos_token_id"))
        words = [word for word in keys["bad_words_ids"] if len(word) != 1 or word[0] not in ends]
        return {
            **lengths,
            **strategy,
            "repetition_penalty": float(keys["repetition_penalty"]),
            "no_repeat_ngram_size": keys["no_repeat_ngram_size"] or None,
            "forbidden": tuple(map(tuple, [*words, *([i] for i in _as_list(suppressed))])),
            "forbidden_first": tuple(_as_list(keys["begin_suppress_tokens"])),
            "last_token": forced,
        }

    def _complete(self, table: ConfigKeys) -> dict[str, Any]:
        try:
            return table.complete(self.keys)
        except ValueError as error:
            raise ValueError(f"{self.file}: {error}") from None

    def _lengths(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        lengths: dict[str, Any] = {}
        if "max_new_tokens" in keys:
            lengths["max_new_tokens"] = keys["max_new_tokens"]
        elif "max_length" in keys:
            if keys["max_length"] < 2:
                n = keys["max_length"]
                raise ValueError(f"{self.file}: max_length must be above 1, got {n}")
            # There is a token before new ones.
            lengths |= {"max_length": keys["max_length"], "max_new_tokens": keys["max_length"] - 1}
        if "min_new_tokens" in keys:
            return {**lengths, "min_new_tokens": keys["min_new_tokens"]}
        return {**lengths, "min_length": keys["min_length"]}

    def _strategy(self) -> dict[str, Any]:
        keys = self._complete(STRATEGY_KEYS)
        if keys["do_sample"] and keys["num_beams"] > 1:
            raise ValueError(
                f"{self.file}: do_sample = True with num_beams = {keys['num_beams']} is not "
                "supported, only one of them; give temperature or beams"
            )
        if keys["num_beams"] > 1:
            beams = self._complete(BEAM_KEYS)
            return {
                "beams": keys["num_beams"],
                "length_penalty": float(beams["length_penalty"]),
                "early_stopping": beams.get("early_stopping", False),
            }
        if not keys["do_sample"]:
            return {}
        keys = self._complete(SAMPLING_KEYS)
        shares = {name: float(keys[name]) for name in _SHARES if keys.get(name)}
        top_k = {"top_k": keys["top_k"]} if keys["top_k"] else {}
        return {"temperature": float(keys["temperature"]), **top_k, **shares}

    def special_ids(self, special_ids: SpecialTokenIds) -> SpecialTokenIds:
        """Return special tokens with those of the folder; languages that are chosen remain.

        Raises:
            ValueError: a token is none of the vocabulary.
        """
        keys, n = self._complete(TOKEN_KEYS), special_ids.vocab_size
        ends = [i for i in _as_list(keys.get("eos_token_id")) if 0 <= i < n]
        special_ids = replace(
            special_ids,
            end=next((i for i in ends if i in special_ids.all_ids), None),
            further_ends=tuple(ends),
        )
        forced, start = keys.get("forced_bos_token_id"), keys.get("bos_token_id")
        self._check_token("forced_eos_token_id", keys.get("forced_eos_token_id", 0), n)
        if not self.is_encoder_decoder:
            if forced is not None:
                raise ValueError(
                    f"{self.file}: forced_bos_token_id = {forced} is not supported without an "
                    "encoder, leave it out"
                )
            # Of an empty prompt, the only one that it begins.
            return special_ids if start not in range(n) else replace(special_ids, start=start)
        if _has_language_tokens(special_ids):
            return special_ids
        start = keys.get("decoder_start_token_id", special_ids.start if start is None else start)
        self._check_token("decoder_start_token_id", start, n)
        if forced is not None and forced not in special_ids.all_ids:
            raise ValueError(
                f"{self.file}: forced_bos_token_id must be a special token, got {forced}"
            )
        return replace(special_ids, start=start, target_prefix=() if forced is None else (forced,))

    def _check_token(self, key: str, token: int, n: int) -> None:
        if not 0 <= token < n:
            raise ValueError(f"{self.file}: {key} must be from 0 to {n - 1}, got {token}")


_SHARES = ("top_p", "min_p", "typical_p")


def _has_language_tokens(special_ids: SpecialTokenIds) -> bool:
    return bool(special_ids.languages) and not special_ids.language_embeddings


def _as_list(ids: int | Sequence[int] | None) -> list[int]:
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


def read_generation(folder: Path, model: Model) -> FolderGeneration | None:
    """Read what a folder of a decoder says of generation; None: nothing in this layout.

    Raises:
        ValueError: a file is not a JSON object.
    """
    if not model.decoder_architecture.causal:
        return None
    has_encoder = model.architecture.is_encoder_decoder
    if (file := folder / GENERATION_FILE).is_file():
        keys = read_json_file(file)
    elif (file := folder / "config.json").is_file():
        stored, keys = read_json_file(file), dict[str, object]()
        parts = [stored.get(name) for name in ("decoder", "generator", "text_config")]
        for part in (next(filter(None, parts), None), stored):
            keys |= _non_null(part, GENERATION_KEYS)
    else:
        return None
    return FolderGeneration(file, _non_null(keys, keys), has_encoder)


def _non_null(part: object, names: Collection[str]) -> dict[str, object]:
    items = cast("dict[str, object]", part).items() if isinstance(part, dict) else ()
    return {key: value for key, value in items if key in names and value is not None}


def special_token_keys(special_ids: SpecialTokenIds, model: Model) -> dict[str, Any]:
    """Return the special tokens of a model by transformers' keys."""
    keys: dict[str, Any] = {"pad_token_id": special_ids.pad}
    if not model.decoder_architecture.causal:
        return keys
    if special_ids.end is not None:
        keys["eos_token_id"] = special_ids.end
    if not model.decoder_architecture.attends_to_encoder:
        return keys | {"bos_token_id": special_ids.start}
    keys["decoder_start_token_id"] = special_ids.start
    if special_ids.decoder_prefix:
        keys["bos_token_id"] = special_ids.decoder_prefix[0]
    return keys


def write_generation(
    folder: Path,
    model: Model,
    tokenizer: Tokenizer | None,
    *,
    read: FolderGeneration | None = None,
    template: ChatTemplate | None = None,
) -> None:
    """Write generation_config.json of a decoder.

    Args:
        folder: the model's folder.
        model: the model.
        tokenizer: its tokenizer; special tokens and chosen languages are from it.
        read: what is written in place of the special tokens.
        template: the template whose end of a response ends a text, too.
    """
    special = None if tokenizer is None else tokenizer.special_ids
    if read is not None:
        keys = dict(read.keys)
        if special is not None and _has_language_tokens(special) and not special.needs_languages:
            forced = next(iter(special.decoder_prefix), None)
            keys |= {"decoder_start_token_id": special.start, "forced_bos_token_id": forced}
    else:
        is_decoder = "language" in model.head_specs and model.decoder_architecture.causal
        if special is None or not is_decoder:
            return
        keys = special_token_keys(special, model)
        if model.decoder_architecture.attends_to_encoder and special.decoder_prefix:
            keys["forced_bos_token_id"] = special.decoder_prefix[0]
    if template is not None and tokenizer is not None:
        ends = [*_as_list(keys.get("eos_token_id")), end_of_response(tokenizer, template)]
        ends = list(dict.fromkeys(end for end in ends if end is not None))
        keys |= {"eos_token_id": ends} if len(ends) > 1 else {}
    data = json.dumps(keys, indent=2, ensure_ascii=False) + "\n"
    (folder / GENERATION_FILE).write_bytes(encode_utf8(data))
