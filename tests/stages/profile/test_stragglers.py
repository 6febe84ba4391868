from __future__ import annotations

from stages.profile.stragglers import find_stragglers


def test_a_device_far_below_its_classs_median_is_named() -> None:
    found = find_stragglers([("a", "A100", 280.0), ("b", "A100", 275.0), ("c", "A100", 140.0), ("d", "L4", 85.0)])
    assert found == {"c": 140.0 / 275.0}


def test_ordinary_differences_and_slower_classes_are_not() -> None:
    assert find_stragglers([("a", "A100", 280.0), ("b", "A100", 230.0), ("c", "L4", 85.0), ("d", "L4", 80.0)]) == {}
    assert find_stragglers([]) == {}
