"""Settings of the whole suite: one thread a worker, no network."""

import os
import sys
from pathlib import Path

# Workers that share cores and all compute in several threads wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("properties", "finetuning", "vectors"))]
sys.path.append(str(HERE.parent / "examples"))
