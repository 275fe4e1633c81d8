import sys

from keras_transformer.storage import progress


def test_a_file_gets_plain_lines(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", 1e-9)
    with progress.progress_bar(total=3, desc="work", unit="line") as bar:
        bar.update(2)
        bar.write("halfway", file=sys.stderr)
        bar.update(1)
    error = capsys.readouterr().err
    assert "\r" not in error
    assert [line[:15] for line in error.split("\n")] == [
        "work:  67% 2/3 ",
        "halfway",
        "work: 100% 3/3 ",
        "",
    ]


def test_short_work_shows_no_progress_in_a_file(capsys):
    assert list(progress.progress_bar(range(5))) == [0, 1, 2, 3, 4]
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    list(progress.progress_bar(range(5)))
    error = capsys.readouterr().err
    assert error.count("\r") > 1 and "5/5" in error
