"""Find the files in folders that answer a question, and pack them within a token budget."""

from llm_common.folders.folder_pack import FolderPack, PackedFile, pack_folder

__all__ = ["FolderPack", "PackedFile", "pack_folder"]
