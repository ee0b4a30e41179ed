"""One result of an evaluation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One result; `dataclasses.asdict` makes it JSON."""

    name: str
    """Name of the measure; the column of the table."""
    value: float | None
    """Test accuracy in [0, 1]; None if it was not measured, for the reason in `protocol`."""
    deviation: float | None
    """Standard deviation over draws (divisor n - 1); None for a single measurement."""
    protocol: str
    """One line on how it was measured, the same for all rows of a table."""
    each: tuple[float, ...] = ()
    """The values that were averaged, such as one for each of several networks; () where they are not kept."""
    better: str = "higher"
    """Which values are better, for readers: "higher", "lower" or ""."""
