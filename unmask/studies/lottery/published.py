"""LOTTERY_STUDIES: small-scale versions of published studies of lottery tickets."""

from collections.abc import Mapping

from unmask.studies.lottery.study import LotteryStudy

_TREC = ("TREC coarse",)

LOTTERY_STUDIES: Mapping[str, LotteryStudy] = {
    study.name: study
    for study in (
        LotteryStudy(
            name="lottery",
            question="Do pretrained weights hold a sparse subnetwork that learns a task as well?",
            paper="Chen et al. 2020, arXiv:2007.12223, table 2",
            tasks="topics",
            benchmarks=_TREC,
            epochs=4.0,
        ),
        LotteryStudy(
            name="lottery-scratch",
            question="Does a random initialization hold a sparse subnetwork that learns as well?",
            paper="Frankle and Carbin 2019, arXiv:1803.03635, section 2",
            tasks="topics",
            benchmarks=_TREC,
            initialize="random",
            epochs=4.0,
        ),
        LotteryStudy(
            name="lottery-rewind",
            question="Does it, with weights of an early step?",
            paper="Frankle et al. 2020, arXiv:1912.05671, section 4",
            tasks="topics",
            benchmarks=_TREC,
            initialize="random",
            rewind=0.1,
            epochs=4.0,
        ),
        LotteryStudy(
            name="lottery-heads",
            question="Which heads and feed-forward sublayers does a task need?",
            paper="Prasanna et al. 2020, arXiv:2005.00561, section 4",
            tasks="topics",
            benchmarks=_TREC,
            unit="blocks",
            sparsities=(0.25, 0.5, 0.75),
            epochs=4.0,
        ),
        LotteryStudy(
            name="lottery-transfer",
            question="Do masks of masked language modeling serve other tasks?",
            paper="Chen et al. 2020, arXiv:2007.12223, section 4",
            tasks="topics",
            benchmarks=_TREC,
            masks_of="text",
            epochs=4.0,
        ),
    )
}
