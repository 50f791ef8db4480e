"""RunIndex: all runs of a workplace, as a list that is cheap to ask for again."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from unmask.web.runs.scan import FoundRun, find_run, find_runs
from unmask.web.runs.state import RunState, state_of
from unmask.web.runs.summary import RunSummary, read_summary
from unmask.web.workplace import Workplace


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """Which runs are asked for; what is empty or None does not matter."""

    text: str = ""
    """Words, all of which are in id, model, task, objective or tags, in any case."""
    kind: str = ""
    state: str = ""
    tag: str = ""
    parent: str | None = None
    """Id of the study or suite to which they belong. Empty: those that belong to none."""

    def accepts(self, run: RunSummary) -> bool:
        """Return whether a run is one of them."""
        whole = " ".join(
            (run.id, run.kind, run.model, run.task, run.objective, *run.tags)
        ).casefold()
        return (
            all(word in whole for word in self.text.casefold().split())
            and self.kind in ("", run.kind)
            and self.state in ("", run.state)
            and (not self.tag or self.tag in run.tags)
            and self.parent in (None, run.parent)
        )


def no_job_states() -> Mapping[str, RunState]:
    """Return that there are no jobs."""
    return {}


class RunIndex:
    """The runs of a workplace. What a folder says is read again only when its files change."""

    def __init__(
        self,
        workplace: Workplace,
        job_states: Callable[[], Mapping[str, RunState]] = no_job_states,
    ) -> None:
        """Index a workplace.

        Args:
            workplace: the workplace.
            job_states: returns, by the id of the run, "queued" for those whose job waits and
                "crashed" for those whose last job failed.
        """
        self._workplace, self._job_states = workplace, job_states
        self._read: dict[str, tuple[FoundRun, RunSummary]] = {}
        self._lock = Lock()

    def list(self, wanted: RunFilter | None = None) -> "list[RunSummary]":
        """Return the runs that are asked for: those running or queued first, then the newest."""
        with self._lock:
            found = list(find_runs(self._workplace.root))
            summaries = [self._summary(one) for one in found]
            self._read = {one.id: self._read[one.id] for one in found}
        below = Counter(one.parent for one in found)
        made = self._completed(summaries, below)
        accepted = [run for run in made if wanted is None or wanted.accepts(run)]
        return sorted(accepted, key=_order)

    def get(self, run_id: str) -> RunSummary:
        """Return one run.

        Raises:
            FileNotFoundError: there is none of this id.
            ValueError: it is no id.
        """
        self._workplace.path_of(run_id)
        found = find_run(self._workplace.root, run_id)
        if found is None:
            raise FileNotFoundError(f"{run_id}: no such run")
        with self._lock:
            summary = self._summary(found)
        inside = find_runs(found.path) if summary.kind in ("study", "suite") else ()
        below = Counter({run_id: sum(not one.parent for one in inside)})
        return self._completed([summary], below)[0]

    def found(self, run_id: str) -> FoundRun:
        """Return the folder of a run, with its logs.

        Raises:
            FileNotFoundError: there is none of this id.
            ValueError: it is no id.
        """
        self._workplace.path_of(run_id)
        if (found := find_run(self._workplace.root, run_id)) is None:
            raise FileNotFoundError(f"{run_id}: no such run")
        return found

    def _summary(self, found: FoundRun) -> RunSummary:
        known = self._read.get(found.id)
        if known is None or known[0] != found:
            known = self._read[found.id] = found, read_summary(self._workplace, found)
        return known[1]

    def _completed(self, runs: "list[RunSummary]", below: Counter[str]) -> "list[RunSummary]":
        """Add what changes without a change of the run's files."""
        tags, jobs = self._workplace.read_tags(), self._job_states()
        return [
            replace(
                run,
                state=state_of(
                    self._workplace.root / run.id,
                    is_finished=run.is_finished,
                    job_state=jobs.get(run.id),
                ),
                tags=tuple(tags.get(run.id, ())),
                n_runs=below[run.id],
            )
            for run in runs
        ]


def _order(run: RunSummary) -> tuple[int, float, str]:
    rank: dict[Any, int] = {"running": 0, "queued": 1}
    return rank.get(run.state, 2), -run.modified, run.id
