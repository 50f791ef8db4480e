"""Adapter: every kind of adapter, as the value that describes it."""

from unmask.adapters.bottleneck import AdaMix, HoulsbyAdapter, PfeifferAdapter
from unmask.adapters.lora import LoRA
from unmask.adapters.mix import ScalarMix
from unmask.adapters.prefix import PrefixTuning, PromptTuning
from unmask.adapters.scale import IA3

Adapter = LoRA | HoulsbyAdapter | PfeifferAdapter | AdaMix | IA3 | PrefixTuning | PromptTuning | ScalarMix
