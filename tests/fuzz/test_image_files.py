"""Images, record files and recordings that are damaged or hostile: each is read, or a `ValueError` names the file."""

import dataclasses

import pytest
from image_files import FORMATS
from mutations import run

MUTATIONS, MANY = 60, 10_000


def check(jobs, record_property):
    results = list(run("image_files", jobs))
    record_property("damaged files", [dataclasses.asdict(result) for result in results])
    assert len(results) == sum(stop - start for _, start, stop in jobs)
    assert not [result for result in results if result.failed]


def test_damaged_images_and_records(record_property):
    # After the unchanged, the hostile, the deleted and the foreign ones; those take longer.
    first = {name: 1 + len(format.crafted) + 40 for name, format in FORMATS.items()}
    check([(name, first[name], first[name] + MUTATIONS) for name in FORMATS], record_property)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_images_and_records(name, record_property):
    check([(name, 0, MANY)], record_property)
