"""Packing: the last of the pure stages, from scored items to a bundle that fits."""

from llm_common.agents.context.packing.candidate import REFUSED
from llm_common.agents.context.packing.meter import Meter
from llm_common.agents.context.packing.packer import pack

__all__ = ["REFUSED", "Meter", "pack"]
