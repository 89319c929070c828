/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of Comch: a side (a server or a client with its own progress engine), which counts the
 * calls of its callbacks. Both sides may be in one process, or in two.
 */
#ifndef SOFTDOCA_COMCH_CHECK_H
#define SOFTDOCA_COMCH_CHECK_H

#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <doca_comch.h>
#include <doca_ctx.h>
#include <doca_pe.h>

#include "memory_check.h"

#define MAX_MSG 4080u
#define TASKS   16u

struct side {
	struct doca_dev *dev;
	struct doca_dev_rep *rep;
	struct doca_pe *pe;
	struct doca_comch_server *server;
	struct doca_comch_client *client;
	struct doca_ctx *ctx;
	struct doca_comch_connection *peer; /* the last connection that was made */
	uint32_t connects, unsuccessful, disconnects, received, sent, failed, told;
	doca_error_t last_error;
	char states[32]; /* the sequence of its states: I idle, S starting, R running, P stopping */
	uint32_t last_len;
	uint8_t last[MAX_MSG];
	void *extra;
	void (*on_message)(struct side *s, const uint8_t *bytes, uint32_t len,
			   struct doca_comch_connection *c);
	void (*on_connect)(struct side *s, struct doca_comch_connection *c);
	void (*on_disconnect)(struct side *s, struct doca_comch_connection *c);
	void (*on_sent)(struct side *s, struct doca_task *task, union doca_data user_data);
};

UNUSED static struct side *side_of(const struct doca_comch_connection *c)
{
	struct doca_comch_server *server = doca_comch_server_get_server_ctx(c);
	union doca_data data;

	OK(doca_ctx_get_user_data(
		server ? doca_comch_server_as_ctx(server)
		       : doca_comch_client_as_ctx(doca_comch_client_get_client_ctx(c)),
		&data));
	return data.ptr;
}

UNUSED static void message_cb(struct doca_comch_event_msg_recv *event, uint8_t *bytes, uint32_t len,
			      struct doca_comch_connection *c)
{
	struct side *s = side_of(c);

	CHECK(event && bytes && len >= 1 && len <= MAX_MSG);
	s->told++;
	s->received++;
	s->last_len = len;
	memcpy(s->last, bytes, len);
	if (s->on_message)
		s->on_message(s, bytes, len, c);
}

UNUSED static void connect_cb(struct doca_comch_event_connection_status_changed *event,
			      struct doca_comch_connection *c, uint8_t successful)
{
	struct side *s = side_of(c);

	CHECK(event && c);
	s->told++;
	s->unsuccessful += !successful;
	if (!successful)
		return;
	s->connects++;
	s->peer = c;
	if (s->on_connect)
		s->on_connect(s, c);
}

UNUSED static void disconnect_cb(struct doca_comch_event_connection_status_changed *event,
				 struct doca_comch_connection *c, uint8_t successful)
{
	struct side *s = side_of(c);

	CHECK(event && c && successful);
	s->told++;
	s->disconnects++;
	if (s->on_disconnect)
		s->on_disconnect(s, c);
}

UNUSED static void sent_cb(struct doca_comch_task_send *task, union doca_data task_data,
			   union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;

	OK(doca_task_get_status(doca_comch_task_send_as_task(task)));
	s->told++;
	s->sent++;
	if (s->on_sent)
		s->on_sent(s, doca_comch_task_send_as_task(task), task_data);
	else
		doca_task_free(doca_comch_task_send_as_task(task));
}

UNUSED static void failed_cb(struct doca_comch_task_send *task, union doca_data task_data,
			     union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;

	(void)task_data;
	s->told++;
	s->failed++;
	s->last_error = doca_task_get_status(doca_comch_task_send_as_task(task));
	CHECK(s->last_error != DOCA_SUCCESS);
	doca_task_free(doca_comch_task_send_as_task(task));
}

UNUSED static void state_cb(const union doca_data data, struct doca_ctx *ctx,
			    enum doca_ctx_states prev, enum doca_ctx_states next)
{
	struct side *s = data.ptr;
	size_t n = strlen(s->states);

	(void)ctx;
	(void)prev;
	CHECK(n + 1 < sizeof(s->states));
	s->states[n] = "ISRP"[next];
}

UNUSED static void consumer_cb(struct doca_comch_event_consumer *event,
			       struct doca_comch_connection *c, uint32_t id)
{
	(void)event;
	(void)c;
	check_failed(__FILE__, __LINE__, "a consumer %u where there are none", id);
}

/* Opens the first device with the capability that `can` queries. */
UNUSED static struct doca_dev *a_comch_dev(doca_error_t (*can)(const struct doca_devinfo *))
{
	struct doca_devinfo **list;
	struct doca_dev *dev = NULL;
	uint32_t n;

	OK(doca_devinfo_create_list(&list, &n));
	for (uint32_t i = 0; i < n && !dev; i++)
		if (can(list[i]) == DOCA_SUCCESS)
			OK(doca_dev_open(list[i], &dev));
	OK(doca_devinfo_destroy_list(list));
	CHECK(dev);
	return dev;
}

UNUSED static struct doca_dev_rep *a_rep(struct doca_dev *dev)
{
	struct doca_devinfo_rep **list;
	struct doca_dev_rep *rep;
	uint32_t n;

	OK(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_NET, &list, &n));
	CHECK(n > 0);
	OK(doca_dev_rep_open(list[0], &rep));
	OK(doca_devinfo_rep_destroy_list(list));
	return rep;
}

UNUSED static void join(struct side *s)
{
	union doca_data self = {.ptr = s};

	OK(doca_pe_create(&s->pe));
	OK(doca_pe_connect_ctx(s->pe, s->ctx));
	OK(doca_ctx_set_user_data(s->ctx, self));
	OK(doca_ctx_set_state_changed_cb(s->ctx, state_cb));
}

/* Not started. */
UNUSED static void a_server(struct side *s, const char *name)
{
	s->dev = a_comch_dev(doca_comch_cap_server_is_supported);
	s->rep = a_rep(s->dev);
	OK(doca_comch_server_create(s->dev, s->rep, name, &s->server));
	s->ctx = doca_comch_server_as_ctx(s->server);
	OK(doca_comch_server_task_send_set_conf(s->server, sent_cb, failed_cb, TASKS));
	OK(doca_comch_server_event_msg_recv_register(s->server, message_cb));
	OK(doca_comch_server_event_connection_status_changed_register(s->server, connect_cb,
								      disconnect_cb));
	join(s);
}

UNUSED static void a_client(struct side *s, const char *name)
{
	s->dev = a_comch_dev(doca_comch_cap_client_is_supported);
	OK(doca_comch_client_create(s->dev, name, &s->client));
	s->ctx = doca_comch_client_as_ctx(s->client);
	OK(doca_comch_client_task_send_set_conf(s->client, sent_cb, failed_cb, TASKS));
	OK(doca_comch_client_event_msg_recv_register(s->client, message_cb));
	join(s);
}

UNUSED static enum doca_ctx_states state_of(const struct side *s)
{
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(s->ctx, &state));
	return state;
}

UNUSED static bool idle(const struct side *s)
{
	return state_of(s) == DOCA_CTX_STATE_IDLE;
}

UNUSED static bool running(const struct side *s)
{
	return state_of(s) == DOCA_CTX_STATE_RUNNING;
}

/* Progresses one side, or two, until the condition holds. The runner's alarm ends a loop that never
 * does. */
#define UNTIL(s, cond)                             \
	do {                                       \
		while (!(cond))                    \
			doca_pe_progress((s)->pe); \
	} while (0)
#define UNTIL2(a, b, cond)                         \
	do {                                       \
		while (!(cond)) {                  \
			doca_pe_progress((a)->pe); \
			doca_pe_progress((b)->pe); \
		}                                  \
	} while (0)

UNUSED static void connected(struct side *c)
{
	OK(doca_comch_client_get_connection(c->client, &c->peer));
}

/* Creates both sides, started and connected. */
UNUSED static void a_pair(struct side *s, struct side *c, const char *name)
{
	a_server(s, name);
	a_client(c, name);
	OK(doca_ctx_start(s->ctx));
	REFUSED(doca_ctx_start(c->ctx), IN_PROGRESS);
	UNTIL2(s, c, running(c) && s->connects);
	connected(c);
}

UNUSED static doca_error_t alloc_send(struct side *s, struct doca_comch_connection *peer,
				      const void *msg, uint32_t len, struct doca_task **out)
{
	struct doca_comch_task_send *task;
	doca_error_t error =
		s->server
			? doca_comch_server_task_send_alloc_init(s->server, peer, msg, len, &task)
			: doca_comch_client_task_send_alloc_init(s->client, peer, msg, len, &task);
	if (error == DOCA_SUCCESS)
		*out = doca_comch_task_send_as_task(task);
	return error;
}

UNUSED static void say(struct side *s, const void *msg, uint32_t len)
{
	struct doca_task *task;

	OK(alloc_send(s, s->peer, msg, len, &task));
	OK(doca_task_submit(task));
}

/* Sleeps until the handle is readable, then progresses until nothing is left. */
UNUSED static void wake_up(struct side *s)
{
	doca_notification_handle_t handle;
	struct pollfd p = {.events = POLLIN};

	OK(doca_pe_get_notification_handle(s->pe, &handle));
	OK(doca_pe_request_notification(s->pe));
	p.fd = handle;
	CHECK_EQ(poll(&p, 1, -1), 1);
	OK(doca_pe_clear_notification(s->pe, handle));
	while (doca_pe_progress(s->pe))
		;
}

/* Submits until tasks wait for room, because the peer receives nothing. Returns how many tasks
 * wait. */
UNUSED static uint32_t fill_up(struct side *s)
{
	uint8_t bytes[MAX_MSG] = {0};
	size_t waiting = 0;

	for (struct doca_task *task; waiting < TASKS / 2;) {
		OK(alloc_send(s, s->peer, bytes, sizeof(bytes), &task));
		OK(doca_task_submit(task));
		while (doca_pe_progress(s->pe))
			;
		OK(doca_ctx_get_num_inflight_tasks(s->ctx, &waiting));
	}
	return (uint32_t)waiting;
}

UNUSED static void destroyed(struct side *s)
{
	if (s->server)
		OK(doca_comch_server_destroy(s->server));
	else
		OK(doca_comch_client_destroy(s->client));
	OK(doca_pe_destroy(s->pe));
	if (s->rep)
		OK(doca_dev_rep_close(s->rep));
	OK(doca_dev_close(s->dev));
}

UNUSED static void stopped(struct side *s)
{
	doca_error_t error = doca_ctx_stop(s->ctx);

	CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IN_PROGRESS);
	UNTIL(s, idle(s));
	destroyed(s);
}

UNUSED static void both_stopped(struct side *s, struct side *c)
{
	stopped(c);
	stopped(s);
}

/* Fills in bytes that depend on i, so that no message can be mistaken for another. */
UNUSED static void fill(uint8_t *at, uint32_t len, uint32_t i)
{
	for (uint32_t k = 0; k < len; k++)
		at[k] = (uint8_t)(i * 31 + k * 7 + (k >> 8));
}

UNUSED static void check_filled(const uint8_t *at, uint32_t len, uint32_t i)
{
	uint8_t want[MAX_MSG];

	fill(want, len, i);
	CHECK(!memcmp(at, want, len));
}

/* ---- the folder of sockets: each program has a separate one ---- */

static char folder[] = "/tmp/comch-XXXXXX";

UNUSED static int drop(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	(void)st;
	(void)flag;
	(void)where;
	return remove(path);
}

UNUSED static int in_a_folder(int argc, char **argv)
{
	CHECK(mkdtemp(folder));
	setenv("XDG_RUNTIME_DIR", folder, 1);
	int rc = run_tests(argc, argv);
	nftw(folder, drop, 8, FTW_DEPTH | FTW_PHYS);
	return rc;
}

/* Returns the socket of the only server. Returns false if there is none. */
UNUSED static bool socket_path(struct sockaddr_un *a)
{
	char pattern[64];
	glob_t found;

	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(pattern, sizeof(pattern), "%s/dgkit/comch-*.sock", folder);
	if (glob(pattern, 0, NULL, &found))
		return false;
	CHECK_EQ(found.gl_pathc, 1);
	snprintf(a->sun_path, sizeof(a->sun_path), "%s", found.gl_pathv[0]);
	globfree(&found);
	return true;
}

UNUSED static bool leftovers(void)
{
	char pattern[64];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/dgkit/comch-*", folder);
	if (glob(pattern, 0, NULL, &found))
		return false;
	globfree(&found);
	return true;
}

/* Runs side(fd) in a separate process, which dies with this one. Call before this process has
 * called DOCA. */
UNUSED static pid_t other_process(void (*side)(int fd), int *fd)
{
	int fds[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	fflush(NULL);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		alarm(CHECK_SECONDS);
		side(fds[1]);
		exit(0);
	}
	close(fds[1]);
	*fd = fds[0];
	return pid;
}

UNUSED static void ended_well(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

UNUSED static void killed(pid_t pid)
{
	int status;

	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
}

/* The two processes of a test signal their progress to each other with a byte. */
UNUSED static void tell(int fd)
{
	CHECK_EQ(send(fd, "x", 1, MSG_NOSIGNAL), 1);
}

UNUSED static void hear(int fd)
{
	char c;

	CHECK_EQ(recv(fd, &c, 1, 0), 1);
}

#endif
