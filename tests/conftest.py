"""What all rooms share: the two builds of the compiled modules, and a running broker."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

import gregor.protocol.records
from tests.broker_process import BrokerProcess, running_broker

RECORDS = "gregor.protocol.records"
PIPELINE = "gregor.pipeline"
PACKAGE_FOLDER = Path(gregor.protocol.records.__file__).parents[2]
COMPILED_SOURCES = sorted(Path(gregor.protocol.records.__file__).parent.glob("*_cy.py"))

# No property is about speed, and what holds here holds on any machine: `--hypothesis-profile exploring` looks further.
settings.register_profile("exploring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("exploring"), derandomize=True)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the tortures go on, and which."""
    parser.addoption("--failover-rounds", type=int, default=15, help="troubles that brokers get into")
    parser.addoption(
        "--job-kills", type=int, default=2, help="how often a job of the pipeline, or its broker, is killed"
    )
    parser.addoption("--failover-seed", type=int, default=6, help="another seed makes other troubles")


def pure_twin(source: Path) -> ModuleType:
    """The module that `source` is when nobody compiles it, loaded beside the one that is in use."""
    name = ".".join(("gregor", *source.parent.relative_to(PACKAGE_FOLDER).parts, f"_pure_{source.stem}"))
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def is_up_to_date(module: ModuleType, source: Path) -> bool:
    """Whether `module` was compiled, and after `source` and its types were written."""
    built = Path(module.__file__ or source)
    newest = max(path.stat().st_mtime for path in (source, source.with_suffix(".pxd")))
    return built.suffix != ".py" and built.stat().st_mtime >= newest


@pytest.fixture
def pure_modules() -> dict[str, ModuleType]:
    """The `*_cy` modules as plain Python, by name, to be compared with the compiled ones."""
    return {source.stem: pure_twin(source) for source in COMPILED_SOURCES}


@pytest.fixture(params=["compiled", "pure python"])
def record_build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test twice: with the compiled modules, and with their sources as plain Python wherever they are used."""
    modules = {source: importlib.import_module(f"{RECORDS}.{source.stem}") for source in COMPILED_SOURCES}
    if request.param == "compiled":
        missing = [source.name for source, module in modules.items() if not is_up_to_date(module, source)]
        if missing:
            pytest.skip(f"no compiled {', '.join(missing)} of today: `pip install -e .` with a C compiler builds them")
    else:
        for source, module in modules.items():
            replace_everywhere(monkeypatch, module, pure_twin(source))
    return str(request.param)


def replace_everywhere(monkeypatch: pytest.MonkeyPatch, compiled: ModuleType, pure: ModuleType) -> None:
    """Put `pure`, or what it has by that name, wherever the package or a test holds `compiled` or its own."""
    for name, user in list(sys.modules.items()):
        if not name.startswith((RECORDS, PIPELINE, "tests.")) or user in (compiled, pure):
            continue
        for attribute, value in list(vars(user).items()):
            if value is compiled:
                monkeypatch.setattr(user, attribute, pure)
            elif getattr(value, "__module__", None) == compiled.__name__ and hasattr(pure, attribute):
                monkeypatch.setattr(user, attribute, getattr(pure, attribute))


@pytest.fixture(scope="module")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own for each test module, with Kafka's defaults and one-partition internal topics."""
    overrides = (
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=1",
        "transaction.state.log.num.partitions=1",
    )
    with running_broker(tmp_path_factory.mktemp("broker"), *overrides) as broker:
        yield broker
