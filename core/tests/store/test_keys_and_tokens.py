from agentlightning.records import AttemptKey, RolloutRequest
from agentlightning.store.keys import fingerprint, new_id
from agentlightning.store.tokens import is_token_for, new_secret, token_for


def test_ids_are_unique_and_sort_by_time():
    ids = [new_id("ro", now) for now in (1.0, 1.0, 2.0, 1_800_000_000.0)]
    assert len(set(ids)) == 4
    assert ids[:1] + ids[2:] == sorted(ids[:1] + ids[2:])


def test_a_fingerprint_follows_the_value_and_not_the_order_of_keys():
    assert fingerprint({"a": 1, "b": {"c": 2, "d": 3}}) == fingerprint({"b": {"d": 3, "c": 2}, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint(["a", "b"]) != fingerprint(["b", "a"])
    assert fingerprint("ab", "c") != fingerprint("a", "bc")


def test_a_fingerprint_tells_requests_apart():
    same = [RolloutRequest(input="x"), RolloutRequest(input="x", priority=0)]
    assert fingerprint(same[0]) == fingerprint(same[1])
    assert fingerprint(same[0]) != fingerprint(RolloutRequest(input="x", priority=1))
    assert fingerprint(same[0]) != fingerprint(RolloutRequest(input="x", group_id="x"))


def test_a_field_that_a_later_version_adds_does_not_change_a_fingerprint():
    class Later(RolloutRequest, frozen=True, kw_only=True):
        added: int | None = None

    assert fingerprint(Later(input="x")) == fingerprint(RolloutRequest(input="x"))
    assert fingerprint(Later(input="x", added=1)) != fingerprint(RolloutRequest(input="x"))


def test_a_token_is_good_for_one_attempt_of_one_store():
    secret, key = new_secret(), AttemptKey("ro-1", 1)
    token = token_for(secret, key)
    assert is_token_for(secret, key, token)
    assert not is_token_for(secret, AttemptKey("ro-1", 2), token)
    assert not is_token_for(secret, AttemptKey("ro-2", 1), token)
    assert not is_token_for(new_secret(), key, token)


def test_anything_may_be_shown_as_a_token():
    secret, key = new_secret(), AttemptKey("ro", 1)
    for shown in ("", "é", "\ud83d", token_for(secret, key)[:-1], token_for(secret, key) + "0"):
        assert not is_token_for(secret, key, shown)
