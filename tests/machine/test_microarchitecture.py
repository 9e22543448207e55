"""The microarchitecture follows from the numbers of a CPU, unless its instructions contradict them."""

import platform

import pytest

from deepbench.machine import describe, microarchitecture
from deepbench.reporting.heading import machine_texts

AMX = ["avx512f", "amx_tile", "amx_bf16"]


def x86(family, model, stepping="1"):
    return {"cpu family": str(family), "model": str(model), "stepping": stepping, "microcode": "0x1"}


@pytest.mark.parametrize(
    ("ids", "name"),
    [
        (x86(6, 0x8F, "8"), "Sapphire Rapids"),
        (x86(6, 0xAD), "Granite Rapids"),
        (x86(6, 0x55, "4"), "Skylake"),
        (x86(6, 0x55, "7"), "Cascade Lake"),
        (x86(6, 0x55, "11"), "Cooper Lake"),
        (x86(6, 0x9E, "9"), "Kaby Lake"),
        (x86(6, 0x9E, "10"), "Coffee Lake"),
        (x86(0x17, 0x01), "Zen"),
        (x86(0x17, 0x08), "Zen+"),
        (x86(0x17, 0x31), "Zen 2"),
        (x86(0x19, 0x01), "Zen 3"),
        (x86(0x19, 0x11), "Zen 4"),
        (x86(0x1A, 0x02), "Zen 5"),
        (x86(6, 0x01), None),
        (x86(0x99, 0x11), None),
        ({"cpu family": None, "model": None, "CPU implementer": "0x41", "CPU part": "0xd4f"}, "Neoverse V2"),
        ({"CPU implementer": "0x41", "CPU part": "0xd03 0xd08"}, "Cortex-A53 and Cortex-A72"),
        ({"CPU implementer": "0x41", "CPU part": "0xd03 0xfff"}, None),
        ({"CPU implementer": "what", "CPU part": "0xd4f"}, None),
        ({"cpu family": ["6"], "model": {}}, None),
        ({}, None),
    ],
)
def test_numbers_have_a_name_or_none(ids, name):
    assert name == microarchitecture.of_machine({"cpu_ids": ids, "instructions": []})


def test_no_name_belongs_to_two_models():
    models = [model for known in microarchitecture.INTEL.values() for model in known]
    assert len(set(models)) == len(models)
    for families in microarchitecture.AMD.values():
        of_zen = [set().union(*parts) for name, parts in families.items() if name != "Zen+"]
        assert sum(map(len, of_zen)) == len(set().union(*of_zen))


@pytest.mark.parametrize(
    ("ids", "instructions", "name"),
    [
        (x86(6, 0xA7), AMX, "Sapphire Rapids or newer"),  # a virtual machine with the numbers of Rocket Lake
        (x86(6, 0xA7), ["avx512f"], "Rocket Lake"),
        (x86(6, 0x8F), [*AMX, "amx_fp16"], "Granite Rapids or newer"),
        (x86(6, 0xCF), AMX, "Emerald Rapids"),
        ({}, AMX, "Sapphire Rapids or newer"),
    ],
)
def test_instructions_decide_where_they_contradict_the_numbers(ids, instructions, name):
    machine = {"cpu": "Intel(R) Xeon(R) Processor", "cpu_ids": ids, "instructions": instructions}
    assert name == microarchitecture.of_machine(machine)


def test_instructions_decide_over_a_name_in_a_file():
    machine = {"cpu": "Intel(R) Xeon(R)", "microarchitecture": "Rocket Lake", "instructions": AMX}

    assert "Sapphire Rapids or newer" == microarchitecture.of_machine(machine)
    for name in ("Sapphire Rapids or newer", "Emerald Rapids", "Zen 9"):
        assert name == microarchitecture.of_machine(machine | {"microarchitecture": name})


def test_the_description_of_this_machine_uses_its_instructions(monkeypatch):
    flags = f"flags\t\t: {' '.join(AMX)}"
    cpuinfo = f"model name\t: Intel(R) Xeon(R) Processor\ncpu family\t: 6\nmodel\t\t: 167\nstepping\t: 1\n{flags}\n"
    original = describe.read_text
    monkeypatch.setattr(describe, "read_text", lambda path: cpuinfo if path == "/proc/cpuinfo" else original(path))

    assert "Sapphire Rapids or newer" == describe.describe_machine()["microarchitecture"]


def test_instructions_say_nothing_of_a_cpu_of_another_maker():
    assert microarchitecture.of_machine({"cpu": "AMD EPYC 9999", "cpu_ids": {}, "instructions": AMX}) is None


def test_a_file_may_name_it_or_have_nothing_to_tell():
    assert "Zen 9" == microarchitecture.of_machine({"microarchitecture": "Zen 9", "cpu_ids": x86(0x19, 1)})
    assert None is microarchitecture.of_machine({"cpu": "Power9"})


def test_arm_tells_implementer_and_parts():
    cpuinfo = "".join(f"CPU implementer\t: 0x41\nCPU part\t: {part}\n\n" for part in ("0xd03", "0xd08", "0xd08"))
    ids = describe.cpu_ids(cpuinfo)

    assert ("0x41", "0xd03 0xd08", None) == (ids["CPU implementer"], ids["CPU part"], ids["model"])
    assert "CPU part" not in describe.cpu_ids("vendor_id\t: AuthenticAMD\nmodel\t: 17\n")


def test_this_machine_is_described():
    assert "microarchitecture" in describe.describe_machine()


CORE = "processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n"


@pytest.mark.parametrize(
    ("cpuinfo", "board", "wanted"),
    [
        ("model name\t: AMD EPYC 7B13\n", None, "AMD EPYC 7B13"),
        (CORE, None, "Arm Cortex-A72"),
        (CORE, "Raspberry Pi 4 Model B Rev 1.4\0", "Raspberry Pi 4 Model B Rev 1.4, Arm Cortex-A72"),
        (CORE + "Model\t\t: Raspberry Pi 5\n", None, "Raspberry Pi 5, Arm Cortex-A72"),
        ("model name\t: ARMv8 Processor rev 3 (v8l)\n" + CORE, None, "Arm Cortex-A72"),
        ("model name\t: ARMv8 Processor rev 0 (v8l)\n", None, "ARMv8 Processor rev 0 (v8l)"),
        (CORE.replace("0xd08", "0xfff"), None, platform.machine()),
        ("", None, platform.machine()),
    ],
)
def test_arm_cores_are_called_by_their_names(tmp_path, cpuinfo, board, wanted):
    if board:
        (tmp_path / "proc/device-tree").mkdir(parents=True)
        (tmp_path / "proc/device-tree/model").write_text(board)

    assert wanted == describe.cpu_name(cpuinfo, tmp_path)


def test_the_name_of_a_core_is_said_once():
    machine = {"cpu": "Arm Cortex-A72", "cpu_ids": {"CPU implementer": "0x41", "CPU part": "0xd08"}}

    assert ("Arm Cortex-A72", "") == machine_texts(machine)
    assert machine_texts({"cpu": "Raspberry Pi 4"} | {"cpu_ids": machine["cpu_ids"]})[0] == "Raspberry Pi 4, Cortex-A72"
    about, instructions = machine_texts(
        {**machine, "emulated": "qemu-aarch64", "instructions": ["asimd", "sve", "i8mm"], "sve_bits": 512}
    )
    assert "Arm Cortex-A72, emulated by qemu-aarch64" == about
    assert "asimd sve i8mm (SVE vectors of 512 bits)" == instructions
