// SPDX-License-Identifier: Apache-2.0
/*
 * libdoca_X.so.2: empty, and depends on libdoca_X.so.3. The dynamic linker searches a function by
 * its name and node in every loaded library, so it finds those of the .so.3.
 */
typedef int iso_c_forbids_an_empty_file;
