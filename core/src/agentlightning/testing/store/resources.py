"""Resources: immutable versions, and which of them is the latest."""

from __future__ import annotations

import pytest

from agentlightning.errors import UnknownResources
from agentlightning.records import LLM, Data, PromptTemplate, Resources
from agentlightning.store import Store
from agentlightning.testing.store.base import StoreTests
from agentlightning.testing.store.making import Clock

RESOURCES: Resources = {
    "llm": LLM(model="small", base_url=None, sampling={"temperature": 1.0}, version=3),
    "prompt": PromptTemplate(template='Answer as {"a": 1}: {q}', engine="f-string"),
    "table": Data(value={"rows": [[1, None], ["é", 2.5]]}),
}


class ResourceTests(StoreTests):
    """What agents are run with."""

    def test_a_version_comes_back_as_it_was_published(
        self, store: Store, run_id: str, clock: Clock
    ) -> None:
        """Every kind of resource and every field of the version must be stored."""
        store.publish(run_id, {})
        made = store.publish(run_id, RESOURCES, note="second", parent=1)
        assert made.resources == RESOURCES
        assert (made.run_id, made.version, made.created_at) == (run_id, 2, clock.now)
        assert (made.note, made.parent, made.candidate) == ("second", 1, False)
        assert store.resources(run_id, 2) == made

    def test_plain_values_are_wrapped(self, store: Store, run_id: str) -> None:
        """A user's plain JSON becomes ``Data``."""
        made = store.publish(run_id, {"limit": 3})  # type: ignore[dict-item]
        assert made.resources == {"limit": Data(value=3)}

    def test_versions_are_numbered_by_run(self, store: Store, run_id: str) -> None:
        """Each run counts from 1, without gaps, candidates included."""
        other = store.create_run("other", {}).run_id
        assert [store.publish(run_id, {}, candidate=n == 1).version for n in range(3)] == [1, 2, 3]
        assert store.publish(other, {}).version == 1

    def test_a_candidate_is_never_the_latest(self, store: Store, run_id: str) -> None:
        """The latest is the newest that is no candidate; candidates are reached by number."""
        with pytest.raises(UnknownResources):
            store.resources(run_id, "latest")
        store.publish(run_id, {"x": Data(value=1)}, candidate=True)
        with pytest.raises(UnknownResources):
            store.resources(run_id, "latest")
        store.publish(run_id, {"x": Data(value=2)})
        store.publish(run_id, {"x": Data(value=3)}, candidate=True)
        assert store.resources(run_id, "latest").version == 2  # noqa: PLR2004
        assert store.resources(run_id, 3).candidate

    def test_a_version_never_changes(self, store: Store, run_id: str) -> None:
        """What a caller does with the dicts it gave or got must not reach what is stored."""
        given = {"x": Data(value=[1])}
        store.publish(run_id, given).resources["x"].value.append(2)  # type: ignore[union-attr]
        given["x"].value.append(3)
        given["y"] = Data(value=None)
        store.resources(run_id, 1).resources["x"].value.append(4)  # type: ignore[union-attr]
        assert store.resources(run_id, 1).resources == {"x": Data(value=[1])}

    def test_a_key_for_a_model_is_never_stored(self, store: Store, run_id: str) -> None:
        """``api_key`` lies beside the fields of an LLM and must not come back from the store."""
        secret = LLM(model="m").with_key("sk-secret")
        made = store.publish(run_id, {"llm": secret})
        assert made.llm().api_key is None
        assert store.resources(run_id, 1).llm().api_key is None
