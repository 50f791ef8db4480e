"""`study`: several ways to pretrain or fine-tune, compared."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.jobs.options.shell.from_dataclass import command
from unmask.jobs.options.shell.shared_options import JsonOption, MoreData
from unmask.options import QuietOptions
from unmask.output import print_json, print_line, print_table
from unmask.studies.options import StudyOptions


@command(
    StudyOptions, MoreData, QuietOptions, JsonOption, defaults={"out": "runs/study", "data": ()}
)
def study(
    options: Mapping[str, Any], data: MoreData, progress: QuietOptions, output: JsonOption
) -> None:
    """Compare pretraining, fine-tuning or compression under one budget.

    Most studies pretrain each variant on the same text; those of compression and of lottery tickets
    start from one model. All are scored on the same tasks.

    The table and the plot are updated after each cell; Ctrl-C loses nothing, --resume continues.
    """
    import unmask
    from unmask.files import read_json

    keywords: dict[str, Any] = dict(options)
    keywords["data"] = (*keywords["data"], *data.more)
    result = unmask.run_study(**keywords, terminal=None if progress.quiet else sys.stderr)
    names, table_rows = result.to_table()
    out = Path(options["out"])
    if output.as_json:
        print_json(read_json(out / "study.json"))
    else:
        print_table(result.study.name, names, table_rows)
        print_line(f"{out}: done; table in {out / 'README.md'}, plot in {out / 'plot.svg'}")
