"""Go trains by playing against itself: the loss falls, and a run that is resumed goes on as if it had not stopped."""

import os
import stat
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from deepbench.applications import datasets  # noqa: E402
from deepbench.applications.tasks.go import APPLICATION, rules  # noqa: E402
from deepbench.applications.tasks.go.gtp import GnuGo  # noqa: E402
from deepbench.applications.tasks.go.match import fixed_openings, share_won  # noqa: E402
from deepbench.applications.tasks.go.rules import Games  # noqa: E402
from deepbench.applications.tasks.go.self_play import Search  # noqa: E402
from deepbench.applications.training import checkpoint  # noqa: E402
from deepbench.applications.training.application import Setup  # noqa: E402
from deepbench.core.errors import Unavailable, Unsupported  # noqa: E402

SMALL = {"edge": 3, "games": 8, "steps": 4, "rounds": 2, "filters": 8, "blocks": 1}
RUNG = replace(
    APPLICATION.rungs["mini"], batch=64, samples=64 * 160, settings={**APPLICATION.rungs["mini"].settings, **SMALL}
)


def task(seed=0, rung=RUNG, command=("nothing",)):
    return APPLICATION.torch_task(Setup("go", "mini", seed=seed), rung, [command])


def losses(task, steps):
    found = []
    for _ in range(steps):
        task.step()
        found.append(task.loss())
    return found


@pytest.fixture(autouse=True)
def _one_thread():
    """Boards are so small that threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def gnugo():
    try:
        return datasets.find(datasets.find_dataset("gnugo")).load()
    except Unavailable as missing:
        pytest.skip(str(missing))


def test_the_loss_falls():
    found = losses(task(), 40)

    assert sum(found[-8:]) < 0.8 * sum(found[:8])


def test_losses_follow_from_the_seed():
    first, again, other = (losses(task(seed), 10) for seed in (0, 0, 1))

    assert first == again != other


def _rank(rank, folder):
    """One of two ranks: it trains past the second round of games, and leaves its positions and its model."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    both = APPLICATION.torch_task(Setup("go", "mini", ranks=2), RUNG, [("nothing",)])
    found = losses(both, 6)
    state = {name: value for name, value in both.state().items() if "running_" not in name}
    checkpoint.write(folder / f"{rank}.npz", {**state, "losses": found})
    os._exit(0)


def test_ranks_share_the_games_and_train_the_same_model(tmp_path):
    torch.multiprocessing.spawn(_rank, (tmp_path,), nprocs=2)
    first, second = (checkpoint.read(tmp_path / f"{rank}.npz") for rank in range(2))

    assert first.pop("losses") != second.pop("losses"), "each has its own share of a batch"
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert np.array_equal(value, second[name]), name
    alone = task()
    losses(alone, 1)
    # As many games as one rank plays: a position of the begin of each, and of one rank as many as of the other.
    assert len(alone._rounds[0].player) / 2 < len(first["round/0/player"]) < 2 * len(alone._rounds[0].player)


def test_games_that_ranks_cannot_share_are_a_sentence():
    with pytest.raises(Unsupported, match="8 games of a round cannot be shared by 3 ranks"):
        APPLICATION.torch_task(Setup("go", "mini", ranks=3), RUNG, [("nothing",)])


@pytest.mark.parametrize("steps", [8, 10])
def test_a_run_that_is_restored_has_the_same_losses(tmp_path, monkeypatch, steps):
    """Whether a round of games is over or not."""
    whole = task()
    monkeypatch.setattr(whole, "_evaluate", lambda _: 0.0)
    losses(whole, steps)
    whole.evaluate()
    checkpoint.write(tmp_path / "0.npz", whole.state())
    wanted = losses(whole, 6)

    restored = task(seed=0)
    restored.restore(checkpoint.read(tmp_path / "0.npz"), 64 * steps)

    assert wanted == losses(restored, 6)


@pytest.mark.parametrize(("komi", "wins"), [(0.5, True), (-0.5, False)])
def test_looking_ahead_knows_the_result_of_a_game_that_a_move_ends(komi, wins):
    """Black has passed, and no point belongs to one colour but a stone of each: White may pass as well."""
    games = Games.begin(2, 3, 2, 27)
    for move in (4, 0, 9):
        games = rules.play(games, rules.moves(games), torch.tensor([move, move]))

    def network(x):
        return torch.zeros(len(x), 10), torch.zeros(len(x))

    chosen, improved = Search(komi, considered=10, sharpness=50.0).look(network, games, rules.moves(games))

    assert [wins] * 2 == (chosen == 9).tolist() == (improved[:, 9] > 0.99).tolist()
    assert [not wins] * 2 == (improved[:, 9] < 1e-6).tolist()
    assert not improved[:, [0, 4]].any()


def test_the_network_of_2018_has_its_size():
    rung = APPLICATION.rungs["full"]

    assert 191_386 == task(rung=rung).parameters


def test_a_match_has_the_same_result_each_time(gnugo):
    rung = replace(RUNG, settings={**RUNG.settings, "edge": 5})
    openings = fixed_openings(4, 5, 2, 75, "cpu")
    assert [3] * 4 == [len(moves) for moves in openings.played]

    one = task(rung=rung, command=gnugo)
    search = one._search
    one.model.eval()

    def share():
        with torch.inference_mode(), one._gnugo() as program:
            return share_won(lambda games, moves: search.look(one.model, games, moves)[0], program, openings, 0.5)

    assert share() == share() < 0.5


def test_answers_are_compared_with_the_moves_of_gnugo(gnugo, monkeypatch):
    monkeypatch.setattr("deepbench.applications.tasks.go.task.OPENINGS", 4)
    rung = replace(RUNG, settings={**RUNG.settings, "edge": 5})
    one = task(rung=rung, command=gnugo)
    assert 16 == one.tests

    answers = one.answer(range(16))
    games, wanted = one._tests

    assert rules.moves(games).legal[range(16), answers].all()
    assert 1.0 == one.grade(range(16), wanted)
    assert one.grade(range(16), answers) == sum(a == b for a, b in zip(answers, wanted, strict=True)) / 16
    assert one.grade([3, 5], [wanted[3], 26]) == 0.5


def test_a_program_that_is_not_gnugo_is_a_sentence(tmp_path):
    with pytest.raises(Unavailable, match="does not start"):
        GnuGo([str(tmp_path / "nothing")], 5, 0.5, 1)
    with GnuGo(["cat"], 5, 0.5, 1) as program, pytest.raises(Unavailable, match="GNU Go says 'boardsize 5'"):
        program.moves([[]])


def test_the_program_that_was_unpacked_becomes_executable(tmp_path):
    dataset = datasets.find_dataset("gnugo")
    path = tmp_path / "usr/games/gnugo"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")

    assert (str(path), "--mode", "gtp") == dataset.load(tmp_path)
    assert path.stat().st_mode & stat.S_IXUSR
    assert os.access(path, os.X_OK)
