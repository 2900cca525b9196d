"""Write the parts of the documentation that follow from the code.

``python docs/reference.py`` writes ``cli.md`` anew; a test fails when it differs from what the
command says of itself. The list of strategies is written at every build of the documentation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.main import get_command

from penstock.cli.main import app
from penstock.strategies import describe, strategies

HERE = Path(__file__).parent
CLI = HERE / "cli.md"
STRATEGIES = HERE / "generated" / "strategies.md"
BASELINES = HERE / "strategies" / "baselines.md"


def cli_markdown() -> str:
    """Describe every command from the command itself."""
    root: Any = get_command(app)
    parts = [
        "# Command line\n",
        "<!-- Written by docs/reference.py (`make reference`); a test compares it. -->\n",
        f"{root.help}\n",
        "Results go to stdout, warnings and progress to stderr.\n",
        _options(root),
    ]
    for name, command in sorted(root.commands.items()):
        parts.append(f"## penstock {name}\n")
        parts.append(_command(name, command))
    return "\n".join(parts)


def strategies_markdown() -> str:
    """Describe every registered strategy from its class."""
    parts = []
    for name in strategies.names():
        part = strategies.get(name)
        parts += [f"## {name}\n", f"{_sentence(part.summary)}\n", f"Source: {part.origin}.\n"]
        parameters = describe(part)
        if parameters:
            rows = [
                f"| `{p['name']}` | {p['default']} {p['unit']} | {p['allowed']} | {p['doc']} |"
                for p in parameters
            ]
            parts.append(
                "\n".join(
                    ["| Parameter | Default | Allowed | Meaning |", "|---|---|---|---|", *rows]
                )
                + "\n"
            )
        page = page_of(name)
        if page is not None:
            parts.append(f"More: [{name}]({page}).\n")
    return "\n".join(parts)


def page_of(name: str) -> str | None:
    """Return where a strategy is described at length: a page of its own, or the baselines'."""
    if (HERE / "strategies" / f"{name}.md").exists():
        return f"strategies/{name}.md"
    headings = BASELINES.read_text(encoding="utf-8").splitlines()
    return f"strategies/{BASELINES.name}#{name}" if f"## {name}" in headings else None


def write_strategies() -> None:
    """Write the list of strategies to where `strategies.md` includes it from."""
    STRATEGIES.parent.mkdir(exist_ok=True)
    text = strategies_markdown()
    if not STRATEGIES.exists() or STRATEGIES.read_text(encoding="utf-8") != text:
        STRATEGIES.write_text(text, encoding="utf-8")


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(
        ["penstock", name, *(str(p.metavar or p.name).upper() for p in arguments), "[OPTIONS]"]
    )
    prose, _, examples = str(command.help).partition("\b\n")
    parts = [f"```text\n{usage}\n```\n", prose.strip() + "\n"]
    commands = [line.strip() for line in examples.splitlines() if line.startswith("  ")]
    if commands:
        parts.append("```console\n" + "\n".join(f"$ {line}" for line in commands) + "\n```\n")
    if arguments:
        rows = [f"| `{p.metavar}` | {p.help} |" for p in arguments]
        parts.append("\n".join(["| Argument | Meaning |", "|---|---|", *rows]) + "\n")
    parts.append(_options(command))
    return "\n".join(parts)


def _options(command: Any) -> str:
    rows = []
    for option in command.params:
        if option.param_type_name != "option" or "--help" in option.opts:
            continue
        flag = " ".join([*option.opts, *([option.metavar] if option.metavar else [])])
        shown = option.metavar and option.default is not None
        default = f"`{option.default}`" if shown else ""
        rows.append(f"| `{flag}` | {default} | {option.help} |")
    return "\n".join(["| Option | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


if __name__ == "__main__":
    CLI.write_text(cli_markdown(), encoding="utf-8")
