/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs that are connected by hand. Without an RDMA device only the first test runs; the
 * stage testbed of tests/run sets DG_ONLY_PROVIDER and has a device.
 *
 * Both ends belong to one device, but to different queues: `near` posts, `far` grants.
 */
#include <sys/wait.h>

#include "providers/verbs_provider.h"
#include "two_sides.h"

enum { SIZE = 65536, N = 64 };

TEST(a_provider_without_queue_pairs_names_the_one_that_has_them)
{
	dg_device *dev;
	dg_queue *q;
	dg_qp *qp;

	CHECK_EQ(dg_device_open("soft", NULL, &dev), 0);
	CHECK_EQ(dg_queue_open(dev, 4, DG_PATH_AUTO, 0, PATIENCE, &q), 0);
	CHECK_EQ(dg_qp_open(q, &qp), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "provider soft has no queue pairs: open a device with the provider verbs");
	CHECK(!qp);
	dg_queue_free(q);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

struct ends {
	struct fix f; /* `far` grants source; `near` imports remote, which replaces the fixture's */
	struct test_queue far_queue;
	dg_qp *near, *far;
	dg_rdma_memory memory;
};

static dg_qp *qp_of(dg_queue *q)
{
	dg_qp *qp;

	CHECK_EQ(dg_qp_open(q, &qp), 0);
	return qp;
}

static dg_qp_address address_of(dg_qp *qp)
{
	dg_qp_address a;

	CHECK_EQ(dg_qp_address_get(qp, &a), 0);
	return a;
}

static void join_ends(dg_qp *a, dg_qp *b)
{
	dg_qp_address of_a = address_of(a), of_b = address_of(b);

	CHECK_EQ(dg_qp_connect(a, &of_b), 0);
	CHECK_EQ(dg_qp_connect(b, &of_a), 0);
}

static dg_region *import_by(dg_qp *qp, const dg_rdma_memory *m)
{
	dg_region *r;

	CHECK_EQ(dg_qp_import(qp, m, &r), 0);
	return r;
}

static void ends_open(struct ends *e, uint32_t access)
{
	fix_open(&e->f, SIZE, 2 * N);
	CHECK_EQ(test_queue_open(&e->far_queue, e->f.dev, 4, DG_PATH_AUTO, 0, PATIENCE), 0);
	e->near = qp_of(e->f.q);
	e->far = qp_of(e->far_queue.q);
	join_ends(e->near, e->far);
	CHECK_EQ(dg_qp_grant(e->far, e->f.source, access, &e->memory), 0);
	e->memory.access = RW;
	e->f.remote = import_by(e->near, &e->memory);
	e->f.r = id_of(e->f.remote);
	CHECK_EQ(info_of(e->f.remote).method, DG_METHOD_QP);
}

static void ends_close(struct ends *e)
{
	dg_qp_free(e->near);
	dg_qp_free(e->far);
	dg_queue_free(e->far_queue.q);
	fix_close(&e->f);
}

TEST(bytes_are_moved_by_a_queue_pair)
{
	dg_wr wr, batch[N];
	dg_wc wc[N];
	dg_prep *prep;

	FIXTURE(ends, e, ends_open, RW);
	fill(e.f.local_bytes, SIZE, 3);
	wr = record(&e.f, DG_WRITE, SIZE, 0, 0);
	CHECK_EQ(done(&e.f.tq, &wr).status, DG_OK);
	check_pattern(e.f.remote_bytes, 0, SIZE, 3);
	fill(e.f.remote_bytes, SIZE, 4);
	for (int i = 0; i < N; i++)
		batch[i] = record(&e.f, DG_READ, 1024, i * 1024, i * 1024);
	CHECK_EQ(dg_queue_run(e.f.q, batch, N, wc, 20 * SECOND), N);
	check_pattern(e.f.local_bytes, 0, SIZE, 4);
	fill(e.f.local_bytes, SIZE, 5);
	wr = record(&e.f, DG_WRITE, 16, 0, 0);
	wr.rows = 100;
	wr.local_stride = wr.remote_stride = 64;
	CHECK_EQ(dg_prep_open(e.f.q, &wr, 1, &prep), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(dg_prep_run(prep), 0);
	for (int i = 0; i < 100; i++)
		check_pattern(e.f.remote_bytes + i * 64, i * 64, 16, 5);
	CHECK_EQ(dg_prep_close(prep), 0);
}

TEST(after_the_close_of_a_granted_region_the_adapter_refuses)
{
	dg_wr wr;

	FIXTURE(ends, e, ends_open, RW);
	wr = record(&e.f, DG_WRITE, 64, 0, 0);
	CHECK_EQ(done(&e.f.tq, &wr).status, DG_OK);
	CHECK_EQ(dg_region_close(e.f.source, PATIENCE), 0);
	memset(e.f.remote_bytes, 9, SIZE);
	CHECK_EQ(done(&e.f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
	for (int i = 0; i < SIZE; i++)
		CHECK_EQ(e.f.remote_bytes[i], 9);
	CHECK_EQ(info_of(e.f.remote).lost, 1);
	CHECK_EQ(dg_queue_post(e.f.q, &wr, 1), -ENOTCONN);
	CHECK_SAYS(dg_last_error(), "make another one on both sides");
}

TEST(a_grant_to_be_read_is_not_written)
{
	dg_wr wr;

	FIXTURE(ends, e, ends_open, DG_ACCESS_READ);
	wr = record(&e.f, DG_READ, SIZE, 0, 0);
	CHECK_EQ(done(&e.f.tq, &wr).status, DG_OK);
	wr.op = DG_WRITE;
	CHECK_EQ(done(&e.f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
}

/* Operations after the refused one are not executed, even if they were prepared before. */
TEST(behind_a_refused_operation_nothing_is_executed)
{
	dg_rdma_memory wrong;
	dg_wr wr[3];
	dg_wc wc[3];
	dg_prep *prep;

	FIXTURE(ends, e, ends_open, RW);
	wrong = e.memory;
	wrong.rkey ^= 0xff00;
	fill(e.f.local_bytes, SIZE, 3);
	for (int i = 0; i < 3; i++)
		wr[i] = record(&e.f, DG_WRITE, 64, i * 64, i * 64);
	wr[1].remote = id_of(import_by(e.near, &wrong));
	CHECK_EQ(dg_prep_open(e.f.q, &wr[2], 1, &prep), 0);
	CHECK_EQ(dg_queue_run(e.f.q, wr, 3, wc, 20 * SECOND), 3);
	CHECK_EQ(wc[0].status, DG_OK);
	CHECK_EQ(wc[1].status, DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(wc[2].status, DG_FLUSHED);
	CHECK_EQ(dg_prep_run(prep), DG_FLUSHED);
	check_pattern(e.f.remote_bytes, 0, 64, 3);
	for (int i = 64; i < 192; i++)
		CHECK_EQ(e.f.remote_bytes[i], 0);
	CHECK_EQ(dg_prep_close(prep), 0);
}

TEST(closing_a_queue_pair_ends_its_operations_and_its_imports)
{
	struct transfer t[N];
	dg_wr wr;

	FIXTURE(ends, e, ends_open, RW);
	wr = record(&e.f, DG_READ, SIZE, 0, 0);
	for (int i = 0; i < N; i++)
		t[i] = begin(&e.f.tq, &wr);
	CHECK_EQ(dg_qp_close(e.near), 0);
	CHECK_EQ(dg_qp_close(e.near), 0);
	for (int i = 0; i < N; i++) {
		CHECK_EQ(take(&t[i], PATIENCE), 0);
		CHECK(t[i].wc.status == DG_OK || t[i].wc.status == DG_FLUSHED);
	}
	CHECK_EQ(t[N - 1].wc.status, DG_FLUSHED);
	CHECK_EQ(dg_queue_post(e.f.q, &wr, 1), -ESTALE);
	CHECK_SAYS(dg_last_error(), "is closed");
	CHECK_EQ(info_of(e.f.remote).lost, 1);
	CHECK_EQ(dg_region_close(e.f.remote, PATIENCE), 0);
}

TEST(closing_the_queue_closes_its_queue_pairs)
{
	dg_rdma_memory m;
	dg_qp_address a;
	dg_region *r;

	FIXTURE(ends, e, ends_open, RW);
	a = address_of(e.far);
	CHECK_EQ(dg_queue_close(e.f.q), 0);
	CHECK_EQ(dg_qp_connect(e.near, &a), -ESTALE);
	CHECK_EQ(dg_qp_grant(e.near, e.f.local, RW, &m), -ESTALE);
	CHECK_EQ(dg_qp_import(e.near, &e.memory, &r), -ESTALE);
	CHECK_EQ(dg_qp_close(e.near), 0);
	CHECK_EQ(info_of(e.f.remote).lost, 1);
}

TEST(an_import_is_of_no_use_on_another_queue)
{
	dg_wr wr;

	FIXTURE(ends, e, ends_open, RW);
	wr = record(&e.f, DG_READ, 64, 0, 0);
	CHECK_EQ(dg_queue_post(e.far_queue.q, &wr, 1), -EINVAL);
	CHECK_SAYS(dg_last_error(), "of another queue");
}

static int status_on_endpoint_with(struct fix *f, dg_region *by_connection, uint32_t rkey)
{
	const struct verbs *d = f->dev->provider;
	dg_wr wr = record(f, DG_READ, 64, 0, 0);
	struct verbs_conn *c = d->conns;

	wr.remote = id_of(by_connection);
	CHECK_EQ(done(&f->tq, &wr).status, DG_OK); /* creates the endpoint */
	for (c = d->conns; c && !c->cq; c = c->next)
		;
	CHECK(c);
	c->reply.rkey = rkey;
	return done(&f->tq, &wr).status;
}

/* An importer whose connection the exporter has accepted knows the rkey of a grant. */
TEST(an_rkey_of_a_grant_opens_nothing_to_an_importer)
{
	dg_region *by_connection;

	FIXTURE(ends, e, ends_open, RW);
	by_connection = imported(e.f.dev, e.f.source, RW);
	CHECK_EQ(status_on_endpoint_with(&e.f, by_connection, e.memory.rkey), DG_REMOTE_ACCESS_ERROR);
}

static int status_of_next(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (uint64_t end = dg_now_ns() + 20 * SECOND; dg_now_ns() < end;)
		if (cq->context->poll_cq(cq, 1, &wc) == 1)
			return wc.status;
	return -ETIMEDOUT;
}

/* An exporter posts on the endpoint that this process, as an importer, has with it. (Nothing is
 * registered in the protection domain of links.) */
TEST(an_rkey_of_a_grant_opens_nothing_to_an_exporter)
{
	dg_region *by_connection;
	struct verbs_guest *g;
	struct ibv_send_wr *bad;
	dg_wr wr;
	int n = 0;

	FIXTURE(ends, e, ends_open, RW);
	by_connection = imported(e.f.dev, e.f.source, RW);
	wr = record(&e.f, DG_READ, 64, 0, 0);
	wr.remote = id_of(by_connection);
	CHECK_EQ(done(&e.f.tq, &wr).status, DG_OK);
	memset(e.f.remote_bytes, 9, SIZE);
	for (g = ((struct verbs *)e.f.dev->provider)->guests; g; g = g->next) {
		if (g->link.qp)
			continue;
		struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE,
					     .send_flags = IBV_SEND_SIGNALED };
		struct ibv_mr *mr = dg_verbs.ibv_reg_mr(g->qp->pd, e.f.local_bytes, SIZE, 0);
		struct ibv_sge sge = { .addr = (uintptr_t)e.f.local_bytes, .length = 64,
				       .lkey = mr->lkey };

		write.sg_list = &sge;
		write.num_sge = 1;
		write.rdma.remote_addr = e.memory.address;
		write.rdma.rkey = e.memory.rkey;
		CHECK_EQ(g->qp->context->post_send(g->qp, &write, &bad), 0);
		CHECK_EQ(status_of_next(g->qp->send_cq), IBV_WC_REM_ACCESS_ERR);
		CHECK_EQ(dg_verbs.ibv_dereg_mr(mr), 0);
		n++;
	}
	CHECK_EQ(n, 1);
	for (int i = 0; i < 64; i++)
		CHECK_EQ(e.f.remote_bytes[i], 9);
}

static void refused(dg_qp *qp, dg_qp_address to, int want, const char *text)
{
	CHECK_EQ(dg_qp_connect(qp, &to), want);
	CHECK_SAYS(dg_last_error(), text);
}

TEST(wrong_numbers_are_named_and_change_nothing)
{
	dg_qp_address good, a;
	dg_qp *qp, *peer;

	FIXTURE(ends, e, ends_open, RW);
	qp = qp_of(e.f.q);
	peer = qp_of(e.far_queue.q);
	a = good = address_of(peer);
	CHECK(good.qpn <= 0xffffff && good.psn <= 0xffffff && good.port == 1 && !good.lid);
	a.qpn = 1 << 24;
	refused(qp, a, -ERANGE, "qpn is 16777216; it has 24 bits, so the limit is 16777215");
	a = good, a.psn = 1 << 24;
	refused(qp, a, -ERANGE, "psn is 16777216");
	a = good, a.lid = 65536;
	refused(qp, a, -ERANGE, "lid is 65536");
	a = good, a.max_reads = 256;
	refused(qp, a, -ERANGE, "max_reads is 256; the limit is 255");
	a = good, a.mtu = 257;
	refused(qp, a, -EINVAL, "mtu is 257 bytes; it is one of");
	a = good, a.mtu = 2 * good.mtu;
	refused(qp, a, -ERANGE, "the limit is that of port 1");
	a = good, memset(a.gid, 0, 16);
	refused(qp, a, -EINVAL, "gid is ::");
	a = good, a.gid[0] = 0xfd;
	refused(qp, a, -EXDEV, "one is an IPv4 address");
	a = good, a.gid[12] ^= 0x80;
	refused(qp, a, -EXDEV, "is not on the network of rxe0");
	CHECK_EQ(dg_qp_connect(qp, &good), 0);
	refused(qp, good, -EINVAL, "is connected to queue pair");
	dg_qp_free(qp);
	dg_qp_free(peer);
}

TEST(wrong_memory_is_named)
{
	dg_rdma_memory m, out;
	dg_region *r;
	dg_wr wr;

	FIXTURE(ends, e, ends_open, DG_ACCESS_READ);
	m = e.memory, m.size = 0;
	CHECK_EQ(dg_qp_import(e.near, &m, &r), -ERANGE);
	m = e.memory, m.address = UINT64_MAX - 10, m.size = 12;
	CHECK_EQ(dg_qp_import(e.near, &m, &r), -ERANGE);
	CHECK_SAYS(dg_last_error(), "exceeds 2^64");
	m = e.memory, m.access = 4;
	CHECK_EQ(dg_qp_import(e.near, &m, &r), -EINVAL);
	CHECK_EQ(dg_qp_grant(e.far, e.f.remote, RW, &out), -EINVAL);
	CHECK_EQ(dg_qp_grant(e.far, registered(e.f.dev, pages(64), 64, DG_ACCESS_READ), RW, &out), -EACCES);
	CHECK_SAYS(dg_last_error(), "cannot be granted with access 'rw'");
	wr = record(&e.f, DG_READ, SIZE, 0, 1);
	CHECK_EQ(dg_queue_post(e.f.q, &wr, 1), -ERANGE);
}

TEST(before_it_is_connected_nothing_is_posted)
{
	dg_qp *qp;
	dg_wr wr;

	FIXTURE(ends, e, ends_open, RW);
	qp = qp_of(e.f.q);
	wr = record(&e.f, DG_READ, 64, 0, 0);
	wr.remote = id_of(import_by(qp, &e.memory));
	CHECK_EQ(dg_queue_post(e.f.q, &wr, 1), -EINVAL);
	CHECK_SAYS(dg_last_error(), "is not connected");
	dg_qp_free(qp);
}

TEST(a_forked_child_can_only_close_it)
{
	dg_rdma_memory m;
	dg_wr wr;
	int status;
	pid_t child;

	FIXTURE(ends, e, ends_open, RW);
	child = fork();
	if (!child) {
		CHECK_EQ(dg_qp_grant(e.far, e.f.source, RW, &m), -EOWNERDEAD);
		CHECK_EQ(dg_qp_close(e.far), 0);
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	wr = record(&e.f, DG_READ, 64, 0, 0);
	CHECK_EQ(done(&e.f.tq, &wr).status, DG_OK);
}

TEST(many_are_opened_and_closed)
{
	int before;

	FIXTURE(ends, e, ends_open, RW);
	before = entries("/proc/self/fd");
	for (int i = 0; i < 300; i++) {
		dg_qp *qp = qp_of(e.f.q);
		dg_rdma_memory m;
		dg_region *r;

		CHECK_EQ(dg_qp_grant(qp, e.f.source, RW, &m), 0);
		CHECK_EQ(dg_qp_import(qp, &m, &r), 0);
		CHECK_EQ(dg_region_close(r, PATIENCE), 0);
		dg_qp_free(qp);
	}
	CHECK_EQ(entries("/proc/self/fd"), before);
}

static void *register_and_close(void *arg)
{
	struct ends *e = arg;

	for (int i = 0; i < 300; i++) {
		dg_region *r = registered(e->f.dev, e->f.local_bytes, SIZE, RW);

		CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	}
	return NULL;
}

/* A close waits for threads inside a queue, and an import by a queue pair takes a lock that the
 * close holds. */
TEST(an_import_and_a_close_of_another_thread_do_not_wait_for_each_other)
{
	pthread_t other;

	FIXTURE(ends, e, ends_open, RW);
	CHECK_EQ(pthread_create(&other, NULL, register_and_close, &e), 0);
	for (int i = 0; i < 2000; i++)
		CHECK_EQ(dg_region_close(import_by(e.near, &e.memory), PATIENCE), 0);
	CHECK_EQ(pthread_join(other, NULL), 0);
}

TEST_MAIN(run_verbs_tests)
