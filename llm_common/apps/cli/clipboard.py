"""Copy a text to the clipboard of the desktop: `find_clipboard`."""

from collections.abc import Callable
from typing import NamedTuple

from llm_common.apps.cli.terminal import ExitCode, end
from llm_common.runtime import missing_extra

_WAY_OUT = "Use --output FILE instead"


class Clipboard(NamedTuple):
    """A clipboard, and the functions that write and read it."""

    write: Callable[[str], object]
    read: Callable[[], str]

    def copy(self, text: str) -> None:
        """Copy a text, or end the command if the clipboard does not contain it afterwards."""
        try:
            self.write(text)
            copied = self.read()
        except (RuntimeError, OSError, UnicodeError) as exc:  # pyperclip's errors are RuntimeErrors
            end(f"The clipboard cannot be used ({exc}). {_WAY_OUT}.", ExitCode.FAILED)
        # pyperclip ignores the exit codes of the programs that it runs, and they fail without a
        # display. Lines are compared, because a clipboard may change their ends.
        if copied.splitlines() != text.splitlines():
            end(f"The clipboard did not take the text. {_WAY_OUT}.", ExitCode.FAILED)


def find_clipboard() -> Clipboard:
    """Return the clipboard, or end the command if there is none, as over SSH.

    Raises:
        ConfigError: If pyperclip is not installed.
    """
    try:
        import pyperclip  # noqa: PLC0415 - only for those who copy
    except ModuleNotFoundError as exc:
        raise missing_extra("--copy needs pyperclip", "cli") from exc
    write, read = pyperclip.determine_clipboard()
    if not write:  # pyperclip returns a false object if it finds no clipboard
        needs = "It needs a desktop, and xclip, xsel or wl-clipboard on Linux"
        end(f"There is no clipboard. {needs}. {_WAY_OUT}.", ExitCode.FAILED)
    return Clipboard(write, read)
