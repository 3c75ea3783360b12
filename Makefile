# Two commands do all the set-up on a fresh machine: make demo, make test.
# A C++ compiler is used when there is one; without it everything works, slower, and says so.
PYTHON ?= python3
VENV ?= .venv
# For more of pip's options, for example PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu".
PIP_FLAGS ?=
BIN := $(VENV)/bin
INSTALL := $(PYTHON) tools/old_python.py && $(PYTHON) tools/environment.py $(VENV)
SOURCES := pyproject.toml constraints.txt setup.py tools/environment.py $(shell find src/mlayer/exponential/kernel -type f)

# What matplotlib keeps about fonts: here, not in the home folder.
export MPLCONFIGDIR ?= $(abspath $(VENV))/matplotlib

# Python's compiled modules: here, and kept even where PYTHONDONTWRITEBYTECODE is set, as in many containers.
# Without them every process compiles torch's thousands of files anew, which takes longer than most tests.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(abspath $(VENV))/bytecode
# Python without assert statements: the tests would check nothing, and pytest does not start.
unexport PYTHONOPTIMIZE

# What libraries keep while the tests run (onnxruntime does) goes here too; pip's own cache stays where it is.
CACHE := XDG_CACHE_HOME="$(abspath $(VENV))/cache"
# One process a core, each with one thread: make test WORKERS=8, or WORKERS=0 for everything in this process.
WORKERS ?= auto
TEST := $(CACHE) PYTHONPATH=tests OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} MLAYER_TEST_STRICT=1 \
	$(BIN)/python -m pytest -q -p progress -n $(WORKERS) --dist worksteal

.PHONY: help demo test test-slow test-machines test-versions test-compilers test-arm test-triton fuzz package lint types format bench bench-others bench-tables reproduce docs examples sanitize clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.demo  ## learns, writes down and certifies, in under a minute: out/demo.html
	@mkdir -p out
	$(BIN)/mlayer demo -o out/demo.html

test: $(VENV)/.ready  ## the tests, about six minutes on two cores
	@echo "the tests: about six minutes on two cores, less on more"
	$(TEST)

test-slow: $(VENV)/.ready  ## the tests that take longer
	$(TEST) -m slow

test-machines: $(VENV)/.ready  ## numeric tests as other machines run them: another BLAS, threads, instruction sets, another user
	$(CACHE) $(BIN)/python tools/machines.py

test-versions: $(VENV)/.ready  ## one case of every test with the oldest and the newest versions, and other Pythons
	$(CACHE) $(BIN)/python tools/versions.py

test-compilers: $(VENV)/.ready  ## kernel and node built by g++ and by clang++, and their tests
	$(CACHE) $(BIN)/python tools/compilers.py

test-arm: $(VENV)/.ready  ## the kernel cross-compiled for ARM and run by an emulator, compared with this machine's results
	PYTHONPATH=tests $(BIN)/python tools/arm.py

test-triton: $(VENV)/.ready  ## the GPU kernel without a GPU: compiled, executed as PTX, interpreted (700 MB more)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --no-deps --target $(VENV)/triton triton==3.7.1
	PYTHONPATH=$(VENV)/triton $(BIN)/python -m pytest -q tests/exponential/test_triton.py

fuzz: $(VENV)/.ready  ## thousands of random and hostile cases
	$(TEST) -m fuzz

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

bench: $(VENV)/.ready  ## speed as ratios in one run, and the tables of README and docs; a quiet machine, please
	-$(BIN)/python benchmarks/expm.py $(BENCH_FLAGS)
	-$(BIN)/python benchmarks/threads.py
	-$(BIN)/python benchmarks/layer.py
	-$(BIN)/python benchmarks/loop.py
	-$(BIN)/python benchmarks/rmsprop.py
	-$(BIN)/python benchmarks/initializers.py
	$(BIN)/python benchmarks/write_tables.py

bench-others: $(VENV)/.ready  ## the same, with JAX and TensorFlow (a gigabyte more to install)
	$(INSTALL) test,lint,bench-others $(PIP_FLAGS)
	$(MAKE) bench BENCH_FLAGS=--others

bench-tables: $(VENV)/.ready  ## the estimators compared with scikit-learn's, 5-fold; an hour
	$(BIN)/python benchmarks/tables.py

reproduce: $(VENV)/.ready  ## every experiment of the paper at its default scale; hours
	$(BIN)/mlayer reproduce all
	$(BIN)/python benchmarks/write_tables.py

docs: $(VENV)/.docs  ## the documentation site: out/docs/index.html
	$(BIN)/python docs/generate.py
	PYTHONPATH=docs $(BIN)/zensical build --strict --clean
	@! grep -rlE '<(script|img|link|iframe)[^>]* (src|href)="https?:' out/docs --include='*.html' \
		|| { echo "these pages fetch something from elsewhere"; exit 1; }
	@echo "open out/docs/index.html, or with search: $(BIN)/python -m http.server -d out/docs"

examples: $(VENV)/.docs  ## runs them, and renews their pictures in docs/ and the outputs in the notebooks
	for script in examples/*.py; do $(BIN)/python $$script || exit 1; done
	cp $(patsubst examples/%.py,out/%.png,$(wildcard examples/*.py)) docs/pictures/
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupyter execute --inplace examples/*.ipynb

sanitize: $(VENV)/.ready  ## the kernel under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/python tests/kernel/sanitize.py

# Only what the demo needs; what the tests need includes it.
$(VENV)/.demo: $(SOURCES)
	@$(INSTALL) demo $(PIP_FLAGS)
	@touch $@

$(VENV)/.ready: $(SOURCES)
	@$(INSTALL) test,lint,bench $(PIP_FLAGS)
	@$(BIN)/python -m mlayer.exponential.compile || true  # the autograd node needs torch, which is there now
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.ready
	@$(INSTALL) test,lint,bench,docs $(PIP_FLAGS)
	@touch $@

clean:  ## everything that was built, the virtual environment too
	rm -rf $(VENV) build dist out docs/generated .cache src/*.egg-info src/mlayer/exponential/_kernel*.so src/mlayer/exponential/_node*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
