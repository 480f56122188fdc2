"""Tables and arrays of other packages as records and lists, without importing these packages.

| value | becomes |
|---|---|
| DataFrame of pandas, polars and their kin, table or record batch of Arrow | a list of records |
| Series of pandas with its default index, of polars, array of Arrow | a list of values |
| Series of pandas with another index | a list of records |
| array or scalar of numpy, tensor of PyTorch | nested lists; records for named fields |

An index that is not the default one becomes a column. A missing value becomes None.
"""

from typing import Any, Final

from llm_common.errors import UnserialisableError

# What tables and arrays have in common. The last two are lazy tables, which have no rows yet.
_MARKS: Final = ("__array__", "__dataframe__", "__arrow_c_stream__", "collect_schema", "toPandas")


def is_tabular(value: object) -> bool:
    """Return whether a value is a table or an array, whose text shows only its ends."""
    return isinstance(getattr(value, "shape", None), tuple) or any(
        hasattr(value, mark) for mark in _MARKS
    )


def tabular_data(value: Any) -> object:
    """Return a table or array as records or lists, whose items may still need conversion.

    Raises:
        UnserialisableError: If two columns have the same name, or the value has no method that
            returns all of its data.
    """
    if hasattr(value, "to_dicts"):  # polars
        _check_columns(value.columns)
        return value.to_dicts()
    if hasattr(value, "to_pylist"):  # Arrow
        _check_columns(getattr(value, "column_names", ()))
        return value.to_pylist()
    if hasattr(value, "iloc"):  # pandas
        return _pandas_data(value)
    if hasattr(value, "to_list"):  # a Series of polars, an Index of pandas
        return value.to_list()
    if hasattr(value, "tolist"):  # numpy and PyTorch
        return _array_data(value)
    raise UnserialisableError(
        f"A value of type {type(value).__name__} would be stored as a text that shows only its "
        'ends; pass its rows, such as table.to_dict("records")'
    )


def _pandas_data(value: Any) -> object:
    is_series = not hasattr(value, "columns")
    has_default_index = (
        type(value.index).__name__ == "RangeIndex"
        and value.index.start == 0
        and value.index.step == 1
    )
    if is_series and has_default_index:
        return value.tolist()
    if not is_series:
        _check_columns(value.columns)
    table = value
    if not has_default_index:
        try:
            table = value.reset_index()
        except ValueError as exc:
            raise UnserialisableError(
                "The index of a DataFrame has the name of a column; rename one"
            ) from exc
    return table.to_dict("records")


def _check_columns(names: Any) -> None:
    columns = list(names)
    if len(set(columns)) < len(columns):
        raise UnserialisableError("Two columns of a table have the same name; rename one")


def _array_data(value: Any) -> object:
    dtype = getattr(value, "dtype", None)
    names = getattr(dtype, "names", None)
    if names:
        # A structured array lists tuples, which would lose the names of the fields.
        rows = value.reshape(-1)
        return [{name: row[name] for name in names} for row in rows]
    kind = getattr(dtype, "kind", "")
    if kind == "m":
        return value.astype("timedelta64[us]").tolist()
    if kind == "M":
        # As text, since a datetime does not hold nanoseconds.
        return _with_none(value.astype(str).tolist())
    return value.tolist()


def _with_none(moments: Any) -> object:
    if isinstance(moments, list):
        return [_with_none(moment) for moment in moments]
    return None if moments == "NaT" else moments
