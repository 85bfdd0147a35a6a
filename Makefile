# `make run` and `make test` need no other set-up on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# Bytecode is written, whatever the environment says: without it each program that a test starts compiles the broker anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test pipeline peers check lint types layers index bench dist clean help

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# The build requirements are installed first, so that setup.py can run by itself and show its progress, which pip hides.
BUILD_REQUIRES = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
REQUIRES = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")

# Python compiles a module when it is first imported; pip would compile all modules of all packages.
# A pip of $(PYTHON) from 22.3 on installs into .venv too, which saves the seconds of a pip in .venv.
HAS_PIP = import pip; raise SystemExit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))
PIP = $$(test -e $(BIN)/pip && echo $(BIN)/python -m pip || echo $(PYTHON) -m pip --python $(BIN)/python) \
	install --quiet --disable-pip-version-check --no-compile

$(BIN)/python:
	@echo "gregor: making .venv"
	@$(PYTHON) -m venv $$($(PYTHON) -c '$(HAS_PIP)' 2>/dev/null && echo --without-pip) .venv

.venv/.build: $(BIN)/python pyproject.toml
	@$(BIN)/python -c '$(BUILD_REQUIRES)' >.venv/build-requires.txt
	@$(PIP) --requirement .venv/build-requires.txt
	@touch $@

SOURCES := $(BIN)/python pyproject.toml setup.py $(foreach room,broker/api broker/replicas/fetching broker/replicas/replication broker/server storage/log client/producer protocol protocol/records,$(wildcard $(room)/*_cy.py $(room)/*.pxd $(room)/*.c $(room)/*.h))

# An installation compiles only modules that have changed; see setup.py.
INSTALL = $(PIP) --no-build-isolation --editable

# pip waits for the network while setup.py compiles, and then installs Gregor itself without a look at compiled modules: nothing is
# left to be done after the compiler. The modules that a broker alone in its cluster does not use are compiled by .venv/.compiled.
.venv/.run: export GREGOR_COMPILE_FOR = broker
.venv/.run: $(SOURCES)
	@echo "gregor: installing what it needs into .venv"
	@$(BIN)/python -c '$(REQUIRES)' >.venv/requires.txt
	@$(PIP) --requirement .venv/requires.txt & dependencies=$$!; \
	$(MAKE) -s .venv/.build || { wait; exit 1; }; \
	GREGOR_PURE_PYTHON=1 $(INSTALL) . --no-deps & installation=$$!; \
	$(BIN)/python setup.py --quiet build_ext --inplace; compilation=$$?; \
	wait $$dependencies && wait $$installation && exit $$compilation
	@touch $@

.venv/.compiled: .venv/.run
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

.venv/.dev: .venv/.compiled
	@echo "gregor: installing what tests and checks need into .venv"
	@$(INSTALL) '.[dev]'
	@touch $@

.venv/.release: .venv/.compiled
	@echo "gregor: installing what builds a release into .venv"
	@$(INSTALL) '.[release]'
	@touch $@

.venv/.spark: .venv/.compiled
	@echo "gregor: installing PySpark, Delta Lake, Iceberg, clients of stores, readers of schemas and a Java into .venv (900 MB)"
	@$(INSTALL) '.[spark-test,jre]'
	@touch $@

# The other modules are compiled meanwhile: by a background job, which ignores Ctrl-C and so comes to its end.
run: .venv/.run ## install into .venv and start a broker on localhost:9092
	@$(MAKE) -q .venv/.compiled || nice $(MAKE) -s .venv/.compiled &
	$(BIN)/gregor serve $(ARGS)

# Four test files at a time, as many tests wait for a broker. The tests of one file run together, as they share brokers.
test: .venv/.dev ## all tests that need no other broker, in a few minutes
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: .venv/.dev ## ruff: style and mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev ## mypy --strict
	$(BIN)/mypy -p gregor.protocol -p gregor.security -p gregor.storage -p gregor.broker -p gregor.client -p gregor.gateway -p gregor.pipeline -p gregor.command_line -p gregor.testing -p gregor.bench -p gregor.zookeeper
	$(BIN)/mypy tests

layers: .venv/.dev ## import contracts between the rooms
	$(BIN)/lint-imports

pipeline: .venv/.spark ## install PySpark, Delta Lake, Iceberg and a Java for them into .venv (900 MB)
	$(BIN)/python -c 'from gregor.pipeline.session import prepare_environment; prepare_environment()'

# The tests of the pipeline come first, two files at a time: `make test` skips most of them where Spark is not installed. The tests
# with Kafka, real clients, containers or many starts of Spark run one after the other: they share ports, directories and both CPUs.
# pytest exits with 5 if ARGS selects no test of a step.
peers: .venv/.dev .venv/.release .venv/.spark ## tests with Spark, real clients and Apache Kafka 3.9.1 (needs ../shared; the first run builds clients for some minutes)
	$(BIN)/python -m pytest -m 'spark and not peer' -n 2 --dist loadfile --no-loadscope-reorder $(ARGS) || test $$? = 5
	$(BIN)/python -m pytest -m peer $(ARGS) || test $$? = 5

ifdef ROOM
# Checks of one room and its quick tests, in less than a minute. `make check` without ROOM runs all checks, before a push.
ROOM_CODE := $(wildcard $(ROOM))
ROOM_TESTS := $(wildcard tests/$(ROOM))

check: .venv/.dev
	@test -n "$(ROOM_CODE)$(ROOM_TESTS)" || { echo "no room $(ROOM): try storage, protocol/records or broker/quotas"; exit 2; }
	$(BIN)/ruff check $(ROOM_CODE) $(ROOM_TESTS)
	$(BIN)/ruff format --check $(ROOM_CODE) $(ROOM_TESTS)
	$(if $(ROOM_CODE),$(BIN)/mypy -p gregor.$(subst /,.,$(ROOM)))
	$(BIN)/lint-imports >/dev/null || $(BIN)/lint-imports
	$(if $(ROOM_TESTS),$(BIN)/python -m pytest -q -m 'not peer and not slow' -n 3 --dist loadfile --no-loadscope-reorder $(ROOM_TESTS) $(ARGS))
	@echo "gregor: $(ROOM) is checked but for its tests marked slow, which make test runs"
else
check: lint types layers test ## all checks that need no other broker; ROOM=storage checks one room
endif

index: .venv/.dev ## each API with its schema file, handler and tests
	@$(BIN)/python -m tests.api_index

bench: .venv/.dev ## measure the goals of speed beside Apache Kafka 3.9.1, in about ten minutes (needs ../shared)
	$(BIN)/python -m bench $(ARGS)

dist: .venv/.dev .venv/.release ## sdist, a compiled wheel for $(PYTHON) and a pure wheel, into dist/
	$(BIN)/python release/build.py --python $(PYTHON)

clean: ## remove all files that were built here
	rm -rf .venv build dist *.egg-info
