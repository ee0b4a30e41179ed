"""The numbers in the table of objectives in README.md; tests/losses/test_docs.py has whether it is up to date."""

from docs import readme


def test_speed_is_the_time_of_released_code_by_ours():
    cases = {(2.0, 25.2): " 13x", (2.0, 9.9): " 5.0x", (4.0, 2.0): " 0.5x", (1.0, None): ""}
    for (ours, released), text in cases.items():
        assert readme.speed({"ours_ms": ours, "released_ms": released}) == text
    assert readme.speed(None) == ""  # without released code
