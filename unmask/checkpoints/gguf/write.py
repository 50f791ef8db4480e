"""Write a model as a GGUF file, as llama.cpp's own converter does."""

import importlib.util
import logging
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.checkpoints.gguf.families import (
    GgufFamily,
    extra_tensors,
    hyperparameters,
    reorder,
    resolve_family,
)
from unmask.checkpoints.gguf.vocabulary import GgufVocabulary, read_vocabulary
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.huggingface.sentence_vectors import MODULES_FILE, read_sentence_vectors
from unmask.checkpoints.huggingface.write import to_external_config, write_configuration
from unmask.conversations.encode import end_of_response
from unmask.conversations.template_files import save_chat_template
from unmask.files import read_json_object
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds

GgufDtype = Literal["float32", "float16"]
GGUF_FILE = "model.gguf"
_log = logging.getLogger(__name__)
_FLOAT32_TENSORS = ("position_embd.weight", "token_types.weight")
"""Matrices that llama.cpp reads as float32 alone."""


def write_gguf(folder: Path, loaded_model: LoadedModel, dtype: GgufDtype = "float32") -> None:
    """Write `model.gguf` into a folder, which the caller makes whole.

    Args:
        folder: of the file.
        loaded_model: a model with a tokenizer; adapters are in its weights.
        dtype: numbers of matrices; vectors are float32.

    Raises:
        ImportError: the extra `gguf` is not installed.
        ValueError: llama.cpp has no such network or tokenizer, or a weight is beyond float16.
    """
    require_gguf()
    import gguf

    preset, model = loaded_model.preset, loaded_model.model
    theirs = to_external_config(model, preset)
    family = resolve_family(preset, model, str(theirs["model_type"]))
    if loaded_model.tokenizer is None:
        raise ValueError(f"{preset.name}: has no tokenizer, which a GGUF file holds")
    _warn_of_differences(loaded_model, family)
    writer = gguf.GGUFWriter(folder / GGUF_FILE, family.architecture)
    writer.add_type("model")
    writer.add_name(preset.name)
    kind = gguf.LlamaFileType
    writer.add_file_type(int(kind.MOSTLY_F16 if dtype == "float16" else kind.ALL_F32))
    _add_hyperparameters(writer, family, hyperparameters(preset, family))
    if loaded_model.sentence_folder is not None:
        _add_pooling(writer, loaded_model.sentence_folder)
    _add_vocabulary(writer, loaded_model, family)
    for name, tensor in gguf_tensors(loaded_model, family).items():
        writer.add_tensor(name, _as_array(name, tensor, dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _warn_of_differences(loaded_model: LoadedModel, family: GgufFamily) -> None:
    """Log what of a model llama.cpp leaves out."""
    name, model = loaded_model.preset.name, loaded_model.model
    stack: Any = model.decoder_architecture
    if any(stack.attention_window):
        _log.warning(
            "%s: llama.cpp's %s has no window: it differs in texts longer than %d tokens",
            name,
            family.architecture,
            1 + max(one for one in stack.attention_window if one is not None),
        )
    left = [one for one in model.head_specs if one != "language" or not family.causal]
    if left:
        _log.warning("%s: heads are left out: %s", name, ", ".join(left))


def require_gguf() -> None:
    """Check that the library of the extra is installed.

    Raises:
        ImportError: it is not.
    """
    if importlib.util.find_spec("gguf") is None:
        raise ImportError('a GGUF file needs gguf: pip install "unmask[gguf]"')


def _add_hyperparameters(writer: Any, family: GgufFamily, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        key = f"{family.architecture}.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_string(key, value)


def _add_pooling(writer: Any, folder: Path) -> None:
    """Add how a folder of sentence-transformers makes the vector of a text.

    Raises:
        ValueError: llama.cpp cannot make it.
    """
    import gguf

    pooling = gguf.PoolingType
    types: dict[tuple[str, ...], Any] = {
        ("mean",): pooling.MEAN,
        ("cls",): pooling.CLS,
        ("lasttoken",): pooling.LAST,
    }
    vectors = read_sentence_vectors(folder)
    if vectors.poolings not in types or any(step is not None for step in vectors.steps):
        raise ValueError(
            f"{folder / MODULES_FILE}: llama.cpp has pooling by mean, cls or lasttoken, without "
            f"layers after it, got {' and '.join(vectors.poolings)}"
            + ("" if vectors.poolings not in types else " with a dense layer")
        )
    writer.add_pooling_type(types[vectors.poolings])
    if vectors.prompt or vectors.lowercase:
        kept = "prompt" if vectors.prompt else "do_lower_case"
        _log.warning("%s: llama.cpp does not apply %s: apply it to the texts", folder, kept)


def _add_vocabulary(writer: Any, loaded_model: LoadedModel, family: GgufFamily) -> None:
    """Add tokens, which of them begin and end texts, and the chat template.

    Raises:
        ValueError: llama.cpp has no such tokenizer.
    """
    import gguf

    preset, model, tokenizer = loaded_model.preset, loaded_model.model, loaded_model.tokenizer
    assert tokenizer is not None
    tokenizer.check_single_vocabulary("a GGUF file")
    tokenizer.check_reads_forward("a GGUF file")
    with tempfile.TemporaryDirectory() as name:
        beside = Path(name)
        write_configuration(beside, model, preset, tokenizer)
        save_chat_template(loaded_model.chat_template, beside)
        vocabulary = read_vocabulary(
            read_json_object(beside / "tokenizer.json"),
            model.vocab_size,
            preset.name,
            tokenizer.special_tokens.mask,
        )
        logging.getLogger("gguf").setLevel(logging.ERROR)
        special = gguf.SpecialVocab(
            beside, load_merges=vocabulary.model == "gpt2", n_vocab=len(vocabulary.tokens)
        )
    _set_frame(special, tokenizer.special_ids, preset.name)
    if template := loaded_model.chat_template:
        with suppress(ValueError):  # of a template for other turns than two
            if (end := end_of_response(tokenizer, template)) is not None:
                special.special_token_ids["eot"] = end
    _add_tokens(writer, vocabulary)
    special.add_to_gguf(writer, quiet=True)
    if family.architecture == "bert":
        writer.add_token_type_count(max(model.decoder_architecture.segment_count, 1))
    if family.architecture == "t5":
        writer.add_decoder_start_token_id(tokenizer.special_ids.start)


def _set_frame(special: Any, ids: SpecialTokenIds, name: str) -> None:
    """Set which tokens llama.cpp puts before and after a text.

    Raises:
        ValueError: there are several of them.
    """
    for role, around in (("bos", ids.prefix), ("eos", ids.suffix)):
        if len(around) > 1:
            raise ValueError(
                f"{name}: llama.cpp puts one token before a text and one after it, and not "
                f"post_processor of tokenizer.json: {len(around)}"
            )
        special.add_special_token[role] = bool(around)
        special.special_token_ids |= {role: around[0]} if around else {}


def _add_tokens(writer: Any, vocabulary: GgufVocabulary) -> None:
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.types))
    if vocabulary.scores is not None:
        writer.add_token_scores(list(vocabulary.scores))
    for key, value in (vocabulary.settings or {}).items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    if vocabulary.charsmap is not None:
        writer.add_precompiled_charsmap(vocabulary.charsmap)


def gguf_tensors(loaded_model: LoadedModel, family: GgufFamily) -> dict[str, Tensor]:
    """Return the tensors of a model by llama.cpp's names; heads of labels are left out."""
    import gguf

    preset, model = loaded_model.preset, loaded_model.model
    kept = "heads.language.out." if family.causal else "-"
    own = {
        name: x
        for name, x in model.trained_weights().items()
        if name.startswith(("backbone.", kept))
    }
    theirs = preset.weight_names.without_prefix(preset.weight_names.to_external(own))
    architecture = next(
        key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == family.architecture
    )
    names = gguf.get_tensor_name_map(architecture, _n_blocks(model))
    change, found = reorder(preset, family), dict[str, Tensor]()
    for name, tensor in theirs.items():
        candidates = (name, preset.weight_names.prefix + name)
        mapped = [names.get_name(one, try_suffixes=(".weight", ".bias")) for one in candidates]
        new = next((one for one in mapped if one is not None), None)
        if new is None:
            raise ValueError(
                f"{preset.name}: llama.cpp's {family.architecture} has no tensor for {name}"
            )
        found[new] = change(name, tensor)
    if family.needs_output and "output.weight" not in found:
        found["output.weight"] = found["token_embd.weight"]
    return found | extra_tensors(preset, family)


def _n_blocks(model: Model) -> int:
    a = model.architecture
    return max(a.encoder_stack.n_layers, a.decoder_stack.n_layers)


def _as_array(name: str, tensor: Tensor, dtype: GgufDtype) -> "Float[np.ndarray, '...']":
    """Return a tensor as written.

    Raises:
        ValueError: a number is beyond float16.
    """
    numbers = tensor.detach().to(torch.float32).contiguous().numpy()
    if dtype == "float32" or numbers.ndim < 2 or name in _FLOAT32_TENSORS:
        return numbers
    if float(np.abs(numbers).max(initial=0)) > float(np.finfo(np.float16).max):
        raise ValueError(f"{name}: a weight is beyond float16; give --dtype float32")
    return numbers.astype(np.float16)
