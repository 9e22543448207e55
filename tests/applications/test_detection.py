"""Object detection: boxes, the metric against a slow and obvious one, networks, and a few steps of training."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepbench.applications.datasets.pages import Pages
from deepbench.applications.tasks.detection import PAGE_MAPS, Example, cropped, parts, trained_to
from deepbench.applications.tasks.detection.boxes import (
    Map,
    average_precision,
    default_boxes,
    match,
    overlap,
    ssd_maps,
    suppressed,
)
from deepbench.applications.training.application import Setup, find_application

DETECTION = find_application("detection")


def union_of(a, b):
    """Intersection over union of two boxes, with plain numbers."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return both / (sum(areas) - both) if both else 0.0


def slow_precision(found, boxes, classes, threshold):
    """As the definition reads: a curve of precision over recall per class, and the best precision further right."""
    values = []
    for kind in sorted({c for of_picture in classes for c in of_picture}):
        everything = [(n, row) for n, rows in enumerate(found) for row in rows if row[0] == kind]
        everything.sort(key=lambda pair: pair[1][1], reverse=True)
        wanted = sum(c == kind for of_picture in classes for c in of_picture)
        taken, curve, right = set(), [(0.0, 0.0)], 0
        for count, (n, row) in enumerate(everything, 1):
            truths = [(union_of(row[2:], box), -i) for i, box in enumerate(boxes[n]) if classes[n][i] == kind]
            if truths:
                value, place = max(truths)
                if value >= threshold and (n, place) not in taken:
                    taken.add((n, place))
                    right += 1
            curve.append((right / wanted, right / count))
        area = 0.0
        for (before, _), (after, _) in pairwise(curve):
            area += (after - before) * max((p for recall, p in curve if recall >= after), default=0.0)
        values.append(area)
    return sum(values) / len(values) if values else 0.0


def measured(found, boxes, classes, threshold=0.5):
    tables = [np.array(b, np.float64).reshape(-1, 4) for b in boxes]
    return average_precision(found, tables, [np.array(c, int) for c in classes], (threshold,))


# Few different boxes and scores, so that duplicates and ties are usual.
BOX = st.sampled_from([(x, y, x + w, y + h) for x in (0, 2, 3) for y in (0, 4) for w in (4, 6) for h in (4, 5)])
ROW = st.tuples(st.integers(0, 2), st.sampled_from([0.1, 0.5, 0.9]), BOX).map(lambda row: [row[0], row[1], *row[2]])
PICTURE = st.tuples(st.lists(ROW, max_size=8), st.lists(st.tuples(st.integers(0, 2), BOX), max_size=5))


@settings(max_examples=300, deadline=None)
@given(pictures=st.lists(PICTURE, min_size=1, max_size=4), threshold=st.sampled_from([0.3, 0.5, 0.75]))
@pytest.mark.costly
def test_the_metric_is_that_of_a_slow_and_obvious_one(pictures, threshold):
    found = [rows for rows, _ in pictures]
    boxes = [[box for _, box in truths] for _, truths in pictures]
    classes = [[kind for kind, _ in truths] for _, truths in pictures]

    assert measured(found, boxes, classes, threshold) == pytest.approx(slow_precision(found, boxes, classes, threshold))


A, B, FAR = (0, 0, 4, 4), (10, 10, 14, 14), (50, 50, 54, 54)


@pytest.mark.parametrize(
    ("found", "boxes", "classes", "value"),
    [
        ([[]], [[A]], [[0]], 0.0),
        ([[]], [[]], [[]], 0.0),
        ([[[0, 0.9, *A]]], [[]], [[]], 0.0),
        ([[[0, 0.9, *A]]], [[A]], [[0]], 1.0),
        ([[[1, 0.9, *A]]], [[A]], [[0]], 0.0),
        # A duplicate behind the right ones costs nothing, one before the second right one does.
        ([[[0, 0.9, *A], [0, 0.8, *B], [0, 0.7, *A]]], [[A, B]], [[0, 0]], 1.0),
        ([[[0, 0.9, *A], [0, 0.8, *A], [0, 0.7, *B]]], [[A, B]], [[0, 0]], 0.5 + 0.5 * 2 / 3),
        # Of equal scores the earlier one is first.
        ([[[0, 0.9, *FAR], [0, 0.9, *A]]], [[A]], [[0]], 0.5),
        ([[[0, 0.9, *A], [0, 0.9, *FAR]]], [[A]], [[0]], 1.0),
        # The same box on another picture is wrong there.
        ([[], [[0, 0.9, *A]]], [[A], []], [[0], []], 0.0),
        # The mean is over the classes that exist.
        ([[[0, 0.9, *A]]], [[A, B]], [[0, 2]], 0.5),
    ],
)
def test_the_metric_of_simple_cases(found, boxes, classes, value):
    assert value == pytest.approx(measured(found, boxes, classes))
    assert value == pytest.approx(slow_precision(found, boxes, classes, 0.5))


def test_thresholds_are_averaged():
    found, boxes, classes = [[[0, 0.9, 0, 0, 4, 3]]], [np.array([A])], [np.array([0])]

    assert 1.0 == average_precision(found, boxes, classes, (0.5, 0.75))
    assert 0.5 == average_precision(found, boxes, classes, (0.5, 0.8))


@given(a=BOX, b=BOX)
def test_overlap_is_intersection_over_union(a, b):
    assert float(overlap(np.array([a], float), np.array([b], float))[0, 0]) == pytest.approx(union_of(a, b))


def test_suppression_keeps_the_best_of_a_class_that_overlap():
    near, apart = (0, 0, 4, 3), (0, 3, 4, 4)
    rows = np.array([[0, 0.5, *near], [0, 0.9, *A], [1, 0.6, *near], [0, 0.4, *apart], [0, 0.9, *A]], np.float32)

    kept = suppressed(rows, 0.45)

    assert np.allclose([[0, 0.9], [1, 0.6], [0, 0.4]], kept[:, :2])
    assert [list(A), list(near), list(apart)] == kept[:, 2:].tolist()
    assert 0 == len(suppressed(rows[:0], 0.45))


def test_a_box_that_was_suppressed_suppresses_nothing():
    """A chain: the second overlaps both others, which do not overlap each other."""
    rows = np.array([[0, 0.9, 0, 0, 4, 1], [0, 0.8, 1, 0, 5, 1], [0, 0.7, 2, 0, 6, 1]], np.float32)

    assert np.allclose([0.9, 0.7], suppressed(rows, 0.45)[:, 1])


def test_every_box_is_matched_and_good_default_boxes_share_one():
    defaults = default_boxes([Map(1, 2, ((0.5, 1.0), (0.4, 1.0)))])
    assert np.allclose([[0, 0, 0.5, 1], [0.05, 0, 0.45, 1]], defaults[:2])
    small = np.array([[0, 0, 0.5, 1.0], [0.7, 0.4, 0.8, 0.5]], np.float32)

    matches = match(defaults, small, 0.5)

    assert [0, 0] == matches[:2].tolist()  # the second overlaps by 0.8
    assert sorted(matches[2:].tolist()) == [-1, 1]  # nothing overlaps the small one well, but one has it
    assert [-1] * 4 == match(defaults, small[:0], 0.5).tolist()


def test_default_boxes_that_show_nothing_are_trained_to_class_0():
    boxes, classes = np.array([[0, 0, 0.5, 1.0]], np.float32), np.array([3])
    example = Example(np.zeros((1, 2, 2), np.uint8), boxes, classes, np.array([-1, 0, -1]))

    wanted, places = trained_to(example)

    assert [0, 4, 0] == wanted.tolist()
    assert boxes[0].tolist() == places[1].tolist()


def test_ssd_has_the_published_default_boxes():
    assert [5776, 2166, 600, 150, 36, 4] == [m.rows * m.columns * len(m.sizes) for m in ssd_maps()]
    assert 8732 == len(default_boxes(ssd_maps()))


class Halves:
    """A photograph with a dark left half, and a box there and one at the right."""

    boxes = (np.array([[0.1, 0.2, 0.3, 0.4], [0.8, 0.6, 0.9, 0.7]], np.float32),)
    classes = (np.array([5, 6]),)

    def picture(self, number, region):
        left, _, right, _ = region
        columns = left + (right - left) * (np.arange(100) + 0.5) / 100
        return np.tile(np.where(columns < 0.5, 10, 200).astype(np.uint8), (3, 100, 1))


@pytest.mark.parametrize(
    ("chances", "classes", "boxes", "ends"),
    [
        ((0.1, 0, 0, 0, 0, 0.9), [5, 6], [[0.1, 0.2, 0.3, 0.4], [0.8, 0.6, 0.9, 0.7]], [10, 200]),
        ((0.1, 0, 0, 0, 0, 0.1), [5, 6], [[0.7, 0.2, 0.9, 0.4], [0.1, 0.6, 0.2, 0.7]], [200, 10]),
        # The part has 0.65 of the width, from the left or from the right.
        ((0.9, 0.5, 1, 0, 0, 0.9), [5], [[0.1 / 0.65, 0.2, 0.3 / 0.65, 0.4]], [10, 200]),
        ((0.9, 0.5, 1, 1, 0, 0.9), [6], [[0.45 / 0.65, 0.6, 0.55 / 0.65, 0.7]], [10, 200]),
        # The part of 0.3 × 0.3 in the corner has no box: the photograph stays whole.
        ((0.9, 0, 0, 1, 0, 0.9), [5, 6], [[0.1, 0.2, 0.3, 0.4], [0.8, 0.6, 0.9, 0.7]], [10, 200]),
    ],
)
def test_parts_of_photographs_have_their_boxes(chances, classes, boxes, ends):
    picture, found, kinds = cropped(Halves(), 0, np.array(chances))

    assert classes == kinds.tolist()
    assert np.allclose(found, boxes, atol=1e-6)
    assert ends == picture[0, 0, [0, -1]].tolist()


# ---- training


def bars(count=24):
    """Pages with a black bar each (class 0), and a grey block on every second one (class 3), in three documents."""
    chance = np.random.default_rng(7)
    pictures, boxes, classes = np.full((count, 300, 300), 255, np.uint8), [], []
    for number in range(count):
        top, left = chance.integers(10, 120), chance.integers(10, 60)
        pictures[number, top : top + 12, left : left + 200] = 0
        own, kinds = [[left, top, left + 200, top + 12]], [0]
        if number % 2:
            pictures[number, 180:260, 60:240] = 120
            own.append([60, 180, 240, 260])
            kinds.append(3)
        boxes.append(np.array(own, np.float32) / 300)
        classes.append(np.array(kinds))
    return Pages(pictures, boxes, classes, ["a.pdf" if n % 3 else "b.pdf" for n in range(count)])


@pytest.fixture
def task():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)

    def of(rung, data, **choices):
        return DETECTION.torch_task(Setup("detection", rung, **choices), DETECTION.rungs[rung], [data])

    return of


def test_whole_documents_are_for_testing():
    pages = bars()._replace(documents=[f"{n // 4}.pdf" for n in range(24)])

    train, test = parts(pages)

    assert {0} == {len(train) % 4, len(test) % 4}
    assert 24 == len(train) + len(test)
    assert len(test)
    assert train.picture(0).shape == (1, 300, 300)


@pytest.fixture
def split(monkeypatch):
    """Pages of `b.pdf` are for testing."""
    both = [[n for n in range(24) if n % 3], [n for n in range(24) if not n % 3]]
    monkeypatch.setattr("deepbench.applications.tasks.detection.divided", lambda *_: both)


def test_a_few_steps_of_training_find_bars(task, split):
    training = task("mini", bars(), batch=4, samples=4 * 60)
    losses, before = [], training.evaluate()
    for _ in range(60):
        training.step()
        losses.append(training.loss())

    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 2
    assert before < 0.2
    assert training.evaluate() > 0.5
    assert 8 == training.tests


def test_answers_are_lists_and_their_grade_is_the_metric(task, split):
    training = task("mini", bars(), batch=4, samples=4 * 40)
    for _ in range(15):
        training.step()

    answers = training.answer(range(8))

    assert answers == json.loads(json.dumps(answers))
    assert training.evaluate() == pytest.approx(training.grade(range(8), answers))
    for row in (row for rows in answers for row in rows):
        kind, score, left, top, right, bottom = row
        assert isinstance(kind, int)
        assert 0 <= kind < 4
        assert 0 < score <= 1
        assert 0 <= left <= right <= 1
        assert 0 <= top <= bottom <= 1
    page = bars()
    both = [zip(page.classes[n], page.boxes[n], strict=True) for n in (0, 3)]
    perfect = [[[int(kind), 1.0, *box.tolist()] for kind, box in pairs] for pairs in both]
    assert 1.0 == training.grade([0, 1], perfect)
    assert training.grade([1, 0], perfect) < 0.6


def test_the_full_network_has_the_published_size_and_makes_a_step(task, split):
    training = task("full", bars(6), batch=2, samples=4)

    assert 19_972_534 == training.parameters
    training.step()
    assert np.isfinite(training.loss())
    assert [] != training.answer([0])


def test_the_network_of_pages_has_a_score_for_each_default_box():
    torch = pytest.importorskip("torch")
    from deepbench.applications.tasks.detection.networks import PageNetwork

    scores, places = PageNetwork((4, 4, 8), PAGE_MAPS, 5)(torch.zeros(2, 1, 300, 300))

    count = len(default_boxes(PAGE_MAPS))
    assert ((2, count, 5), (2, count, 4)) == (scores.shape, places.shape)
    assert 9020 == count


def test_offsets_are_undone():
    torch = pytest.importorskip("torch")
    from deepbench.applications.tasks.detection.networks import moved, offsets

    defaults = torch.tensor([[0.1, 0.1, 0.4, 0.3], [0.5, 0.5, 0.9, 0.9]])
    boxes = torch.tensor([[0.2, 0.05, 0.5, 0.35], [0.6, 0.1, 0.7, 0.8]])

    assert torch.allclose(boxes, moved(defaults, offsets(defaults, boxes)), atol=1e-6)
    # Half a width to the right is 0.5 / 0.1, and twice the width is log 2 / 0.2.
    found = offsets(torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 2.0, 1.0]))
    assert [5.0, 0.0, 3.4657359, 0.0] == pytest.approx(found.tolist())


def test_only_the_worst_of_nothing_count():
    torch = pytest.importorskip("torch")
    from deepbench.applications.tasks.detection.networks import ssd_loss

    # Two classes; the first default box has a box, the others show nothing, with three wrong to different degrees.
    logits = torch.tensor([[[0.0, 0.0], [0.0, 3.0], [0.0, 2.0], [0.0, 1.0], [5.0, 0.0]]])
    places, wanted = torch.zeros(1, 5, 4), torch.zeros(1, 5, 4)
    wanted[0, 0, 0], wanted[0, 1] = 3.0, 7.0
    entropy = torch.log1p(torch.exp(torch.tensor([0.0, 3.0, 2.0])))

    found = ssd_loss((logits, places), torch.tensor([[1, 0, 0, 0, 0]]), wanted, 2)

    assert float(found) == pytest.approx(float(entropy.sum()) + 2.5)


def test_a_picture_without_a_box_is_trained_with():
    torch = pytest.importorskip("torch")
    from deepbench.applications.tasks.detection.networks import ssd_loss

    found = ssd_loss(
        (torch.zeros(1, 3, 2), torch.zeros(1, 3, 4)), torch.zeros(1, 3, dtype=int), torch.zeros(1, 3, 4), 3
    )

    assert float(found) == pytest.approx(3 * np.log(2))


def test_coco_is_trained_on(task, tmp_path, monkeypatch):
    """A tiny folder: one step of the full network, and its answers."""
    image = pytest.importorskip("PIL.Image")
    from deepbench.applications.datasets import find, find_dataset

    monkeypatch.setenv("DEEPBENCH_COCO", str(tmp_path))
    (tmp_path / "annotations").mkdir()
    names = [f"{n}.png" for n in range(3)]
    content = {
        "categories": [{"id": 3 * n} for n in range(80)],
        "images": [{"id": n, "file_name": name, "width": 64, "height": 48} for n, name in enumerate(names)],
        "annotations": [{"image_id": n, "category_id": 237, "bbox": [8, 8, 30, 30]} for n in range(2)],
    }
    for part in ("train2017", "val2017"):
        (tmp_path / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))
        (tmp_path / part).mkdir()
        for name in names:
            image.fromarray(np.full((48, 64, 3), 90, np.uint8)).save(tmp_path / part / name)

    training = task("full-coco", find(find_dataset("coco")).load(), batch=2, samples=4)
    training.step()

    assert np.isfinite(training.loss())
    assert 19_972_534 == training.parameters
    assert 3 == training.tests == len(training.answer(range(3)))
    assert 1.0 == training.grade([0, 2], [[[79, 0.5, 8 / 64, 8 / 48, 38 / 64, 38 / 48]], []])
