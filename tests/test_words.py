"""One spelling (American, as torch and scikit-learn) and the field's own words in all that people read."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENDINGS = {".py", ".md", ".h", ".cpp", ".toml", ".yml", ".css", ".ipynb"}
FOLDERS = ("src", "docs", "benchmarks", "examples", "tools", "tests")
FILES = sorted(
    file
    for folder in FOLDERS
    for file in (ROOT / folder).rglob("*")
    if file.suffix in ENDINGS and "generated" not in file.parts and file != Path(__file__).resolve()
) + [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile")]

# Beginnings of British words; each is wrong inside identifiers too.
BRITISH = re.compile(
    r"colour|behaviour|neighbour|favour|honour|\bcentre|centred|_centre|labelled|labelling|modelled|modelling"
    r"|travelling|\bcancelling|\bcancelled|learnt|misspelt|\bgrey|per cent\b|catalogue|artefact|judgement"
    r"|(?:optim|minim|maxim|initial|normal|standard|symmetr|factor|recogn|regular|linear|general|summar|organ"
    r"|serial|quant|vector|parametr|diagonal|orthogonal|discret|random|special|visual|util|penal|categor"
    r"|stabil|local|synchron|final|memor)is(?:e|ing|ation|er)",
    re.IGNORECASE,
)

# What sounds translated, with the field's word for it.
PHRASES = {
    r"\b(?:[Oo]ne|[Nn]umbers?|entry|line|draw|bar|file|pair|evaluation|products|block) an? "
    r"(?:row|line|example|image|class|core|command|model|value|variable|round|monomial)\b": "per",
    r"(?:taken|takes|take) up (?:a run|by the|only|if|and)|\btaken up\b": "resume",
    r"\bdear(?:er|est)?\b": "expensive, in order of cost",
    r"\boff by\b|[Ww]hat \w+ (?:is|may be) off|how far .{1,20} be off": "error of",
    r"\bin silence\b": "silently",
    r"\bare others\b(?! (?:that|who|of|in))": "differ",
    r"\bfor the case that\b": "in case",
    r"\b(?:nobody|who) (?:else )?is at (?:this|that|it)\b": "works on",
    r"knows? how far (?:its|the|their) training is": "counts the batches of its training",
    r"\b[Mm]end(?:ed|s|ing)?\b": "correct, repair",
    r"at the door|front door": "on entry, top-level package",
    r"\brooms?\b(?! for)": "package, subpackage",
    r"\bthe bend\b": "curvature",
    r"\bby custom\b": "usually",
    r"\b(?:go|goes|went|going) on\b": "continue, resume, extrapolate",
    r"\b(?:take|takes|taking|taken) (?:it|them|each other) up\b": "resume",
    r"\bheld against\b": "compared with",
    r"\bwhat came\b|\bcame out\b": "what it was, the result",
    r"\b[Bb]eside (?:the|an?|its?|each|that|what|this|ours|those|them|these|[A-Z])": "compared with, next to",
    r"\bof (?:its|their|our|your) own\b(?! (?:n|factors))": "its own, separate",
    r"\b[Ss]o many\b": "this many",
    r"\b[Mm]ade-up\b": "synthetic",
    r"\b(?:is|are) no (?:finite|numbers?|tables?|columns?|integer|JSON|texts?|random|dense|ordinary)\b": (
        "is not a"
    ),
    r"\b[Mm]odels? (?:of|for) regression\b": "regression model",
    r"\bstart(?:s|ed)? anew\b": "start over",
    r"\bwritten down from\b": "compiled from",
    r"\b(?:s|[Ss]econds) an? (?:row|step|image|pair)\b": "per",
    r"\b(?:neighbors|entries|digits) are right\b": "correct",
    r"\b(?:chosen|defines?|made|computed|drawn|fitted|built) anew\b": "again, redefine",
    r"\bfile's head\b": "docstring",
    r"\bof (?:its|their) like\b|\band (?:its|their) like\b": "of the corresponding term, and similar",
    r"\bsomething else than\b": "something different from",
    r"\bleaves? \w+ as it is\b": "unchanged",
    r"\b(?:is|are) no (?:M-layer|guarantee|success|sum|formula|bounds?|wave|sine|measurement|result)\b": (
        "is not a"
    ),
    r"\bspeaks? (?:for|of) (?:it|that|the)\b": "favor, refer to",
    r"\bmany a\b|\bas moments are\b|\b(?:made|taken|was) so\b": "many, like times, that way",
    r"\b[Ss]ums are (?:not|known|checked)\b|\bfiles' sums\b|\b(?:its|whose) sum\b": "checksum",
    r"\btold apart\b": "distinguished",
    r"\bgone through\b|\bwork(?:s|ed)? out\b": "traversed, evaluated, computed",
    r"\bwhat is left over\b": "residual",
    r"\b[Tt]ake up an?\b": "resume",
    r"\brightly\b|\bthe wrong way round\b": "correctly, swapped",
    r"\bdo(?:es)? not tell\b": "does not say, does not decide",
    r"\bone's own\b": "user-defined, your own",
    r"\bfor ever\b|\bin vain\b": "forever, lost",
    r"\bthat is told\b": "with ... given",
    r"\btime an (?:image|epoch)\b": "per",
    r"\bgigabytes of nothing\b|\bterabytes of nothing\b": "sparse file",
    r"\b(?:slope|weight|number|bit|term) an? (?:layer|row|step|pair)\b": "per",
    r"\bat hand\b|\bworth the name\b|\bto speak of\b": "available, known",
    r"\b(?:are|is) summed up\b|\bwhat \w+ (?:are|is) made of\b": "terms of the sum",
    r"\b(?:is|are) no (?:object|parameter|zero|JSON)\b|\bthat is none\b": "is not a",
    r"\b(?:Measured|Minimized|Compared|Asserted|Counted|Left out)(?:, [^,.]*,)? (?:is|are) ": "subject first",
    r"\b(?:[Uu]nless|if) told\b|\bis told (?:about|what|the)\b|\bcannot be told\b": "given, seen",
    r"; a few words\b|pip's (?:own )?words\b|\bin writing\b|\bat the begin\b": "message, text, start",
}
# CONTRIBUTING and the decisions speak of rooms for subpackages; a table of the benchmarks is about houses.
SPEAKS_OF_ROOMS = {"CONTRIBUTING.md", "table_data.py"}
READ = [file for file in FILES if not file.is_relative_to(ROOT / "tests")]


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@cache
def text_of(file: Path) -> str:
    """The text that a person reads; of a notebook the cells, not the pictures that they drew."""
    text = file.read_text()
    if file.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def over_lines(phrase: str) -> re.Pattern[str]:
    """The phrase as prose has it: a blank may be the end of a line, of a comment too."""
    return re.compile(phrase.replace(" ", r"(?:\s+(?:#|//)?[ \t]*)"))


def slips(pattern: re.Pattern[str], text: str) -> list[str]:
    return [f"line {text[: m.start()].count(chr(10)) + 1}: {m[0]}" for m in pattern.finditer(text)]


# A docstring is a sentence or names what is returned: it neither asks nor continues the name of its function.
CONTINUES = {"About", "Along", "Also", "As", "At", "Behind", "By", "From", "In", "Of", "On", "Over", "Past"}
CONTINUES |= {"Per", "Some", "Those", "To", "With", "Without"}
ASKS = {"What", "Whatever", "How", "Which", "Where", "Who", "Why", "When"}


def docstrings_that_are_no_statements(code: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node) or "-"
            avoided = ASKS if isinstance(node, ast.Module) else ASKS | CONTINUES
            if text.split()[0] in avoided:
                found.append(f"{getattr(node, 'name', 'module')}: {text.splitlines()[0]}")
    return found


def test_docstrings_neither_ask_nor_continue_the_name() -> None:
    assert docstrings_that_are_no_statements('def norm(x):\n    """Of the rows."""') == ["norm: Of the rows."]
    assert docstrings_that_are_no_statements('"""How it is done."""') == ["module: How it is done."]
    files = [file for file in FILES if file.suffix == ".py"]  # the tests too
    found = {name(file): docstrings_that_are_no_statements(file.read_text()) for file in files}
    assert {file: texts for file, texts in found.items() if texts} == {}


def test_files_are_found() -> None:
    assert {"README.md", "docs/layer.md", "src/mlayer/nn/layer.py"} <= {name(file) for file in FILES}


@pytest.mark.parametrize("word", ["colours", "as_initialiser", "optimiser", "labelled", "Normalised"])
def test_the_spelling_test_sees(word: str) -> None:
    assert slips(BRITISH, f"the {word} of it")


@pytest.mark.parametrize("word", ["color", "otherwise", "promise", "noise", "centered", "raises", "precise"])
def test_the_spelling_test_passes_over(word: str) -> None:
    assert not slips(BRITISH, f"the {word} of it")


def test_spelling_is_american() -> None:
    found = {name(file): slips(BRITISH, text_of(file)) for file in FILES}
    assert {file: words for file, words in found.items() if words} == {}
    assert not [name(file) for file in FILES if BRITISH.search(file.name)]


def test_percents_are_written_one_way() -> None:
    """'90 %' stood next to '87%'; in backquotes it is what a cell of a table may hold."""
    pages = [file for file in READ if file.suffix in {".md", ".ipynb"}]
    found = {name(file): slips(re.compile(r"\d %(?!`)"), text_of(file)) for file in pages}
    sources = [file for file in READ if file.suffix == ".py" and "src" in file.parts]
    found |= {name(file): slips(re.compile(r":\.\df\} %"), text_of(file)) for file in sources}
    assert {file: percents for file, percents in found.items() if percents} == {}


@pytest.mark.parametrize("phrase", PHRASES)
def test_words_are_those_of_the_field(phrase: str) -> None:
    pattern = over_lines(phrase)
    found = {
        name(file): slips(pattern, text_of(file))
        for file in READ
        if not ("room" in phrase and (file.name in SPEAKS_OF_ROOMS or "decisions" in file.parts))
    }
    found = {file: words for file, words in found.items() if words}
    assert found == {}, f"better: {PHRASES[phrase]}"


def test_a_phrase_is_found_across_a_line_break() -> None:
    pattern = over_lines(r"\bof (?:its|their) own\b")
    assert slips(pattern, "a file of its\n    # own") == ["line 1: of its\n    # own"]
    assert not slips(pattern, "of its\n\n## Owners")


def test_docstrings_are_statements() -> None:
    asking = []
    for file in READ:
        if file.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = (ast.get_docstring(node) or "").split("\n", 1)[0]
                if "?" in first:
                    asking.append(f"{name(file)}: {first}")
    assert asking == []


def starts_of_demands(code: str) -> list[str]:
    """The literal start of what an argument must be, the second part of each ArgumentError."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "").startswith("Argument"):
            demand: ast.expr | None = node.args[1] if len(node.args) > 1 else None
            if isinstance(demand, ast.JoinedStr):
                demand = demand.values[0]
            if isinstance(demand, ast.Constant):
                found.append(str(demand.value))
    return found


def test_an_argument_must_be_something() -> None:
    """ "x must be with weights" is not English: a noun, an adjective or a participle comes first."""
    assert starts_of_demands('raise ArgumentError("x", f"with {a}", "b", "c")') == ["with "]
    found = {name(file): starts_of_demands(file.read_text()) for file in READ if file.suffix == ".py"}
    assert sum(map(len, found.values())) > 200
    assert not {
        file: wrong
        for file, all_of in found.items()
        if (wrong := [d for d in all_of if d.startswith("with ")])
    }
