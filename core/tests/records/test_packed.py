import copy
import math
import pickle

import pytest
from agentlightning.records import Floats, Tokens


@pytest.mark.parametrize("ids", [[], [0], [1, 2, 3], [2**32 - 1, 151_643] * 5000])
def test_token_ids_survive_every_form(ids):
    tokens = Tokens(ids)
    for again in (
        Tokens.from_bytes(tokens.to_bytes()),
        Tokens.from_base64(tokens.to_base64()),
        pickle.loads(pickle.dumps(tokens)),
        copy.deepcopy(tokens),
    ):
        assert again == tokens == ids
        assert type(again) is Tokens
        assert list(again) == ids


def test_four_bytes_a_token_little_endian():
    assert Tokens([1, 2**24]).to_bytes() == b"\x01\x00\x00\x00\x00\x00\x00\x01"
    assert len(Floats([-0.5] * 10).to_bytes()) == 40


@pytest.mark.parametrize("bad", [[-1], [2**32], [1.5], ["1"]])
def test_what_is_no_token_id_is_refused(bad):
    with pytest.raises((OverflowError, TypeError)):
        Tokens(bad)


def test_log_probabilities_keep_the_precision_of_float32():
    floats = Floats([-0.1, -12.345678, 0.0])
    assert floats != [-0.1, -12.345678, 0.0]
    assert all(
        math.isclose(a, b, rel_tol=1e-6) for a, b in zip(floats, [-0.1, -12.345678, 0.0], strict=True)
    )
    assert Floats.from_base64(floats.to_base64()) == floats


def test_they_behave_as_sequences():
    tokens = Tokens([5, 6, 7, 8])
    assert (len(tokens), tokens[0], tokens[-1], 7 in tokens, tokens.index(7)) == (4, 5, 8, True, 2)
    assert tokens[1:3] == Tokens([6, 7])
    assert type(tokens[1:3]) is Tokens
    assert tokens + Tokens([9]) == [5, 6, 7, 8, 9]
    assert list(reversed(tokens)) == [8, 7, 6, 5]
    assert bool(Tokens()) is False


def test_equality_is_by_value_and_kind():
    assert Tokens([1, 2]) == Tokens([1, 2])
    assert Tokens([1, 2]) == [1, 2]
    assert Tokens([1, 2]) == (1, 2)
    assert Tokens([1, 2]) != Tokens([1, 2, 3])
    assert Tokens([1]) != Floats([1.0])
    assert Tokens([49]) != "1"
    assert hash(Tokens([1, 2])) == hash(Tokens([1, 2]))
    assert len({Tokens([1]), Tokens([1]), Tokens([2])}) == 2


def test_a_prefix_is_recognised_token_for_token():
    tokens = Tokens([1, 2, 3])
    assert tokens.startswith(Tokens([1, 2]))
    assert tokens.startswith(Tokens())
    assert tokens.startswith(tokens)
    assert not tokens.startswith(Tokens([1, 3]))
    assert not tokens.startswith(Tokens([1, 2, 3, 4]))


def test_what_is_shown_stays_short():
    assert repr(Tokens(range(1000))) == "Tokens([0, 1, 2, 3, 4, 5, 6, 7, …], len=1000)"
    assert repr(Floats([0.5])) == "Floats([0.5], len=1)"


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], True),
        ([-0.1] * 8000, True),
        ([3.4e38, -3.4e38] * 50, True),
        ([3.4e38] * 50, True),
        ([0.0, math.nan], False),
        ([math.inf, -math.inf], False),
        ([-math.inf, 1.0], False),
        ([1e39], False),
    ],
)
def test_log_probabilities_know_whether_all_are_finite(numbers, expected):
    assert Floats(numbers).are_finite() is expected
