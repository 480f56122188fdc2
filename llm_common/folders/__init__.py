"""Finds the files of folders that answer a question, and packs them within a budget of tokens."""

from llm_common.folders.folder_pack import FolderPack, PackedFile, pack_folder

__all__ = ["FolderPack", "PackedFile", "pack_folder"]
