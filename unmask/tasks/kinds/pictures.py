"""One label for a picture."""

from dataclasses import dataclass
from typing import Literal

from unmask.images.augmentation import ImageAugmentation, PadAndCrop, RandomResizedCrop
from unmask.images.preprocessing import MAX_EDGE
from unmask.tasks.kinds.classify import CLASSIFY, TextClassification
from unmask.tasks.task_kind import TaskWording


@dataclass(frozen=True, kw_only=True)
class PictureTaskOptions:
    """How pictures are read and changed."""

    image_size: int | None = None
    """Height and width of pictures in pixels; positions are interpolated (Dosovitskiy et al. 2021,
    section 3.2). None: the model's."""
    bad: Literal["error", "skip"] = "error"
    """Handling of pictures that cannot be read: error, or skip (they are counted)."""
    flip: float = 0.0
    """Probability with which a training picture is mirrored, left for right."""
    crop: Literal["none", "pad", "resized"] = "none"
    """Random part of a training picture: none; pad: of the picture with a border of `padding`; or
    resized: of random size (see `unmask.images.augmentation`)."""
    padding: int = 4
    """Pixels of the border."""
    pooling: Literal["first", "mean"] | None = None
    """What the classifier reads: first, the class token, or mean, of all tokens (MAE's fine-tuning,
    He et al. 2022, released code). None: that of the model."""
    distillation_token: bool = False
    """Whether DeiT's second classifier is used, which learns of a teacher (Touvron et al. 2021,
    arXiv:2012.12877, section 4). Given by itself where there is a teacher."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.image_size is not None and not 1 <= self.image_size <= MAX_EDGE:
            raise ValueError(f"image_size must be 1 to {MAX_EDGE} pixels, got {self.image_size}")
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip must be 0 to 1, got {self.flip}")
        if self.padding < 1:
            raise ValueError(f"padding must be at least 1, got {self.padding}")

    @property
    def augmentation(self) -> ImageAugmentation | None:
        """Random changes of training pictures; None: none."""
        if not self.flip and self.crop == "none":
            return None
        crop = {
            "none": None, "pad": PadAndCrop(padding=self.padding), "resized": RandomResizedCrop(),
        }[self.crop]  # fmt: skip
        return ImageAugmentation(crop=crop, flip=self.flip)


PICTURES = TextClassification(
    CLASSIFY.reader,
    TaskWording(
        purpose="label pictures",
        answered_unit="pictures",
        decision_unit="pictures",
        example='"picture.png"',
        order_note="Below each picture are its label and what it was taken for, with the model's "
        "probabilities. The most confident errors come first.",
    ),
    formulation="picture_classification",
    options=PictureTaskOptions,
)
