"""The rules of Go: positions made by hand, a slow and obvious implementation, and GNU Go."""

import random
from functools import cache

import pytest

torch = pytest.importorskip("torch")

from deepbench.applications import datasets  # noqa: E402
from deepbench.applications.tasks.go import rules  # noqa: E402
from deepbench.applications.tasks.go.gtp import GnuGo, move_of, vertex  # noqa: E402
from deepbench.applications.tasks.go.rules import Games  # noqa: E402
from deepbench.applications.tasks.go.self_play import at_random  # noqa: E402
from deepbench.applications.tasks.go.task import OPTIONS  # noqa: E402
from deepbench.core.errors import Unavailable  # noqa: E402

pytestmark = pytest.mark.torch

LIMIT = 45


class Slow:
    """One game, with points as pairs and chains as sets."""

    def __init__(self, edge):
        self.edge, self.board, self.player, self.seen, self.repeats = edge, {}, 1, [{}], 0

    def near(self, point):
        x, y = point
        beside = [(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)]
        return [p for p in beside if 0 <= p[0] < self.edge and 0 <= p[1] < self.edge]

    def chain(self, board, point):
        found, new = set(), [point]
        while new:
            at = new.pop()
            if at not in found:
                found.add(at)
                new += [p for p in self.near(at) if board.get(p) == board.get(point)]
        return found

    def breathes(self, board, point):
        return any(p not in board for at in self.chain(board, point) for p in self.near(at))

    def after(self, point):
        """The board after a move, or None where it is illegal."""
        if point in self.board:
            return None
        board = {**self.board, point: self.player}
        for p in self.near(point):
            if board.get(p) == -self.player and not self.breathes(board, p):
                for captured in self.chain(board, p):
                    del board[captured]
        self.repeats += board in self.seen
        return board if self.breathes(board, point) and board not in self.seen else None

    def play(self, move):
        if move != self.edge**2:
            self.board = self.after(divmod(move, self.edge))
        self.seen.append(self.board)
        self.player = -self.player

    def legal(self):
        return [self.after(divmod(move, self.edge)) is not None for move in range(self.edge**2)] + [True]

    def score(self):
        points = 0
        for point in ((x, y) for x in range(self.edge) for y in range(self.edge)):
            beside = {self.board.get(p) for at in self.chain(self.board, point) for p in self.near(at)}
            colours = {self.board[point]} if point in self.board else beside - {None}
            points += next(iter(colours)) if len(colours) == 1 else 0
        return points


def board(text):
    """X is black, O is white."""
    return torch.tensor([["O.X".index(c) - 1 for c in "".join(text.split())]], dtype=torch.int8)


def played(edge, moves):
    games = Games.begin(1, edge, 2, LIMIT)
    for move in moves:
        found = rules.moves(games)
        assert found.legal[0, move], move
        games = rules.play(games, found, torch.tensor([move]))
    return games


def numbers(names, edge=5):
    return [move_of(name, edge) for name in names.split()]


@cache
def gnugo_command():
    try:
        return (*datasets.find(datasets.find_dataset("gnugo")).load(), *OPTIONS)
    except Unavailable as missing:
        pytest.skip(str(missing))


def test_surrounded_stones_are_captured():
    games = played(5, numbers("B5 A5 A4"))

    assert torch.equal(games.stones[:, 0], board(".X... X.... ..... ..... ....."))
    assert torch.equal(games.stones[:, 1], board("OX... ..... ..... ..... ....."))
    assert -1 == games.player.item()


def test_a_chain_of_several_stones_is_captured_as_a_whole():
    games = played(5, numbers("A4 A5 B4 B5 C5"))

    assert torch.equal(games.stones[:, 0], board("..X.. XX... ..... ..... ....."))


def test_a_player_may_not_capture_its_own_stones():
    games = played(5, numbers("B5 C3 A4"))

    assert not rules.moves(games).legal[0, move_of("A5", 5)]
    other = played(5, numbers("B5 C3 A4 PASS"))
    assert rules.moves(other).legal[0, move_of("A5", 5)]


def test_a_point_without_liberties_may_be_played_where_it_captures():
    games = played(5, numbers("B5 C5 A4 B4 PASS A3"))
    assert torch.equal(games.stones[:, 0], board(".XO.. XO... O.... ..... ....."))

    moves = rules.moves(rules.play(games, rules.moves(games), torch.tensor([25])))
    assert moves.legal[0, 0]
    assert [1, 5] == moves.captured[0, 0].nonzero()[:, 0].tolist()


def test_a_ko_may_not_be_taken_back_at_once():
    games = played(5, numbers("C4 D4 B3 E3 C2 D2 D3 C3"))
    assert torch.equal(games.stones[:, 0], board("..... ..XO. .XO.O ..XO. ....."))
    assert not rules.moves(games).legal[0, move_of("D3", 5)]

    later = played(5, numbers("C4 D4 B3 E3 C2 D2 D3 C3 A1 A5"))
    assert rules.moves(later).legal[0, move_of("D3", 5)]


def test_no_position_occurs_twice_even_after_passes():
    games = played(5, numbers("C4 D4 B3 E3 C2 D2 D3 C3 PASS PASS"))

    assert games.over.item()
    assert not rules.moves(games).legal[0, move_of("D3", 5)]


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("..... ..... ..... ..... .....", 0),
        ("..... ..X.. ..... ..... .....", 25),
        (".XO.. .XO.. .XO.. .XO.. .XO..", -5),
        (".X.O. .X.O. .X.O. .X.O. .X.O.", 0),
        ("OX... XX... ..... ..... ....O", 1),
    ],
)
def test_the_score_is_the_area(text, points):
    assert [points] == rules.score(board(text)).tolist()


def test_two_passes_or_the_limit_end_a_game():
    assert not played(5, numbers("C3 PASS")).over.item()
    assert played(5, numbers("C3 PASS PASS")).over.item()
    games = Games.begin(1, 5, 1, 2)
    for move in (0, 1):
        assert not games.over.item()
        games = rules.play(games, rules.moves(games), torch.tensor([move]))
    assert games.over.item()


@pytest.mark.parametrize("edge", [3, 5, 7])
def test_random_games_are_those_of_a_slow_implementation(edge):
    games, slow, chance = Games.begin(8, edge, 3, LIMIT), [Slow(edge) for _ in range(8)], random.Random(edge)
    for _ in range(LIMIT):
        moves = rules.moves(games)
        assert [one.legal() for one in slow] == moves.legal.tolist()
        assert [one.score() for one in slow] == rules.score(games.stones[:, 0]).tolist()
        chosen = [chance.choice([move for move, legal in enumerate(one.legal()) if legal]) for one in slow]
        for one, move in zip(slow, chosen, strict=True):
            one.play(move)
        games = rules.play(games, moves, torch.tensor(chosen))
        boards = [[one.board.get(divmod(point, edge), 0) for point in range(edge**2)] for one in slow]
        assert boards == games.stones[:, 0].tolist()
    assert edge > 3 or sum(one.repeats for one in slow) > 10


def test_symmetries_keep_neighbours():
    near = rules.neighbours(5, torch.device("cpu"))
    found = rules.symmetries(5, torch.device("cpu"))

    assert 8 == len({tuple(row) for row in found.tolist()})
    assert all(torch.equal(near[row][:, row], near) for row in found)


def test_points_have_the_names_of_the_protocol():
    assert ["A9", "J9", "A1", "PASS"] == [vertex(move, 9) for move in (0, 8, 72, 81)]
    assert list(range(82)) == [move_of(vertex(move, 9), 9) for move in range(82)]


@pytest.mark.parametrize("edge", [5, 7, 9])
def test_gnugo_knows_the_same_legal_moves(edge):
    games, played = at_random(Games.begin(8, edge, 1, 3 * edge**2), torch.tensor([2, 5, 9, 14, 19, 25, 30, 37]))
    legal = rules.moves(games).legal
    points = [vertex(point, edge) for point in range(edge**2)]
    colours = ["white" if len(moves) % 2 else "black" for moves in played]

    with GnuGo(gnugo_command(), edge, 0.5, 1) as gnugo:
        answers = gnugo.ask(played, [[f"is_legal {colour} {point}" for point in points] for colour in colours])

    assert [[word == "1" for word in row] for row in answers] == legal[:, :-1].tolist()
    assert not legal.all()


@pytest.mark.parametrize("edge", [5, 7])
def test_gnugo_gives_the_same_score_at_the_end_of_its_games(edge):
    """It captures dead stones before it passes, so that all stones that are left are alive."""
    games, played = at_random(Games.begin(6, edge, 1, 3 * edge**2), torch.full((6,), 3))

    with GnuGo(gnugo_command(), edge, 0.5, 1) as gnugo:
        while not games.over.all():
            moves = torch.tensor(gnugo.moves(played))
            games = games.where(games.over, rules.play(games, rules.moves(games), moves))
            played = [[*before, move] for before, move in zip(played, moves.tolist(), strict=True)]
        answers = [answer for (answer,) in gnugo.ask(played, [["final_score"]] * 6)]

    scores = [points - 0.5 for points in rules.score(games.stones[:, 0]).tolist()]
    assert answers == [f"{'B' if points > 0 else 'W'}+{abs(points)}" for points in scores]
