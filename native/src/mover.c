// SPDX-License-Identifier: Apache-2.0
/*
 * The mover: moves bytes for other processes of this user, which name both sides by descriptors, as
 * a DPU does for a host. Each client has a thread and queues of its own, so none waits for another.
 *
 * Between the memory of two GPUs, or within one, CUDA copies in one operation. Otherwise the bytes
 * take two: a read into staging memory of this process, and a write from there, in chunks. A
 * move has at most one operation in progress; all moves of a client advance in each pass, and their
 * next operations are posted with one doorbell.
 *
 * States of a move:
 *
 *        take the request            read completes             write completes
 *   FREE ---------------> READING ------------------> WRITING ------------------> FREE
 *     |                      ^                           | there are more bytes    ^
 *     |                      +---------------------------+                         |
 *     +---------------------------------> WRITING (between GPU memory) ------------+
 *
 * Threads: the acceptor takes connections and joins the threads of clients that have ended. A
 * client's thread alone uses what belongs to the client.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "mover_ring.h"
#include "poller.h"
#include "providers/provider_table.h"
#include "queue.h"
#include "region.h"
#include "share/mapping.h"
#include "share/unix_socket.h"
#include "thread.h"

enum {
	CLIENTS_MAX = 64,
	MEMORIES_MAX = 4096,
	MOVES = 256, /* of a client in progress */
	FEW = 32, /* requests that wait for others while moves are in progress */
	FEW_NS = 20000, /* but no longer than this: what a batch on a GPU takes */
	CHUNK = 32768, /* bytes of a move's staging memory */
	LOOK = 64, /* passes between two looks at the socket */
	REAP_MS = 100,
};
#define SPIN_NS	  1000000u
#define IMPORT_NS 5000000000u
#define CLOSE_NS  5000000000u

enum side { HOST, GPU, SIDES };

struct memory {
	dg_region *region; /* NULL: released */
	uint64_t size;
	uint32_t id, side;
};

struct move {
	enum { READING, WRITING } phase;
	struct mover_request request;
	uint64_t at, chunk; /* bytes that were moved, and those in progress */
};

struct client {
	struct client *next;
	struct dg_mover *mover;
	struct dg_poller poller;
	int fd;
	struct dg_mapping *mapping;
	struct mover_ring *ring; /* NULL before the first message */
	uint64_t taken, taken_ns, completed, passes;
	struct memory *memories;
	uint32_t n_memories;
	char *staging;
	dg_region *staged[SIDES];
	uint32_t staged_id[SIDES];
	dg_queue *queues[SIDES];
	struct move moves[MOVES];
	uint32_t free[MOVES], n_free;
	/* operations to post in this pass */
	dg_wr wr[SIDES][MOVES];
	uint32_t n_wr[SIDES];
};

struct dg_mover {
	dg_device *devices[SIDES]; /* NULL: none moves such memory */
	dg_device *own;		   /* for host memory, opened for the first client of a mover without DOCA and verbs */
	int fd, stop_fd;
	char path[sizeof ((struct sockaddr_un *)NULL)->sun_path];
	pthread_t acceptor;
	struct client *clients; /* of the acceptor */
	uint32_t n_clients;
};

struct dg_mappings dg_mover_rings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void write_completion(struct client *c, uint32_t i, int32_t status)
{
	c->ring->completions[c->completed % MOVER_DEPTH] =
		(struct mover_completion){.user = c->moves[i].request.user, .status = status};
	atomic_store_explicit(&c->ring->completed, ++c->completed, memory_order_release);
	c->free[c->n_free++] = i;
}

static struct memory *memory_at(const struct client *c, uint32_t number, uint64_t offset,
				uint64_t size)
{
	struct memory *m = number < c->n_memories ? &c->memories[number] : NULL;
	return m && m->region && size <= m->size && offset <= m->size - size ? m : NULL;
}

/* Stages the next operation of a move, or completes the move if its memory is gone. */
static void advance(struct client *c, uint32_t i)
{
	struct move *m = &c->moves[i];
	const struct mover_request *r = &m->request;
	const struct memory *from = memory_at(c, r->from, r->from_offset, r->size);
	const struct memory *to = memory_at(c, r->to, r->to_offset, r->size);
	if (!from || !to || !r->size) {
		write_completion(c, i, DG_REMOTE_ACCESS_ERROR);
		return;
	}
	const bool direct = from->side == GPU && to->side == GPU, reads = m->phase == READING;
	const uint32_t side = reads ? from->side : to->side;
	m->chunk = direct || r->size - m->at < CHUNK ? r->size - m->at : CHUNK;
	c->wr[side][c->n_wr[side]++] = (dg_wr){
		.user = i,
		.op = reads ? DG_READ : DG_WRITE,
		.local = direct ? from->id : c->staged_id[side],
		.local_offset = direct ? r->from_offset : (uint64_t)i * CHUNK,
		.remote = reads ? from->id : to->id,
		.remote_offset = (reads ? r->from_offset : r->to_offset) + m->at,
		.size = m->chunk,
	};
}

static void begin_move(struct client *c, const struct mover_request *r)
{
	const uint32_t i = c->free[--c->n_free];
	const struct memory *from = memory_at(c, r->from, 0, 0), *to = memory_at(c, r->to, 0, 0);
	const bool direct = from && to && from->side == GPU && to->side == GPU;
	c->moves[i] = (struct move){.phase = direct ? WRITING : READING, .request = *r};
	advance(c, i);
}

/* An operation of the move is complete. */
static void continue_move(struct client *c, const dg_wc *wc)
{
	struct move *m = &c->moves[wc->user];
	m->at += m->phase == WRITING ? m->chunk : 0;
	m->phase = m->phase == READING ? WRITING : READING;
	if (wc->status != DG_OK || m->at == m->request.size)
		write_completion(c, (uint32_t)wc->user, wc->status);
	else
		advance(c, (uint32_t)wc->user);
}

static bool poll_queue(struct client *c, uint32_t side)
{
	dg_wc wc[MOVES];
	const int n = c->queues[side] ? dg_queue_poll(c->queues[side], wc, MOVES, 0) : 0;
	for (int i = 0; i < n; i++)
		continue_move(c, &wc[i]);
	return n > 0;
}

static int32_t status_of(int rc)
{
	return rc == -ESTALE ? DG_REMOTE_ACCESS_ERROR : DG_LOCAL_ERROR;
}

/* Posts what was staged. A batch is refused whole, so each operation of a refused one is posted
 * alone. */
static void post_staged(struct client *c, uint32_t side)
{
	const uint32_t n = c->n_wr[side];
	c->n_wr[side] = 0;
	if (!n || !dg_queue_post(c->queues[side], c->wr[side], n))
		return;
	for (uint32_t i = 0; i < n; i++) {
		const int rc = dg_queue_post(c->queues[side], &c->wr[side][i], 1);
		if (rc)
			write_completion(c, (uint32_t)c->wr[side][i].user, status_of(rc));
	}
}

/* Returns whether there were requests. A client that violates the rules ends. */
static bool take_requests(struct client *c)
{
	const uint64_t head = atomic_load_explicit(&c->ring->head, memory_order_acquire);
	const uint64_t now = now_ns();
	if (head == c->taken ||
	    (c->n_free < MOVES && head - c->taken < FEW && now - c->taken_ns < FEW_NS))
		return false;
	c->taken_ns = now;
	if (head - c->completed > MOVER_DEPTH) {
		dg_poller_stop(&c->poller);
		return false;
	}
	for (; c->taken != head && c->n_free; c->taken++) {
		const struct mover_request r = c->ring->requests[c->taken % MOVER_DEPTH];
		begin_move(c, &r);
	}
	return true;
}

static int register_staging(struct client *c, uint32_t side)
{
	dg_device *dev = c->mover->devices[side];
	const dg_memory at = {.addr = c->staging, .size = (uint64_t)MOVES * CHUNK, .fd = -1};
	dg_region_info info;
	int rc = dg_region_register(dev, &at, DG_ACCESS_READ | DG_ACCESS_WRITE, &c->staged[side]);
	if (!rc)
		rc = dg_region_info_get(c->staged[side], &info);
	if (rc)
		return rc;
	c->staged_id[side] = info.id;
	return side == GPU ? dg_queue_open_for_kernels(dev, MOVES, c, &c->queues[side])
			   : dg_queue_open(dev, MOVES, DG_PATH_AUTO, 0, UINT64_MAX, &c->queues[side]);
}

static int accept_ring(struct client *c, const struct mover_message *m, int fd)
{
	if (c->ring || m->number != MOVER_VERSION)
		return dg_fail(EPROTO, "the other side has version %u of this protocol, and this one %d",
			       m->number, MOVER_VERSION);
	int rc = fd < 0 ? dg_fail(EPROTO, "the first message has no ring")
			: dg_mapping_take(&dg_mover_rings, fd, true, sizeof *c->ring, &c->mapping);
	if (!rc && posix_memalign((void **)&c->staging, 65536, (size_t)MOVES * CHUNK))
		rc = dg_fail(ENOMEM, "out of memory for staging");
	for (uint32_t side = 0; side < SIDES && !rc; side++)
		rc = c->mover->devices[side] ? register_staging(c, side) : 0;
	if (!rc)
		c->ring = (struct mover_ring *)(void *)c->mapping->base;
	return rc;
}

/* Finds a number that no memory has. */
static int find_number(struct client *c, uint32_t *out)
{
	for (*out = 0; *out < c->n_memories && c->memories[*out].region; ++*out)
		;
	if (*out < c->n_memories)
		return 0;
	if (c->n_memories == MEMORIES_MAX)
		return dg_fail(ENOSPC, "the agent has imported %d memories, the most that are possible",
			       MEMORIES_MAX);
	struct memory *table = realloc(c->memories, (c->n_memories + 1) * sizeof *table);
	if (!table)
		return dg_fail(ENOMEM, "out of memory for an import");
	c->memories = table;
	c->memories[c->n_memories++] = (struct memory){0};
	return 0;
}

/* Imports memory, and stores its number in *m. */
static int import(struct client *c, struct mover_message *m)
{
	const uint32_t side = m->on_gpu ? GPU : HOST;
	struct memory to = {.side = side};
	dg_region_info info;
	if (!c->ring || m->length > sizeof m->descriptor)
		return dg_fail(EPROTO, "a message is wrong");
	if (!c->mover->devices[side])
		return dg_fail(EOPNOTSUPP, "the agent cannot move GPU memory: start it with "
					   "`dgkit serve --provider cuda`");
	int rc = find_number(c, &m->number);
	if (!rc)
		rc = dg_region_import(c->mover->devices[side], m->descriptor, m->length, IMPORT_NS,
				  &to.region);
	if (!rc)
		rc = dg_region_info_get(to.region, &info);
	if (rc)
		return rc;
	to.id = info.id;
	to.size = info.size;
	c->memories[m->number] = to;
	return 0;
}

static bool move_on(struct client *c)
{
	bool busy = false;
	for (uint32_t side = 0; side < SIDES; side++)
		busy |= poll_queue(c, side);
	for (uint32_t side = 0; side < SIDES; side++)
		post_staged(c, side);
	return busy;
}

static void end_region(dg_region *r)
{
	const bool shared = r->dev->shared;
	dg_region_close(r, CLOSE_NS);
	if (shared)
		dg_region_free(r);
}

/* Ends an import, after the moves in progress: only this thread completes them. */
static void release(struct client *c, uint32_t number)
{
	const uint64_t end = now_ns() + CLOSE_NS;
	if (number >= c->n_memories || !c->memories[number].region)
		return;
	while (c->n_free < MOVES && now_ns() < end)
		move_on(c);
	end_region(c->memories[number].region);
	c->memories[number].region = NULL;
}

/* Answers a message. Returns false if the client is to end. */
static bool answer(struct client *c, struct mover_message *m, int fd)
{
	int rc = -EPROTO;
	if (m->kind == MOVER_RELEASE) {
		release(c, m->number);
		return true;
	}
	if (m->kind == MOVER_HELLO)
		rc = accept_ring(c, m, fd);
	else if (m->kind == MOVER_IMPORT)
		rc = import(c, m);
	m->status = rc;
	m->length = 0;
	if (rc || m->kind == MOVER_HELLO)
		strncpy((char *)m->descriptor, rc ? dg_last_error() : c->mover->devices[HOST]->ops->name,
			sizeof m->descriptor - 1);
	return dg_unix_socket_send(c->fd, m, sizeof *m, NULL, 0) == sizeof *m &&
	       (!rc || m->kind == MOVER_IMPORT);
}

/* Reads one message, if there is one. Returns whether there was. */
static bool look(struct client *c)
{
	struct mover_message m = {0};
	int fds[2], n_fds = 0;
	const ssize_t n = dg_unix_socket_recv(c->fd, &m, sizeof m, fds, &n_fds);
	const bool none = n == -EAGAIN || n == -EINTR;
	if (!none && (n != sizeof m || !answer(c, &m, n_fds ? fds[0] : -1)))
		dg_poller_stop(&c->poller);
	while (n_fds)
		close(fds[--n_fds]);
	return n > 0;
}

/* One pass of the poller. Moves in progress count as work: the thread spins until they complete. */
static bool pass(void *arg)
{
	struct client *c = arg;
	bool busy = c->passes++ % LOOK == 0 && look(c);
	if (!c->ring)
		return busy;
	busy |= take_requests(c);
	busy |= move_on(c);
	return busy || c->n_free < MOVES;
}

static void client_free(struct client *c)
{
	dg_poller_join(&c->poller);
	for (uint32_t side = 0; side < SIDES; side++)
		if (c->queues[side])
			dg_queue_free(c->queues[side]);
	for (uint32_t i = 0; i < c->n_memories; i++)
		if (c->memories[i].region)
			end_region(c->memories[i].region);
	for (uint32_t side = 0; side < SIDES; side++)
		if (c->staged[side])
			end_region(c->staged[side]);
	dg_mapping_drop(&dg_mover_rings, c->mapping);
	close(c->fd);
	free(c->memories);
	free(c->staging);
	free(c);
}

static bool is_same_user(int fd)
{
	struct ucred who;
	socklen_t size = sizeof who;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) && who.uid == geteuid();
}

static bool open_host(struct dg_mover *m)
{
	const dg_device_config config = {0};
	if (!m->devices[HOST] && !dg_device_open("soft", &config, &m->own))
		m->devices[HOST] = m->own;
	return m->devices[HOST];
}

static void accept_client(struct dg_mover *m)
{
	int fd = accept4(m->fd, NULL, NULL, SOCK_CLOEXEC);
	struct client *c = fd >= 0 && m->n_clients < CLIENTS_MAX && is_same_user(fd) &&
						   open_host(m)
				   ? calloc(1, sizeof *c)
				   : NULL;
	if (!c) {
		if (fd >= 0)
			close(fd);
		return;
	}
	c->mover = m;
	c->fd = fd;
	for (c->n_free = 0; c->n_free < MOVES; c->n_free++)
		c->free[c->n_free] = c->n_free;
	if (dg_poller_start(&c->poller, "dgkit mover", SPIN_NS, pass, c)) {
		close(fd);
		free(c);
		return;
	}
	c->next = m->clients;
	m->clients = c;
	m->n_clients++;
}

/* Frees the clients that have ended, or all. */
static void reap(struct dg_mover *m, bool all)
{
	for (struct client **at = &m->clients, *c; (c = *at);) {
		if (all)
			dg_poller_stop(&c->poller);
		if (!atomic_load_explicit(&c->poller.stop, memory_order_acquire)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		m->n_clients--;
		client_free(c);
	}
}

static void *accept_all(void *arg)
{
	struct dg_mover *m = arg;
	struct pollfd on[] = {{.fd = m->fd, .events = POLLIN}, {.fd = m->stop_fd, .events = POLLIN}};
	while (!on[1].revents) {
		const int n = poll(on, 2, m->clients ? REAP_MS : -1);
		if (n > 0 && on[0].revents)
			accept_client(m);
		reap(m, false);
		on[1].revents = n > 0 ? on[1].revents : 0;
	}
	reap(m, true);
	return NULL;
}

static int listen_at(struct dg_mover *m, const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof a.sun_path)
		return dg_fail(ENAMETOOLONG, "the path %s is too long for a socket: %zu bytes are "
					     "possible", path, sizeof a.sun_path - 1);
	strcpy(a.sun_path, path);
	m->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (m->fd < 0)
		return dg_fail_errno("cannot create a socket");
	if (bind(m->fd, (struct sockaddr *)&a, sizeof a))
		return dg_fail_errno("cannot listen on %s", path);
	strcpy(m->path, path);
	if (chmod(path, 0600) || listen(m->fd, CLIENTS_MAX))
		return dg_fail_errno("cannot listen on %s", path);
	return 0;
}

static void mover_free(struct dg_mover *m)
{
	if (m->path[0])
		unlink(m->path);
	if (m->fd >= 0)
		close(m->fd);
	if (m->stop_fd >= 0)
		close(m->stop_fd);
	if (m->own)
		dg_device_close(m->own, CLOSE_NS);
	free(m);
}

int dg_mover_open(dg_device *dev, const char *path, dg_mover **out)
{
	struct dg_mover *m = calloc(1, sizeof *m);
	*out = NULL;
	if (!m)
		return dg_fail(ENOMEM, "out of memory for a mover");
	m->fd = -1;
	m->devices[GPU] = dev->ops == &dg_cuda_ops ? dev : NULL;
	m->devices[HOST] = dev->ops == &dg_doca_ops || dev->ops == &dg_softdoca_ops ||
					   dev->ops == &dg_verbs_ops
				   ? dev
				   : NULL;
	m->stop_fd = eventfd(0, EFD_CLOEXEC);
	int rc = m->stop_fd < 0 ? dg_fail_errno("cannot create an eventfd") : listen_at(m, path);
	if (!rc)
		rc = dg_thread_start(&m->acceptor, "dgkit movers", accept_all, m);
	if (rc)
		mover_free(m);
	else
		*out = m;
	return rc;
}

void dg_mover_close(dg_mover *m)
{
	const uint64_t one = 1;
	if (write(m->stop_fd, &one, sizeof one) != sizeof one)
		return; /* cannot happen: the counter is 0 */
	pthread_join(m->acceptor, NULL);
	mover_free(m);
}
