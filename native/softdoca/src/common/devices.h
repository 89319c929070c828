/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment describes: the functions of this process's side, and the engine's faults. */
#ifndef SOFTDOCA_DEVICES_H
#define SOFTDOCA_DEVICES_H

#include "softdoca.h"

enum { FUNCTIONS_MAX = 64, FAULTS_MAX = 64 };

/* In the order of the file, of both sides. */
struct functions {
	uint32_t n;
	struct function f[FUNCTIONS_MAX];
	/* Which of them this process may open. */
	enum softdoca_side side;
	/* Where the DPU says that the host's function lies, if that is not f.pci. By default
	 * both sides see their own at 0000:03:00.0, and the DPU the host's at 0000:3b:00.0. */
	const char *rep_pci;
};

/* By SOFTDOCA_SIDE and SOFTDOCA_DEVICES. BAD_CONFIG: what is wrong, and where, stands in the
 * log. */
doca_error_t softdoca_functions(struct functions *out);
/* "0000:03:00.0" or "03:00.0" as "0000:03:00.0"; false: it is neither. */
bool softdoca_pci_parse(const char *text, char out[DOCA_DEVINFO_PCI_ADDR_SIZE]);
/* By SOFTDOCA_FAULTS; gives how many, or -1: what is wrong stands in the log. */
int softdoca_faults(dg_fault_rule rules[FAULTS_MAX]);

/* Two helpers of both readers. "key=value" in place: ends the key and gives its value, or NULL. */
char *softdoca_split(char *word);
/* Digits only, or 0x and hexadecimal ones, at most `most`. */
bool softdoca_number(const char *text, uint64_t most, uint64_t *out);

#endif
