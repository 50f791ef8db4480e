"""SMALLER: what the ways to make a model smaller cost, in miniature."""

from unmask.studies.compression.study import CompressionCell, CompressionStudy

_HALF = ("layers:keep=2",)
"""Every second layer of the bundled model's four."""
_DISTILBERT = ("soft:temperature=2,weight=5", "cosine", "objective:weight=2")
"""The losses and weights of DistilBERT's released code (5, 1, 2)."""
_TINYBERT = ("soft", "hidden", "attention")


def _post_training(name: str, *methods: str) -> CompressionCell:
    return CompressionCell(name=name, finish=methods)


def _aware(bits: str) -> CompressionCell:
    return CompressionCell(
        name=f"qat-{bits}", tune_compress=(f"qat:bits={bits}",), finish=("packed",)
    )


def _distilled(name: str, *terms: str, initialize: str = "pretrained") -> CompressionCell:
    return CompressionCell(
        name=name,
        compress=_HALF,
        initialize="random" if initialize == "random" else "pretrained",
        token_factor=1.0,
        distill=terms,
    )


SMALLER = CompressionStudy(
    name="smaller",
    question="What does each way to make a model smaller cost in quality, and what does it save?",
    paper=(
        "Sanh et al. 2019, arXiv:1910.01108; Jiao et al. 2020, arXiv:1909.10351; Zafrir et al. "
        "2019, arXiv:1910.06188; Frantar et al. 2023, arXiv:2210.17323; Sanh et al. 2020, "
        "arXiv:2005.07683; Michel et al. 2019, arXiv:1905.10650"
    ),
    cells=(
        CompressionCell(name="whole"),
        _post_training("int8", "int8"),
        _post_training("int8-activations", "int8:activations=8"),
        *(_post_training(f"int{b}", f"quantize:bits={b}") for b in ("4", "3", "2", "1.58", "1")),
        *(_post_training(f"gptq-{bits}", f"gptq:bits={bits}") for bits in ("4", "3", "2")),
        *(_aware(bits) for bits in ("4", "2", "1.58", "1")),
        CompressionCell(
            name="qat-8-activations", tune_compress=("qat:bits=8,activations=8",),
            finish=("packed",),
        ),
        CompressionCell(name="onnx", onnx="float32"),
        CompressionCell(name="onnx-int8", onnx="int8"),
        _post_training("magnitude-50", "prune:fraction=0.5"),
        _post_training("magnitude-90", "prune:fraction=0.9"),
        *(
            CompressionCell(
                name=f"{way}-90",
                tune_compress=(f"{way}:fraction=0.9",),
                finish=("prune:fraction=0",),
            )
            for way in ("gradual", "movement")
        ),
        *(
            CompressionCell(name=f"{part}-50", compress=(f"{part}:fraction=0.5",))
            for part in ("heads", "columns", "lowrank")
        ),
        CompressionCell(name="layers-2-random", compress=_HALF, initialize="random"),
        CompressionCell(name="layers-2", compress=_HALF),
        CompressionCell(name="layers-2-task", compress=_HALF, tune_distill=_TINYBERT),
        _distilled("distilbert", *_DISTILBERT),
        _distilled("distilbert-no-soft", *_DISTILBERT[1:]),
        _distilled("distilbert-no-cosine", _DISTILBERT[0], _DISTILBERT[2]),
        _distilled("distilbert-no-mlm", *_DISTILBERT[:2], "objective:weight=0"),
        _distilled("distilbert-random", *_DISTILBERT, initialize="random"),
        CompressionCell(
            name="distilbert-task", compress=_HALF, token_factor=1.0, distill=_DISTILBERT,
            tune_distill=_TINYBERT,
        ),
        CompressionCell(
            name="distilbert-task-int8", compress=_HALF, token_factor=1.0, distill=_DISTILBERT,
            tune_distill=_TINYBERT, finish=("int8",),
        ),
    ),
    tasks="sentences",
    tokens=1_000_000,
    changes=("objective=mlm:rate=0.15", "learning_rate=5e-4"),
)  # fmt: skip
"""The first letters of a name say the way; a number is bits or per cent removed."""
