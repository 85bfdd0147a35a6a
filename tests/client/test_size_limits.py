"""What refusals, acceptances and the topic's configuration show of its size limit."""

from gregor.client.producer.size_limits import SizeLimits


class Scene:
    """The limits of a producer whose knowledge is dropped after 300 seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.limits = SizeLimits(300.0, lambda: self.now)


def test_no_size_limit_is_known_before_a_refusal() -> None:
    limits = Scene().limits
    limits.accepted("t", 5_000)
    limits.told("t", 100)
    assert not limits.is_too_large("t", 1 << 30)
    assert not limits.should_ask("t")
    assert limits.configured("t") is None


def test_the_configured_limit_is_requested_once_and_used() -> None:
    limits = Scene().limits
    limits.refused("t", 5_000)
    assert limits.should_ask("t")
    limits.told("t", 1_000)
    assert not limits.should_ask("t")
    assert limits.configured("t") == limits.part_limit("t", 5_000) == 1_000
    assert limits.is_too_large("t", 1_001)
    assert not limits.is_too_large("t", 1_000)
    limits.refused("t", 9_000)
    assert not limits.should_ask("t")
    assert not limits.is_too_large("other", 1_001)


def test_without_a_configured_limit_each_refusal_halves_the_size() -> None:
    limits = Scene().limits
    limits.refused("t", 8_000)
    limits.told("t", None)
    assert not limits.should_ask("t")
    assert limits.part_limit("t", 8_000) == 4_000
    assert limits.is_too_large("t", 8_000)
    assert not limits.is_too_large("t", 7_999), "it may be accepted"
    limits.refused("t", 4_000)
    assert not limits.should_ask("t"), "brokers do not tell"
    limits.accepted("t", 2_000)
    limits.accepted("t", 3_000)
    limits.accepted("t", 1_000)
    assert limits.part_limit("t", 4_000) == 3_000


def test_a_limit_that_was_lowered_is_asked_for_again() -> None:
    limits = Scene().limits
    limits.refused("t", 8_000)
    limits.told("t", 5_000)
    limits.accepted("t", 4_900)
    limits.refused("t", 4_900)
    assert limits.should_ask("t")
    assert limits.part_limit("t", 4_900) == 2_450, "not the size that was once accepted"
    limits.told("t", 2_000)
    assert limits.configured("t") == 2_000


def test_a_configured_limit_that_refusals_contradict_is_ignored_and_not_requested_again() -> None:
    limits = Scene().limits
    limits.refused("t", 8_000)
    limits.told("t", 100_000)
    assert not limits.should_ask("t")
    assert limits.configured("t") is None
    assert limits.part_limit("t", 8_000) == 4_000
    limits.refused("t", 8_000)
    assert not limits.should_ask("t")


def test_a_limit_that_was_raised_is_noticed() -> None:
    limits = Scene().limits
    limits.refused("t", 8_000)
    limits.told("t", None)
    limits.accepted("t", 9_000)
    assert not limits.is_too_large("t", 8_000)


def test_known_size_limits_expire() -> None:
    scene = Scene()
    scene.limits.refused("t", 8_000)
    scene.limits.told("t", 5_000)
    scene.now = 299.0
    assert scene.limits.is_too_large("t", 6_000)
    scene.now = 300.0
    assert not scene.limits.is_too_large("t", 6_000)
    scene.limits.refused("t", 6_000)
    assert scene.limits.should_ask("t")
    scene.limits.forget("t")
    assert not scene.limits.should_ask("t")
