// SPDX-License-Identifier: Apache-2.0
/* Devices and representors: which exist by default, their properties, and their lifetimes. */
#define CHECK_DETAIL() softdoca_last_refusal()
const char *softdoca_last_refusal(void);
#include "check.h"
#include "fork_check.h"

#include <fcntl.h>
#include <pthread.h>

#include "doca_dev.h"
#include "doca_dma.h"
#include "doca_mmap.h"

/* Returns the list of this process's side and checks that it has `want` functions. */
static struct doca_devinfo **list_of(const char *side, uint32_t want)
{
	struct doca_devinfo **list;
	uint32_t n;
	CHECK_EQ(side ? setenv("SOFTDOCA_SIDE", side, 1) : unsetenv("SOFTDOCA_SIDE"), 0);
	CHECK_EQ(unsetenv("SOFTDOCA_DEVICES"), 0);
	CHECK_EQ(doca_devinfo_create_list(&list, &n), DOCA_SUCCESS);
	CHECK_EQ(n, want);
	return list;
}

static struct doca_dev *first_of(const char *side)
{
	struct doca_devinfo **list = list_of(side, 1);
	struct doca_dev *dev;
	CHECK_EQ(doca_dev_open(list[0], &dev), DOCA_SUCCESS);
	CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_SUCCESS);
	return dev;
}

static void names_are(const struct doca_devinfo *info, const char *ibdev, const char *iface)
{
	char text[DOCA_DEVINFO_IFACE_NAME_SIZE], pci[DOCA_DEVINFO_PCI_ADDR_SIZE];
	enum doca_pci_func_type type;
	uint32_t sf;
	CHECK_EQ(doca_devinfo_get_pci_addr_str(info, pci), DOCA_SUCCESS);
	CHECK(!strcmp(pci, "0000:03:00.0"));
	CHECK_EQ(doca_devinfo_get_ibdev_name(info, text, DOCA_DEVINFO_IBDEV_NAME_SIZE),
		 DOCA_SUCCESS);
	CHECK(!strcmp(text, ibdev));
	CHECK_EQ(doca_devinfo_get_iface_name(info, text, sizeof text), DOCA_SUCCESS);
	CHECK(!strcmp(text, iface));
	CHECK_EQ(doca_devinfo_get_pci_func_type(info, &type), DOCA_SUCCESS);
	CHECK_EQ(type, DOCA_PCI_FUNC_TYPE_PF);
	CHECK_EQ(doca_devinfo_get_sf_index(info, &sf), DOCA_ERROR_NOT_SUPPORTED);
}

TEST(each_side_sees_its_own_function)
{
	static const struct {
		const char *side, *ibdev, *iface;
	} sides[] = {{"host", "mlx5_0", "ens3f0np0"},
		     {"dpu", "mlx5_0", "p0"},
		     {"both", "mlx5_0", "ens3f0np0"},
		     {"", "mlx5_0", "ens3f0np0"},
		     {NULL, "mlx5_0", "ens3f0np0"}};
	for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++) {
		struct doca_devinfo **list = list_of(sides[i].side, 1);
		uint8_t can;
		names_are(list[0], sides[i].ibdev, sides[i].iface);
		CHECK_EQ(doca_dma_cap_task_memcpy_is_supported(list[0]), DOCA_SUCCESS);
		CHECK_EQ(doca_mmap_cap_is_export_pci_supported(list[0], &can), DOCA_SUCCESS);
		CHECK_EQ(can, 1);
		CHECK_EQ(doca_mmap_cap_is_create_from_export_pci_supported(list[0], &can),
			 DOCA_SUCCESS);
		CHECK_EQ(can, 1);
		CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_SUCCESS);
	}
}

TEST(a_side_that_is_none_is_bad_config)
{
	struct doca_devinfo **list = (void *)1;
	uint32_t n = 7;
	setenv("SOFTDOCA_SIDE", "gpu", 1);
	CHECK_EQ(doca_devinfo_create_list(&list, &n), DOCA_ERROR_BAD_CONFIG);
	CHECK_SAYS(softdoca_last_refusal(), "SOFTDOCA_SIDE='gpu'");
	CHECK(list == (void *)1 && n == 7);
}

TEST(an_address_is_compared_long_or_short_in_either_case)
{
	struct doca_devinfo **list = list_of(NULL, 1);
	uint8_t equal;
	static const struct {
		const char *text;
		int want; /* -1: not a PCI address */
	} addresses[] = {
		{"0000:03:00.0", 1},   {"03:00.0", 1},	   {"0000:03:00.1", 0}, {"0001:03:00.0", 0},
		{"3b:00.0", 0},	       {"3B:00.0", 0},	   {"", -1},		{"03:00", -1},
		{"3:00.0", -1},	       {"03:00.0 ", -1},   {"0000-03:00.0", -1}, {"0x03:00.0", -1},
		{"zz:00.0", -1},       {"03:00.g", -1},	   {"03.00:0", -1},
		{"0000:03:00.00", -1}, {"00000:03:00.0", -1}, {"03:1f.7", 0},
		{"03:20.0", -1},       {"03:00.8", -1},
	};
	for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
		doca_error_t error =
			doca_devinfo_is_equal_pci_addr(list[0], addresses[i].text, &equal);
		CHECK_EQ(error, addresses[i].want < 0 ? DOCA_ERROR_INVALID_VALUE : DOCA_SUCCESS);
		CHECK(error || equal == addresses[i].want);
	}
	CHECK_EQ(doca_devinfo_is_equal_pci_addr(list[0], NULL, &equal), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_is_equal_pci_addr(list[0], "03:00.0", NULL),
		 DOCA_ERROR_INVALID_VALUE);
}

TEST(a_text_s_buffer_has_the_documented_size_at_least)
{
	struct doca_devinfo **list = list_of(NULL, 1);
	char text[DOCA_DEVINFO_IFACE_NAME_SIZE];
	const struct doca_devinfo *info = list[0];
	CHECK_EQ(doca_devinfo_get_ibdev_name(info, text, DOCA_DEVINFO_IBDEV_NAME_SIZE - 1),
		 DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_ibdev_name(info, text, 0), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_ibdev_name(info, NULL, 64), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_iface_name(info, text, sizeof text - 1),
		 DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_iface_name(info, NULL, 256), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_pci_addr_str(info, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_pci_func_type(info, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_sf_index(info, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_vhca_id(info, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_ipv4_addr(info, (uint8_t *)text, 3), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_ipv4_addr(info, NULL, 4), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_mac_addr(info, (uint8_t *)text, 5), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_ipv6_addr(info, (uint8_t *)text, 15), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_lid(info, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_get_active_rate(info, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_rep_cap_is_filter_net_supported(info, NULL),
		 DOCA_ERROR_INVALID_VALUE);
}

TEST(each_side_has_an_address_of_its_own)
{
	static const char *const sides[] = {"host", "dpu"};
	uint8_t ipv4[2][DOCA_DEVINFO_IPV4_ADDR_SIZE], mac[2][DOCA_DEVINFO_MAC_ADDR_SIZE], net[2];
	uint8_t ipv6[DOCA_DEVINFO_IPV6_ADDR_SIZE];
	uint16_t lid;
	uint64_t rate;
	for (int i = 0; i < 2; i++) {
		struct doca_devinfo **list = list_of(sides[i], 1);
		CHECK_EQ(doca_devinfo_get_ipv4_addr(list[0], ipv4[i], sizeof ipv4[i]),
			 DOCA_SUCCESS);
		CHECK_EQ(doca_devinfo_get_mac_addr(list[0], mac[i], sizeof mac[i]), DOCA_SUCCESS);
		CHECK_EQ(doca_devinfo_rep_cap_is_filter_net_supported(list[0], &net[i]),
			 DOCA_SUCCESS);
		CHECK_EQ(doca_devinfo_get_ipv6_addr(list[0], ipv6, sizeof ipv6), DOCA_SUCCESS);
		CHECK(!memcmp(ipv6, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) &&
		      !memcmp(ipv6 + 12, ipv4[i], 4));
		CHECK_EQ(doca_devinfo_get_lid(list[0], &lid), DOCA_SUCCESS);
		CHECK_EQ(lid, 0); /* a port of Ethernet */
		CHECK_EQ(doca_devinfo_get_active_rate(list[0], &rate), DOCA_ERROR_NOT_SUPPORTED);
		CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_SUCCESS);
		CHECK_EQ(ipv4[i][0], 127);
		CHECK_EQ(mac[i][0] & 3, 2); /* locally administered, of one station */
	}
	CHECK(memcmp(ipv4[0], ipv4[1], 4) && memcmp(mac[0], mac[1], 6));
	CHECK(!net[0] && net[1]);
}

TEST(an_open_device_opened_again_is_the_same_one)
{
	struct doca_dev *one = first_of(NULL), *two = first_of(NULL);
	CHECK(one == two);
	CHECK_EQ(doca_dev_close(one), DOCA_SUCCESS);
	names_are(doca_dev_as_devinfo(one), "mlx5_0", "ens3f0np0");
	CHECK_EQ(doca_dev_close(one), DOCA_SUCCESS);
	CHECK_EQ(doca_dev_close(one), DOCA_ERROR_INVALID_VALUE);
	CHECK(!doca_dev_as_devinfo(one));
	CHECK_EQ(doca_dev_close(NULL), DOCA_SUCCESS);
}

TEST(what_is_known_of_a_device_outlives_the_list_but_not_the_device)
{
	struct doca_devinfo **list = list_of(NULL, 1);
	struct doca_devinfo *from_list = list[0], *from_dev;
	struct doca_dev *dev, *again;
	uint8_t equal;
	CHECK_EQ(doca_dev_open(from_list, &dev), DOCA_SUCCESS);
	from_dev = doca_dev_as_devinfo(dev);
	CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_SUCCESS);
	CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_is_equal_pci_addr(from_list, "03:00.0", &equal),
		 DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_dev_open(from_list, &again), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_is_equal_pci_addr(from_dev, "03:00.0", &equal), DOCA_SUCCESS);
	CHECK_EQ(doca_dev_open(from_dev, &again), DOCA_SUCCESS);
	CHECK(again == dev);
	CHECK_EQ(doca_dev_close(dev), DOCA_SUCCESS);
	CHECK_EQ(doca_dev_close(dev), DOCA_SUCCESS);
	CHECK_EQ(doca_devinfo_is_equal_pci_addr(from_dev, "03:00.0", &equal),
		 DOCA_ERROR_INVALID_VALUE);
}

TEST(a_device_in_use_is_not_closed)
{
	struct doca_dev *dev = first_of(NULL);
	struct doca_dma *dma;
	CHECK_EQ(doca_dma_create(dev, &dma), DOCA_SUCCESS);
	CHECK_EQ(doca_dev_close(dev), DOCA_ERROR_IN_USE);
	CHECK_EQ(doca_dma_destroy(dma), DOCA_SUCCESS);
	CHECK_EQ(doca_dev_close(dev), DOCA_SUCCESS);
}

TEST(the_dpu_sees_the_host_s_functions_as_representors)
{
	static const char *const sides[] = {"dpu", "both"};
	for (size_t i = 0; i < 2; i++) {
		struct doca_dev *dev = first_of(sides[i]);
		struct doca_devinfo_rep **reps, *info;
		struct doca_dev_rep *rep;
		char vuid[DOCA_DEVINFO_REP_VUID_SIZE], pci[DOCA_DEVINFO_REP_PCI_ADDR_SIZE];
		uint32_t n;
		uint8_t equal;
		CHECK_EQ(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_ALL, &reps, &n),
			 DOCA_SUCCESS);
		CHECK_EQ(n, 1);
		info = reps[0];
		CHECK_EQ(doca_devinfo_rep_get_pci_addr_str(info, pci), DOCA_SUCCESS);
		CHECK(!strcmp(pci, "0000:3b:00.0"));
		CHECK_EQ(doca_devinfo_rep_is_equal_pci_addr(info, "3B:00.0", &equal), DOCA_SUCCESS);
		CHECK_EQ(equal, 1);
		CHECK_EQ(doca_devinfo_rep_get_vuid(info, vuid, sizeof vuid), DOCA_SUCCESS);
		CHECK(*vuid);
		CHECK_EQ(doca_devinfo_rep_get_vuid(info, vuid, sizeof vuid - 1),
			 DOCA_ERROR_INVALID_VALUE);
		CHECK_EQ(doca_dev_rep_open(info, &rep), DOCA_SUCCESS);
		CHECK_EQ(doca_devinfo_rep_destroy_list(reps), DOCA_SUCCESS);
		CHECK_EQ(doca_devinfo_rep_destroy_list(reps), DOCA_ERROR_INVALID_VALUE);
		CHECK_EQ(doca_devinfo_rep_get_vuid(info, vuid, sizeof vuid),
			 DOCA_ERROR_INVALID_VALUE);
		CHECK_EQ(doca_dev_rep_close(rep), DOCA_SUCCESS);
		CHECK_EQ(doca_dev_rep_close(rep), DOCA_ERROR_INVALID_VALUE);
		CHECK_EQ(doca_dev_rep_close(NULL), DOCA_ERROR_INVALID_VALUE);
		CHECK_EQ(doca_dev_close(dev), DOCA_SUCCESS);
	}
}

TEST(representors_are_listed_by_their_kind)
{
	struct doca_dev *dev = first_of("dpu");
	struct doca_devinfo_rep **reps;
	uint32_t n;
	CHECK_EQ(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_NET, &reps, &n), 0);
	CHECK_EQ(n, 1);
	CHECK_EQ(doca_devinfo_rep_destroy_list(reps), DOCA_SUCCESS);
	CHECK_EQ(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_EMULATED, &reps, &n),
		 0);
	CHECK_EQ(n, 0);
	CHECK_EQ(doca_devinfo_rep_destroy_list(reps), DOCA_SUCCESS);
	CHECK_EQ(doca_devinfo_rep_create_list(dev, 1, &reps, &n), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_rep_create_list(dev, -1, &reps, &n), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_rep_create_list(dev, 0, NULL, &n), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_rep_create_list(dev, 0, &reps, NULL), DOCA_ERROR_INVALID_VALUE);
}

TEST(the_host_has_no_representors)
{
	struct doca_dev *dev = first_of("host");
	struct doca_devinfo_rep **reps;
	uint32_t n;
	CHECK_EQ(doca_devinfo_rep_create_list(dev, 0, &reps, &n), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_EQ(doca_dev_close(dev), DOCA_SUCCESS);
}

TEST(a_representor_of_a_closed_device_is_not_opened)
{
	struct doca_dev *dev = first_of("dpu");
	struct doca_devinfo_rep **reps;
	struct doca_dev_rep *rep;
	uint32_t n;
	CHECK_EQ(doca_devinfo_rep_create_list(dev, 0, &reps, &n), DOCA_SUCCESS);
	CHECK_EQ(doca_dev_close(dev), DOCA_SUCCESS);
	CHECK_EQ(doca_dev_rep_open(reps[0], &rep), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_devinfo_rep_destroy_list(reps), DOCA_SUCCESS);
}

TEST(a_list_is_destroyed_by_its_own_function_only)
{
	struct doca_dev *dev = first_of("both");
	struct doca_devinfo **list = list_of("both", 1);
	struct doca_devinfo_rep **reps;
	struct doca_devinfo *own[2] = {list[0], NULL};
	uint32_t n;
	CHECK_EQ(doca_devinfo_rep_create_list(dev, 0, &reps, &n), DOCA_SUCCESS);
	CHECK_EQ(doca_devinfo_destroy_list((void *)reps), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_rep_destroy_list((void *)list), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_destroy_list(own), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_destroy_list(list + 1), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_destroy_list(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_destroy_list((void *)64), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_destroy_list((void *)-1), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_devinfo_rep_destroy_list(reps), DOCA_SUCCESS);
	CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_SUCCESS);
}

TEST(a_wrong_rule_of_faults_is_bad_config_and_says_what)
{
	static const struct {
		const char *rules, *says, *also;
	} wrong[] = {
		{"explode", "rule 1", "'explode'"},
		{"every=3", "rule 1", "'every=3'"},
		{"error every", "rule 1", "'every'"},
		{"error every=", "every", "''"},
		{"error every=x", "every", "'x'"},
		{"error =3", "rule 1", "'=3'"},
		{"error; delay ms=5; lose ppm=1000001", "rule 3", "ppm='1000001'"},
		{"error status=broken", "status='broken'", "the values are local_error "},
		{"error ops=3", "ops='3'", "the values are read write both"},
		{"error every=0", "every='0'", "from 1 to 4294967295"},
		{"error every=1 every=2", "every='2'", "repeated"},
		{"delay ms=1 us=1", "us='1'", "repeated"},
		{"error; delay", "rule 2", "ms="},
		{"delay ms=0", "ms='0'", "from 1 to"},
		{"delay ms=99999999999999999", "ms", "99999999999999999"},
		{"error every=4294967296", "every", "4294967296"},
		{"error count=-1", "count", "'-1'"},
		{"error speed=3", "speed", "'3'"},
	};
	struct doca_devinfo **list = list_of(NULL, 1);
	struct doca_dev *dev = NULL;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		setenv("SOFTDOCA_FAULTS", wrong[i].rules, 1);
		CHECK_EQ(doca_dev_open(list[0], &dev), DOCA_ERROR_BAD_CONFIG);
		CHECK(!dev);
		CHECK_SAYS(softdoca_last_refusal(), wrong[i].says);
		CHECK_SAYS(softdoca_last_refusal(), wrong[i].also);
	}
	static const char *const right[] = {
		"", " ; ;", "error", "error;", "lose skip=3 count=1 min_size=64 max_size=0x1000",
		"delay ms=5; delay us=5; delay delay_ns=5", "reorder ppm=1000 seed=7 every=10",
		"error status=io_failed ops=write;\n error status=peer_lost ops=read"};
	for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
		setenv("SOFTDOCA_FAULTS", right[i], 1);
		CHECK_EQ(doca_dev_open(list[0], &dev), DOCA_SUCCESS);
		CHECK_EQ(doca_dev_close(dev), DOCA_SUCCESS);
	}
}

TEST(too_many_rules_of_faults_are_refused)
{
	char rules[65 * 6 + 1] = "";
	struct doca_devinfo **list = list_of(NULL, 1);
	struct doca_dev *dev;
	for (int i = 0; i < 65; i++)
		memcpy(rules + i * 6, "error;", 7);
	setenv("SOFTDOCA_FAULTS", rules, 1);
	CHECK_EQ(doca_dev_open(list[0], &dev), DOCA_ERROR_BAD_CONFIG);
	rules[64 * 6] = '\0';
	setenv("SOFTDOCA_FAULTS", rules, 1);
	CHECK_EQ(doca_dev_open(list[0], &dev), DOCA_SUCCESS);
}

/* Counts open files, to detect leaks. */
static int open_files(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

TEST(a_thousand_devices_opened_and_closed_leave_nothing)
{
	CHECK_EQ(doca_dev_close(first_of("both")), DOCA_SUCCESS);
	int files = open_files();
	for (int i = 0; i < repeats(1000); i++)
		CHECK_EQ(doca_dev_close(first_of("both")), DOCA_SUCCESS);
	CHECK_EQ(open_files(), files);
}

static void *open_and_close(void *arg)
{
	struct doca_devinfo **list;
	struct doca_dev *dev;
	uint32_t n;
	(void)arg;
	for (int i = 0; i < repeats(200); i++) {
		CHECK_EQ(doca_devinfo_create_list(&list, &n), DOCA_SUCCESS);
		CHECK_EQ(doca_dev_open(list[0], &dev), DOCA_SUCCESS);
		CHECK(doca_dev_as_devinfo(dev));
		CHECK_EQ(doca_dev_close(dev), DOCA_SUCCESS);
		CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_SUCCESS);
	}
	return NULL;
}

TEST(threads_share_a_device)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* With the thread sanitizer, a child of a multithreaded process cannot start threads, but a device
 * has an engine thread. */
#ifndef __SANITIZE_THREAD__
/* Forks while other threads open and close devices: the child must not find a lock held. */
TEST(a_child_opens_a_device_of_its_own)
{
	pthread_t threads[3];
	int others = fork_among_threads() ? 3 : 0;
	struct doca_dev *mine = first_of(NULL);
	for (int i = 0; i < others; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
	for (int i = 0; i < 50; i++) {
		int status;
		others_sleep();
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			alarm(20);
			struct doca_dev *own = first_of(NULL);
			CHECK(own != mine);
			CHECK_EQ(doca_dev_close(own), DOCA_SUCCESS);
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
	}
	for (int i = 0; i < others; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(doca_dev_close(mine), DOCA_SUCCESS);
}
#endif

TEST_MAIN(run_tests)
