"""Jobs of a few steps, whose samples are as short as they."""

from pathlib import Path

import pytest
from small_models import make

from unmask.generation.settings import generation_config
from unmask.jobs.pretrain import held_out_samples


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a tiny BERT with random weights, its tokenizer beside it."""
    folder = tmp_path_factory.mktemp("model")
    make("bert", folder)
    return folder


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each run continue six texts by 5 tokens in place of 40, before its first step and after.

    Of the quick jobs this was a tenth of the time.
    """
    short = generation_config(max_new_tokens=5, temperature=0.8, top_p=0.95)
    monkeypatch.setattr(held_out_samples, "_SAMPLED_GENERATION", short)
