import click
import pytest

from executor.cli.torture import chain, kinds, merged, repeated
from executor.deployment import DeployOptions
from executor.durable.retry import RetryPolicy
from executor.torture.crash_points import KINDS


def test_kinds_are_tried_in_their_own_order():
    assert kinds("after-result,append") == ("append", "after-result")
    assert kinds(",".join(KINDS)) == KINDS


@pytest.mark.parametrize("text", ["", "append,", "appends", "append:1"])
def test_a_kind_that_is_none_is_refused(text):
    with pytest.raises(click.BadParameter, match="is none of append, commit"):
        kinds(text)


def test_a_chain_of_points_kills_one_process_after_another():
    assert chain("append:17,commit:2,after-result") == (
        ("append", 17),
        ("commit", 2),
        ("after-result", 1),
    )
    with pytest.raises(click.BadParameter, match="'append' is not a crash point"):
        chain("append,commit:2")


def test_the_same_command_again_leaves_out_what_chose_the_points():
    given = (
        "torture a.wasm - --data d --json --sample 3 --seed=4 --at append:1 --env A=--at --jobs 2"
        " --points=append,commit --host m:f --keep k --recovery-kills 2 --timeout 5 --debug"
    )
    kept = "torture a.wasm - --data d --env A=--at --host m:f --timeout 5"
    assert " ".join(repeated(given.split())) == kept


def test_points_are_chosen_in_one_way(shem):
    told = shem("torture", "a.wasm", "script", "--at", "append:1", "--sample", "3")
    assert (told.code, told.stdout) == (2, "")
    assert "--at says which points are tried, and so does --sample" in told.stderr


@pytest.mark.parametrize("file", ["a.wasm", "folder/a"])
def test_what_is_neither_a_file_nor_deployed_is_refused(shem, file):
    told = shem("torture", file, "script")
    assert told.code == 2
    assert f"there is no file {file}" in told.stderr


def options(**given):
    plain = {"env": {}, "files": [], "host": (), "limits": {}, "config": {}, "retry": None}
    return DeployOptions(**{**plain, "allow_net": (), **given})


def test_options_are_given_besides_those_of_the_deployed_component():
    deployed = options(
        env={"A": "1", "B": "2"}, limits={"memory": 1}, config={"c": "1"}, host=("bank",),
        host_directory="there", retry=RetryPolicy(attempts_max=2), allow_net=("a",), files=["f"],
    )  # fmt: skip
    assert merged(deployed, options()) == deployed | {"files": ["f"], "allow_net": ["a"]}
    policy = RetryPolicy(attempts_max=5)
    given = options(
        env={"B": "3"}, limits={"tables": 2}, config={"d": "2"}, host=("other",), retry=policy,
        allow_net=("b",), files=["g"],
    )  # fmt: skip
    assert merged(deployed, given) == options(
        env={"A": "1", "B": "3"}, limits={"memory": 1, "tables": 2}, config={"c": "1", "d": "2"},
        host=("other",), retry=policy, allow_net=["a", "b"], files=["f", "g"],
    )  # fmt: skip
