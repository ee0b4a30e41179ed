"""Images, record files and recordings that are damaged or hostile: each is read, or a `ValueError` names the file."""

import dataclasses

import pytest
from image_files import FORMATS
from mutations import run

# The first 30 cases and as many mutations in a quick run; hostile ones take seconds together.
QUICK, MUTATIONS, MANY = 12, 60, 10_000


def first_mutation(name):
    """Number of the first case after the unchanged, the hostile, the deleted and the foreign ones."""
    return 1 + len(FORMATS[name].crafted) + 40


def check(jobs, record_property):
    results = list(run("image_files", jobs))
    record_property("damaged files", [dataclasses.asdict(result) for result in results])
    assert len(results) == sum(stop - start for _, start, stop in jobs)
    assert not [result for result in results if result.failed]


def test_damaged_images_and_records(record_property):
    jobs = [(name, start, start + count) for name in FORMATS
            for start, count in ((0, QUICK), (first_mutation(name), MUTATIONS))]  # fmt: skip
    check(jobs, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_images_and_records(name, record_property):
    check([(name, 0, MANY)], record_property)
