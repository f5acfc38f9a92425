"""Tables and their windows: what is read, how it is cut, and the sentence that every bad table gets."""

import numpy as np
import pandas as pd
import pytest

from lbo.windows import Span, TableError, cut, read


def table(times, **columns):
    """Twelve rows at each time, of either class in turn."""
    times = np.repeat(np.asarray(times, dtype=object), 12)
    n = len(times)
    return pd.DataFrame({"when": times, "y": np.arange(n) % 2, "x": np.arange(n) * 1.0, **columns}).infer_objects()


def windows(frame, window="2", step="1", **settings):
    spans = {"window": Span.parse(window, "--window"), "step": Span.parse(step, "--step")}
    return cut(frame, target="y", time="when", **spans, **settings)


def names(frame, *spans):
    return [window.name for window in windows(frame, *spans)[0]]


# Reading


def test_csv_and_parquet_are_the_same_table(tmp_path):
    frame = table(["2019-01-31", "2020-02-29"], t=["a", None, "b"] * 8)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read(tmp_path / "t.csv"), read(tmp_path / "t.parquet"), check_dtype=False)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("t.xlsx", b"", "Save it as one of them"),
        ("t.csv", None, "There is no file"),
        ("t.csv", b"", "has no rows"),
        ("t.csv", b"a,b\n", "has no rows"),
        ("t.csv", b'a,b\n"1,2\n', "does not read as a table"),
        ("t.csv", b"a,b\n\xff\xfe,1\n", "does not read as a table"),
        ("t.parquet", b"not one", "does not read as a table"),
    ],
)
def test_a_file_that_is_no_table(tmp_path, name, content, complaint):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=complaint):
        read(tmp_path / name)


# Cutting


def test_windows_of_years():
    assert names(table([2001, 2002, 2003, 2004])) == ["2001-2002", "2002-2003", "2003-2004"]
    assert names(table([2001, 2002, 2003]), "1", "2") == ["2001", "2003"]
    assert names(table(["2001-05-01", "2002-12-31", "2003-01-01"])) == ["2001-2002", "2002-2003"]
    assert names(table(["2001-05-01T10:00:00+02:00", "2002-12-31T00:00:00Z"])) == ["2001-2002"]
    assert names(table(pd.to_datetime(["2001-05-01", "2002-12-31"]))) == ["2001-2002"]


def test_windows_of_months_and_days():
    months = table(["2001-11-30", "2001-12-01", "2002-01-15"])
    assert names(months, "2m", "1m") == ["2001-11 to 2001-12", "2001-12 to 2002-01"]
    days = table(["2000-02-28", "2000-02-29", "2000-03-01"])
    assert names(days, "1d", "1d") == ["2000-02-28", "2000-02-29", "2000-03-01"]


def test_a_window_has_the_rows_of_its_times_in_their_order():
    frame = table([3, 1, 2])
    cut_, notes = windows(frame)
    assert notes == ["Rows were not in the order of 'when'; they were sorted, and there is nothing to do."]
    assert list(cut_[0].X["x"]) == [*range(12, 36)]
    assert list(cut_[1].X["x"]) == [*range(24, 36), *range(12)]
    assert list(cut_[0].X.columns) == ["x"]
    sorted_, no_notes = windows(frame.sort_values("when", kind="stable"))
    assert no_notes == []
    pd.testing.assert_frame_equal(sorted_[1].X, cut_[1].X)


def test_rows_added_later_leave_the_windows_before_them_alone():
    before, notes = windows(table([1, 2, 3, 4, 5]), "2", "2")
    assert notes == ["12 rows from 5 on are in no full window yet; they wait for more."]
    after, _ = windows(table([1, 2, 3, 4, 5, 6]), "2", "2")
    for old, new in zip(before, after, strict=False):
        assert old.name == new.name
        pd.testing.assert_frame_equal(old.X, new.X)


def test_numbers_stay_numbers_and_the_rest_is_text():
    frame = table(
        [1, 2],
        whole=pd.array([1, None, 3] * 8, dtype="Int64"),
        endless=[np.inf, 1.0, -np.inf] * 8,
        yes=[True, False, True] * 8,
        text=["a", None, 3] * 8,
        kind=pd.Categorical(["u", "v", None] * 8),
    )
    X = windows(frame, drop=["x"])[0][0].X
    np.testing.assert_array_equal(X["whole"][:3], [1, np.nan, 3])
    np.testing.assert_array_equal(X["endless"][:3], [np.nan, 1, np.nan])
    assert list(X["yes"][:3]) == [1.0, 0.0, 1.0]
    assert list(X["text"][:3].fillna("(missing)")) == ["a", "(missing)", "3"]
    assert list(X["kind"][:3].fillna("(missing)")) == ["u", "v", "(missing)"]


def test_rows_without_a_target_are_left_out_and_counted():
    frame = table([1, 2]).assign(y=lambda f: f.y.where(f.index != 3))
    cut_, notes = windows(frame)
    assert notes == ["1 rows without a value of 'y' were left out."]
    assert len(cut_[0].y) == 23


# Bad tables, each with its cure


@pytest.mark.parametrize(
    ("frame", "spans", "complaint"),
    [
        (table([1, 2]).drop(columns="y"), (), r"--target names a column.*no 'y'. Its columns are: when, x"),
        (table([1, 2]).drop(columns="when"), (), "--time names a column.*no 'when'"),
        (table([1, 2]).drop(columns="x"), (), "columns to predict from.*Add some"),
        (table([1, 2]).assign(y=lambda f: f.y.map({0: "no", 1: "yes"})), (), "'no', 'yes'. Recode it as 0 and 1"),
        (table([1, 2]).assign(y=None), (), "empty in every row. Choose another --target"),
        (table([1, 2]).assign(y=0), (), "two classes or more.*Choose another"),
        (table([1, 2]).assign(y=lambda f: f.y + 1), (), "2 different values from 1 to 2. Recode"),
        (table([1, 2]).assign(y=lambda f: f.x / 7), (), "24 different values from 0 to"),
        (table([1, 2]).assign(y=lambda f: f.y * (f.when == 2)), ("1",), "window 1 has 0 of class 1. Use a larger"),
        (table([1, 2]).assign(y=lambda f: (f.x < 4).astype(int)), (), "window 1-2 has 4 of class 1"),
        (table([1, 2]).assign(x=np.nan), (), "'x' is empty in every row. Leave it out with --drop x"),
        (table([1, 2], d=pd.Timestamp("2020-01-01")), (), "'d' holds dates.*--drop d"),
        (table([1, 2, 9]), (), "Window 3-4 has no rows. Use a larger --window"),
        (table(["soon", "2001-01-01"]), (), r"12 of 24 rows do not, the first being 'soon'. Repair"),
        (table(["2001-01-01", None]), (), "12 of 24 rows do not"),
        (table([2001.5, 2002]), (), "whole numbers.*the first being '2001.5'"),
        (table([1, 2]), ("3",), "times are only 1-2. Use a smaller --window"),
        (table([1, 1_700_000_000]), (), "At most 1000 windows.*Use a larger --step"),
        (table([1, 2]), ("6m", "1m"), "need a column of dates"),
        (table(["2001-01-01", "2002-01-01"]), ("1y", "6m"), "have one unit.*in the smaller one"),
        (table([1, 2]), ("0",), "--window is a number of years"),
        (table([1, 2]), ("2", "often"), "--step is a number of years"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_table_gets_one_sentence_and_a_cure(frame, spans, complaint):
    with pytest.raises(TableError, match=complaint) as caught:
        windows(frame, *spans)
    assert "\n" not in str(caught.value)


def test_columns_cannot_be_both_used_and_left_out():
    with pytest.raises(TableError, match="different columns"):
        windows(table([1, 2]), drop=["when"])
    with pytest.raises(TableError, match="--drop names a column"):
        windows(table([1, 2]), drop=["nothing"])
