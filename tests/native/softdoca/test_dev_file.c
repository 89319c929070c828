// SPDX-License-Identifier: Apache-2.0
/* SOFTDOCA_DEVICES: functions described by a file. */
#define CHECK_DETAIL() softdoca_last_refusal()
const char *softdoca_last_refusal(void);
#include "check.h"

#include "doca_dev.h"
#include "doca_dma.h"
#include "doca_mmap.h"

static char path[64];

/* Returns the list of functions that a file with this text describes; *n is their number. */
static doca_error_t described(const char *text, size_t size, struct doca_devinfo ***list,
			      uint32_t *n)
{
	snprintf(path, sizeof path, "/tmp/softdoca-devices-%d", (int)getpid());
	FILE *f = fopen(path, "w");
	CHECK(f && fwrite(text, 1, size, f) == size && !fclose(f));
	setenv("SOFTDOCA_DEVICES", path, 1);
	doca_error_t error = doca_devinfo_create_list(list, n);
	CHECK_EQ(unlink(path), 0);
	return error;
}

static const char world[] =
	"# two functions of the host, two of the DPU\n"
	"\n"
	"side=host pci=0000:03:00.0 ibdev=mlx5_0 iface=ens3f0np0 vuid=HOSTPF type=pf\n"
	"side=host pci=0000:03:00.2 ibdev=mlx5_2 iface=ens3f0v0 vuid=HOSTVF type=vf caps=dma #\n"
	"  side=dpu pci=0000:03:00.0 ibdev=mlx5_0 iface=p0 caps=dma,import,server\r\n"
	"side=dpu pci=03:00.1 type=sf sf=4 ibdev=mlx5_3\tiface=en3f0pf0sf4 caps=";

TEST(a_file_describes_each_side_s_functions)
{
	struct doca_devinfo **list;
	uint32_t n, sf;
	uint8_t can, equal;
	char name[DOCA_DEVINFO_IFACE_NAME_SIZE];
	enum doca_pci_func_type type;
	setenv("SOFTDOCA_SIDE", "host", 1);
	CHECK_EQ(described(world, sizeof world - 1, &list, &n), DOCA_SUCCESS);
	CHECK_EQ(n, 2);
	CHECK_EQ(doca_devinfo_get_iface_name(list[1], name, sizeof name), DOCA_SUCCESS);
	CHECK(!strcmp(name, "ens3f0v0"));
	CHECK_EQ(doca_devinfo_get_pci_func_type(list[1], &type), DOCA_SUCCESS);
	CHECK_EQ(type, DOCA_PCI_FUNC_TYPE_VF);
	CHECK_EQ(doca_mmap_cap_is_export_pci_supported(list[0], &can), DOCA_SUCCESS);
	CHECK_EQ(can, 1);
	CHECK_EQ(doca_mmap_cap_is_export_pci_supported(list[1], &can), DOCA_SUCCESS);
	CHECK_EQ(can, 0);
	setenv("SOFTDOCA_SIDE", "dpu", 1);
	CHECK_EQ(described(world, sizeof world - 1, &list, &n), DOCA_SUCCESS);
	CHECK_EQ(n, 2);
	CHECK_EQ(doca_devinfo_get_sf_index(list[1], &sf), DOCA_SUCCESS);
	CHECK_EQ(sf, 4);
	CHECK_EQ(doca_devinfo_is_equal_pci_addr(list[1], "0000:03:00.1", &equal), DOCA_SUCCESS);
	CHECK_EQ(equal, 1);
	CHECK_EQ(doca_dma_cap_task_memcpy_is_supported(list[0]), DOCA_SUCCESS);
	CHECK_EQ(doca_dma_cap_task_memcpy_is_supported(list[1]), DOCA_ERROR_NOT_SUPPORTED);
	setenv("SOFTDOCA_SIDE", "both", 1);
	CHECK_EQ(described(world, sizeof world - 1, &list, &n), DOCA_SUCCESS);
	CHECK_EQ(n, 4);
}

TEST(representors_are_the_host_s_functions_of_the_file)
{
	struct doca_devinfo **list;
	struct doca_devinfo_rep **reps;
	struct doca_dev *dev;
	uint32_t n;
	char text[DOCA_DEVINFO_REP_VUID_SIZE];
	setenv("SOFTDOCA_SIDE", "dpu", 1);
	CHECK_EQ(described(world, sizeof world - 1, &list, &n), DOCA_SUCCESS);
	CHECK_EQ(doca_dev_open(list[0], &dev), DOCA_SUCCESS);
	/* The file is read again, but was removed. */
	CHECK_EQ(doca_devinfo_rep_create_list(dev, 0, &reps, &n), DOCA_ERROR_BAD_CONFIG);
	CHECK_SAYS(softdoca_last_refusal(), path);
	FILE *f = fopen(path, "w");
	CHECK(f && fputs(world, f) >= 0 && !fclose(f));
	CHECK_EQ(doca_devinfo_rep_create_list(dev, 0, &reps, &n), DOCA_SUCCESS);
	unlink(path);
	CHECK_EQ(n, 2);
	CHECK_EQ(doca_devinfo_rep_get_vuid(reps[1], text, sizeof text), DOCA_SUCCESS);
	CHECK(!strcmp(text, "HOSTVF"));
	CHECK_EQ(doca_devinfo_rep_get_pci_addr_str(reps[1], text), DOCA_SUCCESS);
	CHECK(!strcmp(text, "0000:03:00.2"));
}

TEST(functions_of_one_address_are_devices_apart)
{
	static const char text[] = "side=dpu pci=03:00.0 type=pf\n"
				   "side=dpu pci=03:00.0 type=sf sf=1\n"
				   "side=dpu pci=03:00.0 type=sf sf=2\n"
				   "side=host pci=03:00.0\n";
	struct doca_devinfo **list;
	struct doca_dev *dev[4];
	uint32_t n;
	setenv("SOFTDOCA_SIDE", "both", 1);
	CHECK_EQ(described(text, sizeof text - 1, &list, &n), DOCA_SUCCESS);
	CHECK_EQ(n, 4);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(doca_dev_open(list[i], &dev[i]), DOCA_SUCCESS);
		for (uint32_t k = 0; k < i; k++)
			CHECK(dev[i] != dev[k]);
	}
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(doca_dev_close(dev[i]), DOCA_SUCCESS);
}

TEST(a_wrong_line_is_bad_config_and_named)
{
	static const struct {
		const char *line, *says, *also;
	} wrong[] = {
		{"side=gpu pci=03:00.0", "side=", "'gpu'"},
		{"side=host pci=nowhere", "pci=", "'nowhere'"},
		{"side=host pci=", "pci=", "''"},
		{"side=host pci=03:20.0", "pci=", "'03:20.0'"},
		{"side=host pci=03:00.8", "pci=", "'03:00.8'"},
		{"side=host pci=03:00.0 type=nic", "type=", "'nic'"},
		{"side=host pci=03:00.0 sf=-1", "sf=", "'-1'"},
		{"side=host pci=03:00.0 sf=4294967296", "sf=", "'4294967296'"},
		{"side=host pci=03:00.0 caps=dma,fly", "caps=", "'dma,fly'"},
		{"side=host pci=03:00.0 caps=,dma", "caps=", "',dma'"},
		{"side=host pci=03:00.0 ibdev=", "ibdev=", "''"},
		{"side=host pci=03:00.0 colour=red", "colour", "'red'"},
		{"side=host pci=03:00.0 word", "'word'", "key=value"},
		{"side=host pci=03:00.0 =x", "'=x'", "key=value"},
		{"side=host side=dpu pci=03:00.0", "side", "repeated"},
		{"side=host", "key pci", "missing"},
		{"pci=03:00.0", "key side", "missing"},
	};
	char text[256], where[96];
	struct doca_devinfo **list;
	uint32_t n;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		int size = snprintf(text, sizeof text, "# first\n\n%s\nside=host pci=03:00.0\n",
				    wrong[i].line);
		CHECK_EQ(described(text, (size_t)size, &list, &n), DOCA_ERROR_BAD_CONFIG);
		snprintf(where, sizeof where, "%s line 3", path);
		CHECK_SAYS(softdoca_last_refusal(), where);
		CHECK_SAYS(softdoca_last_refusal(), wrong[i].says);
		CHECK_SAYS(softdoca_last_refusal(), wrong[i].also);
	}
}

TEST(a_text_too_long_is_refused_not_cut)
{
	char text[1400];
	struct doca_devinfo **list;
	uint32_t n;
	static const struct {
		const char *key;
		int most;
	} keys[] = {{"ibdev", 63}, {"vuid", 127}, {"iface", 255}, {"net", 63}};
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		for (int extra = 0; extra < 2; extra++) {
			int size = snprintf(text, sizeof text, "side=host pci=03:00.0 %s=%0*d",
					    keys[i].key, keys[i].most + extra, 1);
			CHECK_EQ(described(text, (size_t)size, &list, &n),
				 extra ? DOCA_ERROR_BAD_CONFIG : DOCA_SUCCESS);
		}
	int size = snprintf(text, sizeof text, "# %01200d\nside=host pci=03:00.0\n", 1);
	CHECK_EQ(described(text, (size_t)size, &list, &n), DOCA_ERROR_BAD_CONFIG);
	CHECK_SAYS(softdoca_last_refusal(), "line 1");
}

TEST(a_file_of_no_function_gives_an_empty_list)
{
	struct doca_devinfo **list = NULL;
	uint32_t n = 7;
	CHECK_EQ(described("", 0, &list, &n), DOCA_SUCCESS);
	CHECK_EQ(n, 0);
	CHECK(list);
	CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_SUCCESS);
	CHECK_EQ(described("# nothing\n", 10, &list, &n), DOCA_SUCCESS);
	CHECK_EQ(n, 0);
}

TEST(a_file_that_cannot_be_read_is_bad_config)
{
	static const char *const paths[] = {"/nowhere/devices", "/tmp", "/proc/self/mem"};
	struct doca_devinfo **list;
	uint32_t n;
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		setenv("SOFTDOCA_DEVICES", paths[i], 1);
		CHECK_EQ(doca_devinfo_create_list(&list, &n), DOCA_ERROR_BAD_CONFIG);
		CHECK_SAYS(softdoca_last_refusal(), paths[i]);
	}
}

TEST(functions_beyond_the_limit_are_refused)
{
	char text[65 * 40];
	size_t size = 0;
	struct doca_devinfo **list;
	uint32_t n;
	setenv("SOFTDOCA_SIDE", "both", 1);
	for (int i = 0; i < 65; i++) {
		if (i == 64) {
			CHECK_EQ(described(text, size, &list, &n), DOCA_SUCCESS);
			CHECK_EQ(n, 64);
		}
		size += (size_t)snprintf(text + size, sizeof text - size,
					 "side=host pci=0000:%02x:00.0\n", i);
	}
	CHECK_EQ(described(text, size, &list, &n), DOCA_ERROR_BAD_CONFIG);
	CHECK_SAYS(softdoca_last_refusal(), "line 65");
}

TEST(altered_files_never_do_harm)
{
	const char bytes[] = "=# \n\t,:.0af\x80z";
	char text[sizeof world];
	uint64_t random = 1;
	for (int i = 0; i < 2000; i++) {
		struct doca_devinfo **list;
		uint32_t n;
		memcpy(text, world, sizeof world);
		for (int k = i % 5; k >= 0; k--) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			text[(random >> 33) % (sizeof world - 1)] =
				bytes[(random >> 20) % sizeof bytes]; /* including its NUL */
		}
		doca_error_t error = described(text, sizeof world - 1, &list, &n);
		CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_BAD_CONFIG);
		if (error == DOCA_SUCCESS)
			CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_SUCCESS);
	}
}

TEST(what_the_environment_gets_wrong_is_said_without_a_backend)
{
	struct doca_devinfo **list;
	char said[512] = "";
	uint32_t n;
	FILE *out = tmpfile();
	CHECK(out && dup2(fileno(out), STDERR_FILENO) == STDERR_FILENO);
	unsetenv("SOFTDOCA_LOG");
	setenv("SOFTDOCA_SIDE", "neither", 1);
	CHECK_EQ(doca_devinfo_create_list(&list, &n), DOCA_ERROR_BAD_CONFIG);
	rewind(out);
	CHECK(fgets(said, sizeof said, out));
	CHECK_SAYS(said, "SOFTDOCA_SIDE='neither'");
}

TEST_MAIN(run_tests)
