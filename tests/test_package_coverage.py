"""What `make coverage` prints for each package."""

import json
from pathlib import Path

import pytest

from tools.package_coverage import main


def summary(run: int, *, of: int, branches: int = 0, branches_run: int = 0) -> dict[str, object]:
    return {
        "summary": {
            "covered_lines": run,
            "num_statements": of,
            "covered_branches": branches_run,
            "num_branches": branches,
        }
    }


def written(folder: Path, files: dict[str, dict[str, object]]) -> Path:
    report = folder / "coverage.json"
    report.write_text(json.dumps({"files": files}), encoding="utf-8")
    return report


def test_each_package_and_application_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "llm_common/errors.py": summary(4, of=4),
        "llm_common/core/models.py": summary(9, of=10),
        "llm_common/core/http/pool.py": summary(10, of=10),
        "llm_common/apps/cli/app.py": summary(8, of=8, branches=2, branches_run=1),
        "llm_common/apps/gateway/serving.py": summary(10, of=10),
    }
    main(written(tmp_path, files))
    assert capsys.readouterr().out.splitlines() == [
        "100.0%  .",
        " 90.0%  apps/cli",
        "100.0%  apps/gateway",
        " 95.0%  core",
    ]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        pytest.param(
            {
                "llm_common/core/models.py": summary(1_000, of=1_000),
                "llm_common/apps/gateway/serving.py": summary(0, of=10),
            },
            r"^under 85%: apps/gateway$",
            id="no test runs a package",
        ),
        pytest.param(
            {"llm_common/text/fences.py": summary(10, of=10, branches=10, branches_run=0)},
            r"^under 85%: text$",
            id="branches that are not taken",
        ),
        pytest.param({}, "has no module", id="no modules"),
    ],
)
def test_too_little_coverage_is_an_error(
    tmp_path: Path, files: dict[str, dict[str, object]], problem: str
) -> None:
    with pytest.raises(SystemExit, match=problem):
        main(written(tmp_path, files))
