"""`python -m quitclaim.providers`: look at catalogue files before they are built into anything."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from quitclaim.domain.errors import ProviderNotRegisteredError
from quitclaim.providers.compile import CatalogueError, read_entry
from quitclaim.providers.metadata import NoDocumentError, compared
from quitclaim.providers.page import PAGE, page, report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m quitclaim.providers", description="Look at catalogue files.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="what holds, what is unknown, and what that means")
    check.add_argument("files", type=Path, nargs="+", metavar="FILE")
    compare = commands.add_parser("compare", help="hold an entry against its server's metadata (RFC 8414)")
    compare.add_argument("entry", help="a provider of the catalogue, or a compiled JSON file")
    compare.add_argument("--from", dest="source", help="an address or a file, if not below the entry's issuer")
    write = commands.add_parser("page", help="write docs/providers.md")
    write.add_argument("--check", action="store_true", help="write nothing; fail where the page is not up to date")
    asked = parser.parse_args(arguments)
    try:
        if asked.command == "check":
            sys.stdout.write("\n".join(report(read_entry(file)) for file in asked.files))
            return 0
        if asked.command == "compare":
            found = compared(asked.entry, asked.source)
            sys.stdout.writelines(f"{each}\n" for each in found)
            return 1 if found else 0
        fresh = page()
    except (CatalogueError, NoDocumentError, ProviderNotRegisteredError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not asked.check:
        PAGE.write_text(fresh, "utf-8")
        return 0
    if not PAGE.is_file() or PAGE.read_text("utf-8") != fresh:
        sys.stderr.write("docs/providers.md is stale: python -m quitclaim.providers page\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
