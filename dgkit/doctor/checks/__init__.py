"""The checks, one module per family; registry.FAMILIES lists the families in order.

A check reads nothing itself: it gets facts by `case.machine.know(...)`, or a file or a command by
`case.machine.read`, and yields findings. Modules with an underscore hold what families share:

    _any_of             several cards, of which one suffices
    _bluefield_mode     verdict on a BlueField's mode, and the command that changes it
    _data_direct        ACS and IOMMU groups with ConnectX-8 Data Direct
    _gpunetio           requirements of the parts of DOCA GPUNetIO
    _link_type          link types of the NICs
    _no_driver          NVIDIA drivers that are not loaded or do not answer
    _per_gpu            a check of every GPU
    _power_cycle        commands of a power cycle
"""
