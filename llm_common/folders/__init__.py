"""Finds the files of folders that answer a question, and packs them within a budget of tokens."""

from llm_common.folders.folder_pack import MIN_BUDGET_TOKENS, FolderPack, PackedFile, pack_folder
from llm_common.folders.tree_index import ProgressCallback

__all__ = ["MIN_BUDGET_TOKENS", "FolderPack", "PackedFile", "ProgressCallback", "pack_folder"]
