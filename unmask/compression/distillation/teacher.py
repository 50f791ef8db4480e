"""Teachers: models opened for distillation, and checked against their student."""

from collections.abc import Sequence

import torch

from unmask.adapters.folder import open_model_or_adapter
from unmask.checkpoints.huggingface.read import LoadedModel, resolve_model_folder
from unmask.compression.distillation.pictures import read_as_student
from unmask.compression.distillation.terms import Distillation
from unmask.heads.model import Model
from unmask.images.preprocessing import ImagePreprocessing
from unmask.tokenizers.encode import Tokenizer


def load_teachers(distillation: Distillation) -> list[LoadedModel]:
    """Open the teachers.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: it cannot be opened.
    """
    return [open_model_or_adapter(resolve_model_folder(name)) for name in distillation.teacher]


def check_teacher(
    name: str,
    teacher: LoadedModel,
    tokenizer: Tokenizer | None,
    label_names: Sequence[str] = (),
    preprocessing: ImagePreprocessing | None = None,
) -> None:
    """Check that a teacher reads the same tokens, or pictures, and knows the same labels.

    Raises:
        ValueError: it does not.
    """
    theirs = teacher.tokenizer
    if preprocessing is not None:
        read_as_student(name, teacher, preprocessing)
        theirs = tokenizer
    if (theirs is None) != (tokenizer is None):
        raise ValueError(f"teacher {name}: one of student and teacher has no tokenizer")
    if theirs is not None and tokenizer is not None and not _same_vocabulary(theirs, tokenizer):
        raise ValueError(
            f"teacher {name}: has another vocabulary ({theirs.vocab_size:,} tokens) than the "
            f"student ({tokenizer.vocab_size:,}); give both the same tokenizer"
        )
    if label_names and tuple(teacher.label_names) != tuple(label_names):
        raise ValueError(
            f"teacher {name}: has the labels {', '.join(teacher.label_names) or 'of no task'}, the "
            f"task {', '.join(label_names)}, in this order"
        )


def _same_vocabulary(a: Tokenizer, b: Tokenizer) -> bool:
    n = a.vocab_size
    return n == b.vocab_size and a.pieces(range(n)) == b.pieces(range(n))


def open_teachers(
    distillation: Distillation,
    tokenizer: Tokenizer | None,
    label_names: Sequence[str] = (),
    *,
    preprocessing: ImagePreprocessing | None = None,
    device: torch.device | str = "cpu",
) -> list[Model]:
    """Open the teachers of a student that has this tokenizer and, of a task, these labels.

    A student of pictures has a preprocessing.

    Raises:
        FileNotFoundError: there is no such teacher.
        ValueError: it has another vocabulary or other labels.
    """
    teachers = load_teachers(distillation)
    for name, teacher in zip(distillation.teacher, teachers, strict=True):
        check_teacher(name, teacher, tokenizer, label_names, preprocessing)
    dtype = torch.bfloat16 if distillation.teacher_precision == "bfloat16" else torch.float32
    return [teacher.model.to(device=device, dtype=dtype) for teacher in teachers]
