"""Commands that other packages add: listed without an import, loaded when run, never in the way of the others."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import ROOT
from ir3de.cli import cli, group

COMMAND = """
import click

@click.group()
def tool():
    "A tool."

@tool.command()
def polish():
    "Polish it."
    click.echo("polished")
"""
METADATA = "Metadata-Version: 2.1\nName: toolbox\nVersion: 1.0\nSummary: Tools for routers.\n"


def install(folder: Path, code: str, **commands: str) -> Path:
    """A package with commands, as pip would leave it."""
    information = folder / "toolbox-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(METADATA)
    lines = [f"{name} = {value}" for name, value in commands.items()]
    (information / "entry_points.txt").write_text("\n".join(["[ir3de.commands]", *lines]))
    (folder / "toolbox.py").write_text(code)
    return folder


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in an interpreter that finds that package, and whether it was imported."""
    program = (
        "import sys\nfrom ir3de.cli import main\n"
        "try: main()\nfinally: print('imported' if 'toolbox' in sys.modules else 'not imported', file=sys.stderr)\n"
    )
    paths = os.pathsep.join([str(folder), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return install(tmp_path / "site", COMMAND, tool="toolbox:tool")


def complete(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    return run(folder, _IR3DE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))


def test_a_plugin_command_runs(tools: Path) -> None:
    done = run(tools, "tool", "polish")
    assert (done.returncode, done.stdout, done.stderr) == (0, "polished\n", "imported\n")


def test_help_lists_plugin_commands_without_importing_them(tools: Path) -> None:
    done = run(tools, "--help")
    assert "Added by other packages:" in done.stdout and done.stderr == "not imported\n"
    listed = next(line.split() for line in done.stdout.splitlines() if line.startswith("  tool "))
    assert listed == ["tool", "Tools", "for", "routers."]


@pytest.mark.parametrize("arguments", [("--version",), ("fit", "--help"), ("completion", "bash"), ("nonsense",)])
def test_other_commands_import_no_plugin(tools: Path, arguments: tuple[str, ...]) -> None:
    assert run(tools, *arguments).stderr.endswith("not imported\n")


def test_own_commands_do_not_look_for_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "entry_points", lambda **_: pytest.fail("a search through all packages takes its time"))
    assert CliRunner().invoke(cli, ["fit", "--help"]).exit_code == 0


def test_completion_offers_plugin_commands_without_importing_them(tools: Path) -> None:
    done = complete(tools, "ir3de to")
    assert (done.stdout, done.stderr) == ("plain,tool\n", "not imported\n")
    everything = complete(tools, "ir3de ")
    assert "plain,tool\n" in everything.stdout and everything.stderr == "not imported\n"


def test_completion_reaches_into_a_plugin(tools: Path) -> None:
    assert complete(tools, "ir3de tool po").stdout == "plain,polish\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import a_package_that_is_missing", "ModuleNotFoundError: No module named 'a_package_that_is_missing'"),
        pytest.param("1 / 0", "ZeroDivisionError: division by zero", marks=pytest.mark.nightly),
        ("tool = 1", "is not a click command but a int"),
        ("", "AttributeError"),
    ],
)
def test_a_broken_plugin_is_explained_in_one_line(tmp_path: Path, code: str, reason: str) -> None:
    broken = install(tmp_path, code, tool="toolbox:tool")
    done = run(broken, "tool")
    line, *_ = done.stderr.splitlines()
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 2
    assert line.startswith("error: the command `tool` of the package toolbox ") and reason in line
    assert "uninstall it" in line
    assert "Traceback" in run(broken, "tool", IR3DE_DEBUG="1").stderr


def test_a_broken_plugin_leaves_the_others_working(tmp_path: Path) -> None:
    broken = install(tmp_path, "1 / 0", tool="toolbox:tool")
    assert run(broken, "--help").returncode == 0
    assert run(broken, "embedding", "list").returncode == 0
    assert "Traceback" not in complete(broken, "ir3de tool po").stderr


def test_a_plugin_cannot_replace_a_command(tmp_path: Path) -> None:
    greedy = install(tmp_path, COMMAND, fit="toolbox:tool", tool="toolbox:tool")
    assert "Fit a router from each expert's texts." in run(greedy, "fit", "--help").stdout
    assert run(greedy, "--help").stdout.count("\n  fit ") == 1


# commands of the other distributions ----------------------------------------------------------------------------------

GATEWAY, LABORATORY = "pip install -e './gateway'", "pip install -e './lab'"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library without any other distribution, in the folder of the checkout."""
    monkeypatch.setattr(group, "entry_points", lambda **_: ())
    monkeypatch.chdir(ROOT)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("call", "command"),
    [("serve --demo", GATEWAY), ("config init", GATEWAY), ("keys new", GATEWAY), ("bench tables", LABORATORY)],
)
def test_a_command_that_is_not_installed_names_the_command_that_installs_it(call: str, command: str) -> None:
    done = CliRunner().invoke(cli, call.split(), prog_name="ir3de")
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == f"Error: `{call.split()[0]}` is not installed: {command}"


@pytest.mark.usefixtures("alone")
def test_help_lists_the_gateway_whether_it_is_installed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("serve", "config", "keys", "router", "ext-proc")
    assert list_below("Serve it") == dict.fromkeys(names, "needs ir3de-gateway")
    monkeypatch.undo()
    pytest.importorskip("ir3de_gateway")
    assert list_below("Serve it") == {name: group.KNOWN_PLUGINS[name].summary for name in names}


def list_below(title: str) -> dict[str, str]:
    """The commands in a section of the help, with their summaries."""
    section = CliRunner().invoke(cli, ["--help"]).stdout.split(f"{title}:\n")[1].split("\n\n")[0]
    return dict(line.split(maxsplit=1) for line in section.splitlines())


@pytest.mark.usefixtures("alone")
def test_another_package_cannot_take_the_name_of_a_known_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = [EntryPoint(name, "toolbox:tool", group.PLUGIN_GROUP) for name in (*group.KNOWN_PLUGINS, "tool")]
    monkeypatch.setattr(group, "entry_points", lambda **_: taken)
    assert list(cli.plugins()) == ["tool"]
    done = CliRunner().invoke(cli, ["serve"])
    assert done.exit_code == 2 and "`serve` is not installed" in done.stderr


@pytest.mark.usefixtures("alone")
def test_run_suggests_serve_even_if_the_gateway_is_missing() -> None:
    done = CliRunner().invoke(cli, ["run"])
    assert done.exit_code == 2 and "No such command 'run'. Did you mean 'serve'?" in done.stderr


def test_doctor_lists_the_other_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("ir3de.cli.commands.doctor.version_of", lambda name: None if "-lab" in name else "1.2.3")
    findings = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)["findings"]
    found = {one["name"]: (one["state"], one["found"]) for one in findings}
    assert found["ir3de-gateway"] == ("ok", "1.2.3")
    assert found["ir3de-lab"] == ("note", f"optional, for `ir3de bench`: {LABORATORY}")


def test_a_command_by_the_name_that_other_tools_use_is_rejected_with_ours(tools: Path) -> None:
    done = run(tools, "train")
    assert done.returncode == 2 and "No such command 'train'. Did you mean 'fit'?" in done.stderr


@pytest.mark.nightly
def test_the_reference_leaves_plugin_commands_out(tools: Path) -> None:
    program = "import sys; sys.path.insert(0, 'scripts'); import generate_cli_docs as page; print(page.document())"
    paths = os.pathsep.join([str(tools), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"}
    written = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=True
    ).stdout
    assert (
        "### ir3de fit" in written and "bench" not in written and "toolbox" not in written and " tool " not in written
    )
