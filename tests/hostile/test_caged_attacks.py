"""Files that were made to harm are refused in one line, or do none, by time and memory."""

import re
from collections.abc import Iterator
from pathlib import Path

import attacks_on_models
import attacks_on_texts
import attacks_on_tokenizers
import pickles
import pytest
from cage import Cage
from readers import BY_READER

MODULES = {
    "pickle": pickles,
    "model": attacks_on_models,
    "text": attacks_on_texts,
    "tokenizer": attacks_on_tokenizers,
}
ATTACKS = {
    f"{kind}-{name}": one
    for kind, module in MODULES.items()
    for name, one in module.ATTACKS.items()
}
SLOW = re.compile("text-.*(bomb|terabyte|CSV)|ten million|empty lines|quote that never")
"""Files that take a second or more to be refused."""
CASES = [
    pytest.param(name, marks=pytest.mark.thorough if SLOW.search(name) else ()) for name in ATTACKS
]
NO_MEMORY = re.compile("MemoryError|allocat|out of memory", re.IGNORECASE)


@pytest.fixture(scope="module")
def cage() -> Iterator[Cage]:
    one = Cage()
    yield one
    one.close()


@pytest.mark.sample(60)
@pytest.mark.trials("hostile files")
@pytest.mark.parametrize("name", CASES)
def test_hostile_file_is_refused_in_one_line_or_does_no_harm(
    name: str, cage: Cage, tmp_path: Path
) -> None:
    attack = ATTACKS[name]
    path = tmp_path / BY_READER[attack.reader][0]
    attack.make(path)
    outcome = cage.read(attack.reader, path)
    assert outcome.kind in (("refused", "read") if attack.harmless else ("refused",)), outcome
    assert not (tmp_path / pickles.PWNED).exists()
    assert outcome.seconds < attack.seconds, outcome
    assert outcome.megabytes < attack.megabytes, outcome
    if outcome.kind == "refused":
        assert "\n" not in outcome.message
        assert len(outcome.message) < 900
        assert path.name in outcome.message or str(path.parent) in outcome.message, outcome
        assert not NO_MEMORY.search(outcome.message), outcome
