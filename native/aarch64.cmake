# SPDX-License-Identifier: Apache-2.0
# Cross build for the DPU's Arm cores. Its programs run emulated, as on a BlueField-2 (Cortex-A72, Armv8.0).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
# -L: the loader and libraries of the cross compiler; the tests also load libraries built with them.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu cortex-a72 -L /usr/aarch64-linux-gnu)
