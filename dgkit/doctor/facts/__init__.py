# SPDX-License-Identifier: Apache-2.0
"""Facts: parsers of files and of command output, one module per subject.

A module has parsers, which take text and never raise on malformed input, and facts: functions of a
`Machine` that read and parse, passed to `Machine.know`.

- `pci`, `pci_ids`, `config_space`, `lspci`: PCI devices, their names, configuration space.
- `topology`, `link`, `bridges`, `pairs`: paths between devices, PCIe links, ACS, pairs to judge.
- `gpus`, `nvidia_smi`, `nvidia_proc`, `nvidia_topo`: NVIDIA GPUs and their driver.
- `cuda`, `gpudirect`, `peermem`: CUDA, and access to GPU memory by other devices.
- `rdma`, `firmware`, `mlxconfig`, `data_direct`: network cards.
- `bluefield`, `doca`: BlueField DPUs, which side of one this machine is, and DOCA.
- `distribution`, `uname`, `virtual`, `kconfig`, `cmdline`, `versions`: the operating
  system.
"""
