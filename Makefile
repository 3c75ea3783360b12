# Two commands do all the set-up on a fresh machine: make demo, make test.
# A C++ compiler is used when there is one; without it everything works, slower, and says so.
PYTHON ?= python3
VENV ?= .venv
# For more of pip's options, for example PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu".
PIP_FLAGS ?=
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt
SOURCES := pyproject.toml constraints.txt setup.py $(wildcard src/mlayer/exponential/kernel/*)

# What matplotlib keeps about fonts: here, not in the home folder.
export MPLCONFIGDIR ?= $(abspath $(VENV))/matplotlib

# What libraries keep while the tests run (onnxruntime does) goes here too; pip's own cache stays where it is.
TEST := XDG_CACHE_HOME=$(abspath $(VENV))/cache $(BIN)/python -m pytest -q

.PHONY: help demo test test-slow package lint types format bench bench-others bench-tables reproduce docs examples sanitize clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.ready  ## learns, writes down and certifies, in under a minute: out/demo.html
	@mkdir -p out
	$(BIN)/mlayer demo -o out/demo.html

test: $(VENV)/.ready  ## the tests, a few minutes
	$(TEST)

test-slow: $(VENV)/.ready  ## the tests that take longer
	$(TEST) -m slow

package: $(VENV)/.ready  ## sdist and wheel, tried in empty environments, with and without a compiler; minutes
	$(BIN)/python -m pytest -q -m "slow or not slow" tests/packaging

lint: $(VENV)/.ready  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready  ## type hints
	$(BIN)/mypy

format: $(VENV)/.ready  ## rewrite files in our style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready  ## speed as ratios in one run, and the README's tables; a quiet machine, please
	-$(BIN)/python benchmarks/expm.py $(BENCH_FLAGS)
	-$(BIN)/python benchmarks/threads.py
	-$(BIN)/python benchmarks/layer.py
	-$(BIN)/python benchmarks/loop.py
	-$(BIN)/python benchmarks/rmsprop.py
	-$(BIN)/python benchmarks/initialisers.py
	$(BIN)/python benchmarks/readme.py

bench-others: $(VENV)/.ready  ## the same, with JAX and TensorFlow beside (a gigabyte more to install)
	$(INSTALL) -e .[bench-others]
	$(MAKE) bench BENCH_FLAGS=--others

bench-tables: $(VENV)/.ready  ## the estimators beside scikit-learn's, 5-fold; an hour
	$(BIN)/python benchmarks/tables.py

reproduce: $(VENV)/.ready  ## every experiment of the paper at its default scale; hours
	$(BIN)/mlayer reproduce all
	$(BIN)/python benchmarks/readme.py

docs: $(VENV)/.docs  ## the documentation site: out/docs/index.html
	$(BIN)/python docs/generate.py
	PYTHONPATH=docs $(BIN)/zensical build --strict --clean
	@! grep -rlE '<(script|img|link|iframe)[^>]* (src|href)="https?:' out/docs --include='*.html' \
		|| { echo "these pages fetch something from elsewhere"; exit 1; }
	@echo "open out/docs/index.html, or with search: $(BIN)/python -m http.server -d out/docs"

examples: $(VENV)/.docs  ## runs them, and renews their pictures in docs/ and the outputs in the notebooks
	for script in examples/*.py; do $(BIN)/python $$script || exit 1; done
	cp $(patsubst examples/%.py,out/%.png,$(wildcard examples/*.py)) docs/pictures/
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/jupyter execute --inplace examples/*.ipynb

sanitize: $(VENV)/.ready  ## the kernel under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/python tests/kernel/sanitize.py

$(VENV)/.ready: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit("mlayer needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .[test,lint,bench]
	@$(BIN)/python -c 'import mlayer; print("mlayer is installed:", mlayer.expm_path().reason)'
	@touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(INSTALL) -e .[docs]
	@touch $@

clean:  ## everything that was built, the virtual environment too
	rm -rf $(VENV) build dist out docs/generated .cache src/*.egg-info src/mlayer/exponential/_kernel*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
