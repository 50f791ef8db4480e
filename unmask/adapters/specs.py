"""Adapter: every kind of adapter, as the value that describes it."""

from unmask.adapters.bottleneck import AdaMix, Houlsby, Pfeiffer
from unmask.adapters.lora import LoRA
from unmask.adapters.mix import Mix
from unmask.adapters.prefix import Prefix, Prompt
from unmask.adapters.scale import IA3

Adapter = LoRA | Houlsby | Pfeiffer | AdaMix | IA3 | Prefix | Prompt | Mix
