/* SPDX-License-Identifier: Apache-2.0 */
/* Functions and faults that environment variables define. */
#ifndef SOFTDOCA_DEVICES_H
#define SOFTDOCA_DEVICES_H

#include "base.h"
#include "doca_dev.h"

enum softdoca_side { SIDE_HOST = 1, SIDE_DPU = 2, SIDE_BOTH = 3 };
enum softdoca_cap {
	CAP_DMA = 1,
	CAP_EXPORT_PCI = 2,
	CAP_FROM_EXPORT_PCI = 4,
	CAP_COMCH_CLIENT = 8,
	CAP_COMCH_SERVER = 16,
	CAP_ADAPTER = 32, /* an RDMA adapter of this machine; not a word of SOFTDOCA_DEVICES */
};

/* Attributes of a function or a representor. */
struct function {
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE]; /* 0000:03:00.0 */
	char ibdev[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	char iface[DOCA_DEVINFO_IFACE_NAME_SIZE];
	char vuid[DOCA_DEVINFO_VUID_SIZE];
	char net[64]; /* its interface, as SOFTDOCA_NET has it; empty: that of SOFTDOCA_NET */
	enum doca_pci_func_type type;
	uint32_t sf_index, caps;
	uint16_t vhca_id;
	enum softdoca_side side;
};

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
/* Converts "0000:03:00.0" or "03:00.0" to "0000:03:00.0"; returns false for another format. */
bool softdoca_pci_parse(const char *text, char out[DOCA_DEVINFO_PCI_ADDR_SIZE]);
/* Reads SOFTDOCA_FAULTS. Returns the number of rules, or -1 with the reason in the log. */
int softdoca_faults(dg_fault_rule rules[FAULTS_MAX]);

/* Splits "key=value" in place: terminates the key and returns the value, or NULL. */
char *softdoca_split(char *word);
/* Parses a decimal or 0x-hexadecimal number up to `most`. */
bool softdoca_number(const char *text, uint64_t most, uint64_t *out);

#endif
