"""The page of a run on tables: weights of the pairs of views and accuracy of each view during training."""

import json

import numpy as np
import pytest
from test_page import page_of


def test_weights_and_accuracies(run, tmp_path):
    (run / "views.npz").unlink()
    (run / "scaling.json").write_text(json.dumps({"<pixels>": {}, "shape": {}}))
    labels = np.load(run / "embeddings.npz")["labels"]
    wrong = np.where(labels == 0, 1, labels)
    looks = [
        {"step": 0, "clusters": [labels.tolist(), wrong.tolist()]},
        {"step": 5, "weights": [[1.7, 0.25], [0.25, 1.7]], "clusters": [labels.tolist(), labels.tolist()]},
        {"step": 9, "weights": [[1.7, 0.5], [0.5, 1.7]], "clusters": [wrong.tolist(), labels.tolist()]},
    ]
    lines = [json.dumps(look) for look in looks]
    (run / "refresh.jsonl").write_text("\n".join([*lines, '{"step": 12, "wei']))
    page = page_of(run, out=tmp_path / "report.html")
    assert "Pairs of views" in page.titles
    assert ["shape", "0.250", "1.700"] in page.rows
    assert ["<pixels>", "1.700", "0.500"] in page.rows
    assert "from step 9" in page.text
    right = 1 - np.mean(labels == 0)  # two classes in one cluster: the smaller one is wrong
    right = max(right, 1 - np.mean(labels == 1))
    assert f"<pixels> 1.000 to {right:.3f}, shape {right:.3f} to 1.000" in page.text
    assert "Missing" not in page.titles


def test_no_curve_for_embeddings_of_other_examples(run, tmp_path):
    looks = [{"step": s, "clusters": [[0, 1], [1, 0]]} for s in (0, 5)]
    (run / "refresh.jsonl").write_text("\n".join(map(json.dumps, looks)))
    page = page_of(run, out=tmp_path / "report.html")
    assert "Each view over time" not in page.titles


@pytest.mark.parametrize("name", ["weights", "cosines", "losses"])
@pytest.mark.parametrize("value", [[1, 2], 1, [], [["a"]], [[1, 2]]])
def test_damaged_refreshes_are_named_and_the_rest_is_shown(make_run, tmp_path, name, value):
    runs = [make_run("a"), make_run("b")]
    lines = [{"step": step, name: value} for step in (0, 5)]
    (runs[0] / "refresh.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for of in (runs, runs[:1]):
        page = page_of(*of, out=tmp_path / "report.html")
        assert f"{name} must be a square of numbers" in page.text
        assert "Results" in page.titles or "Evaluation" in page.titles
