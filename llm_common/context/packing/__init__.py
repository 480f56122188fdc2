"""Packing: the last of the pure stages, from scored items to a bundle that fits."""

from llm_common.context.packing.candidate import REFUSED, Meter
from llm_common.context.packing.packer import pack

__all__ = ["REFUSED", "Meter", "pack"]
