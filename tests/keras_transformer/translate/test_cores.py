"""The number of cores under the limits of control groups."""

import sys

import pytest

from keras_transformer.translate import threads


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A folder of control groups. The process is in `system.slice/translate`."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(threads, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(threads, "_ROOT", tmp_path / "groups")
    (tmp_path / "cgroup").write_text("1:cpu:/\n0::/system.slice/translate\n")
    (tmp_path / "groups/system.slice/translate").mkdir(parents=True)
    return tmp_path / "groups"


@pytest.mark.parametrize(
    ("limits", "number"),
    [
        ({}, 8),
        ({"system.slice/translate": "max 100000"}, 8),
        ({"system.slice/translate": "200000 100000"}, 2),
        ({"system.slice/translate": "10000 100000"}, 1),
        ({"system.slice/translate": "150000 100000"}, 2),
        ({"system.slice/translate": "1600000 100000"}, 8),
        ({"system.slice/translate": "max 100000", "system.slice": "300000 100000"}, 3),
        ({"system.slice/translate": "400000 100000", ".": "100000 50000"}, 2),
    ],
)
def test_the_smallest_limit_counts(limits, number, groups):
    for folder, limit in limits.items():
        (groups / folder / "cpu.max").write_text(f"{limit}\n")
    assert threads.num_cores() == number


def test_a_container_is_in_the_outermost_group_that_it_sees(groups, tmp_path):
    (tmp_path / "cgroup").write_text("0::/\n")
    (groups / "cpu.max").write_text("200000 100000\n")
    assert threads.num_cores() == 2


@pytest.mark.parametrize("text", [None, "", "4:cpu,cpuacct:/docker\n"])
def test_all_cores_count_without_groups_of_version_2(text, groups, tmp_path):
    (tmp_path / "cgroup").unlink()
    if text is not None:
        (tmp_path / "cgroup").write_text(text)
    assert threads._limit() == sys.maxsize and threads.num_cores() == 8
