// SPDX-License-Identifier: Apache-2.0
/* Comm Channel of DOCA 1.3 to 2.5 over Comch: both ends in this process, each misuse with its
 * documented error. */
#define CHECK_DETAIL() ""
#include "check.h"

#include <poll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <doca_comm_channel.h>
#include <doca_dev.h>

#if SOFTDOCA_DOCA >= 205 /* the names of today */
#define doca_get_error_name	     doca_error_get_name
#define doca_devinfo_list_create     doca_devinfo_create_list
#define doca_devinfo_list_destroy    doca_devinfo_destroy_list
#define doca_devinfo_rep_list_create doca_devinfo_rep_create_list
#define doca_devinfo_rep_list_destroy doca_devinfo_rep_destroy_list
#define DOCA_DEV_REP_FILTER_NET	     DOCA_DEVINFO_REP_FILTER_NET
#endif

#define GETS(call, want) gets(__FILE__, __LINE__, #call, call, want)
#define OK(call)	 GETS(call, DOCA_SUCCESS)
#define BAD(call)	 GETS(call, DOCA_ERROR_INVALID_VALUE)

#define QUEUE 4
#define SIZE  512

static void gets(const char *file, int line, const char *call, doca_error_t got, doca_error_t want)
{
	if (got != want)
		check_failed(file, line, "%s is %s, not %s", call, doca_get_error_name(got),
			     doca_get_error_name(want));
}

static struct doca_dev *dev;
static struct doca_dev_rep *rep;
static struct doca_comm_channel_ep_t *server, *client;
static struct doca_comm_channel_addr_t *to_server, *to_client;
static char folder[] = "/tmp/comm_channel_XXXXXX";

static void open_devices(void)
{
	struct doca_devinfo **list;
	struct doca_devinfo_rep **reps;
	uint32_t n;

	CHECK(mkdtemp(folder) != NULL);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	OK(doca_devinfo_list_create(&list, &n));
	OK(doca_dev_open(list[0], &dev));
	OK(doca_devinfo_list_destroy(list));
	OK(doca_devinfo_rep_list_create(dev, DOCA_DEV_REP_FILTER_NET, &reps, &n));
	OK(doca_dev_rep_open(reps[0], &rep));
	OK(doca_devinfo_rep_list_destroy(reps));
}

static void new_endpoint(struct doca_comm_channel_ep_t **ep)
{
#if SOFTDOCA_NAMED
	struct doca_comm_channel_init_attr attr = {
		.flags = DOCA_COMM_CHANNEL_INIT_FLAG_NONBLOCK, .maxmsgs = QUEUE, .msgsize = SIZE};

	OK(doca_comm_channel_ep_create(&attr, ep));
#else
	OK(doca_comm_channel_ep_create(ep));
	OK(doca_comm_channel_ep_set_device(*ep, dev));
	OK(doca_comm_channel_ep_set_max_msg_size(*ep, SIZE));
	OK(doca_comm_channel_ep_set_send_queue_size(*ep, QUEUE));
	OK(doca_comm_channel_ep_set_recv_queue_size(*ep, QUEUE));
#endif
}

static doca_error_t receive(struct doca_comm_channel_ep_t *ep, char *text, size_t *size,
			    struct doca_comm_channel_addr_t **from)
{
	const size_t space = *size;
	doca_error_t result;

	do
		*size = space;
	while ((result = doca_comm_channel_ep_recvfrom(ep, text, size, 0, from)) ==
	       DOCA_ERROR_AGAIN);
	return result;
}

static void connect_both(void)
{
	char text[SIZE];
	size_t size = sizeof text;
	doca_error_t result;

	open_devices();
	new_endpoint(&server);
	new_endpoint(&client);
	OK(doca_comm_channel_ep_set_device(server, dev));
	OK(doca_comm_channel_ep_set_device_rep(server, rep));
	OK(doca_comm_channel_ep_listen(server, "service"));
	OK(doca_comm_channel_ep_connect(client, "service", &to_server));
	while ((result = doca_comm_channel_peer_addr_update_info(to_server)) ==
	       DOCA_ERROR_CONNECTION_INPROGRESS)
		GETS(doca_comm_channel_ep_recvfrom(server, text, &size, 0, &to_client),
		     DOCA_ERROR_AGAIN);
	OK(result);
	OK(doca_comm_channel_ep_sendto(client, "first", 5, 0, to_server));
	OK(receive(server, text, &size, &to_client));
	CHECK(size == 5 && !memcmp(text, "first", 5));
}

static void close_both(void)
{
	OK(doca_comm_channel_ep_destroy(client));
	OK(doca_comm_channel_ep_destroy(server));
#if !SOFTDOCA_NAMED
	OK(doca_dev_rep_close(rep));
	OK(doca_dev_close(dev));
#endif
	char command[64];
	snprintf(command, sizeof command, "rm -r %s", folder);
	CHECK_EQ(system(command), 0);
}

TEST(messages_arrive_in_order_in_both_directions)
{
	char text[SIZE];
	size_t size;
	uint64_t n, bytes;
	struct doca_comm_channel_addr_t *from;

	connect_both();
	for (int i = 0; i < 100; i++) {
		OK(doca_comm_channel_ep_sendto(client, &i, sizeof i, 0, to_server));
		OK(doca_comm_channel_ep_sendto(server, &i, sizeof i, 0, to_client));
	}
	for (int i = 0; i < 100; i++) {
		size = sizeof text;
		OK(receive(server, text, &size, &from));
		CHECK(from == to_client && size == sizeof i && !memcmp(text, &i, size));
		size = sizeof text;
		OK(receive(client, text, &size, &from));
		CHECK(from == to_server && size == sizeof i && !memcmp(text, &i, size));
	}
	OK(doca_comm_channel_peer_addr_update_info(to_server));
	OK(doca_comm_channel_peer_addr_get_send_messages(to_server, &n));
	CHECK_EQ(n, 101);
	OK(doca_comm_channel_peer_addr_get_send_bytes(to_server, &bytes));
	CHECK_EQ(bytes, 405);
	OK(doca_comm_channel_peer_addr_get_recv_messages(to_server, &n));
	CHECK_EQ(n, 100);
	OK(doca_comm_channel_peer_addr_get_recv_bytes(to_server, &bytes));
	CHECK_EQ(bytes, 400);
	OK(doca_comm_channel_peer_addr_get_send_in_flight_messages(to_server, &n));
	CHECK_EQ(n, 0);
	OK(doca_comm_channel_peer_addr_set_user_data(to_client, 7));
	OK(doca_comm_channel_peer_addr_get_user_data(to_client, &n));
	CHECK_EQ(n, 7);
	close_both();
}

/* A receiver that reads nothing fills socket and queue, and then the sender gets AGAIN. */
TEST(a_full_send_queue_is_again_and_nothing_is_lost)
{
	char text[SIZE] = "";
	size_t size;
	int sent = 0;
	struct doca_comm_channel_addr_t *from;

	connect_both();
	while (doca_comm_channel_ep_sendto(client, text, SIZE, 0, to_server) != DOCA_ERROR_AGAIN)
		CHECK(sent++ < 1000000);
	for (int i = 0; i < sent; i++) {
		size = sizeof text;
		OK(receive(server, text, &size, &from));
		/* The client has to make progress for what waits. */
		OK(doca_comm_channel_peer_addr_update_info(to_server));
	}
	OK(doca_comm_channel_ep_sendto(client, text, SIZE, 0, to_server));
	close_both();
}

TEST(a_program_can_sleep_until_it_may_receive_or_send)
{
	struct pollfd send = {.events = POLLIN}, recv = {.events = POLLIN};
	char text[SIZE];
	size_t size = sizeof text;
	struct doca_comm_channel_addr_t *from;

	connect_both();
	BAD(doca_comm_channel_ep_get_event_channel(server, NULL, NULL));
	OK(doca_comm_channel_ep_get_event_channel(server, &send.fd, &recv.fd));
	OK(doca_comm_channel_ep_event_handle_arm_recv(server));
	CHECK_EQ(poll(&recv, 1, 0), 0);
	OK(doca_comm_channel_ep_sendto(client, "a", 1, 0, to_server));
	CHECK_EQ(poll(&recv, 1, 30000), 1);
	/* What another call of this endpoint took from the socket still wakes its receiver. */
	OK(doca_comm_channel_peer_addr_update_info(to_client));
	CHECK_EQ(poll(&recv, 1, 30000), 1);
	OK(receive(server, text, &size, &from));
	OK(doca_comm_channel_ep_event_handle_arm_send(server));
	CHECK_EQ(poll(&send, 1, 30000), 1);
	close_both();
}

#if SOFTDOCA_NAMED
static double cpu_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The client's process: it says something late, waits for an answer, and has it sent late. */
static void be_a_late_client(void)
{
	struct doca_comm_channel_init_attr attr = {.maxmsgs = QUEUE, .msgsize = SIZE};
	char text[SIZE];
	size_t size = sizeof text;

	OK(doca_comm_channel_ep_create(&attr, &client));
	while (doca_comm_channel_ep_connect(client, "late", &to_server) != DOCA_SUCCESS)
		;
	usleep(300000);
	OK(doca_comm_channel_ep_sendto(client, "now", 3, 0, to_server));
	OK(doca_comm_channel_ep_recvfrom(client, text, &size, 0, &to_server));
	CHECK_EQ(size, 4);
	OK(doca_comm_channel_ep_destroy(client));
}

TEST(a_call_that_waits_sleeps)
{
	struct doca_comm_channel_init_attr attr = {.maxmsgs = QUEUE, .msgsize = SIZE};
	char text[SIZE];
	size_t size = sizeof text;
	double before;
	pid_t child;
	int status;

	CHECK(mkdtemp(folder) != NULL);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	child = fork();
	if (!child) {
		be_a_late_client();
		_exit(0);
	}
	OK(doca_comm_channel_ep_create(&attr, &server));
	OK(doca_comm_channel_ep_listen(server, "late"));
	before = cpu_s();
	OK(doca_comm_channel_ep_recvfrom(server, text, &size, 0, &to_client));
	CHECK(cpu_s() - before < 0.1);
	CHECK_EQ(size, 3);
	OK(doca_comm_channel_ep_sendto(server, "then", 4, 0, to_client));
	size = sizeof text;
	GETS(doca_comm_channel_ep_recvfrom(server, text, &size, 0, &to_client),
	     DOCA_ERROR_CONNECTION_RESET);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	OK(doca_comm_channel_ep_destroy(server));
}

TEST(a_connect_that_waits_ends_although_its_server_is_silent)
{
	struct doca_comm_channel_init_attr attr = {.maxmsgs = QUEUE, .msgsize = SIZE};

	CHECK(mkdtemp(folder) != NULL);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	OK(doca_comm_channel_ep_create(&attr, &server));
	OK(doca_comm_channel_ep_listen(server, "silent"));
	OK(doca_comm_channel_ep_create(&attr, &client));
	GETS(doca_comm_channel_ep_connect(client, "silent", &to_server),
	     DOCA_ERROR_CONNECTION_ABORTED);
	OK(doca_comm_channel_ep_destroy(client));
	OK(doca_comm_channel_ep_destroy(server));
}
#endif

TEST(the_end_of_a_connection_is_noticed)
{
	char text[SIZE];
	size_t size = sizeof text;
	struct doca_comm_channel_addr_t *from;

	connect_both();
	OK(doca_comm_channel_ep_sendto(client, "last", 4, 0, to_server));
	OK(doca_comm_channel_ep_disconnect(client, to_server));
	BAD(doca_comm_channel_peer_addr_update_info(to_server));
	OK(receive(server, text, &size, &from));
	size = sizeof text;
	GETS(receive(server, text, &size, &from), DOCA_ERROR_CONNECTION_RESET);
	CHECK(from == to_client);
	GETS(doca_comm_channel_peer_addr_update_info(to_client), DOCA_ERROR_CONNECTION_ABORTED);
	GETS(doca_comm_channel_ep_sendto(server, "x", 1, 0, to_client),
	     DOCA_ERROR_CONNECTION_RESET);
	OK(doca_comm_channel_ep_disconnect(server, to_client));
	GETS(doca_comm_channel_ep_disconnect(server, to_client), DOCA_ERROR_NOT_CONNECTED);
	GETS(doca_comm_channel_ep_recvfrom(server, text, &size, 0, &from), DOCA_ERROR_AGAIN);
	close_both();
}

/* What waits unread: two queues, and the socket's buffer of some 200 kB. */
TEST(a_receiver_s_memory_is_bounded_by_its_queue)
{
	char text[SIZE] = {0};
	size_t size;
	int sent = 0;
	struct doca_comm_channel_addr_t *from;

	connect_both();
	for (int i = 0; i < 10000; i++) {
		memcpy(text, &sent, sizeof sent);
		if (!doca_comm_channel_ep_sendto(client, text, SIZE, 0, to_server))
			sent++;
		OK(doca_comm_channel_peer_addr_update_info(to_client));
	}
	CHECK(sent < 1000);
	for (int i = 0; i < sent; i++) {
		size = sizeof text;
		OK(receive(server, text, &size, &from));
		CHECK(size == SIZE && !memcmp(text, &i, sizeof i));
		OK(doca_comm_channel_peer_addr_update_info(to_server));
	}
	GETS(doca_comm_channel_ep_recvfrom(server, text, &size, 0, &from), DOCA_ERROR_AGAIN);
	close_both();
}

/* Fills the queue of an endpoint whose peer makes no progress, and disconnects. */
static void disconnect_unread(struct doca_comm_channel_ep_t *ep,
			      struct doca_comm_channel_addr_t *peer)
{
	char text[SIZE] = "";

	while (doca_comm_channel_ep_sendto(ep, text, SIZE, 0, peer) != DOCA_ERROR_AGAIN)
		;
	OK(doca_comm_channel_ep_disconnect(ep, peer));
}

TEST(a_server_that_does_not_read_does_not_hold_its_client)
{
	connect_both();
	disconnect_unread(client, to_server);
	close_both();
}

TEST(a_client_that_does_not_read_does_not_hold_its_server)
{
	char text[SIZE];
	size_t size = sizeof text;

	connect_both();
	disconnect_unread(server, to_client);
	GETS(doca_comm_channel_ep_recvfrom(server, text, &size, 0, &to_client), DOCA_ERROR_AGAIN);
	GETS(doca_comm_channel_ep_disconnect(server, to_client), DOCA_ERROR_NOT_CONNECTED);
	close_both();
}

TEST(a_client_that_said_nothing_is_forgotten_when_it_leaves)
{
	char text[SIZE];
	size_t size = sizeof text;
	struct doca_comm_channel_ep_t *silent;
	struct doca_comm_channel_addr_t *to, *from;

	connect_both();
	for (int i = 0; i < 20; i++) {
		new_endpoint(&silent);
		OK(doca_comm_channel_ep_connect(silent, "service", &to));
		while (doca_comm_channel_peer_addr_update_info(to))
			OK(doca_comm_channel_peer_addr_update_info(to_client));
		OK(doca_comm_channel_ep_destroy(silent));
		GETS(doca_comm_channel_ep_recvfrom(server, text, &size, 0, &from),
		     DOCA_ERROR_AGAIN);
	}
	close_both();
}

TEST(each_misuse_has_its_documented_error)
{
	char text[SIZE + 1] = "";
	size_t size = sizeof text;
	uint16_t n;
	int fd;
	struct doca_comm_channel_ep_t *ep;
	struct doca_comm_channel_addr_t *from;

	GETS(doca_comm_channel_ep_destroy(NULL), DOCA_ERROR_NOT_CONNECTED);
	BAD(doca_comm_channel_get_max_service_name_len(NULL));
	connect_both();
	new_endpoint(&ep);
	BAD(doca_comm_channel_ep_set_device(ep, NULL));
	BAD(doca_comm_channel_ep_set_device_rep(ep, NULL));
	BAD(doca_comm_channel_ep_set_max_msg_size(ep, 0));
	OK(doca_comm_channel_ep_set_device(ep, dev));
	BAD(doca_comm_channel_ep_set_max_msg_size(ep, 65535));
	BAD(doca_comm_channel_ep_set_send_queue_size(ep, 0));
	OK(doca_comm_channel_ep_get_send_queue_size(ep, &n));
	CHECK_EQ(n, QUEUE);
	GETS(doca_comm_channel_ep_get_event_channel(ep, &fd, &fd), DOCA_ERROR_BAD_STATE);
	GETS(doca_comm_channel_ep_recvfrom(ep, text, &size, 0, &from), DOCA_ERROR_NOT_CONNECTED);
	GETS(doca_comm_channel_ep_listen(ep, "other"), DOCA_ERROR_BAD_STATE); /* no representor */
	BAD(doca_comm_channel_ep_listen(ep, NULL));
	BAD(doca_comm_channel_ep_connect(ep, NULL, &from));
	BAD(doca_comm_channel_ep_connect(ep, "service", NULL));
	OK(doca_comm_channel_ep_set_device_rep(ep, rep));
	GETS(doca_comm_channel_ep_listen(ep, "service"), DOCA_ERROR_CONNECTION_ABORTED);
	OK(doca_comm_channel_ep_destroy(ep));

	GETS(doca_comm_channel_ep_set_device(client, dev), DOCA_ERROR_BAD_STATE);
	GETS(doca_comm_channel_ep_set_max_msg_size(server, 8), DOCA_ERROR_BAD_STATE);
	GETS(doca_comm_channel_ep_listen(server, "again"), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_comm_channel_ep_connect(client, "again", &from), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_comm_channel_ep_sendto(client, text, 1, 0, NULL), DOCA_ERROR_NOT_CONNECTED);
	GETS(doca_comm_channel_ep_sendto(client, text, 1, 0, to_client), DOCA_ERROR_NOT_CONNECTED);
	BAD(doca_comm_channel_ep_sendto(client, NULL, 1, 0, to_server));
	BAD(doca_comm_channel_ep_sendto(client, text, SIZE + 1, 0, to_server));
	BAD(doca_comm_channel_ep_recvfrom(client, text, NULL, 0, &from));
	OK(doca_comm_channel_ep_sendto(client, text, 8, 0, to_server));
	size = 4;
	BAD(receive(server, text, &size, &from)); /* the message stays */
	size = SIZE;
	OK(receive(server, text, &size, &from));
	CHECK_EQ(size, 8);
	close_both();
}

TEST_MAIN(run_tests)
