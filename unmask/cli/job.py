"""One job of the workbench: `python -m unmask.cli.job FOLDER` runs the command line of its record.

The process holds a lock on the folder while it lives, and writes its exit status there at the end:
whoever looks at the folder knows how the job stands, with or without the server.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from unmask.cli.errors import error_line
from unmask.cli.main import run
from unmask.files import lock_run_folder, write_atomically
from unmask.output import print_line, print_traceback
from unmask.web.jobs.record import EXIT_FILE, STOP_FILE, read_job


def run_job(folder: Path) -> int:
    """Run a job in this process and write down how it ended.

    Raises:
        ValueError: another process runs it.
    """
    arguments = read_job(folder).arguments
    with lock_run_folder(folder):
        status = 1
        try:
            # asked to stop before there was a process to be told
            status = 130 if (folder / STOP_FILE).is_file() else run(arguments)
        except KeyboardInterrupt:  # before the command could take it
            status = 130
        except BaseException as error:  # a bug: its traceback is what the page shows
            print_traceback(type(error), error, error.__traceback__)
        finally:
            facts = {"status": status, "ended": time.time()}
            write_atomically(folder / EXIT_FILE, json.dumps(facts) + "\n")
    return status


def main() -> None:
    """Run the job of the folder that is given."""
    if len(sys.argv) != 2:
        print_line("unmask.cli.job: the folder of one job must be given", sys.stderr)
        raise SystemExit(2)
    folder = Path(sys.argv[1]).resolve()
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    try:
        os.chdir(folder.parents[2])  # ROOT/.unmask/jobs/FOLDER
        status = run_job(folder)
    except (OSError, ValueError) as error:
        line = error_line(error, is_training=False)
        print_line(str(error) if line is None else line[0], sys.stderr)
        status = 2
    raise SystemExit(status)


if __name__ == "__main__":
    main()
