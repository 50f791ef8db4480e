"""TRANSFER: what a model tuned on English captions knows of German and French ones."""

from unmask.studies.transfer.labels import LabelWords
from unmask.studies.transfer.study import TransferCell, TransferStudy

_MODEL = "xlm-roberta-mini"
_LANGUAGES = ("en", "de", "fr")
_FROZEN_BODY = (
    'frozen=["backbone.layers.*","backbone.position.*","backbone.segments.*",'
    '"backbone.embed_norm.*","heads.language.dense.*","heads.language.norm.*"]',
)
_SCENES = {
    "water": "water pool ocean beach lake river swimming swims boat surfing waves wave sea surfer "
    "surfboard kayak canoe",
    "snow": "snow snowy ski skiing skier skis snowboard snowboarder snowboarding ice sled hockey",
    "street": "street sidewalk city road car traffic bus truck motorcycle crosswalk",
    "grass": "grass field grassy soccer football baseball lawn",
    "music": "guitar guitars music singing sings microphone band piano drums concert violin",
    "food": "food eating eats kitchen cooking restaurant meal grill cake chef",
}


def _joint(name: str, **more: object) -> TransferCell:
    """Return a cell of all languages, with as many tokens of each as one of a single language."""
    plain = {"name": name, "model": _MODEL, "languages": _LANGUAGES, "token_factor": 3.0}
    return TransferCell(**plain | more)  # pyright: ignore[reportArgumentType]


def _depth(n_layers: int, d_ff: int) -> tuple[str, str]:
    return (f"architecture.n_layers={n_layers}", f"architecture.d_ff={d_ff}")


TRANSFER = TransferStudy(
    name="transfer",
    question="What is learned from English labels in other languages?",
    paper="Karthikeyan et al. 2020, arXiv:1912.07840; Conneau et al. 2020, arXiv:1911.01464; "
    "Artetxe et al. 2020, arXiv:1910.11856",
    languages=_LANGUAGES,
    tasks="multi30k/train.{language}",
    labels=tuple(LabelWords(label=k, words=tuple(v.split())) for k, v in _SCENES.items()),
    cells=(
        TransferCell(name="english", model=_MODEL, languages=("en",)),
        _joint("joint"),
        _joint("joint-tlm", objective="tlm", is_paired=True),
        TransferCell(
            name="english-fixed", model=_MODEL, languages=("en",), init_from="english",
            token_factor=0.0, tune="top:n_layers=2",
        ),
        TransferCell(
            name="german-vocabulary", model=_MODEL, languages=("de",), init_from="english",
            changes=_FROZEN_BODY, body_of="english-fixed", scored=("de",),
        ),
        TransferCell(
            name="german", model=_MODEL, languages=("de",), tune_language="de", scored=("de",)
        ),
        TransferCell(
            name="german-separate", model=_MODEL, languages=("de",), init_from="german",
            token_factor=0.0, body_of="english-fixed", scored=("de",),
        ),
        _joint("joint-no-overlap", own_scripts=True),
        _joint("joint-tlm-no-overlap", objective="tlm", is_paired=True, own_scripts=True),
        TransferCell(
            name="french-vocabulary", model=_MODEL, languages=("fr",), init_from="english",
            changes=_FROZEN_BODY, body_of="english-fixed", scored=("fr",),
        ),
        TransferCell(
            name="french", model=_MODEL, languages=("fr",), tune_language="fr", scored=("fr",)
        ),
        _joint("joint-1-layer", changes=_depth(1, 1280)),
        _joint("joint-4-layers", changes=_depth(4, 128)),
    ),
    changes=(
        "architecture.d_model=128",
        "architecture.n_heads=2",
        *_depth(2, 512),
        "sequence_length=96",
        "batch_tokens=1024",
        "row_unit=document",
    ),
    tokens=600_000,
)  # fmt: skip
"""Two layers with hidden size 128; one and four of them have as many parameters. The rows of a cell
with pairs hold two sentences."""
