"""The tables of a memory in a SQLite file."""

from typing import Final

__all__ = ["APPLICATION_ID", "MIGRATIONS"]

# What each version adds; a file of an older version gets the rest. Never edit one that was released.
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY,
            session_id TEXT NOT NULL,
            position INTEGER NOT NULL,
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            timestamp TEXT NOT NULL,
            metadata TEXT NOT NULL,
            word_count INTEGER NOT NULL,
            UNIQUE (session_id, position)
        ) STRICT""",
        """CREATE VIRTUAL TABLE lines USING fts5(
            words, tags, content='', columnsize=0, tokenize='porter unicode61 remove_diacritics 2'
        )""",
    ),
)
APPLICATION_ID: Final = 0x6C6C6D63  # "llmc": tells a memory from other programs' files
