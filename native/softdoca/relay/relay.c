// SPDX-License-Identifier: Apache-2.0
/*
 * libdoca_X.so.2: nothing but its need of libdoca_X.so.3. The dynamic linker looks for a function by its
 * name and its node in every library that the program brings in, so it finds those of the .so.3.
 */
typedef int iso_c_forbids_an_empty_file;
