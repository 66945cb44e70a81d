"""`python -m infra.local up [--detach] [--provider]` starts the local stack, `down` stops it, `status` shows it."""

import argparse
import json
import sys
from pathlib import Path

from infra.local.stack import LocalStack, LocalStackError, start_supervisor, wait_until_ready
from infra.local.state import AlreadyRunningError, StateFolder
from infra.local.supervisor import REPOSITORY, Options, Spec, supervise

DEFAULT_STATE = REPOSITORY / "var" / "local"


def main(words: list[str]) -> int:
    """Do what the command line says; the exit status."""
    asked = _parser().parse_args(words)
    folder = StateFolder(asked.state.resolve())
    if asked.command == "down":
        pid = folder.stop_running()
        print(f"stopped the local stack (pid {pid})" if pid else f"no local stack runs in {folder.root}")
        return 0
    if asked.command == "status":
        print(json.dumps(LocalStack.running(folder.root).status(), indent=1))
        return 0
    if asked.detach:
        if folder.running_pid() is None:
            arguments = [word for word in words if word not in ("up", "--detach")]
            # It runs in another folder; of two spellings of a path the last one counts.
            arguments += ["--state", str(folder.root), "--template", str(asked.template.resolve())]
            try:
                wait_until_ready(folder, start_supervisor(folder, arguments, detached=True))
            except LocalStackError:
                folder.stop_running()
                raise
        _show(folder)
        return 0
    options = Options(
        state=folder.root,
        template=asked.template.resolve(),
        provider=asked.provider,
        schedules=asked.schedules,
        gate=asked.gate,
        catalogue=tuple(Spec(Path(file).resolve(), dict(map(_pair, given))) for file, *given in asked.catalogue),
        parameters=dict(map(_pair, asked.parameter)),
    )
    return supervise(options, until_stdin_closes=asked.until_stdin_closes)


def _show(folder: StateFolder) -> None:
    stack = LocalStack.running(folder.root)
    provider = f"  OAuth provider  {stack.provider_url}\n" if stack.status()["provider"] else ""
    print(
        f"The local stack runs (pid {stack.pid}); `make down` stops it.\n"
        f"  HTTP API        {stack.base_url}\n"
        f"{provider}"
        f"  local AWS       {stack.ministack_url}\n"
        f"  Lambda Invoke   {stack.lambda_url}\n"
        f"  control         {stack.control_url}/status\n"
        f"  callers' keys   {folder.keys_file}\n"
        f"  logs            {folder.logs}"
    )


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.local", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="folder of the stack's state and logs")
    parser.add_argument("--detach", action="store_true", help="leave it running and return once it is ready")
    parser.add_argument("--provider", action="store_true", help="with a local OAuth provider (django-oauth-toolkit)")
    parser.add_argument("--template", type=Path, default=REPOSITORY / "template.yaml")
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE", help="a template parameter")
    parser.add_argument("--no-schedules", dest="schedules", action="store_false", help="fire no schedule by the clock")
    parser.add_argument(
        "--catalogue",
        action="append",
        nargs="+",
        default=[],
        metavar=("FILE", "NAME=VALUE"),
        help="a catalogue file more, and what its placeholders stand for",
    )
    parser.add_argument("--gate", action="store_true", help="let tests hold back AWS calls of the workers")
    parser.add_argument("--until-stdin-closes", action="store_true", help="stop when the starting process is gone")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (AlreadyRunningError, LocalStackError) as failure:
        sys.exit(str(failure))
