"""Arrays through Postgres and back, bit by bit."""

from datetime import UTC, datetime

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from service.model.arrays import INSTANT
from service.storage.postgres import binary
from service.storage.postgres.statements import WRITE, Statements

NAT = np.iinfo(np.int64).min
EARLIEST, LATEST = -210_866_803_200_000_000, 253_402_300_799_999_999
"""4714 BC and AD 9999: what both numpy and a timestamptz that Python reads can hold."""


@pytest.fixture(scope="module")
def connection(postgres_server):
    url = postgres_server.render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def run(connection):
    """Run a statement over the connection; gives its first row."""
    statements = Statements(connection)
    return lambda statement, **given: next(iter(statements.run(statement, given)))


def lengths():
    return st.one_of(st.integers(0, 5), st.just(1000))


def arrays(dtype, **values):
    return npst.arrays(dtype, lengths(), **values)


def instants():
    us = arrays(np.int64, elements=st.one_of(st.just(NAT), st.integers(EARLIEST, LATEST)))
    return us.map(lambda values: values.view(INSTANT))


COLUMNS = {
    "bool": arrays(np.bool_),
    "smallint": arrays(np.int16),
    "integer": arrays(np.int32),
    "bigint": arrays(np.int64),
    "float8": arrays(np.float64),
    "timestamptz": instants(),
    "uuid": arrays(np.int64).map(lambda v: np.repeat(v, 2).view("V16")),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", COLUMNS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_parameter_comes_back_as_it_went(run, kind, data):
    values = data.draw(COLUMNS[kind])
    (back,) = run(f"SELECT %(given)s::{kind}[]", given=values)
    assert len(back) == len(values)
    if len(values):
        assert back.dtype == values.dtype
        assert back.tobytes() == values.tobytes()
        assert back.flags.writeable


@pytest.mark.dear
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", COLUMNS)
@settings(max_examples=20)
@given(data=st.data())
def test_what_postgres_reads_in_a_parameter_is_what_numpy_has(connection, run, kind, data):
    """Compared as text, so that two mistakes cannot cancel."""
    values = data.draw(COLUMNS[kind])
    query = f"SELECT array_agg(v::text) FROM unnest(%(given)s::{kind}[]) AS given (v)"
    with connection.transaction():
        connection.execute("SET LOCAL timezone = 'UTC'")
        (texts,) = run(query, given=values)
    for text, value in zip([] if texts is None else texts, values, strict=True):
        assert TEXT[kind](text) == TEXT_OF[kind](value)


def same_float(value):
    return np.float64(value).tobytes() if not np.isnan(float(value)) else b"nan"


def text_of_instant(value):
    if np.isnat(value):
        return "-infinity"
    year = value.astype("M8[Y]").astype(int) + 1970
    if year < 1:
        return "BC"
    plain = str(value).replace("T", " ")
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain).rjust(10, "0") + "+00"


TEXT = {
    "bool": lambda t: t == "true",
    "smallint": int,
    "integer": int,
    "bigint": int,
    "float8": same_float,
    "timestamptz": lambda t: "BC" if t.endswith("BC") else t,
    "uuid": lambda t: bytes.fromhex(t.replace("-", "")),
}
TEXT_OF = {
    "bool": bool,
    "smallint": int,
    "integer": int,
    "bigint": int,
    "float8": same_float,
    "timestamptz": text_of_instant,
    "uuid": bytes,
}

texts = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30), max_size=20
)


@settings(max_examples=50)
@given(texts=texts)
def test_texts_arrive_as_they_went(run, texts):
    given = np.array([*texts, ""], object)[:-1]
    counted = "SELECT count(*) FROM unnest(%(given)s::text[]) AS g (v) WHERE v = ANY(%(given)s)"
    (back,) = run("SELECT %(given)s::text[]", given=given)
    assert back.tolist() == texts
    assert run(counted, given=given) == (len(texts),)


SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
    st.datetimes(timezones=st.just(UTC)),
)
TYPES = {int: "bigint", float: "float8", str: "text", datetime: "timestamptz"}


@settings(max_examples=100)
@given(value=SCALARS)
def test_one_value_comes_back_as_it_went_and_says_the_same_as_over_psycopg(connection, run, value):
    kind = TYPES[type(value)]
    (texts,) = connection.execute(f"SELECT %s::{kind}::text", [value]).fetchone()
    assert run(f"SELECT %(given)s::{kind}, %(given)s::{kind}::text", given=value) == (value, texts)


def test_answers_of_other_types_and_none(run):
    query = "SELECT true, 7::smallint, 7, 'a'::name, NULL::bigint, NULL::float8[], '\\x00ff'::bytea"
    assert run(query) == (True, 7, 7, "a", None, None, b"\x00\xff")


def test_a_percent_sign_stands_for_itself_and_a_parameter_may_stand_twice(run):
    assert run("SELECT 7 %% %(b)s, %(a)s - %(b)s, %(a)s", a=10, b=4) == (3, 6, 10)


def test_the_same_statement_takes_another_type_of_parameter(run):
    assert run("SELECT %(given)s", given=1) == (1,)
    assert run("SELECT %(given)s", given="one") == ("one",)


def test_a_statement_that_fails_raises_by_its_name_and_can_be_run_again(run):
    divide = "SELECT 1 / %(by)s"
    with pytest.raises(psycopg.errors.DivisionByZero):
        run(divide, by=0)
    with pytest.raises(psycopg.errors.UndefinedTable):
        run("SELECT * FROM no_such_table")
    assert run(divide, by=1) == (1,)


def test_rows_written_are_counted_and_wait_for_the_commit(postgres_server):
    url = postgres_server.render_as_string(hide_password=False)
    with psycopg.connect(url) as connection:
        statements = Statements(connection)
        statements.run("CREATE TEMP TABLE t AS SELECT generate_series(1, 5) AS i", {}, kept=False)
        statements.opening = WRITE
        changed = statements.run("UPDATE t SET i = i + 10 WHERE i > %(least)s", {"least": 2})
        assert changed.rowcount == 3
        statements.rollback()
        assert list(statements.run("SELECT i FROM t ORDER BY i", {})) == [(i,) for i in range(1, 6)]


def test_a_statement_is_parsed_once_unless_it_is_planned_for_its_parameters(postgres_server):
    url = postgres_server.render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        statements = Statements(connection)
        for i in range(3):
            statements.run("SELECT %(i)s", {"i": i})
            statements.run("SELECT %(i)s + 1", {"i": i}, kept=False)
        kept = connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    assert kept == [("SELECT $1",)]


@settings(max_examples=40)
@given(
    rows=npst.arrays(
        np.float64, st.tuples(st.integers(1, 50), st.integers(1, 6)), elements=st.floats(width=64)
    )
)
def test_rows_of_numbers_travel_as_one_bytea_each(run, rows):
    (back,) = run("SELECT array_agg(v) FROM unnest(%(rows)s::bytea[]) AS given (v)", rows=rows)
    assert back.view("<f8").reshape(rows.shape).tobytes() == rows.tobytes()


@pytest.mark.parametrize("layout", ["F", "strided", "read-only", "big-endian"])
def test_the_layout_of_an_array_in_memory_does_not_matter(run, layout):
    plain = np.arange(12, dtype=np.float64)
    rows = plain.reshape(4, 3)
    given = {
        "F": (plain[::-1][::-1], np.asfortranarray(rows)),
        "strided": (np.repeat(plain, 2)[::2], np.repeat(rows, 2, axis=1)[:, ::2]),
        "read-only": (np.frombuffer(plain.tobytes()), np.frombuffer(rows.tobytes()).reshape(4, 3)),
        "big-endian": (plain.astype(">f8"), rows.astype(">f8")),
    }[layout]
    query = "SELECT %(a)s::float8[], (SELECT array_agg(v) FROM unnest(%(b)s::bytea[]) AS g (v))"
    numbers, blobs = run(query, a=given[0], b=given[1])
    assert numbers.tolist() == plain.tolist()
    assert blobs.view("<f8").tolist() == plain.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.uint64, np.int8, np.complex128, "M8[D]", "U3"])
def test_an_element_without_a_postgres_type_is_refused_not_mangled(run, dtype):
    values = np.zeros(3, dtype)
    if dtype == "M8[D]":  # a coarser instant is an instant
        (back,) = run("SELECT %(given)s::timestamptz[]", given=values)
        assert (back == values).all()
        return
    with pytest.raises(TypeError, match="no Postgres type"):
        run("SELECT %(given)s", given=values)


TABLE = {"a": "i8", "b": "f8", "c": "i2", "d": "M8[us]", "e": "V16", "f": "V24", "g": "?"}


def random_table(n, seed=0):
    rng = np.random.default_rng(seed)
    floats = rng.integers(NAT, -NAT - 1, n).view(np.float64)
    instants = rng.integers(EARLIEST, LATEST, n)
    instants[rng.random(n) < 0.1] = NAT
    return {
        "a": rng.integers(NAT, -NAT - 1, n),
        "b": np.where(np.isnan(floats), np.nan, floats),
        "c": rng.integers(-(2**15), 2**15, n).astype(np.int16),
        "d": instants.view(INSTANT),
        "e": np.frombuffer(rng.bytes(16 * n), "V16"),
        "f": np.frombuffer(rng.bytes(24 * n), "V24"),
        "g": rng.random(n) < 0.5,
    }


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 128, 1000])
def test_copy_in_and_out_give_the_same_table(connection, n):
    """Blocks of 64 rows, so that every edge of a block is met."""
    table = random_table(n)
    with connection.transaction(force_rollback=True):
        connection.execute(
            "CREATE TEMP TABLE t (a bigint, b float8, c smallint, d timestamptz, e uuid, "
            "f bytea, g bool, i serial)"
        )
        statement = "COPY t (a, b, c, d, e, f, g) FROM STDIN (FORMAT BINARY)"
        with connection.cursor().copy(statement) as copy:
            for block in binary.copy_in(list(table.values()), 64):
                copy.write(block)
        query = "COPY (SELECT a, b, c, d, e, f, g FROM t ORDER BY i) TO STDOUT (FORMAT BINARY)"
        back = binary.copy_out(connection, query, TABLE, 64)
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (n,)
    for name, values in table.items():
        assert back[name].dtype == values.dtype, name
        assert back[name].tobytes() == values.tobytes(), name


def test_rows_that_end_like_the_trailer_are_rows(connection):
    query = "COPY (SELECT -1::bigint FROM generate_series(1, 130)) TO STDOUT (FORMAT BINARY)"
    assert binary.copy_out(connection, query, {"a": "i8"}, 64)["a"].tolist() == [-1] * 130


@pytest.mark.parametrize("kind", ["f4", "f8", "i2"])
def test_rows_of_numbers_are_copied_in_as_arrays(connection, kind):
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=(130, 7)).astype(kind)
    null = rng.random(130) < 0.3
    name = {"f4": "real", "f8": "float8", "i2": "smallint"}[kind]
    with connection.transaction(force_rollback=True):
        connection.execute(f"CREATE TEMP TABLE t (a bigint, b {name}[], c {name}[])")
        columns = [
            np.arange(130),
            binary.masked_arrays(numbers),
            binary.masked_arrays(numbers, null),
        ]
        with connection.cursor().copy("COPY t FROM STDIN (FORMAT BINARY)") as copy:
            for block in binary.copy_in(columns, 64):
                copy.write(block)
        rows = connection.execute("SELECT b, c FROM t ORDER BY a").fetchall()
    np.testing.assert_array_equal(np.array([b for b, _ in rows], kind), numbers)
    assert [c is None for _, c in rows] == null.tolist()
    kept = [c for _, c in rows if c is not None]
    np.testing.assert_array_equal(np.array(kept, kind), numbers[~null])


def test_a_copy_that_fails_half_way_raises_and_leaves_the_connection_usable(connection):
    query = (
        "COPY (SELECT 1 / (500 - i) FROM generate_series(1, 1000) AS i) TO STDOUT (FORMAT BINARY)"
    )
    with pytest.raises(psycopg.Error):
        binary.copy_out(connection, query, {"a": "i4"}, 64)
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_masked_values_are_copied_in_as_null(connection):
    table = random_table(200)
    rng = np.random.default_rng(1)
    masks = {name: rng.random(200) < 0.3 for name in table}
    masks["a"][:] = False
    masks["b"][64:128] = True  # a whole block
    given = [np.ma.masked_array(table[name], mask) for name, mask in masks.items()]
    with connection.transaction(force_rollback=True):
        connection.execute(
            "CREATE TEMP TABLE t (a bigint, b float8, c smallint, d timestamptz, e uuid, "
            "f bytea, g bool, i serial)"
        )
        statement = "COPY t (a, b, c, d, e, f, g) FROM STDIN (FORMAT BINARY)"
        with connection.cursor().copy(statement) as copy:
            for block in binary.copy_in(given, 64):
                copy.write(block)
        for name, values in table.items():
            where = f"WHERE {name} IS NOT NULL ORDER BY i"
            (nulls,) = connection.execute(
                f"SELECT array_agg({name} IS NULL ORDER BY i) FROM t"
            ).fetchone()
            assert list(nulls) == masks[name].tolist()
            query = f"COPY (SELECT {name} FROM t {where}) TO STDOUT (FORMAT BINARY)"
            back = binary.copy_out(connection, query, {name: TABLE[name]})[name]
            assert back.tobytes() == values[~masks[name]].tobytes()


def test_a_column_of_one_value_takes_no_memory(connection):
    query = (
        "SELECT i, 'NaN'::float8, i / 100, 'NaN'::float8, '-infinity'::timestamptz "
        "FROM generate_series(0, 199) AS i"
    )
    copied = f"COPY ({query}) TO STDOUT (FORMAT BINARY)"
    dtypes = {"a": "i4", "b": "f8", "c": "i4", "d": "f8", "e": "M8[us]"}
    back = binary.copy_out(connection, copied, dtypes, 50)
    assert [back[name].strides[0] for name in dtypes] == [4, 0, 4, 0, 0]
    assert back["c"].tolist() == [0] * 100 + [1] * 100
    assert len(back["b"]) == 200
    assert np.isnan(back["b"]).all()
    assert np.isnat(back["e"]).all()
