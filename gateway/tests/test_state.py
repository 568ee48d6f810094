"""What /admin changed is kept: whole or not at all, whoever writes, and whenever the power fails."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tiny
from ir3de import Router, files
from ir3de.errors import ArtifactError, InputError
from ir3de_gateway.admin.administration import Administration, Caller, open_admin_state
from ir3de_gateway.admin.changes import ExpertAddition, RouterReplacement, add_expert, choose_router
from ir3de_gateway.admin.state import RouterChoice, State, StateFolder, find_state_folder
from ir3de_gateway.admin.versions import list_kept
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.snapshot import LiveSnapshot
from saved import first_router, second_router

ENDPOINT = {"base_url": "http://127.0.0.1:9/v1"}


def config(router: Path, *names: str, **changes: object) -> Config:
    experts = [{"name": name, **ENDPOINT} for name in names or tiny.DOMAINS]
    return Config.model_validate({"router": {"path": str(router)}, "experts": experts, **changes})


def worker(base: Config, folder: Path) -> Administration:
    """One of several processes that serve from the same folder."""
    state = StateFolder(folder)
    now = open_admin_state(base, None, state)
    return Administration(LiveSnapshot(now), lambda: base, state)


@pytest.fixture
def base(tmp_path: Path) -> Config:
    return config(first_router().save(tmp_path / "router"))


def upstream_only(name: str, **more: object) -> ExpertAddition:
    return ExpertAddition(name=name, upstream={**ENDPOINT, **more})


def add(each: Administration, more: ExpertAddition, caller: Caller) -> Coroutine[Any, Any, Any]:
    return each.change(partial(add_expert, more), caller, action="add expert", expert=more.name)


# the value ------------------------------------------------------------------------------------------------------


def test_state_and_configuration_make_the_configuration_that_serves(tmp_path: Path, base: Config) -> None:
    other = ExpertConfig(name="law", base_url="http://127.0.0.1:10/v1")
    new = ExpertConfig(name="history", **ENDPOINT)
    state = State().with_expert(other).with_expert(new).without("maths", base)
    applied = state.apply_to(base, tmp_path)
    assert [expert.name for expert in applied.experts] == ["law", "cooking", "history"]
    assert applied.by_name["law"] == other
    assert state.with_expert(base.by_name["maths"]).without("history", base).without("law", base).removed == ("law",)
    assert State().with_expert(new).without("history", base) == State()
    named = config(tmp_path / "router", routing={"default": "maths"})
    with pytest.raises(InputError, match=r"state\.json.*routing\.default: no expert 'maths'"):
        state.apply_to(named, tmp_path)


def test_what_is_written_is_read_and_damage_is_found(tmp_path: Path, base: Config) -> None:
    folder = StateFolder(tmp_path)
    assert folder.read() == State()
    expert = ExpertConfig(name="history", **ENDPOINT, price={"input_per_1m": 2}, fallbacks=["law"], defaults={"a": 1})
    state = State((expert,), ("maths",), RouterChoice("s3://bucket/router"), 3)
    written = folder.write(state, {"who": "me"})
    assert folder.read() == written
    assert (written.changes, written.last["who"], written.experts) == (1, "me", (expert,))
    path = tmp_path / "state.json"
    content = path.read_bytes()
    for damage in (content[:-20], content.replace(b"maths", b"moths"), b"[]", b"", b'{"kind": "ir3de.state"}'):
        path.write_bytes(damage)
        with pytest.raises(ArtifactError, match=str(path)):
            worker(base, tmp_path)
    path.write_bytes(files.to_json(files.seal({"kind": "ir3de.state", "version": 1})))
    with pytest.raises(ArtifactError, match=r"damaged.*Put a copy of it back, or delete it"):
        folder.read()


def test_a_torn_line_of_the_audit_log_spoils_no_other(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    assert folder.history(5) == []
    folder.record({"change": 1})
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"change": 2, "wh')  # the power failed here
    folder.record({"change": 3, "who": "ä"})
    assert folder.history(5) == [{"change": 3, "who": "ä"}, {"change": 1}]
    assert folder.history(1) == [{"change": 3, "who": "ä"}]
    with (tmp_path / "audit.jsonl").open("a") as file:
        file.writelines(f'{{"change": {number}}}\n' for number in range(4, 3_000))
    assert [line["change"] for line in folder.history(2)] == [2_999, 2_998]
    assert [line["change"] for line in folder.history(5_000)][-2:] == [3, 1]


def test_where_the_state_lies(tmp_path: Path, base: Config) -> None:
    assert find_state_folder(base, None) is None
    assert find_state_folder(base, tmp_path / "gateway.yaml") == tmp_path / "ir3de-state"
    assert find_state_folder(config(tmp_path, state=str(tmp_path / "mine")), tmp_path / "x.yaml") == tmp_path / "mine"


# several workers ------------------------------------------------------------------------------------------------


def test_every_worker_takes_up_what_one_of_them_changes(tmp_path: Path, base: Config) -> None:
    one, two = (worker(base, tmp_path / "state") for _ in range(2))

    async def scenario() -> None:
        in_flight = two.live.snapshot
        await add(one, upstream_only("history"), Caller())
        assert "history" in one.live.snapshot.experts and "history" not in two.live.snapshot.experts
        await two.check_state()
        assert "history" in two.live.snapshot.experts and one.etag == two.etag
        assert "history" not in in_flight.experts
        assert two.live.snapshot.experts["law"] is in_flight.experts["law"]  # its line and its health stay
        before = two.live.snapshot
        await two.check_state()
        assert two.live.snapshot is before

    asyncio.run(scenario())


def test_of_two_changes_at_once_with_one_etag_one_is_stale_and_without_both_stay(tmp_path: Path, base: Config) -> None:
    one, two = (worker(base, tmp_path / "state") for _ in range(2))

    async def scenario() -> None:
        caller = Caller(if_match=one.etag)
        assert one.etag == two.etag
        outcomes = await asyncio.gather(
            add(one, upstream_only("history"), caller),
            add(two, upstream_only("coding"), caller),
            return_exceptions=True,
        )
        (stale,) = [outcome for outcome in outcomes if outcome is not None]
        assert isinstance(stale, ApiError) and stale.status == 412
        loser = one if outcomes[0] is stale else two
        assert stale.headers["etag"] == loser.etag != caller.if_match  # it has caught up, and says with what

        await asyncio.gather(*(add(each, upstream_only(name), Caller()) for each, name in ((one, "a"), (two, "b"))))
        await asyncio.gather(one.check_state(), two.check_state())
        assert one.etag == two.etag and {"a", "b"} < set(one.live.snapshot.experts)
        await add(one, upstream_only("c"), Caller(if_match=f'"old", {one.etag}'))
        await add(one, upstream_only("d"), Caller(if_match="*"))

    asyncio.run(scenario())
    lines = StateFolder(tmp_path / "state").history(10)
    assert [line["outcome"] for line in lines].count("refused") == 1
    assert sorted(line["change"] for line in lines if "change" in line) == [1, 2, 3, 4, 5]


def test_a_router_that_is_published_is_taken_up_by_all(tmp_path: Path, base: Config) -> None:
    often = base.model_copy(update={"router": base.router.model_copy(update={"follow": 0.05})})
    workers = [worker(often, tmp_path / "state") for _ in range(2)]

    async def scenario() -> None:
        old = workers[0].live.snapshot
        second_router().save(tmp_path / "router")
        tasks = [asyncio.create_task(each.follow()) for each in workers]
        while any(each.live.snapshot.digest == old.digest for each in workers):
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert tiny.same_table(old.router, first_router())

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert all(tiny.same_table(each.live.snapshot.router, second_router()) for each in workers)


def test_reloading_reaches_every_worker_and_an_unreadable_file_changes_nothing(tmp_path: Path, base: Config) -> None:
    bases = [base]
    folder = StateFolder(tmp_path / "state")

    def reread() -> Config:
        if not bases:
            raise InputError("gateway.yaml: not YAML")
        return bases[-1]

    nows = [open_admin_state(base, None, folder) for _ in range(2)]
    one, two = (Administration(LiveSnapshot(now), reread, folder) for now in nows)

    async def scenario() -> None:
        bases.append(config(tmp_path / "router", "maths", "law", routing={"threshold": 0.5}))
        await add(one, upstream_only("history"), Caller())
        await two.check_state()
        assert "cooking" in two.live.snapshot.experts  # nobody asked for the new configuration yet
        await one.change(one.reload, Caller())
        await two.check_state()
        for each in (one, two):
            assert list(each.live.snapshot.experts) == ["maths", "law", "history"]
            assert each.live.snapshot.router.policy.threshold == 0.5
        bases.append(config(tmp_path / "router"))
        await one.change(one.reload, Caller())
        assert one.live.snapshot.router.policy.threshold == 0.0  # the router's own again
        bases.clear()
        before = one.live.snapshot
        with pytest.raises(ApiError, match="not YAML"):
            await one.change(one.reload, Caller())
        assert one.live.snapshot is before

    asyncio.run(scenario())


# crashes --------------------------------------------------------------------------------------------------------


class PowerFailure(BaseException):
    """Nothing runs after it."""


def at_step(monkeypatch: pytest.MonkeyPatch, step: int) -> list[str]:
    """The power fails at the n-th step that leaves a trace on disk."""
    steps: list[str] = []

    def failing(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            steps.append(name)
            if len(steps) - 1 == step:
                raise PowerFailure
            return real(*arguments, **options)

        return call

    for name in ("new_router", "adopt", "write", "record"):
        monkeypatch.setattr(StateFolder, name, failing(name, getattr(StateFolder, name)))
    return steps


@pytest.mark.slow
def test_a_crash_at_any_step_leaves_the_old_or_the_new_whole(
    tmp_path: Path, base: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ExpertAddition(name="history", upstream=ENDPOINT, texts=["When did Rome fall?"])
    outcomes = []
    for step in range(10):
        folder = tmp_path / f"state-{step}"
        changing = worker(base, folder)
        with monkeypatch.context() as patch:
            steps = at_step(patch, step)
            try:
                asyncio.run(add(changing, more, Caller()))
            except PowerFailure:
                pass
            else:
                break
        again = worker(base, folder)  # as after a restart
        served, routed = (
            "history" in names for names in (again.live.snapshot.experts, again.live.snapshot.router.experts)
        )
        assert served == routed
        lines = again.folder.history(10)
        assert [line["outcome"] for line in lines] == ["done"] * served
        asyncio.run(add(again, upstream_only("coding"), Caller()))
        kept = {path.name for path in folder.glob("router-*")}  # the versions: the first router, and the changed one
        assert kept == list_kept(again.folder) and len(kept) == 1 + served and not list(folder.glob(".router-*"))
        outcomes.append(served)
    assert steps == ["adopt", "new_router", "adopt", "write", "record"]  # the first router becomes a version
    assert outcomes == [False, False, False, False, True]


def test_a_folder_that_cannot_be_written_to_changes_nothing_and_says_so(tmp_path: Path, base: Config) -> None:
    (tmp_path / "state").write_text("a file in the way")
    each = worker(base, tmp_path / "state")
    before = each.live.snapshot
    with pytest.raises(ApiError, match=r"nothing was changed: .*state") as caught:
        asyncio.run(add(each, upstream_only("history"), Caller()))
    assert caught.value.status == 500 and each.live.snapshot is before


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_nobody_else_may_read_the_state(tmp_path: Path, base: Config) -> None:
    def modes() -> dict[str, int]:
        return {path.name: path.stat().st_mode & 0o777 for path in (state, state / "state.json", state / "audit.jsonl")}

    state, private = tmp_path / "state", {"state": 0o700, "state.json": 0o600, "audit.jsonl": 0o600}
    asyncio.run(add(worker(base, state), upstream_only("history"), Caller()))
    assert modes() == private
    for path in (state, *state.glob("*.json*")):  # as earlier versions made them
        path.chmod(0o755)
    worker(base, state)
    assert modes() == private
    state.chmod(0o755)
    (state / "a file of somebody else").touch()
    worker(base, state)
    assert modes() == {**private, "state": 0o755}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As on a full disk: no file can grow beyond a size."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(os.name != "posix", reason="limits of the system")
def test_on_a_full_disk_nothing_is_changed_and_no_audit_line_is_lost(tmp_path: Path, base: Config) -> None:
    each = worker(base, tmp_path / "state")
    asyncio.run(add(each, upstream_only("first"), Caller()))
    with largest_file(100), pytest.raises(ApiError, match=r"nothing was changed: .*File too large") as caught:
        asyncio.run(add(each, upstream_only("second"), Caller()))
    assert caught.value.status == 500 and "second" not in each.live.snapshot.experts

    audit = tmp_path / "state" / "audit.jsonl"
    audit.write_bytes(audit.read_bytes() + b"\n" * 30_000)
    with largest_file(20_000):  # the state can be written, its audit line cannot
        asyncio.run(add(each, upstream_only("second"), Caller()))
        with pytest.raises(ApiError, match=r"nothing was changed: cannot write .*audit\.jsonl"):
            asyncio.run(add(each, upstream_only("third"), Caller()))
    again = worker(base, tmp_path / "state")
    assert [line["expert"] for line in again.folder.history(9) if line["outcome"] == "done"] == ["second", "first"]
    asyncio.run(add(again, upstream_only("third"), Caller()))
    assert set(again.live.snapshot.experts) == {*tiny.DOMAINS, "first", "second", "third"}
    assert not list((tmp_path / "state").glob(".*.part"))


def test_a_changed_router_that_is_gone_is_missed_with_what_to_do(tmp_path: Path, base: Config) -> None:
    folder = StateFolder(tmp_path / "state")
    files.make_folder(folder.path)
    folder.write(State(router=RouterChoice("router-0123456789abcdef", own=True)), {})
    with pytest.raises(ArtifactError, match=r"no router at .*router-0123.*delete .*state\.json"):
        worker(base, folder.path)


def test_another_router_is_kept_over_a_restart_until_the_configured_one_is_wanted(tmp_path: Path, base: Config) -> None:
    other = second_router().save(tmp_path / "other")
    each = worker(base, tmp_path / "state")
    configured = each.live.snapshot.digest
    asyncio.run(each.change(partial(choose_router, RouterReplacement(path=str(other))), Caller()))
    again = worker(base, tmp_path / "state")
    assert tiny.same_table(again.live.snapshot.router, second_router()) and again.etag == each.etag
    for path, complaint in (
        ("relative", "must be absolute"),
        (str(tmp_path / "none"), "no such folder"),
        (str(tiny_router_of(tmp_path, "somebody")), "no name is in both"),
        ("memory://nothing/there", "could be fetched from memory://nothing/there: the gateway's log has the reason"),
    ):
        with pytest.raises(ApiError, match=complaint):
            asyncio.run(again.change(partial(choose_router, RouterReplacement(path=path)), Caller()))
    assert tiny.same_table(again.live.snapshot.router, second_router())
    asyncio.run(again.change(partial(choose_router, None), Caller()))
    assert again.live.snapshot.digest == configured
    assert len(list((tmp_path / "state" / "cache").iterdir())) == 1  # what the others had there is dropped
    assert json.loads((tmp_path / "state" / "state.json").read_bytes())["router"] is None


def tiny_router_of(folder: Path, name: str) -> Path:
    return Router.fit({name: ["a text"]}, embedding=tiny.embedding()).save(folder / name)


def test_drained_replicas_are_kept_until_they_are_not_or_their_expert_goes(tmp_path: Path, base: Config) -> None:
    folder, state = StateFolder(tmp_path), State()
    for label in ("a", "b", "a"):
        state = state.with_drained("law", label, is_drained=True)
    state = state.with_drained("maths", "c", is_drained=True)
    assert folder.write(state, {}).drained == folder.read().drained == {"law": ("b", "a"), "maths": ("c",)}
    state = state.with_drained("law", "b", is_drained=False).without("maths", base)
    assert folder.write(state, {}).drained == folder.read().drained == {"law": ("a",)}
    state = state.with_drained("law", "a", is_drained=False)
    folder.write(state, {})
    assert "drained" not in json.loads((tmp_path / "state.json").read_text()) and folder.read().drained == {}


def test_the_state_of_earlier_versions_is_read(tmp_path: Path) -> None:
    """The format of 0.1: JSON with the SHA-256 of its other fields, sorted and without spaces."""
    content = {
        "kind": "ir3de.state",
        "version": 1,
        "experts": [{"name": "physics", "base_url": "http://127.0.0.1:9/v1"}],
        "removed": ["law"],
        "drained": {"maths": ["a"]},
        "router": {"path": "/srv/router", "own": False, "base": ""},
        "reloads": 2,
        "changes": 5,
        "last": {"action": "drain replica", "change": 5},
    }
    seal = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (tmp_path / "state.json").write_text(json.dumps({**content, "sha256": seal}))
    state = StateFolder(tmp_path).read()
    assert ([expert.name for expert in state.experts], state.removed, state.drained) == (
        ["physics"], ("law",), {"maths": ("a",)},
    )  # fmt: skip
    assert (state.router, state.reloads, state.changes) == (RouterChoice("/srv/router"), 2, 5)
