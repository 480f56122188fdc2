"""Is every count that a preview states true, and how many questions does it answer so?

An oracle makes records of several domains and questions about them, with the truth beside each:
two generators by different authors, since who writes the reader and its questions agrees with
himself. A question is answered if the count that the preview states for it is the true one. For
the questions that the records cannot answer (averages, vague words, relative times) nothing may be
stated. `make test` holds that nothing is false, with other seeds.

    python -m benchmarks.quality_claims            # 2,000 questions of each generator
    python -m benchmarks.quality_claims 5 1000     # another seed, 1,000 questions
"""

import sys

from tests.oracle import other_hand, templates
from tests.oracle.verdicts import verdict_of


def main() -> None:
    """Print a row for each generator."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 9_917
    questions = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000
    print("| questions | stated and true | false | not stated | rightly not stated |")
    print("|---|---|---|---|---|")
    for label, module in (("templates", templates), ("other hand", other_hand)):
        verdict = verdict_of(module.domains(seed, questions=questions))
        told = [verdict.outcomes[name] for name in ("right", "silent", "rightly silent")]
        right, silent, rightly = told
        print(f"| {label} | {right:,} | {len(verdict.false):,} | {silent:,} | {rightly:,} |")


if __name__ == "__main__":
    main()
