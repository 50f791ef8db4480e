"""What was saved in format 1, in the names of format 2: the one place that knows both.

A run folder says its format in its files of plain data (`"format": 2` in unmask.json, suite.json,
study.json, shards.json and checkpoints). Format 1 had other names of types and fields for the same
values; `from_format_1` gives them the names of today. Weights and vocabularies are alike in both.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from unmask.files import read_json_object

FORMAT = 2
"""The format in which files are written; those of format 1 are read, too."""

_Fields = Mapping[str, str]

_TYPES = """
Recipe Recipe: begin=init_from look_beside=init_previous_token_heads
    document=document_separator text=text_column sampling=sampling_exponent dev=dev_fraction
    length=sequence_length unit=row_unit memory=memory_length both_ways=bidirectional_data
    jitter=sequence_length_jitter micro_tokens=micro_batch_tokens rate=learning_rate
    layer_decay=layerwise_lr_decay clip=max_grad_norm max_skipped=max_skipped_steps
    keep=keep_checkpoints
Hide Objective: choose=select conceal=corrupt
Pair SentencePairObjective: question=sentence_task
Apart SplitTextObjective: question=sentence_task
Sentences AdjacentSentences: said=reconstruct shortest=min_mean_tokens
BesideCrop CropContrastiveObjective: keep=crop_fraction
TwoSegments TwoSegments: random=random_probability kept=reuse_fraction
OneWay UnidirectionalLM: segment=segment_id
SourceTarget Seq2SeqLM: segments=segment_ids
Denoise DenoisingObjective:
InMode ModeSwitching:
Mixture ObjectiveMixture [names,parts]: parts=components names=component_names
Static StaticMasking: times=n_variants
Spelled SubwordMasking:
FromBothSides BidirectionalWordLM:
InOneStack SingleStackSeq2Seq: whole=bidirectional_source
Skipgram SkipGram: phrases=phrase_detection shrink=dynamic_window output=output_layer
    ngrams=character_ngrams last_rate=min_learning_rate
Cbow CBOW: phrases=phrase_detection shrink=dynamic_window output=output_layer
    ngrams=character_ngrams last_rate=min_learning_rate mean=average_context
    divided=divide_gradient
Glove GloVe: phrases=phrase_detection windows=cooccurrence_window power=alpha
Svd SVD: phrases=phrase_detection windows=cooccurrence_window matrix=association
    power=singular_value_power contexts=add_contexts
Lsa LSA: phrases=phrase_detection
Lamb LAMB:
Muon Muon: others=other_parameters
Adafactor Adafactor: decay=decay_rate most=clip_threshold least=min_parameter_scale
Sgd SGD: patience=averaging_patience
Cosine Cosine: floor=final_fraction
InverseSquareRoot InverseSquareRoot: flat=constant_warmup
SlantedTriangle SlantedTriangular:
Exponential Exponential: flat=constant_steps floor=final_fraction
WSD WSD: shape=decay_shape
Tokenwise TokenMasking:
TokenRuns TokenSpanMasking: shares=length_weights
Words WholeWordMasking [rate]:
NGrams NGramMasking: longest=max_ngram
WordSpans SpanMasking: p=geometric_p longest=max_span_length
Contexts ContextSpanMasking: context=context_factor longest=max_span_length
Spans RandomSpanMasking [mean,rate]: mean=mean_span_length
Falling ScheduledRate: first=initial_rate last=final_selection
Fragment FragmentMasking:
Tail SuffixMasking:
Everything AllTokens:
InPlace MaskInPlace: mask=mask_probability random=random_token_probability
    together=whole_spans
PlaceBefore MaskedNextToken: mask=mask_probability random=random_token_probability
    together=whole_spans
InTurn AutoregressiveMasking: mask=mask_probability
Order PermutationLM: random=random_order
Sentinels ReplaceSpans:
Dropped DropTokens:
InSource MaskedSeq2Seq: mask=mask_probability random=random_token_probability
Future CausalLM:
NextSentence NextSentencePrediction: random=random_probability short=short_probability
    single=single_sentences
SentenceOrder SentenceOrderPrediction: swapped=swap_probability short=short_probability
Neighbors NextTextDiscrimination [shortest]: shortest=min_tokens
TokenMasking TokenMaskingNoise: choose=select random=random_token_probability
TokenDeletion TokenDeletion: choose=select
TextInfilling TextInfilling: mean=mean_span_length random=random_token_probability of=unit
SentencePermutation SentencePermutation: share=fraction
DocumentRotation DocumentRotation: share=probability
Joining PhraseDetection: least=min_count joint=delimiter
Negatives NegativeSampling: count=n_negatives power=exponent
Hierarchical HierarchicalSoftmax:
Ngrams CharacterNgrams: least=min_n most=max_n buckets=n_buckets
Windows CooccurrenceWindow: size=window weight=distance_weighting gaps=break_at_unknown
Pmi PMI: shift=log_shift smoothing=context_smoothing
Tuning FinetuneConfig: options=task_options in_domain=adapt_first name=task_name
    length=max_length batch=batch_size rate=learning_rate auxiliary=lm_loss_weight
    clip=max_grad_norm micro_tokens=micro_batch_tokens
InDomain TaskAdaptivePretraining: least=min_count most=max_vocab_size
WordPiece WordPiece: size=vocab_size
ByteBPE ByteBPE: size=vocab_size cut=pre_tokenization nfc=nfc_normalization
BPE BPE: size=vocab_size apart=separate_end_of_word
SentencePieceBPE SentencePieceBPE: size=vocab_size prefix=add_dummy_prefix
Unigram Unigram: size=vocab_size plain=normalize_quotes_and_accents
Bytes ByteLevel: spare=n_unused_ids
Characters CharacterLevel: size=vocab_size
Words WordLevel [least,lowercase,punctuation,size]: size=vocab_size least=min_count
    punctuation=split_punctuation
CodePointsWithSubwords CodePointsWithSubwords: size=vocab_size
SpelledWords WordBytesWithWords: size=vocab_size
Full FullFinetuning: decay=layerwise_lr_decay reinitialize=reinitialize_layers
    head=head_learning_rate_factor
Frozen FrozenFeatures:
TopLayers TopLayers: layers=n_layers head=head_learning_rate_factor
Gradual GradualUnfreezing: over=unfreeze_fraction decay=layerwise_lr_decay
SourceEncoder SourceEncoder: layers=n_layers vocabulary=vocab_size alone=first_stage_fraction
LoRA LoRA: where=target_modules
Houlsby HoulsbyAdapter: norms=train_norms width=bottleneck_size
Pfeiffer PfeifferAdapter: width=bottleneck_size
AdaMix AdaMix: width=bottleneck_size experts=n_experts consistency=consistency_weight
    shared=shared_projection
IA3 IA3: where=target_modules inputs=feedforward_modules
Prefix PrefixTuning: length=n_virtual_tokens hidden=projection_size
Prompt PromptTuning: length=n_virtual_tokens words=init_text
Mix ScalarMix:
Task Task: does=task_kind name=task_name length=max_length
Columns TaskColumns:
Scored RunResult: step=best_step tuned=n_trainable_parameters
Mixture TaskMixture [limit,name,sampling,tasks,text]: limit=size_limit
    sampling=sampling_exponent
Part MixtureTask [columns,dev,form,label,limit,metric,test,train]: form=template
    columns=column_names limit=size_limit
Plain MixtureText: limit=size_limit
Form TextTemplate: step=number_step between=number_range keep=truncation_keeps
EncoderDecoderArchitecture EncoderDecoderArchitecture: shared=tie_encoder_decoder
    source=source_encoder
CanineArchitecture CanineArchitecture: n_hashes=n_hash_functions n_buckets=n_hash_buckets
    block=local_attention_block rate=downsampling_rate kernel=upsampling_kernel_size
ConvolutionalArchitecture ConvolutionalArchitecture: widths=filter_widths
ElmoArchitecture ElmoArchitecture: reads=direction projected=projection clip=cell_clip
    variational=variational_dropout token_dropout=embedding_dropout spelling=character_cnn
RecurrentArchitecture RecurrentArchitecture: reads=direction projected=projection
    clip=cell_clip variational=variational_dropout token_dropout=embedding_dropout
Architecture Architecture: head_width=head_dim embed_width=embedding_size
    adaptive=adaptive_input kinds=layers.types shared=layers.shared_sublayers
    window=attention_window dilation=attention.dilation global_attention=attention.global_tokens
    tokens_scaled=scale_embedding norm_at=norm_placement norm_embedding=embedding_norm
    norm_final=final_norm query_key_norm=attention.query_key_norm attention_gate=attention.gate
    mixed=sublayers.mixed parallel=sublayers.parallel convolution=layers.ngram_encoding
    gated=gated_feed_forward bias=biases scale=attention.scale
    score_cap=attention.logit_softcapping cross=cross_attention
    feed_forward_dropout=activation_dropout initialize=initializer
Adaptive AdaptiveInput: factor=reduction_factor
GatedConvolutions EvolvedEncoderConvolutions: narrow=narrow_kernel_size wide=wide_kernel_size
AttendedConvolutions EvolvedDecoderConvolutions: heads=n_heads wide=wide_kernel_size
    narrow=narrow_kernel_size
InOrder NoPositions:
Learned LearnedPositions: length=max_positions
Sinusoidal Sinusoidal: length=max_positions order=layout
BucketBias RelativePositionBias: buckets=n_buckets reach=max_distance
LearnedAndBucketBias LearnedPositionsAndRelativeBias: length=max_positions buckets=n_buckets
    reach=max_distance
Rotary Rotary: length=max_positions share=partial_rotary_factor
Cycle LayerwiseRotary: parts=schemes
Disentangled DisentangledAttention: reach=max_distance length=max_positions buckets=n_buckets
    shared=share_projections norm=distance_norm absolute=absolute_positions
Relative TransformerXLPositions: furthest=clamp_length segments=relative_segments
    length=max_positions
Convolution NgramInputEncoding: width=kernel_size
Normal NormalInit: residual=n_residual_branches
FanIn FanInInit: embedding=embedding_std queries=scale_queries
Small SmallInit:
Glorot GlorotInit:
Uniform UniformInit: within=bound
CharacterLstm ElmoInit:
Spelling CharacterCNN: width=character_embedding_size highways=n_highway_layers
    longest=max_characters
Slower LinearScaling:
SlowOnesSlower Llama3Scaling: low=low_frequency_factor high=high_frequency_factor
    length=original_max_positions
Language LanguageModeling: tied=tie_embeddings scaled=scale_hidden cap=logit_softcapping
    decoder=query_stream forward=generation smoothing=label_smoothing
Labels SequenceClassification: pool=pooling layers=pooled_layers dense=dense_layer
TokenLabels TokenClassification: map=transform
RecurrentTags BiLSTMCRF: width=hidden_size layers=n_layers impossible=forbidden_transitions
Spans QuestionAnswering [map,term]: map=transform
Neighbors ContrastiveLoss [among,pool,temperature,term,transform]: pool=pooling
    among=candidates
SentencesSaid SkipThoughts: pool=pooling
SentencesFound QuickThoughts: pool=pooling
Boundary SpanBoundaryObjective: width=position_embedding_size longest=max_span_length
Generator Generator: size=width_factor drawn_with_dropout=sample_with_dropout
    sharing=embedding_sharing
Replaced ReplacedTokenDetection:
Corrected CorrectiveLM: copied=copy_term
CharactersInTurn AutoregressiveCharacters: buckets=n_buckets mask=mask_id
HiddenSubwords SubwordPrediction: size=output_vocab_size
BothSides BidirectionalLM: size=output_vocab_size
Steady ActivationRegularization: asked_by=required_term size=activation_weight
    change=temporal_weight
MaskDecoder EnhancedMaskDecoder: length=max_positions times=n_passes
TwoStreams TwoStreamAttention:
ByMask AppendedMaskGeneration: source=source_segment segment=target_segment
ByNext ShiftedTargetGeneration:
AfterSource SourcePrefixGeneration: whole=bidirectional_source
OneOf CrossEntropy: weights=label_weights
AnyOf BinaryCrossEntropy:
Choice ChoiceCrossEntropy:
Dense PredictionHeadTransform:
Frame SpecialTokens: before=prefix between=separator after=suffix
    signs=punctuation_starts_words first=first_in_vocabulary
TokenizerSpec TokenizerSpec: frame=special_tokens
Progress RunProgress: tokens=n_tokens skipped=n_skipped in_a_row=n_skipped_in_a_row
    since=sums_since_log
Sums LossSums: totals=total_loss counts=n_targets rights=n_correct weights=loss_weights
Cursor DataCursor: taken=n_batches
Manifest ShardsManifest: source=source_sha256 tokenizer=tokenizer_sha256
Shard ShardRecord: n_read=n_documents_read source=source_sha256 parts=source_segments
File FileRecord:
Part SourceSegment [n_documents,n_tokens,source]:
Ran BenchmarkResult:
Study Study: asks=question
Outcome CellResult:
Cell StudyCell: begins=init_from reads=token_factor
PoolOptions PoolingOptions: pool=pooling layers=pooled_layers frame=special_tokens
    symmetric=order_invariant
TagOptions TaggingOptions: width=hidden_size crf=use_crf repair=repair_tags scheme=tag_scheme
AnswerOptions QuestionAnsweringOptions: stride=window_overlap longest=max_answer_length
    no_answer=allow_no_answer null_threshold=no_answer_threshold
GenerateOptions TextGenerationOptions: form=template tasks=task_templates
    plain=plain_text_components between=separator longest=max_target_length
    scored=max_dev_items references=references_column smoothing=label_smoothing
ClozeOptions ClozeOptions: words=label_words
ChooseOptions MultipleChoiceOptions: pool=pooling layers=pooled_layers frame=special_tokens
    symmetric=order_invariant numbering=label_format
MultilabelOptions MultilabelOptions: pool=pooling layers=pooled_layers frame=special_tokens
    symmetric=order_invariant
"""
"""One type a line: its name in format 1 and now, and its fields where they are called otherwise;
part.field where a part of the type has it now. In brackets, where a name was that of two types: the
fields by which this one is known."""

_OF_TRANSFORMERS = frozenset(
    {
        "n_kv_heads", "head_dim", "attention_window", "attention", "sublayers", "layers",
        "scale_embedding", "final_norm", "gated_feed_forward", "cross_attention", "layer_dropout",
    }
)  # fmt: skip
_OF_BLOCKS = frozenset(
    {
        *_OF_TRANSFORMERS, "n_heads", "n_segments", "position", "norm_placement", "embedding_norm",
        "attention_dropout", "activation_dropout",
    }
)  # fmt: skip
_GONE = {
    "CanineArchitecture": _OF_TRANSFORMERS,
    "RecurrentArchitecture": _OF_BLOCKS | {"activation"},
    "ElmoArchitecture": _OF_BLOCKS | {"activation"},
    "ConvolutionalArchitecture": _OF_BLOCKS | {"d_ff"},
}
"""Fields of Transformers that other networks were saved with, and had no use for."""

_PARTS = {"attention": "AttentionVariant", "layers": "LayerVariants", "sublayers": ""}
"""Parts that have fields of an architecture now, and their types."""

_HEADS = {
    "language": "Language", "generator": "Generator", "replaced": "Replaced",
    "corrected": "Corrected", "boundary": "Boundary", "label": "Labels", "choice": "Labels",
    "token_label": "TokenLabels", "spans": "Spans", "crop": "Neighbors", "neighbor": "Neighbors",
    "beside": "SentencesSaid", "both_sides": "BothSides", "characters": "CharactersInTurn",
    "subwords": "HiddenSubwords", "steady": "Steady",
}  # fmt: skip
"""Names of heads -> their types, for changes to a head that name no type."""

_TASK_OPTIONS = {
    "classify": "PoolOptions", "pairs": "PoolOptions", "regress": "PoolOptions",
    "tag": "TagOptions", "answer": "AnswerOptions", "generate": "GenerateOptions",
    "cloze": "ClozeOptions", "choose": "ChooseOptions", "multilabel": "MultilabelOptions",
}  # fmt: skip
_METHODS = {
    "full": "Full", "frozen": "Frozen", "top": "TopLayers", "gradual": "Gradual",
    "source": "SourceEncoder", "lora": "LoRA", "houlsby": "Houlsby", "pfeiffer": "Pfeiffer",
    "adamix": "AdaMix", "ia3": "IA3", "prefix": "Prefix", "prompt": "Prompt", "mix": "Mix",
}  # fmt: skip
_METHOD_NAMES = {"mix": "scalar_mix", "source": "source_encoder"}
_WITHIN = {
    "architecture": (
        "Architecture", "RecurrentArchitecture", "CanineArchitecture", "Learned", "BucketBias",
    ),
    "objective": ("Hide", "Pair", "Tokenwise", "Contexts", "InPlace", "NextSentence"),
    "optimizer": ("Adafactor", "Sgd", "Muon"),
    "schedule": ("Cosine", "Exponential", "WSD"),
}  # fmt: skip
"""First keys of a change to a recipe -> types whose fields may follow."""
_STACKS = ("encoder", "decoder", "source")
_PARTS_OF_ARCHITECTURES = ("Architecture", "RecurrentArchitecture", "CanineArchitecture")
_POSITIONS = ("Learned", "Sinusoidal", "BucketBias", "Rotary", "Disentangled", "Relative")


def read_saved(path: Path) -> dict[str, Any]:
    """Read a file of plain data that says its format, in the names of today.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no JSON object, or of a format that is not read.
    """
    return check_format(read_json_object(path), path)


def check_format(facts: Mapping[str, Any], where: Path | str) -> dict[str, Any]:
    """Return what a file says, in the names of today; as it is if it says no format.

    Raises:
        ValueError: it is of a format that is not read.
    """
    found = facts.get("format", FORMAT)
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= FORMAT:
        raise ValueError(
            f"{where}: format {found!r} is not read: this version of Unmask reads 1 to {FORMAT}"
        )
    return dict(facts) if found == FORMAT else from_format_1(facts) | {"format": FORMAT}


def write_record(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data of ours that is in a file of another library's, with its format."""
    return {"format": FORMAT, **plain}


def read_record(found: Any, where: str) -> Any:
    """Return such plain data in the names of today, without its format; of none it is the first.

    Raises:
        ValueError: it is of a format that is not read.
    """
    if not isinstance(found, Mapping):
        return found
    facts = check_format({"format": 1, **found}, where)
    return {key: value for key, value in facts.items() if key != "format"}


def renamed_type(record: Any, name: str) -> str:
    """Return today's name of a type that is beside a record of `write_record`."""
    first = isinstance(record, Mapping) and record.get("format", 1) == 1
    return _renamed(name, {})[0] if first else name


def from_format_1(plain: Any) -> Any:
    """Return plain data of format 1 in the names of format 2; what has no name is as it was."""
    if isinstance(plain, list | tuple):
        return [from_format_1(one) for one in plain]
    if not isinstance(plain, Mapping):
        return plain
    old = plain.get("kind")
    name, fields = _renamed(old, plain) if isinstance(old, str) else (None, _NO_FIELDS)
    out = {fields.get(key, key): _within(old, key, value, plain) for key, value in plain.items()}
    if name is None:
        return out
    out = _with_parts(out, whole=True)
    return {k: v for k, v in out.items() if k not in _GONE.get(name, ())} | {"kind": name}


_NO_FIELDS: _Fields = {}


def _within(kind: Any, key: str, value: Any, outer: Mapping[str, Any]) -> Any:
    """Return the value of a field; some are tables whose kind is known by their place alone."""
    if isinstance(value, Mapping) and "kind" not in value:
        if kind == "Recipe" and key == "architecture":
            return _architecture(value)
        if kind == "Recipe" and key == "heads":
            return {name: _head(name, of) for name, of in value.items()}
        if kind in ("Task", "Tuning") and key == "options":
            task = outer.get("does", outer.get("task"))
            return _keys(value, (_TASK_OPTIONS.get(str(task), ""),))
        if key in ("recipe", "made_from"):
            return _keys(value, ("Recipe",))
    if kind in ("Cell", "Study") and key == "changes" and isinstance(value, Iterable):
        return [_change(str(one)) for one in value]
    if kind in ("Cell", "Study") and key == "tune" and isinstance(value, str):
        return _method(value)
    if kind == "Progress" and key == "optimizer":
        return _renamed(str(value), {})[0]
    return from_format_1(value)


def _architecture(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Rename changes to an architecture, which name only what they change."""
    names = _fields_of(_PARTS_OF_ARCHITECTURES)
    out: dict[str, Any] = {}
    for key, value in changes.items():
        part = isinstance(value, Mapping) and "kind" not in value
        if part and key in _STACKS:
            out[names.get(key, key)] = _architecture(value)
        elif part and key == "position":
            out[key] = _keys(value, _POSITIONS)
        else:
            out[names.get(key, key)] = from_format_1(value)
    return _with_parts(out, whole=False)


def _with_parts(fields: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Put fields that are called part.field into their parts; `whole`: these name their types."""
    out: dict[str, Any] = {}
    for key, value in fields.items():
        part, dot, name = key.partition(".")
        if not dot:
            out[key] = value
        else:
            out.setdefault(part, {"kind": _PARTS[part]} if whole else {})[name] = value
    if "sublayers" in out:
        out["sublayers"] = _sublayers(out["sublayers"])
    return out


def _sublayers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return how sublayers are connected, which two fields said."""
    if fields.get("mixed"):
        return {"kind": "DepthWeightedSublayers"}
    if parallel := fields.get("parallel"):
        return {"kind": "ParallelSublayers", "shared_norm": parallel == "one_norm"}
    return {"kind": "SequentialSublayers"}


def _head(name: str, changes: Any) -> Any:
    if not isinstance(changes, Mapping) or "kind" in changes:
        return from_format_1(changes)
    return _keys(changes, (_HEADS.get(name, ""),))


def _keys(plain: Mapping[str, Any], kinds: Iterable[str]) -> dict[str, Any]:
    """Rename the keys of a table that names no kind and is one of some types."""
    names = _fields_of(tuple(kinds))
    return {names.get(key, key): from_format_1(value) for key, value in plain.items()}


def _change(text: str) -> str:
    """Rename within `key.key=value`, a change to a recipe."""
    path, equals, value = text.partition("=")
    first, *rest = path.split(".")
    names = _fields_of(_WITHIN.get(first, ()))
    path = ".".join([_fields_of(("Recipe",)).get(first, first), *(names.get(k, k) for k in rest)])
    if value.startswith(("{", "[")):
        value = re.sub(r"\w+(?=\s*=)", lambda key: names.get(key.group(), key.group()), value)
        value = re.sub(r'(?<=")[A-Z]\w+(?=")', lambda kind: _renamed(kind.group(), {})[0], value)
    return f"{path}{equals}{_renamed(value, {})[0]}"


def _method(text: str) -> str:
    """Rename within `word:key=value,key=value`, a method of fine-tuning."""
    word, colon, settings = text.partition(":")
    names = _fields_of((_METHODS.get(word, ""),))
    pairs = [one.partition("=") for one in settings.split(",")] if colon else []
    renamed = ",".join(f"{names.get(key, key)}{equals}{value}" for key, equals, value in pairs)
    return f"{_METHOD_NAMES.get(word, word)}{colon}{renamed}"


def _renamed(kind: str, plain: Mapping[str, Any]) -> tuple[str, _Fields]:
    """Give today's name of a type, and those of its fields; by its fields where two had a name."""
    candidates = _types().get(kind, ())
    for name, known, fields in candidates:
        if not known or plain.keys() - {"kind"} <= known:
            return name, fields
    return (kind, _NO_FIELDS) if not candidates else (candidates[0][0], candidates[0][2])


def _fields_of(kinds: tuple[str, ...]) -> _Fields:
    return {
        old: new
        for kind in kinds
        for *_, fields in _types().get(kind, ())
        for old, new in fields.items()
    }


@cache
def _types() -> dict[str, tuple[tuple[str, frozenset[str], _Fields], ...]]:
    """Read the table: name in format 1 -> name, fields it is known by, fields."""
    found: dict[str, tuple[tuple[str, frozenset[str], _Fields], ...]] = {}
    architecture: _Fields = {}
    for line in _TYPES.strip().replace("\n    ", " ").split("\n"):
        head, _, rest = line.partition(":")
        old, new, *known = head.split()
        pairs = (pair.partition("=") for pair in rest.split())
        fields: _Fields = {old_field: new_field for old_field, _, new_field in pairs}
        if old == "Architecture":
            architecture = fields
        names = frozenset(known[0].strip("[]").split(",")) if known else frozenset[str]()
        found[old] = (*found.get(old, ()), (new, names, fields))
    for kind in (
        "RecurrentArchitecture",
        "ElmoArchitecture",
        "ConvolutionalArchitecture",
        "CanineArchitecture",
    ):
        found[kind] = tuple(
            (new, names, {**architecture, **fields}) for new, names, fields in found[kind]
        )
    return found
