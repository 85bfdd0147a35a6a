# Two commands do all of their own set-up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: run test pipeline peers check lint types layers index bench clean help

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# What builds is installed first, so that compiling can say how far it is: pip keeps what a build writes to itself.
BUILD_REQUIRES = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

$(BIN)/python:
	@echo "gregor: making .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

.venv/.build: $(BIN)/python pyproject.toml
	@$(BIN)/python -c '$(BUILD_REQUIRES)' >.venv/build-requires.txt
	@$(BIN)/python -m pip install --quiet --requirement .venv/build-requires.txt
	@touch $@

SOURCES := .venv/.build pyproject.toml setup.py $(wildcard client/producer/*_cy.py protocol/records/*_cy.py client/producer/*.pxd protocol/records/*.c protocol/records/*.h protocol/records/*.pxd)

# Whatever is installed compiles only what has changed; see setup.py.
INSTALL = $(BIN)/python -m pip install --quiet --no-build-isolation --editable

.venv/.run: $(SOURCES)
	@$(BIN)/python setup.py --quiet build_ext --build-lib build/lib.checkout
	@echo "gregor: installing it and what it needs into .venv"
	@$(INSTALL) .
	@touch $@

.venv/.dev: .venv/.run
	@echo "gregor: installing what tests and checks need into .venv"
	@$(INSTALL) '.[dev]'
	@touch $@

.venv/.spark: .venv/.run
	@echo "gregor: installing PySpark, Delta Lake and a Java into .venv (800 MB)"
	@$(INSTALL) '.[delta,jre]'
	@touch $@

run: .venv/.run ## install into .venv and start a broker on localhost:9092
	$(BIN)/gregor serve $(ARGS)

# Three at a time: many tests wait for a broker to notice something. Files stay whole, as their tests share brokers.
test: .venv/.dev ## everything that needs no peer, in a few minutes
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: .venv/.dev ## ruff, for style and for mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev ## mypy --strict
	$(BIN)/mypy -p gregor.protocol -p gregor.storage -p gregor.broker -p gregor.client -p gregor.pipeline -p gregor.command_line -p gregor.testing -p gregor.bench
	$(BIN)/mypy tests

layers: .venv/.dev ## import contracts between the rooms
	$(BIN)/lint-imports

pipeline: .venv/.spark ## install PySpark, Delta Lake and a Java for them into .venv (800 MB)
	$(BIN)/python -c 'from gregor.pipeline.session import prepare_environment; prepare_environment()'

peers: .venv/.dev .venv/.spark ## real clients and Apache Kafka 3.9.1 against the broker (needs ../shared; builds for some minutes at first)
	$(BIN)/python -m pytest -m peer $(ARGS)

ifdef ROOM
# One room: what a change to it breaks first. `make check` without ROOM runs everything, before a push.
ROOM_CODE := $(wildcard $(ROOM))
ROOM_TESTS := $(wildcard tests/$(ROOM))

check: .venv/.dev
	@test -n "$(ROOM_CODE)$(ROOM_TESTS)" || { echo "no room $(ROOM): try storage, protocol/records or broker/quotas"; exit 2; }
	$(BIN)/ruff check $(ROOM_CODE) $(ROOM_TESTS)
	$(BIN)/ruff format --check $(ROOM_CODE) $(ROOM_TESTS)
	$(if $(ROOM_CODE),$(BIN)/mypy -p gregor.$(subst /,.,$(ROOM)))
	$(BIN)/lint-imports >/dev/null || $(BIN)/lint-imports
	$(if $(ROOM_TESTS),$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder $(ROOM_TESTS) $(ARGS))
else
check: lint types layers test ## the whole of CI that needs no peer; ROOM=storage checks one room
endif

index: .venv/.dev ## each API with its schema file, handler and tests
	@$(BIN)/python -m tests.api_index

bench: .venv/.dev ## side by side with Apache Kafka 3.9.1 (needs ../shared)
	$(BIN)/python -m bench $(ARGS)

clean: ## remove what was built here
	rm -rf .venv build *.egg-info
