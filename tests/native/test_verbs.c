/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider verbs beyond the conformance suite: two processes, importers that act as on another
 * machine, rights, and connections that end in various ways. Without an RDMA device only the first
 * test runs; the stage testbed of tests/run sets DG_ONLY_PROVIDER and has a device.
 *
 * A descriptor with another boot id counts as one of another machine: the two sides are then
 * connected by RDMA only, without a share server and without shared gates.
 */
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "providers/verbs_provider.h"
#include "queue.h"
#include "share/descriptor.h"
#include "two_sides.h"

#define SIZE 65536

TEST(without_a_device_the_reason_and_a_remedy_are_given)
{
	dg_device *dev;

	if (!dg_provider_probe("verbs", true)) {
		CHECK_EQ(dg_device_open("verbs", NULL, &dev), 0);
		CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
		return;
	}
	CHECK(strstr(dg_last_error(), "RDMA"));
	CHECK_EQ(dg_device_open("verbs", NULL, &dev), -ENODEV);
	CHECK(strstr(dg_last_error(), "install rdma-core") || strstr(dg_last_error(), "rdma link"));
}

TEST(a_device_that_does_not_exist_is_named)
{
	dg_device_config config = { .rdma = "nowhere0" };
	dg_device *dev;

	CHECK_EQ(dg_device_open("verbs", &config, &dev), -ENODEV);
	CHECK_SAYS(dg_last_error(), "'nowhere0'");
}

static void opening_in_a_child(int fd)
{
	dg_device *dev;

	CHECK_EQ(dg_device_open("verbs", NULL, &dev), -ENODEV);
	CHECK_SAYS(dg_last_error(), "fork()");
	say_int(fd, 1);
}

TEST(a_forked_child_of_a_process_that_used_it_is_refused)
{
	dg_device *dev;
	struct other o;

	dev = device_spinning(0);
	o = start(opening_in_a_child);
	CHECK_EQ(hear_int(o.fd), 1);
	join(o);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* Changes a descriptor and packs it again. */
static struct token changed(const struct token *t, void (*change)(struct dg_descriptor *d))
{
	struct dg_descriptor d;
	struct token out;

	CHECK_EQ(dg_descriptor_parse(t->bytes, t->len, &d), 0);
	change(&d);
	out.len = dg_descriptor_pack(&d, out.bytes, sizeof(out.bytes));
	CHECK(out.len > 0);
	return out;
}

static void other_machine(struct dg_descriptor *d)
{
	d->boot_id[0] ^= 1;
}

static void other_key(struct dg_descriptor *d)
{
	other_machine(d);
	d->key[3] ^= 1;
}

static void other_size(struct dg_descriptor *d)
{
	other_machine(d);
	d->size++;
}

static void other_access(struct dg_descriptor *d)
{
	other_machine(d);
	d->access = RW;
}

static void other_port(struct dg_descriptor *d)
{
	other_machine(d);
	d->blob[2] = 0;
	d->blob[3] = 7;
}

static void other_family(struct dg_descriptor *d)
{
	other_machine(d);
	d->blob[1] = 5;
}

static void short_blob(struct dg_descriptor *d)
{
	other_machine(d);
	d->blob_length--;
}

/* The exporting process: two regions, the second of them read-only. Sends their descriptors, then
 * executes commands until the other side ends. */
enum ask { CLOSE_FIRST = 1, CHECK_FIRST, END };

static void exporting(int fd)
{
	dg_device *dev = device_spinning(0);
	uint8_t *bytes[2] = { pages(SIZE), pages(SIZE) };
	dg_region *r[2];
	struct token t;

	for (int i = 0; i < 2; i++) {
		fill(bytes[i], SIZE, i);
		r[i] = registered(dev, bytes[i], SIZE, RW);
		t = export_of(r[i], i ? DG_ACCESS_READ : RW);
		say(fd, &t, sizeof(t));
	}
	for (int what; hears(fd, &what, sizeof(what)) && what != END;) {
		if (what == CLOSE_FIRST)
			CHECK_EQ(dg_region_close(r[0], PATIENCE), 0);
		else
			check_pattern(bytes[0], 0, SIZE, 7);
		say_int(fd, what);
	}
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

static void asked(struct other o, int what)
{
	say_int(o.fd, what);
	CHECK_EQ(hear_int(o.fd), what);
}

struct pair_fix {
	struct other o;
	struct fix f;
	struct token t[2];
	dg_region *second;
};

static void pair_fix_open(struct pair_fix *p, bool far)
{
	p->o = start(exporting);
	for (int i = 0; i < 2; i++) {
		hear(p->o.fd, &p->t[i], sizeof(p->t[i]));
		if (far)
			p->t[i] = changed(&p->t[i], other_machine);
	}
	import_fix(&p->f, &p->t[0], SIZE, 16);
	p->second = import_of(p->f.dev, &p->t[1]);
}

static void pair_fix_close(struct pair_fix *p)
{
	fix_close(&p->f);
	say_int(p->o.fd, END);
	join(p->o);
}

static int status_of_read(struct pair_fix *p, dg_region *from)
{
	dg_wr wr = record(&p->f, DG_READ, SIZE, 0, 0);

	wr.remote = id_of(from);
	return done(&p->f.tq, &wr).status;
}

static void both_ways(bool far)
{
	dg_wr wr;

	FIXTURE(pair_fix, p, pair_fix_open, far);
	CHECK_EQ(info_of(p.f.remote).method, DG_METHOD_RDMA);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(status_of_read(&p, i ? p.second : p.f.remote), DG_OK);
		check_pattern(p.f.local_bytes, 0, SIZE, i);
	}
	fill(p.f.local_bytes, SIZE, 7);
	wr = record(&p.f, DG_WRITE, SIZE, 0, 0);
	CHECK_EQ(done(&p.f.tq, &wr).status, DG_OK);
	asked(p.o, CHECK_FIRST);
	wr.remote = id_of(p.second);
	CHECK_EQ(dg_queue_post(p.f.q, &wr, 1), -EACCES);
}

TEST(another_process_reads_and_writes)
{
	both_ways(false);
}

TEST(another_machine_reads_and_writes)
{
	both_ways(true);
}

static void closing(bool far)
{
	FIXTURE(pair_fix, p, pair_fix_open, far);
	CHECK_EQ(status_of_read(&p, p.f.remote), DG_OK);
	CHECK_EQ(status_of_read(&p, p.second), DG_OK);
	asked(p.o, CLOSE_FIRST);
	fill(p.f.local_bytes, SIZE, 9);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(status_of_read(&p, p.f.remote), DG_REMOTE_ACCESS_ERROR);
	check_pattern(p.f.local_bytes, 0, SIZE, 9);
	CHECK_EQ(info_of(p.f.remote).revoked, 1);
	CHECK_EQ(status_of_read(&p, p.second), DG_OK);
}

TEST(a_closed_region_refuses_another_process_and_others_go_on)
{
	closing(false);
}

TEST(a_closed_region_refuses_another_machine_and_others_go_on)
{
	closing(true);
}

/* The region is closed before the importer's queue has a connection for it. */
TEST(a_region_closed_before_its_first_transfer_is_refused)
{
	FIXTURE(pair_fix, p, pair_fix_open, true);
	asked(p.o, CLOSE_FIRST);
	CHECK_EQ(status_of_read(&p, p.f.remote), DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(status_of_read(&p, p.second), DG_OK);
}

static void killing_the_exporter(bool far, bool used)
{
	struct pair_fix p;
	dg_region *own;
	uint8_t *bytes;

	pair_fix_open(&p, far);
	bytes = pages(SIZE);
	own = imported(p.f.dev, registered(p.f.dev, bytes, SIZE, RW), RW);
	if (used)
		CHECK_EQ(status_of_read(&p, p.f.remote), DG_OK);
	kill_and_reap(p.o);
	CHECK_EQ(status_of_read(&p, p.f.remote), DG_PEER_LOST);
	CHECK_EQ(status_of_read(&p, p.f.remote), DG_PEER_LOST);
	CHECK_EQ(info_of(p.f.remote).lost, 1);
	CHECK_EQ(status_of_read(&p, own), DG_OK);
	fix_close(&p.f);
}

TEST(a_killed_exporter_is_lost_and_others_go_on)
{
	killing_the_exporter(false, true);
}

TEST(a_killed_exporter_on_another_machine_is_lost)
{
	killing_the_exporter(true, true);
}

TEST(an_exporter_killed_before_the_first_transfer_is_lost)
{
	killing_the_exporter(true, false);
}

static int status_of_run(struct pair_fix *p, dg_region *from, uint64_t size)
{
	dg_wr wr = record(&p->f, DG_READ, size, 0, 0);
	dg_wc wc;

	wr.remote = id_of(from);
	CHECK_EQ(dg_queue_run(p->f.q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.size, wc.status ? 0 : size);
	return wc.status;
}

/* A single operation of an idle queue is executed directly, without the ring. */
TEST(an_operation_that_is_run_ends_as_one_that_is_posted)
{
	struct pair_fix p;

	pair_fix_open(&p, true);
	for (int i = 0; i < 40; i++) {
		memset(p.f.local_bytes, 0, SIZE);
		CHECK_EQ(status_of_run(&p, i % 2 ? p.second : p.f.remote, i % 3 ? 64 : SIZE), DG_OK);
		check_pattern(p.f.local_bytes, 0, i % 3 ? 64 : SIZE, i % 2);
	}
	asked(p.o, CLOSE_FIRST);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(status_of_run(&p, p.f.remote, 64), DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(status_of_run(&p, p.second, 64), DG_OK);
	kill_and_reap(p.o);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(status_of_run(&p, p.second, 64), DG_PEER_LOST);
	fix_close(&p.f);
}

/* Imports as if on another machine, and posts reads until it is killed. */
static void reading_on(int fd)
{
	struct token t;
	struct fix f;
	dg_wc wc;

	hear(fd, &t, sizeof(t));
	import_fix(&f, &t, SIZE, 16);
	for (int i = 0;; i++) {
		const dg_wr wr = record(&f, DG_READ, SIZE, 0, 0);

		CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, 20 * SECOND), 1);
		CHECK_EQ(wc.status, DG_OK);
		if (!i)
			say_int(fd, 1);
	}
}

/* A region of this process that the other process imports as if on another machine. */
struct lent {
	struct other o;
	dg_device *dev;
	dg_region *r;
};

static struct lent lent_to(void (*side)(int fd))
{
	struct lent l = { .o = start(side) };
	struct token t;

	l.dev = device_spinning(0);
	l.r = registered(l.dev, pages(SIZE), SIZE, RW);
	CHECK_EQ(info_of(l.r).importers, 0);
	t = export_of(l.r, RW);
	t = changed(&t, other_machine);
	say(l.o.fd, &t, sizeof(t));
	CHECK_EQ(hear_int(l.o.fd), 1);
	CHECK_EQ(info_of(l.r).importers, 1);
	return l;
}

TEST(a_killed_importer_does_not_delay_a_close)
{
	struct lent l = lent_to(reading_on);

	kill_and_reap(l.o);
	CHECK_EQ(dg_region_close(l.r, PATIENCE), 0);
	CHECK_EQ(dg_device_close(l.dev, PATIENCE), 0);
}

static void refused_import(struct pair_fix *p, int which, void (*change)(struct dg_descriptor *d), int want,
			   const char *text)
{
	struct token t = changed(&p->t[which], change);
	dg_region *r;

	CHECK_EQ(dg_region_import(p->f.dev, t.bytes, t.len, 10 * SECOND, &r), want);
	CHECK_SAYS(dg_last_error(), text);
}

static void other_network(struct dg_descriptor *d)
{
	static const uint8_t address[] = { 192, 0, 2, 1 };

	other_machine(d);
	memcpy(d->blob + 4, address, sizeof(address));
}

static void silent_address(struct dg_descriptor *d)
{
	other_machine(d);
	d->blob[7] = 77;
}

TEST(a_descriptor_whose_address_is_not_reached_names_it_and_the_device)
{
	FIXTURE(pair_fix, p, pair_fix_open, false);
	refused_import(&p, 0, other_network, -EXDEV, "address 192.0.2.1 is not on the network of rxe0 (10.9.0.");
	CHECK_SAYS(dg_last_error(), "ip route get 192.0.2.1");
	refused_import(&p, 0, silent_address, -ENOTCONN, "address 10.9.0.77 does not answer on the network of rxe0");
	CHECK_EQ(status_of_read(&p, p.second), DG_OK);
}

/* Makes the kernel enforce the limit of locked memory, from which CAP_IPC_LOCK exempts a
 * process. */
TEST(memory_beyond_the_limit_of_locked_memory_is_refused_with_both)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct rights[2];
	const struct rlimit limit = { 256 << 10, 256 << 10 };
	dg_device *dev;
	dg_memory m;
	dg_region *r;

	dev = device_spinning(0);
	CHECK_EQ(syscall(SYS_capget, &header, rights), 0);
	rights[0].effective &= ~(1u << CAP_IPC_LOCK);
	CHECK_EQ(syscall(SYS_capset, &header, rights), 0);
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	m = plain_memory(pages(1 << 20), 1 << 20);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -ENOMEM);
	CHECK_SAYS(dg_last_error(), "rxe0 cannot pin 1048576 bytes");
	CHECK_SAYS(dg_last_error(), "limit of locked memory is 256 KiB, and 1024 KiB are needed");
	CHECK_SAYS(dg_last_error(), "ulimit -l");
	m.size = 65536;
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* Soft-RoCE offers on-demand paging since Linux 6.15, but implements it incorrectly. */
TEST(memory_on_demand_is_refused_by_a_device_in_software)
{
	dg_memory m = plain_memory(pages(SIZE), SIZE);
	dg_device *dev = device_spinning(0);
	dg_region *r;

	m.flags |= DG_MEMORY_ON_DEMAND;
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "rxe0 cannot register memory on demand");
	CHECK_SAYS(dg_last_error(), "leave on_demand out");
	m.flags = 0;
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), 0);
	CHECK_EQ(info_of(r).registration, DG_REGISTRATION_PINNED);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* Modifies events of the connection manager before the provider sees them. */
static int (*next_event)(struct rdma_event_channel *c, struct rdma_cm_event **e);
static int (*ack_event)(struct rdma_cm_event *e);
static struct rdma_cm_event repeated, *last_event;
static int n_repeated;
static bool removal;

/* Delivers each event twice. */
static int repeat(struct rdma_event_channel *c, struct rdma_cm_event **e)
{
	if (last_event) {
		last_event = NULL;
		*e = &repeated;
		n_repeated++;
		return 0;
	}
	if (next_event(c, e))
		return -1;
	if ((*e)->event != RDMA_CM_EVENT_CONNECT_REQUEST && (*e)->event != RDMA_CM_EVENT_DISCONNECTED) {
		repeated = (struct rdma_cm_event){ .id = (*e)->id, .event = (*e)->event };
		last_event = &repeated;
	}
	return 0;
}

static int ack_unless_repeated(struct rdma_cm_event *e)
{
	return e == &repeated ? 0 : ack_event(e);
}

TEST(events_that_are_repeated_do_no_harm)
{
	CHECK_EQ(dg_verbs_load(), 0);
	next_event = dg_verbs.rdma_get_cm_event;
	ack_event = dg_verbs.rdma_ack_cm_event;
	dg_verbs.rdma_get_cm_event = repeat;
	dg_verbs.rdma_ack_cm_event = ack_unless_repeated;
	FIXTURE(fix, f, fix_open, SIZE, 16);
	for (int i = 0; i < 3; i++) {
		const dg_wr wr = record(&f, DG_READ, SIZE, 0, 0);
		dg_region *again = imported(f.dev, f.source, RW);

		CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
		CHECK_EQ(dg_region_close(again, PATIENCE), 0);
	}
	CHECK(n_repeated >= 12);
}

/* Delivers the exporter's answer once, before the address is resolved. */
static int answer_first(struct rdma_event_channel *c, struct rdma_cm_event **e)
{
	if (next_event(c, e))
		return -1;
	if ((*e)->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		(*e)->event = RDMA_CM_EVENT_ESTABLISHED;
	return 0;
}

TEST(an_answer_that_was_not_asked_for_is_ignored_and_the_import_ends_in_time)
{
	dg_device *dev;
	dg_region *r;
	struct token t;

	CHECK_EQ(dg_verbs_load(), 0);
	next_event = dg_verbs.rdma_get_cm_event;
	dg_verbs.rdma_get_cm_event = answer_first;
	dev = device_spinning(0);
	t = export_of(registered(dev, pages(SIZE), SIZE, RW), RW);
	CHECK_EQ(dg_region_import(dev, t.bytes, t.len, 10 * SECOND, &r), -ETIMEDOUT);
	CHECK_SAYS(dg_last_error(), "did not answer within 5 s");
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* Makes the next connection's first event report that its device was removed. */
static int remove_device(struct rdma_event_channel *c, struct rdma_cm_event **e)
{
	if (next_event(c, e))
		return -1;
	if (removal && (*e)->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		(*e)->event = RDMA_CM_EVENT_DEVICE_REMOVAL;
	return 0;
}

TEST(a_device_that_was_removed_is_named)
{
	dg_memory m = plain_memory(pages(SIZE), SIZE);
	struct token t;
	dg_region *r;
	dg_wr wr;

	CHECK_EQ(dg_verbs_load(), 0);
	next_event = dg_verbs.rdma_get_cm_event;
	dg_verbs.rdma_get_cm_event = remove_device;
	FIXTURE(fix, f, fix_open, SIZE, 16);
	t = export_of(f.source, RW);
	wr = record(&f, DG_READ, SIZE, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	removal = true;
	CHECK_EQ(dg_region_import(f.dev, t.bytes, t.len, 10 * SECOND, &r), -ENODEV);
	CHECK_SAYS(dg_last_error(), "rxe0 was removed");
	CHECK_EQ(dg_region_register(f.dev, &m, RW, &r), -ENODEV);
	CHECK_SAYS(dg_last_error(), "close this device, and open another one");
}

/* Sends requests with an invalid magic number, each with a new id, as many as there is time for. */
static void flooding(int fd)
{
	enum { N = 400 };
	static struct rdma_cm_id *ids[N];
	struct rdma_event_channel *channel;
	struct rdma_cm_event *e;
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct verbs_blob blob;
	int next = 0;

	hear(fd, &blob, sizeof(blob));
	to.sin_port = blob.port;
	memcpy(&to.sin_addr, blob.address, 4);
	CHECK_EQ(dg_verbs_load(), 0);
	channel = dg_verbs.rdma_create_event_channel();
	CHECK(channel);
	for (; next < N; next++) {
		CHECK_EQ(dg_verbs.rdma_create_id(channel, &ids[next], NULL, RDMA_PS_TCP), 0);
		CHECK_EQ(dg_verbs.rdma_resolve_addr(ids[next], NULL, (struct sockaddr *)&to, 2000), 0);
	}
	say_int(fd, 1);
	while (!dg_verbs.rdma_get_cm_event(channel, &e)) {
		struct rdma_conn_param param = { .private_data = "junk", .private_data_len = 4,
						 .qp_num = 17, .retry_count = 6 };
		struct rdma_cm_id *id = e->id;
		int event = e->event;

		dg_verbs.rdma_ack_cm_event(e);
		if (event == RDMA_CM_EVENT_ADDR_RESOLVED)
			dg_verbs.rdma_resolve_route(id, 2000);
		else if (event == RDMA_CM_EVENT_ROUTE_RESOLVED)
			dg_verbs.rdma_connect(id, &param);
		else
			dg_verbs.rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000);
	}
}

TEST(an_importer_is_served_among_a_flood_of_requests)
{
	struct other o = start(flooding);
	struct dg_descriptor d;
	struct token t;

	FIXTURE(fix, f, fix_open, SIZE, 16);
	t = export_of(f.source, RW);
	CHECK_EQ(dg_descriptor_parse(t.bytes, t.len, &d), 0);
	say(o.fd, d.blob, sizeof(struct verbs_blob));
	CHECK_EQ(hear_int(o.fd), 1);
	for (int i = 0; i < 5; i++) {
		dg_wr wr = record(&f, DG_READ, SIZE, 0, 0);
		dg_region *r = import_of(f.dev, &t);

		wr.remote = id_of(r);
		CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
		CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	}
	kill_and_reap(o);
}

TEST(forged_and_stale_descriptors_are_refused)
{
	FIXTURE(pair_fix, p, pair_fix_open, false);
	refused_import(&p, 0, other_key, -ENOKEY, "no region for this descriptor");
	refused_import(&p, 0, other_size, -EBADMSG, "65537 bytes");
	refused_import(&p, 1, other_access, -EBADMSG, "was altered");
	refused_import(&p, 0, other_family, -EBADMSG, "IPv5");
	refused_import(&p, 0, short_blob, -EBADMSG, "19 bytes");
	refused_import(&p, 0, other_port, -ENOTCONN, "nothing listens");
	asked(p.o, CLOSE_FIRST);
	refused_import(&p, 0, other_machine, -ENOKEY, "no region for this descriptor");
	CHECK_EQ(status_of_read(&p, p.second), DG_OK);
}

/* Finds the endpoint's connection to a region. */
static struct verbs_conn *endpoint_of(dg_device *dev, const struct verbs_region *t)
{
	struct verbs *d = dev->provider;

	for (struct verbs_conn *c = d->conns; c; c = c->next)
		if ((c->request.flags & REQUEST_ENDPOINT) && !memcmp(c->request.key, t->key, sizeof(t->key)))
			return c;
	return NULL;
}

/* An importer has the rkeys of two regions from the exporter, a writable and a read-only one.
 * Exchanging them in its requests must not open anything. */
TEST(an_rkey_opens_nothing_to_another_connection)
{
	struct verbs_conn *first, *second;

	FIXTURE(pair_fix, p, pair_fix_open, true);
	CHECK_EQ(status_of_read(&p, p.f.remote), DG_OK);
	CHECK_EQ(status_of_read(&p, p.second), DG_OK);
	first = endpoint_of(p.f.dev, p.f.remote->provider_state);
	second = endpoint_of(p.f.dev, p.second->provider_state);
	CHECK(first && second && first != second);
	second->reply.rkey = first->reply.rkey;
	fill(p.f.local_bytes, SIZE, 9);
	CHECK_EQ(status_of_read(&p, p.second), DG_REMOTE_ACCESS_ERROR);
	check_pattern(p.f.local_bytes, 0, SIZE, 9);
	CHECK_EQ(status_of_read(&p, p.f.remote), DG_OK);
}

/* A region that is exported read-only is protected by the adapter, not just by the importer's own
 * check. */
static void refused_by_the_adapter(uint32_t op, uint64_t size)
{
	dg_wr wr;
	dg_wc wc;

	FIXTURE(pair_fix, p, pair_fix_open, true);
	p.second->entry->access = RW;
	fill(p.f.local_bytes, SIZE, 9);
	wr = record(&p.f, op, size, 0, 0);
	wr.remote = id_of(p.second);
	CHECK_EQ(dg_queue_run(p.f.q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_REMOTE_ACCESS_ERROR);
	check_pattern(p.f.local_bytes, 0, SIZE, 9);
}

TEST(a_write_to_a_read_only_export_is_refused_by_the_adapter)
{
	refused_by_the_adapter(DG_WRITE, SIZE);
}

TEST(an_atomic_on_a_read_only_export_is_refused_by_the_adapter)
{
	refused_by_the_adapter(DG_FETCH_ADD, 8);
}

TEST(an_exporter_whose_adapter_has_no_atomics_is_named)
{
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fix_open, SIZE, 16);
	((struct verbs *)f.dev->provider)->atomics = IBV_ATOMIC_NONE; /* its answer from now on */
	wr = record(&f, DG_FETCH_ADD, 8, 0, 0);
	wr.remote = id_of(imported(f.dev, f.source, RW));
	CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, 20 * SECOND), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "adapter of the exporter");
	wr.op = DG_READ;
	CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
}

/* The region's own registration, which all of its windows refer to, gives no remote access. */
TEST(the_rkey_of_the_regions_own_registration_opens_nothing)
{
	const struct verbs_region *t;
	dg_wr wr;

	FIXTURE(fix, f, fix_open, SIZE, 16);
	wr = record(&f, DG_READ, SIZE, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	t = f.source->provider_state;
	CHECK(((struct verbs *)f.dev->provider)->windows);
	endpoint_of(f.dev, f.remote->provider_state)->reply.rkey = t->mr->rkey;
	CHECK_EQ(done(&f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
}

static int (*query_device)(struct ibv_context *c, struct ibv_device_attr *a);
static int query_without_windows(struct ibv_context *c, struct ibv_device_attr *a)
{
	int rc = query_device(c, a);

	a->device_cap_flags &= ~(unsigned)IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	return rc;
}

/* Simulates an adapter without memory windows: each connection has a registration. */
static void has_no_windows(void)
{
	CHECK_EQ(dg_verbs_load(), 0);
	query_device = dg_verbs.ibv_query_device;
	dg_verbs.ibv_query_device = query_without_windows;
}

TEST(without_windows_a_closed_region_refuses_another_machine)
{
	has_no_windows();
	closing(true);
}

TEST(without_windows_an_rkey_opens_nothing_to_another_connection)
{
	has_no_windows();
	an_rkey_opens_nothing_to_another_connection();
}

TEST(without_windows_a_write_to_a_read_only_export_is_refused)
{
	has_no_windows();
	a_write_to_a_read_only_export_is_refused_by_the_adapter();
}

static struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *a);
static int n_refused_windows;

static struct ibv_mw *no_window(struct ibv_pd *pd, int type)
{
	(void)pd;
	(void)type;
	n_refused_windows++;
	errno = ENOMEM;
	return NULL;
}

static struct ibv_qp *create_qp_without_windows(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp *qp = create_qp(pd, a);

	if (qp)
		qp->context->alloc_mw = no_window;
	return qp;
}

/* The adapter reports windows, but cannot create any. */
TEST(where_a_window_cannot_be_made_a_registration_takes_its_place)
{
	dg_wr wr;

	CHECK_EQ(dg_verbs_load(), 0);
	create_qp = dg_verbs.ibv_create_qp;
	dg_verbs.ibv_create_qp = create_qp_without_windows;
	FIXTURE(fix, f, fix_open, SIZE, 16);
	wr = record(&f, DG_READ, SIZE, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	CHECK_EQ(n_refused_windows, 1);
	CHECK_EQ(dg_region_close(f.source, PATIENCE), 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
}

/* Imports as if on another machine, posts 16 reads of 64 KiB, and reaps them only on request. */
static void reading_without_reaping(int fd)
{
	enum { N = 16 };
	struct token t;
	dg_wr wrs[N];
	dg_wc wcs[N];
	int n_ok = 0;

	hear(fd, &t, sizeof(t));
	FIXTURE(fix, f, import_fix, &t, SIZE, N);
	wrs[0] = record(&f, DG_READ, SIZE, 0, 0);
	CHECK_EQ(done(&f.tq, &wrs[0]).status, DG_OK);
	for (int i = 0; i < N; i++)
		wrs[i] = wrs[0];
	CHECK_EQ(dg_queue_post(f.q, wrs, N), 0);
	say_int(fd, 1);
	CHECK_EQ(hear_int(fd), 2);
	for (int got = 0; got < N;) {
		int n = dg_queue_poll(f.q, wcs, N, 20 * SECOND);

		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			n_ok += wcs[i].status == DG_OK;
			CHECK(wcs[i].status == DG_OK || wcs[i].status == DG_REMOTE_ACCESS_ERROR);
		}
		got += n;
	}
	/* The adapter refused nothing: a refusal would have broken the connection. */
	CHECK(endpoint_of(f.dev, f.remote->provider_state));
	CHECK(!((struct verbs_queue *)f.q->pipe.provider)->any_broken);
	CHECK_EQ(info_of(f.remote).revoked, 1);
	CHECK_EQ(done(&f.tq, &wrs[0]).status, DG_REMOTE_ACCESS_ERROR);
	printf("     %d of %d ended well\n", n_ok, N);
	say_int(fd, 3);
}

TEST(a_close_waits_until_another_machine_has_stopped_and_refuses_nothing_in_flight)
{
	struct lent l = lent_to(reading_without_reaping);

	CHECK_EQ(dg_region_close(l.r, PATIENCE), 0);
	say_int(l.o.fd, 2);
	CHECK_EQ(hear_int(l.o.fd), 3);
	join(l.o);
	CHECK_EQ(dg_device_close(l.dev, PATIENCE), 0);
}

/* Reads, and reads again on request. */
static void reading_twice(int fd)
{
	struct token t;
	dg_wr wr;

	hear(fd, &t, sizeof(t));
	FIXTURE(fix, f, import_fix, &t, SIZE, 16);
	wr = record(&f, DG_READ, SIZE, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	say_int(fd, 1);
	CHECK_EQ(hear_int(fd), 2);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(done(&f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
}

TEST(an_importer_that_does_not_answer_loses_its_rights_and_the_close_is_repeated)
{
	struct lent l = lent_to(reading_twice);

	stop(l.o);
	CHECK_EQ(dg_region_close(l.r, SECOND / 2), -EBUSY);
	CHECK_SAYS(dg_last_error(), "the importer at 10.9.0.");
	CHECK_SAYS(dg_last_error(), "close it again");
	CHECK_EQ(dg_region_close(l.r, SECOND / 2), 0);
	resume(l.o);
	say_int(l.o.fd, 2);
	join(l.o);
	CHECK_EQ(dg_device_close(l.dev, PATIENCE), 0);
}

TEST(a_queue_reaches_more_regions_than_it_has_endpoints)
{
	enum { N = VERBS_ENDPOINTS + 20 };
	static dg_region *source[N], *remote[N];
	uint8_t *bytes;

	FIXTURE(fix, f, fix_open, 4096, 16);
	bytes = pages(N * 4096);
	for (int i = 0; i < N; i++) {
		bytes[i * 4096] = (uint8_t)i;
		source[i] = registered(f.dev, bytes + i * 4096, 4096, RW);
		remote[i] = imported(f.dev, source[i], RW);
	}
	for (int i = 0; i < N; i++) {
		dg_wr wr = record(&f, DG_READ, 4096, 0, 0);

		wr.remote = id_of(remote[i]);
		CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
		CHECK_EQ(f.local_bytes[0], (uint8_t)i);
	}
}

TEST_MAIN(run_verbs_tests)
