"""What a compiled program has, from a module as XLA serializes it: written here field by field."""

from deepbench.native.hlo import keeps_loop, what_ran
from deepbench.native.protobuf import varint_field, wire_field

F32, BF16 = 11, 16


def instruction(number, code, element=F32, operands=(), calls=(), kind=""):
    text = wire_field(2, code.encode()) + wire_field(3, varint_field(2, element)) + varint_field(35, number)
    text += b"".join(varint_field(36, operand) for operand in operands)  # one by one, or packed
    text += wire_field(38, bytes(calls)) if calls else b""
    return wire_field(2, text + (wire_field(11, kind.encode()) if kind else b""))


def module(*computations):
    """Computations 1, 2 …, of which the last one is the entry."""
    parts = [wire_field(3, b"".join(c) + varint_field(5, i)) for i, c in enumerate(computations, start=1)]
    return wire_field(1, b"".join(parts) + varint_field(6, len(computations)))


def product(number, element):
    """Two parameters and their product in f32."""
    operands = number + 1, number + 2
    return [instruction(n, "parameter", element) for n in operands] + [instruction(number, "dot", F32, operands)]


def test_a_product_is_named_with_the_type_of_its_operands():
    assert "dot of bf16" == what_ran(module(product(1, BF16)))
    assert "dot of f32, convert" == what_ran(module([*product(1, F32), instruction(9, "convert", BF16, [1])]))


def test_a_fusion_is_named_with_what_it_multiplies():
    fusion = instruction(9, "fusion", F32, [], [1], "kCustom")

    assert "fusion kCustom of bf16" == what_ran(module(product(1, BF16), [fusion]))
    assert "fusion kCustom ×2" == what_ran(module([instruction(1, "add")], [fusion, fusion]))


def test_a_loop_is_kept_if_what_multiplies_is_in_it():
    loop = instruction(20, "while", F32, [], [1])

    assert keeps_loop(module(product(1, F32), [loop])) is True
    assert keeps_loop(module([instruction(1, "add")], [*product(5, F32), loop])) is False
    assert keeps_loop(module([instruction(1, "add")], [loop])) is None


def test_a_damaged_program_tells_nothing():
    assert what_ran(b"") is None
    assert what_ran(module(product(1, F32))[:-3]) is None
    assert keeps_loop(b"\xff") is None
