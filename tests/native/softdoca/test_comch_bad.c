// SPDX-License-Identifier: Apache-2.0
/* Comch with invalid input: wrong handles, values and order of calls. */
#include "comch_check.h"

/* ---- handles ---- */

/* A connected pair: valid arguments of the calls below, besides the handle under test. */
static struct side s, c;
static struct doca_comch_task_send *task_out;
static struct doca_comch_client *client_out;
static struct doca_comch_server *server_out;
static struct doca_comch_connection *connection_out;
static struct doca_dev *dev_out;
static struct doca_dev_rep *rep_out;
static uint32_t number;

CALL(cap_client, doca_comch_cap_client_is_supported(h))
CALL(cap_server, doca_comch_cap_server_is_supported(h))
CALL(cap_msg, doca_comch_cap_get_max_msg_size(h, &number))
CALL(cap_name, doca_comch_cap_get_max_name_len(h, &number))
CALL(cap_recv, doca_comch_cap_get_max_recv_queue_size(h, &number))
CALL(cap_clients, doca_comch_cap_get_max_clients(h, &number))
CALL(cap_tasks, doca_comch_cap_get_max_send_tasks(h, &number))
CALL(client_create, doca_comch_client_create(h, "x", &client_out))
CALL(client_destroy, doca_comch_client_destroy(h))
CALL(client_conf, doca_comch_client_task_send_set_conf(h, sent_cb, failed_cb, 1))
CALL(client_recv, doca_comch_client_event_msg_recv_register(h, message_cb))
CALL(client_consumer, doca_comch_client_event_consumer_register(h, consumer_cb, consumer_cb))
CALL(client_set_msg, doca_comch_client_set_max_msg_size(h, 8))
CALL(client_get_msg, doca_comch_client_get_max_msg_size(h, &number))
CALL(client_set_recv, doca_comch_client_set_recv_queue_size(h, 8))
CALL(client_get_recv, doca_comch_client_get_recv_queue_size(h, &number))
CALL(client_get_dev, doca_comch_client_get_device(h, &dev_out))
CALL(client_connection, doca_comch_client_get_connection(h, &connection_out))
CALL(client_send, doca_comch_client_task_send_alloc_init(h, c.peer, "x", 1, &task_out))
CALL(client_peer, doca_comch_client_task_send_alloc_init(c.client, h, "x", 1, &task_out))
CALL(server_create, doca_comch_server_create(h, s.rep, "x", &server_out))
CALL(server_rep, doca_comch_server_create(s.dev, h, "x", &server_out))
CALL(server_destroy, doca_comch_server_destroy(h))
CALL(server_conf, doca_comch_server_task_send_set_conf(h, sent_cb, failed_cb, 1))
CALL(server_recv, doca_comch_server_event_msg_recv_register(h, message_cb))
CALL(server_status,
     doca_comch_server_event_connection_status_changed_register(h, connect_cb, disconnect_cb))
CALL(server_consumer, doca_comch_server_event_consumer_register(h, consumer_cb, consumer_cb))
CALL(server_set_msg, doca_comch_server_set_max_msg_size(h, 8))
CALL(server_get_msg, doca_comch_server_get_max_msg_size(h, &number))
CALL(server_set_recv, doca_comch_server_set_recv_queue_size(h, 8))
CALL(server_get_recv, doca_comch_server_get_recv_queue_size(h, &number))
CALL(server_get_dev, doca_comch_server_get_device(h, &dev_out))
CALL(server_get_rep, doca_comch_server_get_device_repr(h, &rep_out))
CALL(server_disconnect, doca_comch_server_disconnect(h, s.peer))
CALL(server_disconnect_peer, doca_comch_server_disconnect(s.server, h))
CALL(server_send, doca_comch_server_task_send_alloc_init(h, s.peer, "x", 1, &task_out))
CALL(server_peer, doca_comch_server_task_send_alloc_init(s.server, h, "x", 1, &task_out))
CALL(set_data, doca_comch_connection_set_user_data(h, (union doca_data){0}))
CALL(submit, doca_task_submit(h))

TEST(every_function_refuses_what_is_no_handle_of_its_kind)
{
	struct doca_comch_client *dead;

	a_pair(&s, &c, "handles");
	OK(doca_comch_client_create(c.dev, "dead", &dead));
	OK(doca_comch_client_destroy(dead));
	/* The engine is a valid object of a kind that none of the functions accepts. */
	void *const handles[] = NO_HANDLES((void *)s.pe);
	all_refuse(handles, sizeof(handles) / sizeof(handles[0]));
	void *const dead_one[] = {dead};
	all_refuse(dead_one, 1);
	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
		CHECK(!doca_comch_client_as_ctx(handles[i]));
		CHECK(!doca_comch_server_as_ctx(handles[i]));
		CHECK(!doca_comch_task_send_as_task(handles[i]));
		CHECK(!doca_comch_server_get_server_ctx(handles[i]));
		CHECK(!doca_comch_client_get_client_ctx(handles[i]));
		CHECK_EQ(doca_comch_connection_get_user_data(handles[i]).u64, 0);
	}
	/* A client is not a server, and a connection of one side does not belong to the other. */
	REFUSED(doca_comch_server_destroy((void *)c.client), INVALID_VALUE);
	REFUSED(doca_comch_client_destroy((void *)s.server), INVALID_VALUE);
	REFUSED(server_peer(c.peer), INVALID_VALUE);
	REFUSED(client_peer(s.peer), INVALID_VALUE);
	REFUSED(server_disconnect_peer(c.peer), INVALID_VALUE);
	both_stopped(&s, &c);
}

/* ---- values ---- */

TEST(every_missing_or_absurd_value_is_refused)
{
	char name[200];

	a_server(&s, "values");
	a_client(&c, "values");
	memset(name, 'n', sizeof(name));
	name[120] = '\0';
	REFUSED(doca_comch_client_create(c.dev, NULL, &client_out), INVALID_VALUE);
	REFUSED(doca_comch_client_create(c.dev, "", &client_out), INVALID_VALUE);
	REFUSED(doca_comch_client_create(c.dev, name, &client_out), INVALID_VALUE);
	REFUSED(doca_comch_client_create(c.dev, "x", NULL), INVALID_VALUE);
	REFUSED(doca_comch_server_create(s.dev, s.rep, NULL, &server_out), INVALID_VALUE);
	REFUSED(doca_comch_server_create(s.dev, s.rep, name, &server_out), INVALID_VALUE);
	REFUSED(doca_comch_server_create(s.dev, s.rep, "x", NULL), INVALID_VALUE);
	name[119] = '\0';
	OK(doca_comch_client_create(c.dev, name, &client_out));
	OK(doca_comch_client_destroy(client_out));

	REFUSED(doca_comch_client_set_max_msg_size(c.client, 0), INVALID_VALUE);
	REFUSED(doca_comch_client_set_max_msg_size(c.client, MAX_MSG + 1), INVALID_VALUE);
	REFUSED(doca_comch_server_set_max_msg_size(s.server, UINT32_MAX), INVALID_VALUE);
	REFUSED(doca_comch_server_set_recv_queue_size(s.server, 0), INVALID_VALUE);
	REFUSED(doca_comch_client_set_recv_queue_size(c.client, UINT32_MAX), INVALID_VALUE);
	REFUSED(doca_comch_client_get_max_msg_size(c.client, NULL), INVALID_VALUE);
	REFUSED(doca_comch_server_get_max_msg_size(s.server, NULL), INVALID_VALUE);
	REFUSED(doca_comch_client_get_connection(c.client, NULL), INVALID_VALUE);
	REFUSED(doca_comch_client_task_send_set_conf(c.client, NULL, failed_cb, 1), INVALID_VALUE);
	REFUSED(doca_comch_client_task_send_set_conf(c.client, sent_cb, NULL, 1), INVALID_VALUE);
	REFUSED(doca_comch_client_task_send_set_conf(c.client, sent_cb, failed_cb, 0),
		INVALID_VALUE);
	REFUSED(doca_comch_server_task_send_set_conf(s.server, sent_cb, failed_cb, UINT32_MAX),
		INVALID_VALUE);
	REFUSED(doca_comch_client_event_msg_recv_register(c.client, NULL), INVALID_VALUE);
	REFUSED(doca_comch_server_event_msg_recv_register(s.server, NULL), INVALID_VALUE);
	REFUSED(doca_comch_server_event_connection_status_changed_register(s.server, connect_cb,
									   NULL),
		INVALID_VALUE);
	REFUSED(doca_comch_server_event_consumer_register(s.server, NULL, consumer_cb),
		INVALID_VALUE);
	REFUSED(doca_comch_cap_get_max_msg_size(doca_dev_as_devinfo(c.dev), NULL), INVALID_VALUE);
	destroyed(&c);
	destroyed(&s);
}

TEST(a_message_is_between_one_byte_and_the_smaller_limit_of_both_sides)
{
	struct doca_task *task;
	uint8_t bytes[MAX_MSG + 1] = {1};

	a_server(&s, "limits");
	a_client(&c, "limits");
	OK(doca_comch_cap_get_max_msg_size(doca_dev_as_devinfo(s.dev), &number));
	CHECK_EQ(number, MAX_MSG);
	OK(doca_comch_server_get_max_msg_size(s.server, &number));
	CHECK_EQ(number, MAX_MSG);
	OK(doca_comch_server_set_max_msg_size(s.server, 100));
	OK(doca_comch_client_set_recv_queue_size(c.client, 16));
	OK(doca_comch_client_get_recv_queue_size(c.client, &number));
	CHECK_EQ(number, 16);
	OK(doca_ctx_start(s.ctx));
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL2(&s, &c, running(&c));
	connected(&c);
	REFUSED(alloc_send(&s, s.peer, bytes, 101, &task), INVALID_VALUE);
	REFUSED(alloc_send(&c, c.peer, bytes, 101, &task), INVALID_VALUE);
	REFUSED(alloc_send(&c, c.peer, bytes, MAX_MSG + 1, &task), INVALID_VALUE);
	REFUSED(alloc_send(&c, c.peer, bytes, 0, &task), INVALID_VALUE);
	REFUSED(alloc_send(&c, c.peer, NULL, 1, &task), INVALID_VALUE);
	REFUSED(doca_comch_client_task_send_alloc_init(c.client, c.peer, bytes, 1, NULL),
		INVALID_VALUE);
	say(&c, bytes, 100);
	say(&s, bytes, 1);
	UNTIL2(&s, &c, s.received && c.received);
	both_stopped(&s, &c);
}

/* ---- orders ---- */

TEST(nothing_is_configured_or_destroyed_while_it_runs)
{
	struct doca_task *task, *again;

	a_pair(&s, &c, "running");
	REFUSED(doca_ctx_start(s.ctx), BAD_STATE);
	REFUSED(client_destroy(c.client), BAD_STATE);
	REFUSED(server_destroy(s.server), BAD_STATE);
	REFUSED(client_conf(c.client), BAD_STATE);
	REFUSED(client_recv(c.client), BAD_STATE);
	REFUSED(client_consumer(c.client), BAD_STATE);
	REFUSED(client_set_msg(c.client), BAD_STATE);
	REFUSED(client_set_recv(c.client), BAD_STATE);
	REFUSED(server_conf(s.server), BAD_STATE);
	REFUSED(server_recv(s.server), BAD_STATE);
	REFUSED(server_status(s.server), BAD_STATE);
	REFUSED(server_consumer(s.server), BAD_STATE);
	REFUSED(server_set_msg(s.server), BAD_STATE);
	REFUSED(server_set_recv(s.server), BAD_STATE);
	/* A task in flight can be neither submitted again nor freed; a task that is not in flight
	 * keeps its context in use. */
	OK(alloc_send(&c, c.peer, "x", 1, &task));
	OK(doca_task_submit(task));
	CHECK(doca_task_submit(task) != DOCA_SUCCESS);
	doca_task_free(task);
	UNTIL(&c, c.sent);
	doca_task_free(task); /* the callback has freed it */
	OK(alloc_send(&c, c.peer, "x", 1, &again));
	REFUSED(doca_ctx_stop(c.ctx), IN_PROGRESS);
	CHECK(doca_task_submit(again) != DOCA_SUCCESS);
	doca_task_free(again);
	UNTIL(&c, idle(&c));
	REFUSED(client_connection(c.client), BAD_STATE);
	CHECK(doca_task_submit(again) != DOCA_SUCCESS);
	REFUSED(client_peer(c.peer), INVALID_VALUE);
	destroyed(&c);
	stopped(&s);
}

TEST(nothing_starts_that_is_not_configured)
{
	struct doca_comch_client *client;
	struct doca_comch_server *server;
	struct doca_pe *pe;

	a_server(&s, "bare");
	OK(doca_pe_create(&pe));
	OK(doca_comch_client_create(s.dev, "bare", &client));
	OK(doca_comch_server_create(s.dev, s.rep, "bare 2", &server));
	OK(doca_pe_connect_ctx(pe, doca_comch_client_as_ctx(client)));
	OK(doca_pe_connect_ctx(pe, doca_comch_server_as_ctx(server)));
	REFUSED(doca_ctx_start(doca_comch_client_as_ctx(client)), BAD_STATE);
	REFUSED(doca_ctx_start(doca_comch_server_as_ctx(server)), BAD_STATE);
	OK(client_conf(client));
	REFUSED(doca_ctx_start(doca_comch_client_as_ctx(client)), BAD_STATE);
	OK(server_conf(server));
	OK(server_recv(server));
	REFUSED(doca_ctx_start(doca_comch_server_as_ctx(server)), BAD_STATE);
	OK(doca_comch_client_destroy(client));
	OK(doca_comch_server_destroy(server));
	OK(doca_pe_destroy(pe));
	destroyed(&s);
}

TEST(a_side_without_the_capability_is_refused)
{
	struct doca_dev *dev;

	setenv("SOFTDOCA_SIDE", "host", 1);
	dev = a_comch_dev(doca_comch_cap_client_is_supported);
	REFUSED(doca_comch_cap_server_is_supported(doca_dev_as_devinfo(dev)), NOT_SUPPORTED);
	OK(doca_dev_close(dev));
	setenv("SOFTDOCA_SIDE", "dpu", 1);
	dev = a_comch_dev(doca_comch_cap_server_is_supported);
	REFUSED(doca_comch_cap_client_is_supported(doca_dev_as_devinfo(dev)), NOT_SUPPORTED);
	REFUSED(doca_comch_client_create(dev, "x", &client_out), NOT_SUPPORTED);
	OK(doca_dev_close(dev));
}

TEST_MAIN(in_a_folder)
