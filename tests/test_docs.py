"""README and docs: Python blocks run, commands run or at least parse, links lead somewhere, pages are listed.

A page's ```python blocks run top to bottom in one namespace, in an empty folder. A block with title="NAME"
is also written to that file. Commands of the kinds in RUN that stand in ```console blocks run between them,
where they stand; all other `mlayer` command lines, in any kind of code block, are parsed by the command
line's own parser. Blocks marked ```py are for the eye: they need a cluster.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from mlayer.cli import main
from mlayer.cli.group import mlayer as command_line
from mlayer.experiments import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in DOCS.rglob("*.md") if "generated" not in p.relative_to(DOCS).parts),
]
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (mlayer .*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
RUN = {"fit", "predict", "info", "explain", "certify", "check-proof", "export"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(text: str) -> Iterator[list[str]]:
    """The `mlayer` command lines of a block; what follows two spaces is a remark."""
    for line in text.splitlines():
        found = re.match(r"(?:\$ )?mlayer (.*)", line.strip())
        if found:
            yield shlex.split(re.split(r"\s{2,}| > ", found[1])[0])


def runs(page: Path) -> bool:
    return any(kind in {"python", "console"} for kind, _, _ in FENCE.findall(page.read_text()))


LONG_PAGES = {"export.md", "certify.md", "expm_action.md"}  # each takes several seconds


def test_pages_are_found() -> None:
    found = {name(page) for page in PAGES}
    assert {"README.md", "docs/layer.md", "docs/start/table.md", "docs/howto/cluster.md"} <= found
    assert len(found) > 45


# Torch's own, when torch.compile is first used in a process.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
# torch.export looks at the .grad of inner tensors and warns about it.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
# torch.onnx.export uses a name that torch itself has deprecated.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name(page), marks=[pytest.mark.slow] if page.name in LONG_PAGES else [])
        for page in PAGES
        if runs(page)
    ],
)
def test_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text()
    for match in FENCE.finditer(text):
        kind, options, code = match.groups()
        if title := re.search(r'title="([^"]+)"', options):
            Path(title[1]).write_text(code)
        if kind == "python":
            # Blank lines in front, so that a traceback names the line of the page.
            exec(compile("\n" * text[: match.start(3)].count("\n") + code, str(page), "exec"), namespace)
        elif kind == "console":
            for arguments in commands(code):
                if arguments[0] in RUN:
                    assert main(arguments) == 0, arguments


def test_commands_parse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = 0
    for page in PAGES:
        text = page.read_text()
        blocks = [code for kind, _, code in FENCE.findall(text) if kind in {"", "console", "text"}]
        for arguments in commands("\n".join([*blocks, *INDENTED.findall(text)])):
            found += 1
            try:
                parse(arguments)
            except click.UsageError as error:
                pytest.fail(f"{name(page)}: mlayer {' '.join(arguments)}: {error.format_message()}")
    assert found > 20


def parse(arguments: list[str]) -> None:
    """Parse a command as the command line does, without running it."""
    context = click.Context(command_line)
    _, command, rest = command_line.resolve_command(context, list(arguments))
    assert command is not None
    context = command.make_context(arguments[0], rest)
    if arguments[0] == "reproduce" and context.params["name"] not in {*EXPERIMENTS, "all"}:
        raise click.UsageError(f"no experiment {context.params['name']}")


@pytest.mark.parametrize(
    "wrong", ["fit data.csv", "fit data.csv --target a --ephocs 3", "reproduce nothing-such"]
)
def test_a_wrong_command_would_be_noticed(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        parse(shlex.split(wrong))


def anchors(page: Path) -> set[str]:
    """The anchors that Markdown's toc makes."""
    text = FENCE.sub("", page.read_text())
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", head).strip().lower() for head in heads]
    return {re.sub(r"[-\s]+", "-", head) for head in plain}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in LINK.findall(FENCE.sub("", page.read_text())):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), (page, link)
            assert not anchor or anchor in anchors(there), (page, link)
            # The site has the pages and pictures below docs/ and nothing else.
            assert page.name == "README.md" or there.is_relative_to(DOCS), (page, link)


RESULT = re.compile(r"\bresults/([a-z0-9_]+\.(?:json|csv|png|html))")


def test_results_that_a_page_cites_exist() -> None:
    """A figure may be quoted only from a file that is there; `results/NAME.json` is a pattern, not a file."""
    cited = [(name(page), file) for page in PAGES for file in RESULT.findall(page.read_text())]
    assert [pair for pair in cited if not (ROOT / "results" / pair[1]).exists()] == []


def settings() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    content: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return content


def entries(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from entries(part)


def test_the_site_lists_every_page_once() -> None:
    listed = list(entries(settings()["nav"]))
    made = [
        f"generated/{file.stem}.md"
        for file in (ROOT / "examples").iterdir()
        if file.suffix in {".py", ".ipynb"}
    ]
    there = [str(page.relative_to(DOCS)) for page in PAGES if page.is_relative_to(DOCS)]
    assert sorted(listed) == sorted(made + there)


def test_decisions_are_numbered_without_gaps() -> None:
    pages = sorted((DOCS / "decisions").glob("0*.md"))
    numbers = [int(page.name[:4]) for page in pages]
    assert numbers == list(range(1, len(pages) + 1))
    for number, page in zip(numbers, pages, strict=True):
        assert page.read_text().startswith(f"# {number}. ")
    listed = re.findall(r"^(\d+)\. \[.*\]\((.*)\)$", (DOCS / "decisions/index.md").read_text(), re.MULTILINE)
    assert listed == [(str(number), page.name) for number, page in zip(numbers, pages, strict=True)]


def test_the_reference_has_every_package() -> None:
    import mlayer

    pages = {page.stem for page in (DOCS / "api").glob("*.md")}
    assert pages == {"mlayer", *mlayer._PACKAGES}
    for page in pages - {"mlayer"}:
        assert f"::: mlayer.{page}\n" in (DOCS / f"api/{page}.md").read_text()


def test_nothing_is_fetched_by_the_site() -> None:
    content = settings()
    assert content["theme"]["font"] is False
    assert "offline" not in content["plugins"]  # it adds a script from a CDN
    assert "://" not in (ROOT / "mkdocs.yml").read_text()
    assert "://" not in (DOCS / "style/site.css").read_text()


def test_pictures_are_dark_on_dark_pages() -> None:
    """All but the maps of colors and the digits are inverted; most stood there in white."""
    css = (DOCS / "style/site.css").read_text()
    dark = re.findall(
        r'\[data-md-color-scheme="slate"\] \.md-typeset img(.*?) \{ filter: (\w+)', css, re.DOTALL
    )
    assert [filter for _, filter in dark] == ["invert", "brightness"]
    (_, (dimmed, _)) = dark
    assert dark[0][0] == ""  # every picture
    named = re.findall(r'\[src\$="(.*?)"\]', dimmed)
    assert len(named) == 5
    assert all((DOCS / "pictures" / name).is_file() for name in named)


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("| ") and not line.startswith("| |")]
    assert len(lines) <= 110
    assert len(table) <= 10


def test_tables_of_readme_and_docs_are_those_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/write_tables.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run python benchmarks/write_tables.py"


GENERATED = re.compile(r"^<!-- ([\w ]+) -->$.*?^<!-- /\1 -->$", re.MULTILINE | re.DOTALL)
# Tables, pictures, and formulas on lines of their own cannot be broken.
UNBREAKABLE = re.compile(r"\s*(?:\||!\[|\$\$|<)| {4}")


OTHERS = [ROOT / file for file in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
OTHERS += sorted((ROOT / "src").rglob("*.md"))


def test_lines_are_short() -> None:
    lines = [
        (name(page), line)
        for page in [*PAGES, *OTHERS]
        for line in GENERATED.sub("", FENCE.sub("", page.read_text())).splitlines()
    ]
    assert [pair for pair in lines if len(pair[1]) > 120 and not UNBREAKABLE.match(pair[1])] == []


# A line break before ">=", "+ b" or "0." of a formula would begin a quotation or a list.
NOT_IN_A_PARAGRAPH = re.compile(r" {0,3}(?:>|[-+*] |\d+[.)] )")


def test_no_line_of_a_paragraph_begins_as_a_list_or_quotation() -> None:
    broken = []
    for page in [*PAGES, *OTHERS]:
        for block in re.split(r"\n\s*\n|^#.*$", FENCE.sub("", page.read_text()), flags=re.MULTILINE):
            first, *others = block.strip("\n").splitlines() or [""]
            if not NOT_IN_A_PARAGRAPH.match(first) and not UNBREAKABLE.match(first):
                broken += [(name(page), line) for line in others if NOT_IN_A_PARAGRAPH.match(line)]
            broken += [(name(page), line) for line in (first, *others) if re.match(r"\s{0,3}>", line)]
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "theory"], ids=name)
def test_theorems_are_numbered_without_gaps(page: Path) -> None:
    for kind in ("Lemma", "Theorem"):
        numbers = [
            int(number) for number in re.findall(rf"^\*\*{kind} (\d+)", page.read_text(), re.MULTILINE)
        ]
        first = numbers[0] if numbers else 0
        assert first <= 1
        assert numbers == list(range(first, first + len(numbers)))


def test_theorems_that_the_code_cites_exist() -> None:
    """A page that the file names has them, or the main page."""
    cited = 0
    for file in (ROOT / "src/mlayer/certificates").rglob("*.py"):
        text = file.read_text()
        pages = {"certificates.md", *re.findall(r"\b(certificates-[\w-]+\.md)", text)}
        there = "\n".join((DOCS / "theory" / page).read_text() for page in pages)
        for kind, number in re.findall(r"\b(theorem|lemma) (\d+)", text, re.IGNORECASE):
            cited += 1
            assert f"**{kind.capitalize()} {number}" in there, f"{file.name}: {kind} {number}"
    assert cited > 5


def test_commits_behind_figures_are_told_apart() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from write_tables import NOT_HERE, made_by
    finally:
        sys.path.pop(0)
    assert made_by({"commit": "abc", "parts": ["abc", "def"]}) == "abc, parts def"
    assert made_by({"commit": "abc", "parts": ["abc"]}) == made_by({"commit": "abc"}) == "abc"
    assert made_by({"commit": None}) == made_by({"commit": NOT_HERE[0]}) == "earlier"
    assert made_by({"commit": "abc", "parts": [NOT_HERE[0], NOT_HERE[1]]}) == "abc, parts earlier"
