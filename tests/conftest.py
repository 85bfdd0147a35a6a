"""Fixtures of all rooms: the two builds of the compiled modules, and a running broker."""

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

import gregor.protocol.records
from tests.broker_process import BrokerProcess, running_broker

PACKAGE_FOLDER = Path(gregor.protocol.records.__file__).parents[2]
ROOMS_WITH_COMPILED_MODULES = (
    "broker/api",
    "broker/replicas/fetching",
    "broker/replicas/replication",
    "broker/server",
    "protocol",
    "protocol/records",
    "storage/log",
)
COMPILED_SOURCES = sorted(
    source for room in ROOMS_WITH_COMPILED_MODULES for source in (PACKAGE_FOLDER / room).glob("*_cy.py")
)

LONGEST_FILES = ("test_broker_of_tests.py", "test_consumer_transactions.py", "test_packaging.py", "test_rebalances.py")
"""The names of files whose tests, which run one after the other, take about half a minute or more."""

# No property is about speed, and what holds here holds on any machine: `--hypothesis-profile exploring` looks further.
settings.register_profile("exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("exploring"), derandomize=True)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options for the length of the torture tests and for the seed of their failures."""
    parser.addoption("--failover-rounds", type=int, default=15, help="troubles that brokers get into")
    parser.addoption(
        "--job-kills", type=int, default=2, help="how often a job of the pipeline, or its broker, is killed"
    )
    parser.addoption("--failover-seed", type=int, default=6, help="another seed makes other troubles")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: at the end of a run other workers would wait for them."""
    items.sort(key=lambda item: item.path.name not in LONGEST_FILES)


def module_name(source: Path) -> str:
    """Return the name of the module in a file of the package."""
    return ".".join(("gregor", *source.with_suffix("").relative_to(PACKAGE_FOLDER).parts))


def pure_twin(source: Path) -> ModuleType:
    """Return the module of `source` as plain Python, loaded beside the module in use."""
    name = module_name(source.with_name(f"_pure_{source.name}"))
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def is_up_to_date(module: ModuleType, source: Path) -> bool:
    """Return whether `module` was compiled, and after `source` and its types were written."""
    built = Path(module.__file__ or source)
    newest = max(path.stat().st_mtime for path in (source, source.with_suffix(".pxd")))
    return built.suffix != ".py" and built.stat().st_mtime >= newest


@pytest.fixture
def pure_modules() -> dict[str, ModuleType]:
    """Return the `*_cy` modules as plain Python, by name, to be compared with the compiled ones."""
    return {source.stem: pure_twin(source) for source in COMPILED_SOURCES}


@pytest.fixture(params=["compiled", "pure python"])
def record_build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test twice: with the compiled modules, and with their sources as plain Python."""
    modules = {source: importlib.import_module(module_name(source)) for source in COMPILED_SOURCES}
    if request.param == "compiled":
        missing = [source.name for source, module in modules.items() if not is_up_to_date(module, source)]
        if missing:
            pytest.skip(f"no compiled {', '.join(missing)} of today: `pip install -e .` with a C compiler builds them")
    else:
        replace_everywhere(monkeypatch, {module: pure_twin(source) for source, module in modules.items()})
    # Otherwise an object of the other build would be used again.
    monkeypatch.setattr("gregor.protocol.records.convert._idle_recompressions", [])
    return str(request.param)


class Use(NamedTuple):
    """An attribute of a module that holds a compiled module, or something of one, and its value in pure Python."""

    attribute: str
    compiled: object
    pure: object


uses_found: dict[str, tuple[ModuleType, int, list[Use]]] = {}
"""Uses by the name of the module that has them; with that module and the number of its attributes at the search."""


def replace_everywhere(monkeypatch: pytest.MonkeyPatch, twins: Mapping[ModuleType, ModuleType]) -> None:
    """Replace compiled modules and their attributes by `twins` and those of `twins`, in the package and in tests.

    A search of all modules takes 30 ms, so a module is searched again only if the number of its attributes has changed.
    """
    for name, user in list(sys.modules.items()):
        if not name.startswith(("gregor.", "tests.")):
            continue
        found = uses_found.get(name)
        if found is None or found[0] is not user or found[1] != len(vars(user)):
            found = uses_found[name] = (user, len(vars(user)), list(uses(user, twins)))
        for use in found[2]:
            if vars(user).get(use.attribute) is use.compiled:
                monkeypatch.setattr(user, use.attribute, use.pure)


def uses(user: ModuleType, twins: Mapping[ModuleType, ModuleType]) -> Iterator[Use]:
    """Iterate over the uses of compiled modules in a module other than themselves and their twins."""
    by_name = {compiled.__name__: (compiled, pure) for compiled, pure in twins.items() if user not in (compiled, pure)}
    for attribute, value in list(vars(user).items()):
        if isinstance(value, ModuleType):
            if value in twins and value.__name__ in by_name:
                yield Use(attribute, value, twins[value])
            continue
        origin = getattr(value, "__module__", None)
        if isinstance(origin, str) and origin in by_name and hasattr(by_name[origin][1], attribute):
            yield Use(attribute, value, getattr(by_name[origin][1], attribute))


@pytest.fixture(scope="module")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a broker of its own for each test module, with Kafka's defaults and one-partition internal topics."""
    overrides = (
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=1",
        "transaction.state.log.num.partitions=1",
    )
    with running_broker(tmp_path_factory.mktemp("broker"), *overrides) as broker:
        yield broker
