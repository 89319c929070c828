# SPDX-License-Identifier: Apache-2.0
"""The checks, one module per family; registry.FAMILIES lists the families in order.

A check does not access the machine itself: it gets facts by `case.machine.know(...)` and files or
command output by `case.machine.read`, and returns a finding or yields several. Modules that begin
with an underscore contain code that several families share:

    _card_settings      mode and link types of cards, and the commands that change them
    _data_direct        ACS and IOMMU groups with ConnectX-8 Data Direct
    _devices            findings on several devices: GPUs, cards, devices of a virtual machine
"""
