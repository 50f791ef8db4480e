"""Settings of the whole suite: one thread a worker, no network."""

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "properties")]
