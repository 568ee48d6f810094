"""All ways to one router are the same: same bits, equal digests, equal bytes on disk."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import AllTokens, EntropyTopK, Router, TokenRidge
from ir3de.policies import Policy
from ir3de.statistics.files import load_statistics, save_statistics
from laws import STRANGE, counted, domains, every_scorer, selectors, shown, some_texts, texts, wordy

# changing -------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(domains, some_texts, every_scorer, selectors, st.booleans())
def test_merging_is_having_seen_it_together(
    some: dict[str, list[str]], more: list[str], scorer: TokenRidge, selector: AllTokens, keep_sample: bool
) -> None:
    options = {"embedding": tiny.embedding(), "scorer": scorer, "selector": selector, "keep_sample": keep_sample}
    router = Router.fit(some, **options)
    router.merge("y", more)
    together = Router.fit({**some, "y": [*more, *some["y"]]}, **options)
    assert router.statistics == together.statistics
    assert tiny.same_table(router, together)
    assert tiny.same_samples(router, together)
    assert (router.statistics["y"].sample is not None) == keep_sample == router.calibrated


@tiny.LAW
@given(domains, some_texts, every_scorer, selectors, st.booleans(), st.booleans())
def test_removing_is_never_having_seen_it(
    tmp_path_factory: pytest.TempPathFactory,
    some: dict[str, list[str]],
    more: list[str],
    scorer: TokenRidge,
    selector: AllTokens,
    keep_sample: bool,
    alone: bool,
) -> None:
    folder = tmp_path_factory.mktemp("routers")
    options = {"embedding": tiny.embedding(), "scorer": scorer, "selector": selector, "keep_sample": keep_sample}
    some = {"x": some["x"]} if alone else some
    never, router = Router.fit(some, **options), Router.fit(some, **options)
    router.add("new", more)
    assert not tiny.same_table(never, router)
    router.remove("new")
    assert tiny.same_table(never, router)
    assert tiny.contents(router.save(folder / "one")) == tiny.contents(never.save(folder / "two"))


@pytest.mark.slow
@tiny.LAW
@given(domains, every_scorer, selectors)
@pytest.mark.nightly
def test_adding_one_by_one_is_fitting_together(
    some: dict[str, list[str]], scorer: TokenRidge, selector: AllTokens
) -> None:
    options = {"embedding": tiny.embedding(), "scorer": scorer, "selector": selector}
    router = Router.fit({"x": some["x"]}, **options)
    router.add("y", counted(some["y"], keep_sample=True))
    router.add("z", iter(some["z"]))
    together = Router.fit(some, **options)
    assert tiny.same_table(router, together)
    assert tiny.same_samples(router, together)


def test_a_calibration_learnt_with_an_expert_goes_with_it(tmp_path: Path) -> None:
    """What a newcomer taught of confidence must not stay; one without a sample ends calibration while it is there."""
    sampled = {name: counted(some, keep_sample=True) for name, some in tiny.domain_texts().items()}
    never, router = (Router.fit(sampled, embedding=tiny.embedding()) for _ in range(2))
    assert never.calibrated
    for keep_sample in (True, False):
        router.add("new", counted(tiny.mixed(12), keep_sample=keep_sample), scorer="choose")
        assert router.calibrated == keep_sample
        assert router.compiled.rules.calibration != never.compiled.rules.calibration
        router.remove("new", scorer="choose")
    assert tiny.contents(router.save(tmp_path / "one")) == tiny.contents(never.save(tmp_path / "two"))


# keeping --------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(
    domains,
    every_scorer,
    selectors,
    st.sampled_from("xyz"),
    st.booleans(),
    st.booleans(),
    wordy | st.text(max_size=30),
)
def test_loaded_is_saved(
    tmp_path_factory: pytest.TempPathFactory,
    some: dict[str, list[str]],
    scorer: TokenRidge,
    selector: AllTokens,
    default: str,
    serving: bool,
    keep_sample: bool,
    text: str,
) -> None:
    folder: Path = tmp_path_factory.mktemp("router") / "saved"
    policy = Policy(0.4, {"price": 0.1}, {"y": {"price": 2.0, "latency": 1.0}})
    options = {"scorer": scorer, "selector": selector, "default": default, "policy": policy}
    router = Router.fit(some, embedding=tiny.embedding(), keep_sample=keep_sample, **options)
    router.save(folder, serving=serving)
    loaded = Router.load(folder)
    assert tiny.same_table(router, loaded)
    assert (loaded.experts, loaded.default) == (router.experts, default)
    assert (loaded.scorer, loaded.selector) == (scorer, selector)
    for prompt in (text, *STRANGE):
        assert shown(loaded.route(prompt)) == shown(router.route(prompt))
    if not serving:
        assert loaded.statistics == router.statistics
        assert tiny.same_samples(loaded, router)
        assert tiny.contents(loaded.save(folder.parent / "again")) == tiny.contents(folder)
        assert loaded.embedding.fingerprint == router.embedding.fingerprint
        loaded.add("new", ["something else"])
        router.add("new", ["something else"])
        assert tiny.same_table(router, loaded)


@tiny.LAW
@given(texts, st.booleans(), st.integers(1, 200), st.booleans(), st.integers(1, 3))
def test_loaded_statistics_are_the_saved_ones(
    tmp_path_factory: pytest.TempPathFactory,
    some: list[str],
    prompt_sums: bool,
    window: int,
    keep_sample: bool,
    every: int,
) -> None:
    statistics = counted(some, prompt_sums=prompt_sums, window=window, keep_sample=keep_sample, subsample=every)
    path = save_statistics(statistics, tmp_path_factory.mktemp("statistics") / "domain.safetensors")
    content, loaded = path.read_bytes(), load_statistics(path)
    assert loaded == statistics
    assert (loaded.digest, loaded.sample) == (statistics.digest, statistics.sample)
    assert save_statistics(loaded, path).read_bytes() == content


# many threads ---------------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Router], object]] = {
    "default": lambda router: router.default,
    "predict": lambda router: router.predict(["boil an egg", "void"]).tolist(),
    "predict_proba": lambda router: router.predict_proba(["prove it", "void"]).tolist(),
    "classes_": lambda router: router.classes_.tolist(),
    "route": lambda router: shown(router.route("prove it")),
    "route_batch": lambda router: [shown(one) for one in router.route_batch(["prove it", "void"])],
    "route_ids": lambda router: [shown(one) for one in router.route_ids([[1, 2]])],
    "explain": lambda router: router.explain("prove it").to_dict(),
    "flips": lambda router: router.flips("prove it").to_dict(),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_sees_one_router_also_if_it_changes_meanwhile(reader: str) -> None:
    """Every look at the router finds it changed: an answer must be that of one router, before or after."""
    before = tiny.router(20, default="cooking")
    after = tiny.router(20, default="law").with_selector(EntropyTopK(3))
    after.remove("cooking")

    class Changing(Router):
        _parts = property(lambda self: next(states)._parts, lambda self, value: None)
        _compiled = property(lambda self: next(states)._compiled, lambda self, value: None)

    for order in ([before, after], [after, before]):
        states = iter(order * 9)
        assert READERS[reader](Changing(before._parts)) in (READERS[reader](before), READERS[reader](after))


@pytest.mark.slow
def test_readers_see_whole_routers_while_another_thread_changes_them() -> None:
    router = tiny.router(selector=EntropyTopK(3))
    cooking, fourth = router.statistics["cooking"], counted(tiny.mixed(10))
    snapshots = [
        ("maths", "law", "cooking"),
        ("maths", "law", "cooking", "new"),
        ("maths", "law", "new"),
        ("maths", "law"),
    ]
    prompts = tiny.mixed(10)
    done, failures, seen = threading.Event(), [], Counter()

    def read() -> None:
        try:
            while not done.is_set():
                for decision in [*router.route_batch(prompts), *map(router.route, prompts)]:
                    names = [name for name, _ in decision.ranking]
                    (whole,) = [snapshot for snapshot in snapshots if sorted(snapshot) == sorted(names)]
                    assert decision.best == names[0]
                    share = 1.0 if decision.in_domain is None else decision.in_domain
                    assert sum(value for _, value in decision.ranking) == pytest.approx(share)
                    seen[whole] += 1
                explanation = router.explain(prompts[0])
                assert explanation.experts in snapshots
                assert all(len(token.scores) == len(explanation.experts) for token in explanation.tokens)
        except BaseException as error:  # a thread's assertion is lost unless it is carried out
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for _ in range(60):
        router.add("new", fourth)
        router.remove("cooking")
        router.remove("new")
        router.add("cooking", cooking)
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert len(seen) >= 2
    assert tiny.same_table(router, tiny.router(selector=EntropyTopK(3)))
