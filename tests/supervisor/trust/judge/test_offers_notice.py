"""What clients are told of what is held."""

from quarterdeck.trust.judge.offers import MAX_SERVERS, notice


def test_when_all_is_well_nothing_is_said() -> None:
    """Every session would begin with words that mean nothing."""
    assert notice({}, ()) == ""
    assert notice({"fs": 0, "web": 0}, ()) == ""


def test_what_is_held_is_counted_by_server() -> None:
    """A model would take a held tool for one that never was."""
    assert notice({"fs": 1, "web": 0}, ()) == (
        "1 tool is held until a person approves it (fs: 1). The user can look with `quarterdeck trust list`."
    )
    said = notice({"fs": 1, "web": 2}, ())
    assert said.startswith("3 tools are held until a person approves them (fs: 1, web: 2). ")
    assert said.endswith("`quarterdeck trust list`.")


def test_servers_that_are_not_started_are_named() -> None:
    """A server that waits for its approval would be missed without a reason."""
    assert "1 server is not started until a person approves how (git)" in notice({}, ["git"])
    said = notice({"fs": 1}, ["git", "web"])
    assert "; 2 servers are not started until a person approves how (git, web)" in said


def test_of_many_servers_the_first_are_named_and_the_others_counted() -> None:
    """A model's context would be full of names."""
    names = [f"s{number}" for number in range(MAX_SERVERS + 3)]
    said = notice(dict.fromkeys(names, 1), names)
    assert said.count(f"{names[MAX_SERVERS - 1]}: 1 and 3 more") == 1
    assert said.count(f"{names[MAX_SERVERS - 1]} and 3 more") == 1
    assert names[MAX_SERVERS] not in said


def test_servers_that_are_still_starting_are_named_after_what_is_held() -> None:
    """A model that lists once would take their tools for ones that never were."""
    assert notice({}, (), ["fs"]) == "Still starting: fs; its tools are announced when they can be called."
    said = notice({"fs": 1}, (), ["a", "b"])
    assert said.endswith(
        "`quarterdeck trust list`. Still starting: a, b; their tools are announced when they can be called."
    )
