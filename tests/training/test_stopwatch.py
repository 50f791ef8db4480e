import time

import pytest

from unmask.training.device.stopwatch import Stopwatch


@pytest.mark.trials("signals and clocks")
def test_steps_backwards_count_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([10.0, 11.5, 3.0, 3.25, 3.25, -100.0, -99.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings))
    watch = Stopwatch()
    assert [watch.seconds for _ in range(6)] == [1.5, 1.5, 1.75, 1.75, 1.75, 2.75]
