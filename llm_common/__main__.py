"""`python -m llm_common` is the command `llm-common`."""

from llm_common.apps.cli import main

if __name__ == "__main__":
    main()
