"""Check a built release as a user would, and write its bill of materials.

    python tools/release_check.py dist

Run by `make release-check`. Installs the wheel into empty environments, as pipx would, and runs the
command in an empty folder, where it packs a file. Writes `dist/llm_common-VERSION.cdx.json`, a CycloneDX list of the
packages that the wheel installs.
"""

import email
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

# What every file of the wheel is, unless NOTICE names it.
OWN_FILES = {".py", ".typed", ".css", ".html", ".jinja"}
SKILL = "llm_common/.agents/skills/llm-common/SKILL.md"
MAX_DISTRIBUTIONS = 18  # of an install without extras, ours among them
# What a program can use without an extra. The counter reads a data file of the wheel.
PLAIN_USE = """
import importlib, importlib.resources
for name in "agents context core errors folders history memory testing tools trace".split():
    importlib.import_module(f"llm_common.{name}")
from llm_common.core import DefaultCounter
assert DefaultCounter().count("How many tokens has this?") > 3
assert importlib.resources.files("llm_common").joinpath("py.typed").is_file()
"""
DEVELOPERS_FILES = ("tests/", "benchmarks/", "examples/", "docs/", ".env")


def run(*command: str | Path, cwd: Path) -> str:
    """Return what a command prints. End the check if the command fails."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "LLM_COMMON_"))
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, command))} ended with "
            f"{done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout + done.stderr


def environment_with(requirement: str, folder: Path) -> Path:
    """Return the `bin` folder of a new environment with this package only."""
    venv.create(folder, with_pip=True)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", requirement, cwd=folder)
    run(folder / "bin/python", "-m", "pip", "check", cwd=folder)
    return folder / "bin"


def problems_of(names: list[str], metadata: Message, notice: str) -> Iterator[str]:
    """Yield what is wrong with the files and the metadata of a wheel."""
    package = [name for name in names if name.startswith("llm_common/")]
    if "llm_common/py.typed" not in package:
        yield "py.typed is missing: type checkers would not see the types"
    if SKILL not in package:
        yield f"{SKILL} is missing: coding agents would not find how to use the library"
    for name in package:
        if name != SKILL and Path(name).suffix not in OWN_FILES and name not in notice:
            yield (
                f"{name} is data that NOTICE does not name; say who made it and under which licence"
            )
    yield from (
        f"{name} does not belong into a wheel"
        for name in names
        if name.startswith(DEVELOPERS_FILES)
    )
    for field in (
        "License-Expression",
        "License-File",
        "Classifier",
        "Requires-Python",
        "Summary",
        "Keywords",
    ):
        if not metadata.get_all(field):
            yield f"the metadata has no {field}"
    if "Private :: Do Not Upload" not in metadata.get_all("Classifier", []):
        yield "the index would accept it, where its name belongs to another project"
    if metadata["Description-Content-Type"] != "text/markdown":
        yield "the README is not declared as Markdown"


def only_in_extras(metadata: Message) -> set[str]:
    """Return the normalized names of the packages that only extras need."""
    plain: set[str] = set()
    optional: set[str] = set()
    for requirement in metadata.get_all("Requires-Dist", []):
        name = normalized(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
        (optional if "extra ==" in requirement else plain).add(name)
    return optional - plain


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_information(wheel: Path) -> tuple[list[str], dict[str, str]]:
    """Return the names of a wheel's files, and the text of each file about the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        information = {
            Path(name).name: archive.read(name).decode() for name in names if ".dist-info/" in name
        }
    return names, information


def check_contents(wheel: Path, source: Path) -> None:
    names, read = read_information(wheel)
    found = [
        *problems_of(names, email.message_from_string(read["METADATA"]), read.get("NOTICE", ""))
    ]
    with tarfile.open(source) as archive_of_source:
        packed = {name.partition("/")[2] for name in archive_of_source.getnames()}
    found += [
        f"{name} is not in {source.name}"
        for name in ("LICENSE", "NOTICE", "README.md", SKILL)
        if name not in packed
    ]
    if found:
        sys.exit("\n".join(found))


def check_install(wheel: Path, work: Path, report: Path) -> None:
    empty = work / "empty"
    empty.mkdir()
    commands = environment_with(str(wheel), work / "plain")
    run(commands / "python", "-W", "error", "-c", PLAIN_USE, cwd=empty)
    installed = run(commands / "python", "-m", "pip", "list", "--format=freeze", cwd=empty)
    names = {normalized(line.partition("==")[0]) for line in installed.split()}
    brought = names - {"pip", "setuptools"}
    if len(brought) > MAX_DISTRIBUTIONS:
        sys.exit(f"a plain install brings {len(brought)} distributions: {sorted(brought)}")
    _, information = read_information(wheel)
    metadata = email.message_from_string(information["METADATA"])
    if unasked := brought & only_in_extras(metadata):
        sys.exit(f"a plain install brings what only extras need: {sorted(unasked)}")
    # What the README installs.
    with_command = environment_with(f"{wheel}[cli,tokens]", work / "with-command")
    run(with_command / "llm-common", "--help", cwd=empty)
    run(with_command / "llm-common", "demo", cwd=empty)
    project = work / "project"
    project.mkdir()
    (project / "orders.md").write_text("Order 4711 was refused: card expired.\n", encoding="utf-8")
    packed = run(with_command / "llm-common", "pack", "why was 4711 refused", project, cwd=empty)
    if "card expired" not in packed:
        sys.exit(f"llm-common pack left the file out:\n{packed}")
    sbom = Path(sys.executable).with_name("cyclonedx-py")
    run(
        sbom,
        "environment",
        "--output-reproducible",
        "--of",
        "JSON",
        "-o",
        report,
        commands / "python",
        cwd=work,
    )


def main(folder: Path) -> None:
    [wheel], [source] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    report = folder / f"{source.name.removesuffix('.tar.gz')}.cdx.json"
    check_contents(wheel, source)
    with tempfile.TemporaryDirectory() as work:
        check_install(wheel, Path(work), report)
    print(f"{wheel.name} installs and runs; {report.name} lists what it brings")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
