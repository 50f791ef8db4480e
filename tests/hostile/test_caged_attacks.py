"""Files that were made to harm are refused in one line, or do none, by time and memory."""

import re
from collections.abc import Iterator
from pathlib import Path

import pickles
import pytest
from cage import Cage
from readers import BY_READER

ATTACKS = {**{f"pickle-{name}": one for name, one in pickles.ATTACKS.items()}}
NO_MEMORY = re.compile("MemoryError|allocat|out of memory", re.IGNORECASE)


@pytest.fixture(scope="module")
def cage() -> Iterator[Cage]:
    one = Cage()
    yield one
    one.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_refused_or_has_no_effect(name: str, cage: Cage, tmp_path: Path) -> None:
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
