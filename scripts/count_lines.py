"""Print the lines of code by room: lines with a token, without docstrings, comments and blank lines.

    python scripts/count_lines.py              # this checkout
    python scripts/count_lines.py --against HEAD~20

A line within a text of several lines counts; a text that is a statement of its own (a docstring) does not.
"""

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = "wdspec"
_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def count_lines(text: str) -> int:
    """Return the number of lines of code."""
    texts = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)


def room(path: str) -> str:
    """Return the folder of a module within the package, or `(root)`."""
    parts = Path(path).parts
    return parts[1] if len(parts) > 2 else "(root)"


def count_checkout(root: Path) -> Counter[str]:
    """Return the lines of code by room of the files below a folder."""
    return _count(
        {str(path.relative_to(root)): path.read_bytes() for path in root.joinpath(PACKAGE).rglob("*.py")}
    )


def count_commit(commit: str) -> Counter[str]:
    """Return the lines of code by room of a commit."""
    archive = subprocess.run(["git", "archive", commit, PACKAGE], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = [member for member in tar.getmembers() if member.name.endswith(".py")]
        return _count({member.name: tar.extractfile(member).read() for member in members})  # type: ignore[union-attr]


def _count(files: dict[str, bytes]) -> Counter[str]:
    lines: Counter[str] = Counter()
    for path, data in files.items():
        lines[room(path)] += count_lines(data.decode())
    return lines


def main() -> None:
    """Print one line for each room, and the total."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against", metavar="COMMIT", help="show the lines of a commit beside those of the checkout"
    )
    commit = parser.parse_args().against
    now = count_checkout(Path(__file__).resolve().parent.parent)
    before = count_commit(commit) if commit else now
    rooms = [(name, before[name], now[name]) for name, _ in (now | before).most_common()]
    for name, then, lines in [*rooms, ("total", before.total(), now.total())]:
        print(f"{name:<14}{then:>8,}{lines:>8,}{lines - then:>+8,}" if commit else f"{name:<14}{lines:>8,}")


if __name__ == "__main__":
    main()
