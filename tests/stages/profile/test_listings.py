"""What other tools print of a fleet: the right devices, and nothing made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from artifacts.errors import InputError
from artifacts.topology import Topology
from artifacts.units import GIB, MIB
from flows.cluster import profile_parameters
from stages.profile.basis import anchored
from stages.profile.devices.found import FoundDevice
from stages.profile.listings import kind_of, read_listings
from stages.profile.listings.nvidia import read_smi
from stages.profile.listings.schema import Listings
from stages.profile.listings.slurm import expand
from stages.profile.listings.topo import read_topo
from stages.profile.parameters import ListingsCluster, ProfileParameters
from tests.stages.profile.bench import Bench

SAMPLES = Path(__file__).parent / "listings"
LINKS = {"same_zone": {"latency_ms": 0.1, "bandwidth_gbit_per_s": 100}, "between_regions": {"latency_ms": 15, "bandwidth_gbit_per_s": 5}}
HOST = {"host_memory_gib": 128, "cpus": 64}


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


def files(*names: str) -> list[dict[str, Any]]:
    return [{"text": sample(n), "where": n} for n in names]


def fleet(*names: str, **more: Any) -> tuple[Topology, tuple[str, ...]]:
    draft = read_listings(Listings.model_validate({"name": "fleet", "files": files(*names), "links": LINKS, **more}))
    return anchored(draft, []), draft.notes


def smi(name: str) -> tuple[FoundDevice, ...]:
    return read_smi(sample(name), where=name, machine="m").devices


@pytest.mark.parametrize(("name", "expected"), [
    ("a100-mig.xml", [("NVIDIA A100-SXM4-80GB MIG 14SM", 19968)] * 4 + [("NVIDIA A100-SXM4-80GB", 81920 - 869)]),
    ("h100.xml", [("NVIDIA H100 80GB HBM3", 81559)] * 2),
    ("l40s.xml", [("NVIDIA L40S", 46068)]),
    ("l4.xml", [("NVIDIA L4", 23034 - 434)] * 2),
    ("a10g.xml", [("NVIDIA A10G", 23028 - 435)]),
    ("t4.xml", [("Tesla T4", 15360 - 388)]),
    ("v100.xml", [("Tesla V100S-PCIE-32GB", 32510), ("Tesla V100-SXM2-32GB", 32510)]),
    ("rtx-3090.xml", [("NVIDIA GeForce RTX 3090", 24576 - 450)]),
    ("rtx-4090.xml", [("NVIDIA GeForce RTX 4090", 24564)]),
    ("rtx-4070-laptop.xml", [("NVIDIA GeForce RTX 4070 Laptop GPU", 8188 - 390)]),
    ("gb10.xml", [("NVIDIA GB10", None)]),
])
def test_each_kind_of_gpu_is_read_with_the_memory_a_program_may_use(name: str, expected: list[tuple[str, int | None]]) -> None:
    assert kind_of(sample(name)) == "nvidia-smi"
    assert [(d.name, d.memory_bytes and d.memory_bytes // MIB) for d in smi(name)] == expected
    assert len({d.uuid for d in smi(name)}) == len(expected)


def test_formats_follow_the_architecture_or_the_catalogue_and_bf16_is_not_assumed() -> None:
    assert "bf16" in smi("a100-mig.xml")[0].dtypes and "bf16" in smi("gb10.xml")[0].dtypes and "bf16" in smi("rtx-4070-laptop.xml")[0].dtypes
    assert smi("t4.xml")[0].dtypes == ("fp16", "fp32")
    unnamed, known = smi("v100.xml")  # the driver of that time named no architecture
    assert "bf16" not in unnamed.dtypes and "bf16" not in known.dtypes


def test_mig_instances_have_their_own_memory_their_parent_and_their_part() -> None:
    first, *_, whole = smi("a100-mig.xml")
    assert first.parent == whole.uuid.replace("000002", "000001") and first.uuid == f"MIG-{first.parent}/3/0"
    assert first.part == pytest.approx(14 / 108) and whole.part is None
    topology, _ = fleet("a100-mig.xml", machines=[{"name": "a100-mig", **HOST}])
    instance, gpu = topology.devices[0], topology.devices[-1]
    assert instance.mig_parent == first.parent and instance.memory_bytes == 19968 * MIB
    assert instance.achieved_flops_per_s.value == pytest.approx(gpu.achieved_flops_per_s.value * 14 / 108)
    assert instance.memory_bandwidth_bytes_per_s.value == pytest.approx(gpu.memory_bandwidth_bytes_per_s.value * 19968 / 81920)
    assert instance.peak_flops_per_s is None and instance.achieved_flops_per_s.provenance == "assumed"
    assert instance.device_class != gpu.device_class == "A100-SXM4-80GB"


def test_clocks_and_what_holds_them_down_are_noted() -> None:
    slow, idle = smi("h100.xml")
    assert slow.condition == "SM 1980 of 1980 MHz, slowed by hw slowdown and hw thermal slowdown"
    assert idle.condition == "SM 1980 of 1980 MHz", "idle is no fault"
    assert smi("rtx-4070-laptop.xml")[0].condition == "SM 675 of 3105 MHz", "what held it down once (the counters) says nothing of now"
    assert smi("t4.xml")[0].condition == "SM 585 of 1590 MHz" and smi("rtx-4090.xml")[0].condition == ""
    _, notes = fleet("h100.xml", machines=[{"name": "h100", **HOST}])
    assert any(n.startswith("h100: GPU 0 (NVIDIA H100 80GB HBM3) was not at its full clocks") for n in notes)


def test_unified_memory_is_the_hosts_in_equal_parts_and_said_and_otherwise_unknown() -> None:
    topology, notes = fleet("gb10.xml", machines=[{"name": "gb10", "host_memory_gib": 120, "cpus": 20}])
    assert topology.devices[0].memory_bytes == int(120 * GIB * 0.9)
    assert topology.devices[0].achieved_flops_per_s.value == 92.3e12 and topology.devices[0].peak_flops_per_s is None
    assert any("gb10.gpu-0 (NVIDIA GB10) has the host's memory: 90% of it" in n for n in notes)
    strange = {"text": sample("gb10.xml").replace("NVIDIA GB10", "NVIDIA Orin Next"), "where": "orin.xml"}
    given = {"name": "f", "files": [strange], "machines": [{"name": "orin", "host_memory_gib": 120, "cpus": 20}]}
    with pytest.raises(InputError, match="no GPU that can be planned on") as refusal:
        read_listings(Listings.model_validate(given))
    assert "its compute rate and memory bandwidth are not known here" in refusal.value.message
    rates = {"gpu": "NVIDIA Orin Next", "achieved_tflops": 60, "memory_gb_per_s": 200}
    assert read_listings(Listings.model_validate({**given, "gpus": [rates]})).devices[0].memory_bytes == int(120 * GIB * 0.9)
    silent = sample("l4.xml").replace("23034 MiB", "N/A", 1)  # not a part with unified memory: then nobody knows
    draft = read_listings(Listings.model_validate({"name": "f", "files": [{"text": silent, "where": "l4.xml"}], "machines": [{"name": "l4", **HOST}]}))
    assert [d.id for d in draft.devices] == ["l4.gpu-1"]
    assert any(n.startswith("l4.gpu-0 (NVIDIA L4) is left out: its memory is not known here") for n in draft.notes)


def test_a_gpu_that_nobody_knows_is_left_out_or_has_the_rates_that_are_given() -> None:
    strange = {"text": sample("v100.xml").replace("Tesla V100S-PCIE-32GB", "Tesla Unheard-32GB"), "where": "v100.xml"}
    given = {"name": "fleet", "files": [strange], "links": LINKS, "machines": [{"name": "v100", **HOST}]}
    draft = read_listings(Listings.model_validate(given))
    assert [d.name for d in draft.devices] == ["Tesla V100-SXM2-32GB"] and draft.devices[0].id == "v100.gpu-1"
    assert any("v100.gpu-0 (Tesla Unheard-32GB) is left out" in n for n in draft.notes)
    rates = [{"gpu": "Tesla Unheard-32GB", "achieved_tflops": 90, "memory_gb_per_s": 900}]
    device = read_listings(Listings.model_validate({**given, "gpus": rates})).devices[0]
    assert device.achieved_flops_per_s.value == 9e13 and device.memory_bytes == 32510 * MIB


def test_what_no_file_says_of_the_host_is_asked_for() -> None:
    with pytest.raises(InputError, match="machine l4: its host's memory and CPUs are in none of the files") as refusal:
        fleet("l4.xml")
    assert "machines: [{name: l4, host_memory_gib: …, cpus: …}]" in refusal.value.fix
    with pytest.raises(InputError, match="machines: other: no file lists such a machine"):
        fleet("l4.xml", machines=[{"name": "l4", **HOST}, {"name": "other", **HOST}])


def test_topo_says_how_the_gpus_of_a_machine_are_joined() -> None:
    assert kind_of(sample("dgx-a100.topo.txt")) == "nvidia-smi topo"
    links = read_topo(sample("dgx-a100.topo.txt"), where="t", machine="m")
    assert set(links.joined.values()) == {"NV12"} and len(links.joined) == 12
    _, notes = fleet("scontrol.txt", "dgx-a100.topo.txt")
    assert "dgx-a100: no file lists such a machine, so how its GPUs are joined is not used" in notes and not any("joined by" in n for n in notes)
    named = [*files("scontrol.txt"), {"text": sample("dgx-a100.topo.txt"), "where": "topo", "machine": "gpu01"}]
    draft = read_listings(Listings.model_validate({"name": "f", "files": named, "links": LINKS}))
    inside = next(k for k in draft.links if (k.source, k.target) == ("gpu01", "gpu01"))
    assert inside.bandwidth_bytes_per_s == pytest.approx(12 * 25e9 * 0.63) and inside.provenance == "assumed"
    assert "gpu01: GPUs are joined by 12 NVLinks" in draft.notes
    with pytest.raises(InputError, match="the row of GPU1 is not whole"):
        read_topo(sample("dgx-a100.topo.txt").replace("GPU1	NV12	 X 	NV12	NV12", "GPU1	 X "), where="t", machine="m")


def test_pcie_joins_at_its_slowest_pair() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-63\t0\nGPU1\tPHB\t X \t0-63\t0\n"
    draft = read_listings(Listings.model_validate({"name": "f", "machines": [{"name": "l4", **HOST}],
                                                   "files": [*files("l4.xml"), {"text": text, "where": "l4.topo.txt"}]}))
    assert "l4: GPUs are joined by PCIe (PHB)" in draft.notes
    assert draft.links[0].bandwidth_bytes_per_s == pytest.approx(32e9 * 0.63)


def test_slurm_nodes() -> None:
    topology, notes = fleet("scontrol.txt")
    assert [(m.name, m.cpus, m.host_memory_bytes // MIB) for m in topology.machines] == [("gpu01", 128, 1031000), ("gpu02", 64, 515000)]
    assert [d.device_class for d in topology.devices] == ["A100-SXM4-80GB"] * 4 + ["L40S-48GB"] * 2 + ["L4-24GB"] * 2
    assert [(u.machine, u.reason) for u in topology.unreachable] == [("gpu03", "SLURM says idle+drain")]
    assert "login1 is left out: it has no GPU" in notes
    one_line = "\n".join(" ".join(record.split()) for record in sample("scontrol.txt").split("\n\n"))
    again = read_listings(Listings.model_validate({"name": "fleet", "files": [{"text": one_line}], "links": LINKS}))
    assert anchored(again, []).fingerprint == topology.fingerprint, "scontrol -o prints the same on one line a node"


def test_slurms_mig_instances_and_words_that_could_be_several_gpus() -> None:
    ready = sample("scontrol.txt").replace("IDLE+DRAIN", "IDLE")
    with pytest.raises(InputError, match=r"node gpu03: which GPU 'nvidia_a100' is cannot be told \(it could be A100-SXM4-40GB") as refusal:
        read_listings(Listings.model_validate({"name": "f", "files": [{"text": ready}], "links": LINKS}))
    assert refusal.value.fix == "give types: {nvidia_a100: A100-SXM4-40GB}"
    draft = read_listings(Listings.model_validate({"name": "f", "files": [{"text": ready}], "links": LINKS, "types": {"nvidia_a100": "A100-SXM4-80GB"}}))
    instances = [d for d in draft.devices if d.machine == "gpu03"]
    assert len(instances) == 7 and {d.memory_bytes for d in instances} == {10 * 10**9} and all(d.mig_parent for d in instances)


@pytest.mark.parametrize(("gres", "expected"), [
    ("gpu:l4:2(S:0),gpu:l40s:2(S:1)", ["L4-24GB"] * 2 + ["L40S-48GB"] * 2),
    ("gpu:l4:2(S:0-1,3)", ["L4-24GB"] * 2),
    ("gpu:nvidia_l4:2(IDX:0-1),mps:400,shard:l4:8", ["L4-24GB"] * 2),
    ("gpu:nvidia_geforce_rtx_3090:4(S:0-1)", ["RTX-3090-24GB"] * 4),
    ("gpu:l4", ["L4-24GB"]),
    ("gpu:l4:1(S:0),gpu:tesla_t4:1(S:1),gpu:l4:1(S:2)", ["L4-24GB", "T4-16GB", "L4-24GB"]),
])
def test_slurms_generic_resources_by_type_count_and_socket(gres: str, expected: list[str]) -> None:
    record = f"NodeName=n1 CPUTot=64 RealMemory=515000 State=IDLE Gres={gres}"
    draft = read_listings(Listings.model_validate({"name": "f", "files": [{"text": record, "where": "n"}]}))
    assert [d.device_class for d in draft.devices] == expected and [d.id for d in draft.devices] == [f"n1.gpu-{i}" for i in range(len(expected))]


def test_a_range_of_names_in_slurms_configuration_is_as_many_nodes() -> None:
    record = "NodeName=gpu[01-03] CPUs=64 RealMemory=515000 Gres=gpu:l4:2 State=UNKNOWN\n"
    draft = read_listings(Listings.model_validate({"name": "f", "links": LINKS, "files": [{"text": record.replace(" State=UNKNOWN", ""), "where": "slurm.conf"}]}))
    assert [m.name for m in draft.machines] == ["gpu01", "gpu02", "gpu03"] and len(draft.devices) == 6


def test_sinfo_lists_a_node_once_and_ranges_are_spelt_out() -> None:
    topology, _ = fleet("sinfo.txt")
    assert [m.name for m in topology.machines] == ["gpu01", "gpu02", "gpu03"]
    assert [u.machine for u in topology.unreachable] == ["gpu04"] and len(topology.devices) == 8
    assert expand("gpu[01-03,07],login1", where="x") == ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]
    assert expand("r[1-2]n[1-2]", where="x") == ["r1n1", "r1n2", "r2n1", "r2n2"]
    with pytest.raises(InputError, match="not a list of hosts"):
        expand("gpu[1-99999999]", where="x")


def test_kubernetes_nodes() -> None:
    topology, notes = fleet("nodes.yaml")
    assert [(m.name, m.region, m.zone, m.cpus) for m in topology.machines] == [
        ("pool-a-0", "eu-west", "eu-west-1", 23), ("pool-b-0", "eu-north", "", 8), ("pool-c-0", "eu-north", "", 24)]
    assert [(d.id, d.device_class) for d in topology.devices][:3] == [
        ("pool-a-0.gpu-0", "A100-SXM4-40GB"), ("pool-a-0.gpu-1", "A100-SXM4-40GB"), ("pool-b-0.gpu-0", "T4-16GB")]
    assert "pool-b-0: nvidia.com/gpu: 4 shares of 1 GPUs, which count as GPUs" in notes
    mig = topology.devices[3]
    assert mig.name == "NVIDIA A100-SXM4-40GB MIG 3g.20gb" and mig.memory_bytes == 20096 * MIB and len(topology.devices) == 5
    assert mig.achieved_flops_per_s.value == pytest.approx(topology.devices[0].achieved_flops_per_s.value * 3 / 7)
    assert [(u.machine, u.reason) for u in topology.unreachable] == [("pool-d-0", "Kubernetes says it is not ready")]
    assert "control-plane is left out: it has no GPU" in notes


def test_kubernetes_node_with_two_makers_gpus_and_odd_quantities() -> None:
    node = {"kind": "Node", "metadata": {"name": "mix", "labels": {"nvidia.com/gpu.product": "NVIDIA-GB10", "nvidia.com/gpu.replicas": "many",
                                                                   "amd.com/gpu.product-name": "AMD_Instinct_MI300X"}},
            "status": {"allocatable": {"cpu": "7.5", "memory": "30.5Gi", "nvidia.com/gpu": 1, "amd.com/gpu": "1", "ephemeral-storage": "x"},
                       "conditions": None}}
    given = {"name": "f", "links": {"inside_machine": LINKS["same_zone"]}, "files": [{"text": json.dumps({"kind": "List", "items": [None, node]}), "where": "n"}]}
    draft = read_listings(Listings.model_validate(given))
    assert [(d.vendor, d.device_class) for d in draft.devices] == [("amd", "MI300X-192GB"), ("nvidia", "GB10-27GiB")]
    assert (draft.machines[0].cpus, draft.machines[0].host_memory_bytes) == (7, int(30.5 * GIB))


def test_amd_smi() -> None:
    topology, notes = fleet("mi300x.json", machines=[{"name": "mi300x", **HOST}])
    (device,) = topology.devices
    assert (device.vendor, device.name, device.memory_bytes, device.compute_capability) == ("amd", "AMD Instinct MI300X", 196592 * MIB, "gfx942")
    assert any("mi300x.gpu-1 (AMD Instinct MI300X) is left out: its memory is not known here" in n for n in notes)


def test_a_driver_knows_devices_and_a_scheduler_the_host() -> None:
    both = [{"text": sample("l4.xml"), "where": "gpu02.xml"}, *files("scontrol.txt")]
    draft = read_listings(Listings.model_validate({"name": "f", "files": both, "links": LINKS}))
    machine = next(m for m in draft.machines if m.name == "gpu02")
    assert (machine.cpus, machine.host_memory_bytes) == (64, 515000 * MIB)
    assert [d.name for d in draft.devices if d.machine == "gpu02"] == ["NVIDIA L4"] * 2, "the driver's word, not the scheduler's count"


@pytest.mark.parametrize(("text", "message"), [
    ("hello", "is not the output of a tool that is known here"),
    ("name: x\nmachines: []\n", "is an inventory"),
    ("<?xml version='1.0'?><other/>", "is not the output of a tool"),
    ('<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><nvidia_smi_log><gpu>&b;</gpu></nvidia_smi_log>',
     "declares XML entities"),
    ('<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a SYSTEM "file:///etc/hostname">]><nvidia_smi_log>&a;</nvidia_smi_log>',
     "declares XML entities"),
    ("<nvidia_smi_log><gpu>", "is not whole XML"),
    ("<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>", "lists no GPU"),
    ('{"kind": "List", "items": []}', "lists no node"),
    ("NODELIST GRES CPUS\nn1 gpu:l4:1\n", "line 2: 2 columns under 3 headings"),
    ("NODELIST GRES CPUS MEMORY\ngpu[3-1] gpu:l4:1 8 1000\n", "'gpu[3-1]' is not a list of hosts"),
    ("NodeName=n1 CPUTot=8 RealMemory=1000 Gres=gpu:l4:999999999", "x.txt: node n1: 999999999 GPUs in one machine"),
    ("NodeName=n{1} CPUTot=8 RealMemory=1000 Gres=gpu:l4:1", "x.txt: 'n{1}' is not the name of a machine"),
    ('{"gpu_data": 5}', "x.txt: gpu_data is no list of GPUs"),
    ('{"gpu_data": [3]}', "x.txt lists no GPU"),
    ('{"kind": "List", "items": [{"kind"', "x.txt is not whole JSON (Expecting ':' delimiter: line 1 column 35"),
    ("", "x.txt is empty"),
    ("N\0V\0I\0", "x.txt is not plain text (UTF-16 without its mark?)"),
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "x.txt is what nvidia-smi says where no driver runs"),
    ("==============NVSMI LOG==============\n\nTimestamp : now\n", "x.txt is what nvidia-smi prints for people"),
    ("+-------+\n| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15 |\n", "x.txt is what nvidia-smi prints for people"),
])
def test_what_is_no_listing_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_listings(Listings.model_validate({"name": "f", "files": [{"text": text, "where": "x.txt"}]}))
    assert message in refusal.value.message and refusal.value.fix and "\n" not in refusal.value.line


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_one_line_that_says_where(part: float) -> None:
    text = sample("l4.xml")
    with pytest.raises(InputError, match=r"l4\.xml is not whole XML \(line \d+: "):
        read_smi(text[:int(len(text) * part)], where="l4.xml", machine="m")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_may_be_as_windows_writes_it(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "l4.xml"
    path.write_bytes(sample("l4.xml").replace("\n", "\r\n").replace('"1.0" ?', f'"1.0" encoding="{encoding[:6]}"?').encode(encoding))
    (tmp_path / "fleet.yaml").write_text("files: [l4.xml]\nmachines: [{name: l4, host_memory_gib: 128, cpus: 64}]\n")
    cluster = ProfileParameters.model_validate(profile_parameters(str(tmp_path / "fleet.yaml"))).cluster
    assert isinstance(cluster, ListingsCluster) and len(read_listings(cluster).devices) == 2


def test_memory_that_cannot_be_is_unknown() -> None:
    (first, second) = read_smi(sample("l4.xml").replace("434 MiB", "99999 MiB", 1), where="x", machine="m").devices
    assert first.memory_bytes is None and second.memory_bytes


def test_through_the_stage_and_by_content_in_place_of_an_inventory(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    status, outcome, _ = bench.run("v1", {"cluster": {"kind": "files", "name": "hpc", "files": files("scontrol.txt"), "links": LINKS}})
    assert status == 0, outcome
    assert (outcome.summary["machines"], outcome.summary["devices"], outcome.summary["unreachable"]) == (2, 8, ["gpu03"])
    one = sample("nodes.yaml")
    status, outcome, _ = bench.run("v2", {"cluster": {"kind": "inventory", "text": one, "where": "nodes.yaml"}})
    assert status == 2 and outcome.kind == "InputError" and "links.between_regions is missing" in outcome.message
    single = sample("sinfo.txt").splitlines()
    status, outcome, _ = bench.run("v3", {"cluster": {"kind": "inventory", "text": "\n".join(single[:2]), "where": "sinfo.txt"}})
    assert status == 0 and outcome.summary["devices"] == 4 and bench.topology("v3").cluster.name == "sinfo"
