"""Reads a pickle of plain values: dicts, lists, tuples, sets, texts, bytes, numbers, None.

It does not use Python's unpickler. It interprets the opcodes of plain values, and ends with an
error at any other opcode: no code here can import a module, make an object of a class or call
anything. torch writes the dumps of its flight recorder with these opcodes only.
"""

from __future__ import annotations

from pickletools import genops
from typing import Any

_MOST_OPCODES = 20_000_000
_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
"""Opcodes with a value, which genops has decoded."""
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
_NOTHING = {"PROTO", "FRAME", "STOP"}


def read_plain_pickle(data: bytes) -> Any:
    """The value that was pickled. Raises ValueError for bytes that are no pickle of plain values,
    with the opcode that is not plain."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for count, (opcode, argument, _) in enumerate(genops(data)):
            if count > _MOST_OPCODES:
                raise NotImplementedError("it has too many values")
            _run(opcode.name, argument, stack, memo)
        (value,) = stack
        if value is _MARK:
            raise IndexError
    except NotImplementedError as error:
        raise ValueError(str(error)) from None
    except (LookupError, TypeError, AttributeError, OverflowError, ValueError, EOFError):
        raise ValueError("it is damaged, or was cut off") from None
    return value


def _run(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Run one opcode."""
    if name in _VALUES:
        stack.append(argument)
    elif name in _GETS:
        stack.append(memo[argument])
    elif name in _PUTS:
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name == "MARK":
        stack.append(_MARK)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _EMPTY:
        stack.append(_EMPTY[name]())
    elif name in _TUPLES:
        count = _TUPLES[name]
        values = [stack.pop() for _ in range(count)]
        stack.append(tuple(values[::-1]))
    elif name in ("TUPLE", "LIST"):
        values = _marked(stack)
        stack.append(tuple(values) if name == "TUPLE" else values)
    elif name == "DICT":
        stack.append(_pairs(_marked(stack)))
    elif name in ("APPEND", "APPENDS"):
        values = [stack.pop()] if name == "APPEND" else _marked(stack)
        _last(stack, list).extend(values)
    elif name in ("SETITEM", "SETITEMS"):
        values = [stack.pop(-2), stack.pop()] if name == "SETITEM" else _marked(stack)
        _last(stack, dict).update(_pairs(values))
    elif name == "ADDITEMS":
        values = _marked(stack)
        _last(stack, set).update(values)
    elif name in ("POP", "POP_MARK"):
        _marked(stack) if name == "POP_MARK" else stack.pop()
    elif name not in _NOTHING:
        raise NotImplementedError(f"it holds more than plain values ({name})")


def _marked(stack: list[Any]) -> list[Any]:
    """Remove and return what lies above the last mark."""
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise IndexError
    values = stack[at + 1 :]
    del stack[at:]
    return values


def _last(stack: list[Any], kind: type) -> Any:
    """The last value, which must be exactly of a type."""
    if type(stack[-1]) is not kind:
        raise TypeError
    return stack[-1]


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))
