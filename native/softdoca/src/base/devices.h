/* SPDX-License-Identifier: Apache-2.0 */
/* Functions and faults that environment variables define. */
#ifndef SOFTDOCA_DEVICES_H
#define SOFTDOCA_DEVICES_H

#include "softdoca.h"

enum { FUNCTIONS_MAX = 64, FAULTS_MAX = 64 };

/* The functions of both sides, in the order of the file. */
struct functions {
	uint32_t n;
	struct function f[FUNCTIONS_MAX];
	/* Side whose functions this process can open. */
	enum softdoca_side side;
	/* Address of the host's function as seen by the DPU, if not f.pci. By default each side
	 * sees its own function at 0000:03:00.0, and the DPU sees the host's at 0000:3b:00.0. */
	const char *rep_pci;
};

/* Reads SOFTDOCA_SIDE and SOFTDOCA_DEVICES. Errors: BAD_CONFIG, with the reason and its place in
 * the log. */
doca_error_t softdoca_functions(struct functions *out);
/* adapter.c: appends the RDMA adapters whose names no function has. */
void softdoca_list_adapters(struct functions *all);
/* Opens the adapter with this name, and closes it. Errors: those of dg_device_open(). */
int adapter_open(const char *name, struct adapter **out);
int adapter_close(struct adapter *a);
/* Converts "0000:03:00.0" or "03:00.0" to "0000:03:00.0"; returns false for another format. */
bool softdoca_pci_parse(const char *text, char out[DOCA_DEVINFO_PCI_ADDR_SIZE]);
/* Reads SOFTDOCA_FAULTS. Returns the number of rules, or -1 with the reason in the log. */
int softdoca_faults(dg_fault_rule rules[FAULTS_MAX]);

/* Splits "key=value" in place: terminates the key and returns the value, or NULL. */
char *softdoca_split(char *word);
/* Parses a decimal or 0x-hexadecimal number up to `most`. */
bool softdoca_number(const char *text, uint64_t most, uint64_t *out);

#endif
