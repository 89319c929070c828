// SPDX-License-Identifier: Apache-2.0
/* The functions: the default ones, or those of a file with one line of `key=value` words for
 * each. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"

/* A host can import, too: public programs copy from and to memory that the DPU exported. */
#define CAPS_HOST (CAP_DMA | CAP_FROM_EXPORT_PCI | CAP_EXPORT_PCI | CAP_COMCH_CLIENT)
#define CAPS_DPU  (CAP_DMA | CAP_FROM_EXPORT_PCI | CAP_EXPORT_PCI | CAP_COMCH_SERVER)
#define REP_PCI   "0000:3b:00.0"

static const struct function default_host = {
	.pci = "0000:03:00.0",
	.ibdev = "mlx5_0",
	.iface = "ens3f0np0",
	.vuid = "SOFTDOCAHOSTPF0",
	.caps = CAPS_HOST,
	.side = SIDE_HOST,
};
static const struct function default_dpu = {
	.pci = "0000:03:00.0",
	.ibdev = "mlx5_0",
	.iface = "p0",
	.vuid = "SOFTDOCADPUPF0",
	.caps = CAPS_DPU,
	.vhca_id = 1,
	.side = SIDE_DPU,
};

/* The current line, for error messages. */
struct line {
	const char *path;
	unsigned number;
	struct function *f;
	uint32_t given; /* bit mask of keys, by index in the table */
};

char *softdoca_split(char *word)
{
	char *equals = strchr(word, '=');
	if (!equals || equals == word)
		return NULL;
	*equals = '\0';
	return equals + 1;
}

bool softdoca_number(const char *text, uint64_t most, uint64_t *out)
{
	bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	const char *digits = hex ? text + 2 : text;
	if (!*digits || digits[strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789")])
		return false;
	errno = 0;
	unsigned long long n = strtoull(digits, NULL, hex ? 16 : 10);
	if (errno || n > most)
		return false;
	*out = n;
	return true;
}

bool softdoca_pci_parse(const char *text, char out[DOCA_DEVINFO_PCI_ADDR_SIZE])
{
	static const char shape[] = "xxxx:xx:xx.x";
	size_t n = strnlen(text, DOCA_DEVINFO_PCI_ADDR_SIZE), skip = sizeof shape - 1 - n;
	if (n != 12 && n != 7)
		return false;
	memcpy(out, "0000:00:00.0", sizeof shape);
	for (size_t i = 0; i < n; i++) {
		char c = text[i] >= 'A' && text[i] <= 'F' ? (char)(text[i] + 'a' - 'A') : text[i];
		bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
		if (shape[skip + i] == 'x' ? !digit : c != shape[skip + i])
			return false;
		out[skip + i] = c;
	}
	return out[8] <= '1' && out[11] <= '7'; /* 32 devices per bus, 8 functions per device */
}

static bool word_in(const char *text, const char *const *words, uint32_t n, uint32_t *out)
{
	for (*out = 0; *out < n; ++*out)
		if (words[*out] && !strcmp(text, words[*out]))
			return true;
	return false;
}

static bool set_side(struct function *f, const char *value)
{
	static const char *const words[] = {
		[SIDE_HOST] = "host", [SIDE_DPU] = "dpu", [SIDE_BOTH] = "both"};
	uint32_t i;
	bool known = word_in(value, words, 4, &i);
	f->side = known ? (enum softdoca_side)i : f->side;
	return known;
}

static bool set_type(struct function *f, const char *value)
{
	static const char *const words[] = {[DOCA_PCI_FUNC_TYPE_PF] = "pf",
					    [DOCA_PCI_FUNC_TYPE_VF] = "vf",
					    [DOCA_PCI_FUNC_TYPE_SF] = "sf"};
	uint32_t i;
	bool known = word_in(value, words, 3, &i);
	f->type = known ? (enum doca_pci_func_type)i : f->type;
	return known;
}

static bool set_sf(struct function *f, const char *value)
{
	uint64_t n;
	bool good = softdoca_number(value, UINT32_MAX, &n);
	f->sf_index = good ? (uint32_t)n : 0;
	return good;
}

/* Parses a list of dma, export, import, client and server; it may be empty. */
static bool set_caps(struct function *f, const char *value)
{
	static const char *const words[] = {"dma", "export", "import", "client", "server"};
	char word[16];
	uint32_t i;
	f->caps = 0;
	while (*value) {
		size_t n = strcspn(value, ",");
		if (!n || n >= sizeof word)
			return false;
		memcpy(word, value, n);
		word[n] = '\0';
		if (!word_in(word, words, 5, &i))
			return false;
		f->caps |= 1u << i;
		value += n + (value[n] == ',');
	}
	return true;
}

static bool set_pci(struct function *f, const char *value)
{
	return softdoca_pci_parse(value, f->pci);
}

static bool set_text(char *to, size_t cap, const char *value)
{
	size_t n = strnlen(value, cap);
	if (!n || n == cap)
		return false;
	memcpy(to, value, n + 1);
	return true;
}

static bool set_ibdev(struct function *f, const char *value)
{
	return set_text(f->ibdev, sizeof f->ibdev, value);
}

static bool set_iface(struct function *f, const char *value)
{
	return set_text(f->iface, sizeof f->iface, value);
}

static bool set_vuid(struct function *f, const char *value)
{
	return set_text(f->vuid, sizeof f->vuid, value);
}

static bool set_net(struct function *f, const char *value)
{
	return set_text(f->net, sizeof f->net, value);
}

enum { KEY_SIDE, KEY_PCI, KEY_CAPS = 7, N_KEYS = 9 };
static const struct {
	const char *name;
	bool (*set)(struct function *f, const char *value);
	const char *wanted;
} keys[N_KEYS] = {
	{"side", set_side, "host, dpu or both"},
	{"pci", set_pci, "an address like 0000:03:00.0"},
	{"ibdev", set_ibdev, "1 to 63 characters"},
	{"iface", set_iface, "1 to 255 characters"},
	{"vuid", set_vuid, "1 to 127 characters"},
	{"type", set_type, "pf, vf or sf"},
	{"sf", set_sf, "a number"},
	{"caps", set_caps, "a list of dma,export,import,client,server"},
	{"net", set_net, "1 to 63 characters"},
};

static doca_error_t set_key(struct line *l, char *word)
{
	char *value = softdoca_split(word);
	if (!value)
		return MISCONFIGURED("%s line %u: '%s' is not key=value", l->path, l->number, word);
	for (uint32_t i = 0; i < N_KEYS; i++) {
		if (strcmp(word, keys[i].name))
			continue;
		if (l->given & 1u << i)
			return MISCONFIGURED("%s line %u: key %s is repeated", l->path, l->number,
					     word);
		l->given |= 1u << i;
		return keys[i].set(l->f, value)
			       ? DOCA_SUCCESS
			       : MISCONFIGURED("%s line %u: %s='%s' is not %s", l->path, l->number,
					       word, value, keys[i].wanted);
	}
	return MISCONFIGURED("%s line %u: key %s (value '%s') is unknown: the keys are side pci "
			     "ibdev iface vuid type sf "
			     "caps net",
			     l->path, l->number, word, value);
}

/* Derives the attributes that a line does not set. */
static doca_error_t complete(struct line *l, uint32_t index)
{
	struct function *f = l->f;
	if (!(l->given & 1u << KEY_SIDE) || !(l->given & 1u << KEY_PCI))
		return MISCONFIGURED("%s line %u: key %s is missing", l->path, l->number,
				     l->given & 1u << KEY_SIDE ? "pci" : "side");
	if (!(l->given & 1u << KEY_CAPS))
		f->caps =
			(f->side & SIDE_HOST ? CAPS_HOST : 0) | (f->side & SIDE_DPU ? CAPS_DPU : 0);
	if (!*f->ibdev)
		snprintf(f->ibdev, sizeof f->ibdev, "mlx5_%u", index);
	if (!*f->iface)
		snprintf(f->iface, sizeof f->iface, "eth%u", index);
	if (!*f->vuid)
		snprintf(f->vuid, sizeof f->vuid, "SOFTDOCA%uF%u", (unsigned)f->side, index);
	f->vhca_id = (uint16_t)index;
	return DOCA_SUCCESS;
}

static doca_error_t read_line(struct functions *out, struct line *l, char *text)
{
	char *rest = NULL, *word;
	text[strcspn(text, "#")] = '\0';
	word = strtok_r(text, " \t\r\n", &rest);
	if (!word)
		return DOCA_SUCCESS;
	if (out->n == FUNCTIONS_MAX)
		return MISCONFIGURED("%s line %u: more than %d functions", l->path, l->number,
				     FUNCTIONS_MAX);
	l->f = &out->f[out->n];
	l->given = 0;
	memset(l->f, 0, sizeof *l->f);
	for (; word; word = strtok_r(NULL, " \t\r\n", &rest)) {
		doca_error_t error = set_key(l, word);
		if (error != DOCA_SUCCESS)
			return error;
	}
	doca_error_t error = complete(l, out->n);
	out->n += error == DOCA_SUCCESS;
	return error;
}

static doca_error_t read_file(struct functions *out, const char *path, FILE *file)
{
	struct line l = {.path = path};
	doca_error_t error = DOCA_SUCCESS;
	char text[1024];
	while (error == DOCA_SUCCESS && fgets(text, sizeof text, file)) {
		l.number++;
		if (!strchr(text, '\n') && !feof(file))
			error = MISCONFIGURED("%s line %u: longer than %zu bytes", path, l.number,
					      sizeof text - 2);
		else
			error = read_line(out, &l, text);
	}
	if (error == DOCA_SUCCESS && ferror(file))
		error = MISCONFIGURED("SOFTDOCA_DEVICES=%s cannot be read: %s", path,
				      strerror(errno));
	return error;
}

static void default_functions(struct functions *out)
{
	out->rep_pci = REP_PCI;
	out->n = 2;
	out->f[0] = default_host;
	out->f[1] = default_dpu;
	if (out->side != SIDE_BOTH)
		return;
	out->n = 1;
	out->f[0].side = SIDE_BOTH;
	out->f[0].caps = CAPS_HOST | CAPS_DPU;
}

doca_error_t softdoca_functions(struct functions *out)
{
	struct function of_side = {.side = SIDE_BOTH};
	const char *side = getenv("SOFTDOCA_SIDE"), *path = getenv("SOFTDOCA_DEVICES");
	*out = (struct functions){0};
	if (side && *side && !set_side(&of_side, side))
		return MISCONFIGURED("SOFTDOCA_SIDE='%s' is not %s", side, keys[KEY_SIDE].wanted);
	out->side = of_side.side;
	if (!path || !*path) {
		default_functions(out);
		return DOCA_SUCCESS;
	}
	FILE *file = fopen(path, "re");
	if (!file)
		return MISCONFIGURED("SOFTDOCA_DEVICES=%s cannot be opened: %s", path,
				     strerror(errno));
	doca_error_t error = read_file(out, path, file);
	fclose(file);
	return error;
}
