"""Adapter: the union of all adapter specifications."""

from unmask.adapters.bottleneck import AdaMix, HoulsbyAdapter, PfeifferAdapter
from unmask.adapters.ia3 import IA3
from unmask.adapters.lora import LoRA
from unmask.adapters.prefix import PrefixTuning, PromptTuning
from unmask.adapters.scalar_mix import ScalarMix

Adapter = (
    LoRA | HoulsbyAdapter | PfeifferAdapter | AdaMix | IA3 | PrefixTuning | PromptTuning | ScalarMix
)
