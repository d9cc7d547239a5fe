"""Vector instructions for the kernels: 16 examples side by side, one in each lane.

Numba has no vector types, so that these few pieces are written in LLVM's language, which knows them on every CPU: where
registers are shorter than 16 numbers, one such vector is several registers. Nothing is reassociated in them: a lane is
one example, whose sum runs in a fixed order.

>>> LANES
16
"""

# Numba's extension points have no types.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false
# pyright: reportUntypedFunctionDecorator=false

from __future__ import annotations

from typing import Any, Final

from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from sfumato.dpsgd.kernel_layout import LANES

BYTES: Final = 4 * LANES
"""Of one vector."""
_VECTOR: Any = ir.VectorType(ir.FloatType(), LANES)
_ZERO: Any = ir.Constant(_VECTOR, [0.0] * LANES)
_INTEGER: Any = ir.IntType(64)


def _ask_for_wide_vectors() -> bool:
    """Let LLVM use all of AVX-512, where it would keep to half; whether registers hold 16 numbers.

    The setting is that of ``NUMBA_CPU_FEATURES``, holds for the process and gives way to the user's own.
    """
    settings: Any = config
    own = settings.CPU_FEATURES if settings.CPU_NAME is None else settings.CPU_FEATURES or ""
    features = binding.get_host_cpu_features().flatten() if own is None else str(own)
    wide = "+avx512f" in features.split(",")
    if wide and own is None:
        settings.CPU_FEATURES = features + ",-prefer-256-bit"
    return wide


WIDE: Final = _ask_for_wide_vectors()
"""Whether one register holds a vector, and there are 32 of them."""


def _constant(value: int) -> Any:
    return ir.Constant(_INTEGER, value)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _VECTOR.as_pointer())


def _offset(builder: Any, address: Any, step: Any, count: int) -> Any:
    return builder.add(address, builder.mul(step, _constant(count)))


def _kept(builder: Any, number: Any) -> Any:
    """The number, of which LLVM does not know that it is: else it would keep a pointer for each window, beyond the registers."""
    return builder.asm(ir.FunctionType(_INTEGER, [_INTEGER]), "", "=r,0", [number], side_effect=False)


def dots(rows: int, columns: int) -> Any:
    """A function for kernels: the dot products of ``rows`` planes of g and ``columns`` windows of x, for 16 examples.

    ``f(g, planes, x, windows, high, wide, x_right, x_down, out, out_row, out_column, mask, mask_row, mask_column, total,
    fresh, final)``. All but ``high``, ``wide`` and the last two are addresses and steps in bytes: of the packed g; of the
    planes' offsets there, each (high, wide, 16); of the packed x; of the windows' offsets there; the windows' steps to the
    right and down; of the first result, and its steps from plane to plane and from window to window; of the first byte of a
    mask, and its steps. ``fresh`` results are new, others are added to. The squares of ``final`` ones are added to the 16
    float64 numbers at ``total``, where the mask is not 0.
    """

    @intrinsic
    def found(
        _typing,
        g,
        planes,
        x,
        windows,
        high,
        wide,
        x_right,
        x_down,
        out,
        out_row,
        out_column,
        mask,
        mask_row,
        mask_column,
        total,
        fresh,
        final,
    ):
        def generate(_context, builder, _signature, args):
            return _generate_dots(builder, rows, columns, args)

        return types.void(*[types.int64] * 15, *[types.boolean] * 2), generate

    return found


def _listed(builder: Any, base: Any, offsets: Any, count: int) -> list[Any]:
    """The base plus each of the first ``count`` of the int64 offsets at an address."""
    start = builder.inttoptr(offsets, _INTEGER.as_pointer())
    places = [builder.gep(start, [_constant(number)], source_etype=_INTEGER) for number in range(count)]
    return [builder.add(base, builder.load(place, typ=_INTEGER)) for place in places]


def _generate_dots(builder: Any, rows: int, columns: int, args: Any) -> Any:
    g, planes, x, windows, high, wide, x_right, x_down, out, out_row, out_column = args[:11]
    mask, mask_row, mask_column, squared, fresh, final = args[11:]
    planes, windows = _listed(builder, g, planes, rows), _listed(builder, x, windows, columns)
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    is_fresh = builder.trunc(fresh, ir.IntType(1))
    places = [
        _offset(builder, _offset(builder, out, out_row, row), out_column, column)
        for row in range(rows)
        for column in range(columns)
    ]
    sums = [cgutils.alloca_once_value(builder, _ZERO) for _ in places]  # LLVM keeps these in registers
    g_offset, x_offset = (cgutils.alloca_once_value(builder, _constant(0)) for _ in range(2))
    with cgutils.for_range(builder, high) as down:
        builder.store(builder.mul(down.index, x_down), x_offset)
        with cgutils.for_range(builder, wide):
            g_at, x_at = (_kept(builder, builder.load(offset)) for offset in (g_offset, x_offset))
            g = [builder.load(_pointer(builder, builder.add(plane, g_at)), align=BYTES) for plane in planes]
            x = [
                builder.load(_pointer(builder, builder.add(window, x_at)), align=BYTES) for window in windows
            ]
            for number, total in enumerate(sums):
                factors = [g[number // columns], x[number % columns]]
                builder.store(builder.call(multiply_add, [*factors, builder.load(total)]), total)
            builder.store(builder.add(g_at, _constant(BYTES)), g_offset)
            builder.store(builder.add(x_at, x_right), x_offset)
    found = list[Any]()
    for place, total in zip(places, sums, strict=True):
        before = builder.select(is_fresh, _ZERO, builder.load(_pointer(builder, place), align=BYTES))
        found.append(builder.fadd(builder.load(total), before))
    for place, vector in zip(places, found, strict=True):
        builder.store(vector, _pointer(builder, place), align=BYTES)
    with builder.if_then(builder.trunc(final, ir.IntType(1))):
        byte, square = ir.IntType(8), _ZERO
        for number, vector in enumerate(found):
            flag = _offset(
                builder, _offset(builder, mask, mask_row, number // columns), mask_column, number % columns
            )
            value = builder.load(builder.inttoptr(flag, byte.as_pointer()), typ=byte)
            kept = builder.icmp_unsigned("!=", value, ir.Constant(byte, 0))
            vector = builder.select(kept, vector, _ZERO)
            square = builder.call(multiply_add, [vector, vector, square])
        _add_wide(builder, squared, square)
    return ir.Constant(ir.IntType(8).as_pointer(), None)


def _add_wide(builder: Any, total: Any, vector: Any) -> None:
    """Add a vector to 16 float64 numbers at an address."""
    doubles = ir.VectorType(ir.DoubleType(), LANES)
    place = builder.inttoptr(total, doubles.as_pointer())
    added = builder.fadd(builder.load(place, typ=doubles, align=8), builder.fpext(vector, doubles))
    builder.store(added, place, align=8)


@intrinsic
def transpose(_typing, source, source_step, valid, target, target_step):
    """Sixteen rows of sixteen numbers, ``source_step`` bytes apart, into sixteen vectors ``target_step`` bytes apart.

    Rows from ``valid`` on are zeros and are not read.
    """

    def generate(_context, builder, _signature, args):
        source, source_step, valid, target, target_step = args
        nothing = builder.ptrtoint(cgutils.alloca_once_value(builder, _ZERO), _INTEGER)
        rows = []
        for number in range(LANES):
            there = builder.icmp_signed("<", _constant(number), valid)
            address = builder.select(there, _offset(builder, source, source_step, number), nothing)
            rows.append(builder.load(_pointer(builder, address), align=4))
        for number, vector in enumerate(_transposed(builder, rows)):
            place = _pointer(builder, _offset(builder, target, target_step, number))
            builder.store(vector, place, align=BYTES)
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.int64] * 5), generate


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Swaps blocks of 8, 4, 2 and 1 across the diagonal."""
    rows, masks = list(rows), ir.VectorType(ir.IntType(32), LANES)
    step = LANES // 2
    while step:
        first = ir.Constant(masks, [n if not n & step else LANES + n - step for n in range(LANES)])
        second = ir.Constant(masks, [n + step if not n & step else LANES + n for n in range(LANES)])
        for n in range(LANES):
            if not n & step:
                a, b = rows[n], rows[n + step]
                rows[n] = builder.shuffle_vector(a, b, first)
                rows[n + step] = builder.shuffle_vector(a, b, second)
        step //= 2
    return rows


@intrinsic
def plane_sum(_typing, plane, count, out, fresh):
    """The sum of ``count`` vectors from an address on, into the vector at ``out``, or added to it if it is not fresh."""

    def generate(_context, builder, _signature, args):
        plane, count, out, fresh = args
        place = _pointer(builder, out)
        before = builder.load(place, align=BYTES)
        start = builder.select(builder.trunc(fresh, ir.IntType(1)), _ZERO, before)
        parts = [
            cgutils.alloca_once_value(builder, value) for value in (start, _ZERO)
        ]  # two, for their latency
        with cgutils.for_range(builder, builder.lshr(count, _constant(1))) as number:
            for half, part in enumerate(parts):
                offset = builder.add(builder.mul(number.index, _constant(2 * BYTES)), _constant(half * BYTES))
                vector = builder.load(_pointer(builder, builder.add(plane, offset)), align=BYTES)
                builder.store(builder.fadd(builder.load(part), vector), part)
        with builder.if_then(builder.trunc(count, ir.IntType(1))):
            last = builder.mul(builder.sub(count, _constant(1)), _constant(BYTES))
            vector = builder.load(_pointer(builder, builder.add(plane, last)), align=BYTES)
            builder.store(builder.fadd(builder.load(parts[0]), vector), parts[0])
        builder.store(builder.fadd(*(builder.load(part) for part in parts)), place, align=BYTES)
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.int64] * 3, types.boolean), generate


@intrinsic
def listed_squares(_typing, squared, offsets, begin, rows, count, g, g_step, total):
    """Adds to 16 float64 numbers at ``total``, for each of ``count`` rows, a vector's squares times a sum of listed vectors.

    All are addresses but the count and ``g_step``: vectors at ``squared``; their int64 offsets there; where among those
    each row begins, and their number; the int64 numbers of the rows among the vectors at ``g``, ``g_step`` bytes apart.
    """

    def generate(_context, builder, _signature, args):
        squared, offsets, begin, rows, count, g, g_step, total = args
        whole = cgutils.alloca_once_value(builder, _ZERO)
        # several, since an addition takes longer than it takes to begin the next one
        parts = [cgutils.alloca_once(builder, _VECTOR) for _ in range(4)]

        def listed(base: Any, number: Any) -> Any:
            place = builder.gep(
                builder.inttoptr(base, _INTEGER.as_pointer()), [number], source_etype=_INTEGER
            )
            return builder.load(place, typ=_INTEGER)

        def add(number: Any, part: Any) -> None:
            vector = builder.load(
                _pointer(builder, builder.add(squared, listed(offsets, number))), align=BYTES
            )
            builder.store(builder.fadd(builder.load(part), vector), part)

        with cgutils.for_range(builder, count) as row:
            for part in parts:
                builder.store(_ZERO, part)
            start, end = listed(begin, row.index), listed(begin, builder.add(row.index, _constant(1)))
            length = builder.sub(end, start)
            fours = builder.lshr(length, _constant(2))
            with cgutils.for_range(builder, fours) as four:
                first = builder.add(start, builder.mul(four.index, _constant(4)))
                for number, part in enumerate(parts):
                    add(builder.add(first, _constant(number)), part)
            rest = builder.mul(fours, _constant(4))
            with cgutils.for_range(builder, builder.sub(length, rest)) as single:
                add(builder.add(builder.add(start, rest), single.index), parts[0])
            place = builder.add(g, builder.mul(listed(rows, row.index), g_step))
            vector = builder.load(_pointer(builder, place), align=BYTES)
            a, b, c, d = (builder.load(part) for part in parts)
            found = builder.fadd(builder.fadd(a, b), builder.fadd(c, d))
            square_of = builder.fmul(vector, vector)
            builder.store(builder.fadd(builder.load(whole), builder.fmul(found, square_of)), whole)
        _add_wide(builder, total, builder.load(whole))
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.int64] * 8), generate


@intrinsic
def square(_typing, source, target):
    """The squares of the vector at an address, at another one."""

    def generate(_context, builder, _signature, args):
        vector = builder.load(_pointer(builder, args[0]), align=BYTES)
        builder.store(builder.fmul(vector, vector), _pointer(builder, args[1]), align=BYTES)
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(types.int64, types.int64), generate
