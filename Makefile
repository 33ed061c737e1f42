# Needs python3 (3.11 or newer, with venv) and make, nothing else. `make` alone lists the targets.
# Portable on purpose: GNU make 3.81 and the tools of macOS are enough.

PRESET = quick
JOBS =
ARGS =
PYTHON =
TEST_JOBS = 3

# glibc keeps freed memory instead of returning it: small ViTs train 8 to 20 % faster on a CPU, at a peak at most a
# tenth higher. Other C libraries ignore it; `make run ALLOCATOR=` does without.
ALLOCATOR = MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000

# The environment is whole when this file is there. Its name changes with the lock, with pyproject.toml and with the
# checkout's place, so a second `make` only looks for it.
KEY := $(shell { pwd -P; cat requirements.lock pyproject.toml; } | cksum | tr -cd 0-9)
READY = .venv/.installed-$(KEY)
BIN = .venv/bin
# Three processes keep two cores busy: tests often wait for a browser, a kernel or a process that they have started.
PYTEST = $(ALLOCATOR) $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

# Some machines forbid Python to keep compiled modules; importing torch and timm then takes 16 s instead of 6.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "usage: make TARGET [PRESET=smoke|quick|full] [JOBS=n] [ARGS='...'] [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

$(READY):
	@python=$$(sh .ci/find-python $(PYTHON)) && "$$python" .ci/install.py $@

install: $(READY) ## build .venv from requirements.lock (what needs it does this first)

run: $(READY) ## every notebook at PRESET, results and REPORT.md in figures/out/PRESET (ARGS: notebook numbers, --set)
	@$(ALLOCATOR) $(BIN)/vitlab run --preset $(PRESET) $(if $(JOBS),--jobs $(JOBS)) $(ARGS)

test: $(READY) ## the whole test suite (ARGS go to pytest; TEST_JOBS processes, 3)
	@$(PYTEST) $(ARGS)

test-fast: TEST_JOBS = 2
test-fast: $(READY) ## the tests that are quick: no notebooks, browsers or other processes (ARGS go to pytest)
	@$(PYTEST) -m "not slow" $(ARGS)

lint: $(READY) ## ruff, its formatting and mypy, which .ci/run asks for too
	@$(BIN)/ruff check . && $(BIN)/ruff format --check vitlab tests tools benchmarks && $(BIN)/python -m mypy

lab: $(READY) ## JupyterLab on copies of the notebooks in working/, where yours are kept (ARGS go to JupyterLab)
	@$(BIN)/python -m tools.notebooks work > /dev/null && $(BIN)/jupyter lab $(ARGS) working/notebooks/00_*.ipynb

site: $(READY) ## the notebooks and docs as web pages: docs/_build/html/index.html (ARGS='-b linkcheck': their links)
	@$(BIN)/python -m sphinx -q --keep-going -c docs/site $(ARGS) . docs/_build/html

slides: $(READY) ## chapters as slides, no network needed: docs/_build/slides/NN.html (ARGS: notebook numbers)
	@$(BIN)/python -m tools.slides $(ARGS)

notebooks: $(READY) ## maintainers: execute the sources at quick, renew reference, exercises, README and docs/ledger.md
	@$(BIN)/python -m tools.notebooks sync
	@$(ALLOCATOR) $(BIN)/vitlab run --preset quick $(if $(JOBS),--jobs $(JOBS))
	@$(BIN)/python -m tools.notebooks reference
	@$(BIN)/python -m tools.pages
	@$(BIN)/python -m tools.notebooks check

lock: $(READY) ## maintainers: requirements.lock and environment.yml from pyproject.toml (ARGS=--upgrade)
	@UV_PYTHON_DOWNLOADS=never $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url \
		--no-annotate --no-header --generate-hashes --extra lab --extra test $(ARGS) pyproject.toml -o requirements.lock
	@$(BIN)/python .ci/environment.py

clean: ## remove caches and what runs wrote to figures/out (data/downloads stays)
	@rm -rf figures/out build dist docs/_build .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . \( -name .venv -o -name .git -o -path ./data/downloads \) -prune -o \
		\( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv
	@rm -rf .venv *.egg-info

.PHONY: help install run test test-fast lint lab site slides notebooks lock clean distclean
