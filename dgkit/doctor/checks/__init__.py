"""The checks, one module per family; registry.FAMILIES lists the families in order.

A check does not access the machine itself: it gets facts by `case.machine.know(...)` and files or
command output by `case.machine.read`, and returns a finding or yields several. Modules that begin
with an underscore contain code that several families share:

    _bluefield_mode     verdict on a BlueField's mode, and the command that changes it
    _data_direct        ACS and IOMMU groups with ConnectX-8 Data Direct
    _devices            findings on several devices: GPUs, cards, devices of a virtual machine
    _gpunetio           requirements of the parts of DOCA GPUNetIO
    _link_type          link types of the NICs
    _no_driver          NVIDIA drivers that are not loaded or do not answer
"""
