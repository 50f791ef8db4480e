"""Preference optimization in one call."""

from pathlib import Path

from unmask.options import takes_options
from unmask.preferences.config import make_prefer_config
from unmask.preferences.job.result import PreferenceResult
from unmask.preferences.job.run import run_preferences
from unmask.preferences.options import PreferOptions


@takes_options(PreferOptions)
def prefer(options: PreferOptions) -> PreferenceResult:
    """Train a model on preferences: pairs of responses, or rewards of those that it writes.

    The fields of `PreferOptions` are its keywords.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: a file, a row or an option is invalid, or `out` has a run already.
        KeyboardInterrupt: the run was stopped; it can be resumed.
    """
    return run_preferences(
        make_prefer_config(options),
        Path(options.out),
        resume=options.resume,
        device=options.device,
        terminal=options.terminal,
    )
