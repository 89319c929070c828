// SPDX-License-Identifier: Apache-2.0
/*
 * The thread of a port. It sends what kernels have put into send queues, and puts received frames into
 * receive queues. While nothing happens it looks again after ever longer pauses, of at most 1 ms; a
 * frame from the interface wakes it at once, a kernel cannot.
 *
 * Words shared with device code (doca_gpunetio_eth_dev.h): each index is loaded with acquire before
 * what it announces, and stored with release after it.
 *
 * Locks: `ports_lock` guards the list of ports and their users; a port's lock guards the rest of it. A
 * forked child has no thread of its parent's port, and does not lock it.
 */
#include "port.h"
#include "capture.h"
#include "memory/memory.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BURST	 64 /* frames of a queue, before the others have their turn; sent together */
#define APART	 4160 /* so that frames of the same offset are in other sets of a cache */
#define SPIN_NS	 100000u /* without work, before the first pause */
#define PAUSE_NS 50000u
#define LONG_NS	 1000000u

/* Frames that are sent together. */
struct burst {
	struct doca_gpu_dev_eth_txq_wqe entries[BURST];
	struct iovec frames[BURST];
	int results[BURST];
	uint8_t bytes[2 * FRAME_MAX];
};

struct port {
	struct port *next;
	struct doca_dev *dev;
	uint32_t users;
	unsigned number; /* among those of this process, for its capture */
	int pid;
	struct interface interface;
	pthread_t thread;
	pthread_mutex_t lock;
	atomic_uint waiting; /* threads that want the lock */
	atomic_bool stop;
	bool gone, full; /* full: the interface takes no frame for now */
	struct port_txq *txqs;
	struct port_rxq *rxqs, *numbered[PORT_QUEUES];
	port_steer *steer;
	void *context;
	uint32_t placed; /* receive queues with places */
	uint64_t unsteered; /* frames that no rule gave to a queue */
	uint64_t due_ns; /* of the first entry that waits for its time; 0: none */
	struct capture capture;
	struct burst burst;
	uint8_t received[BURST][FRAME_MAX + APART];
};

static pthread_mutex_t ports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct port *ports;

static void before_fork(void)
{
	pthread_mutex_lock(&ports_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&ports_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void capture_port_frame(struct port *p, const uint8_t *frame, size_t size, bool sent,
			       int queue, const char *comment)
{
	if (p->capture.file)
		capture_frame(&p->capture, &(struct captured){.time_ns = now_ns(CLOCK_REALTIME),
							     .frame = frame,
							     .size = size,
							     .sent = sent,
							     .queue = queue,
							     .comment = comment});
}

/* ---- failures ---- */

static void fail_txq(struct port_txq *q)
{
	if (q->failed)
		return;
	q->failed = true;
	q->failed_at = q->done;
	store(&q->words->failed, q->completions);
	store(&q->words->completions, ++q->completions);
}

static void fail_port(struct port *p)
{
	p->gone = true;
	softdoca_log(DOCA_LOG_LEVEL_ERROR, __func__, "the network interface %s is gone",
		     p->interface.name);
	for (struct port_txq *q = p->txqs; q; q = q->next)
		fail_txq(q);
	for (struct port_rxq *q = p->rxqs; q; q = q->next)
		store(&q->words->failed, 1);
}

/* ---- sending ---- */

/* Whether an entry has a time, and no frame. */
static bool only_waits(const struct port_txq *q, const struct doca_gpu_dev_eth_txq_wqe *e, uint64_t index)
{
	return !e->size && e->time_ns && q->may_wait && e->index == (uint32_t)index;
}

/* Returns why entry `index` cannot be executed, and NULL after copying its frame. */
static const char *prepare(const struct port_txq *q, const struct doca_gpu_dev_eth_txq_wqe *e,
			   uint64_t index, uint8_t *frame)
{
	if (e->index != (uint32_t)index)
		return "its place has the entry of another index";
	if (e->time_ns && !q->may_wait)
		return "it has a time, which doca_eth_txq_set_wait_on_time_offload() permits";
	if (e->size < FRAME_MIN || e->size > FRAME_MAX)
		return "a frame has 14 to 65,536 bytes";
	if (q->on_cpu && !e->key)
		memcpy(frame, (const void *)(uintptr_t)e->addr, e->size);
	else if (!mkey_copy(__builtin_bswap32(e->key), e->addr, e->size, frame))
		return "its key does not cover the frame; device code passes keys in big-endian";
	if (q->l4_checksum)
		checksum_transport(frame, e->size);
	if (q->l3_checksum)
		checksum_ip(frame, e->size);
	return NULL;
}

bool softdoca_port_segment(const struct large *l, uint8_t *frames)
{
	struct part part = {0};
	for (; part.offset < l->payload_size; part.index++) {
		const uint32_t left = l->payload_size - (uint32_t)part.offset;
		const uint32_t bytes = left < l->mss ? left : l->mss;
		memcpy(frames, l->headers, l->headers_size);
		if (!mkey_copy(l->key, l->payload + part.offset, bytes, frames + l->headers_size))
			return false;
		part.is_last = bytes == left;
		frame_complete_part(frames, l->headers_size, l->headers_size + bytes, &part);
		part.offset += bytes;
		frames += l->headers_size + bytes;
	}
	return true;
}

/* Returns whether an entry must still wait for its time. */
static bool must_wait(struct port *p, struct port_txq *q, const struct doca_gpu_dev_eth_txq_wqe *e)
{
	const uint64_t now = e->time_ns ? now_ns(CLOCK_REALTIME) : 0;
	if (!q->may_wait || now >= e->time_ns)
		return false;
	if (!p->due_ns || e->time_ns < p->due_ns)
		p->due_ns = e->time_ns;
	return true;
}

static void count_sent(struct port_txq *q, const struct doca_gpu_dev_eth_txq_wqe *e, int sent)
{
	struct port_counters *c = &q->counters;
	c->frames += sent > 0;
	c->bytes += sent > 0 ? e->size : 0;
	c->dropped += sent <= 0;
	if (e->time_ns) {
		const uint64_t late = now_ns(CLOCK_REALTIME) - e->time_ns;
		c->timed++;
		c->late_ns += late;
		if (late > c->latest_ns)
			c->latest_ns = late;
	}
}

static void note_completion(struct port_txq *q)
{
	if (q->notes) {
		struct port_note *note = &q->notes[q->completions & (q->entries - 1)];
		__atomic_store_n(&note->time_ns, now_ns(CLOCK_REALTIME), __ATOMIC_RELAXED);
		__atomic_store_n(&note->index, q->done, __ATOMIC_RELAXED);
	}
	q->completions++;
}

/* Copies the frames of the next entries that can be sent in one call: up to the first that must
 * wait; an entry with a time is sent alone. *why: what is wrong with the entry that follows them,
 * or NULL. */
static int gather(struct port *p, struct port_txq *q, uint64_t end, struct burst *b, const char **why)
{
	size_t used = 0;
	int n = 0;
	for (*why = NULL; n < BURST && q->done + (uint64_t)n != end; n++) {
		const uint64_t index = q->done + (uint64_t)n;
		struct doca_gpu_dev_eth_txq_wqe *e = &b->entries[n];
		*e = q->ring[index & (q->entries - 1)];
		if (must_wait(p, q, e) || only_waits(q, e, index) || (n && (e->time_ns || b->entries[n - 1].time_ns)))
			break;
		if (e->size <= FRAME_MAX && used + e->size > sizeof b->bytes)
			break;
		*why = prepare(q, e, index, b->bytes + used);
		if (*why)
			break;
		b->frames[n] = (struct iovec){b->bytes + used, e->size};
		used += e->size;
	}
	return n;
}

/* Publishes what was sent at once: a store for each frame would take the line from a kernel that polls. */
static void finish(struct port *p, struct port_txq *q, const struct burst *b, int n)
{
	const uint64_t completions = q->completions;
	for (int i = 0; i < n; i++) {
		const struct doca_gpu_dev_eth_txq_wqe *e = &b->entries[i];
		count_sent(q, e, b->results[i]);
		if (q->refused)
			q->refused[q->done & (q->entries - 1)] = b->results[i] <= 0;
		capture_port_frame(p, b->frames[i].iov_base, e->size, true, q->number,
				   b->results[i] > 0 ? "" : "the interface did not take it");
		if (e->flags & DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY)
			note_completion(q);
		q->done++;
	}
	if (completions != q->completions)
		store(&q->words->completions, q->completions);
	if (n)
		store(&q->words->done, q->done);
}

static void fail_entry(struct port_txq *q, const struct doca_gpu_dev_eth_txq_wqe *e, const char *why)
{
	softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_gpu_dev_eth_txq_send",
		     "entry %llu (%u bytes at %#llx, key %#x) failed, and the queue with it: %s",
		     (unsigned long long)q->done, e->size, (unsigned long long)e->addr,
		     __builtin_bswap32(e->key), why);
	fail_txq(q);
}

/* Takes entries that only wait, once their time has come. Returns whether it has, for each that comes next. */
static bool pass_times(struct port *p, struct port_txq *q, uint64_t end)
{
	while (q->done != end) {
		const struct doca_gpu_dev_eth_txq_wqe e = q->ring[q->done & (q->entries - 1)];
		if (!only_waits(q, &e, q->done))
			break;
		if (must_wait(p, q, &e))
			return false;
		if (e.flags & DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY) {
			note_completion(q);
			store(&q->words->completions, q->completions);
		}
		store(&q->words->done, ++q->done);
	}
	return q->done != end;
}

/* Executes the next entries. Returns whether there may be more to do now. */
static bool send_next(struct port *p, struct port_txq *q, uint64_t end)
{
	struct burst *b = &p->burst;
	const char *why;
	if (!pass_times(p, q, end))
		return false;
	const int n = gather(p, q, end, b, &why);
	const int sent = interface_send(&p->interface, b->frames, n, b->results);
	if (sent < 0) {
		fail_port(p);
		return false;
	}
	finish(p, q, b, sent);
	p->full |= sent < n;
	if (sent == n && why)
		fail_entry(q, &b->entries[n], why);
	return n && sent == n;
}

static bool serve_txq(struct port *p, struct port_txq *q)
{
	const uint64_t end = load(&q->words->producer);
	const uint64_t start = q->done;
	if (end - q->done > q->entries) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_gpu_dev_eth_txq_submit",
			     "index %llu submitted with %llu executed of a queue of %llu entries",
			     (unsigned long long)end, (unsigned long long)q->done,
			     (unsigned long long)q->entries);
		fail_txq(q);
	}
	while (!q->failed && q->done != end && q->done - start < BURST && send_next(p, q, end))
		continue;
	if (q->failed && q->done != end) /* flushed: nobody waits for a place */
		store(&q->words->done, q->done = end);
	return q->done != start;
}

/* ---- receiving ---- */

/* Returns why a frame was dropped; "" if it was not. */
static const char *deliver(struct port_rxq *q, const uint8_t *frame, size_t size,
			   const struct steered *s)
{
	const uint64_t place = q->producer & (q->entries - 1);
	const bool full = q->producer - load(&q->words->released) >= q->entries;
	struct port_place *to = q->places && !full ? &q->places[place] : NULL;
	if (size > (to ? to->room : q->largest)) {
		q->counters.too_long++;
		return "; dropped: longer than the queue's packets";
	}
	if (full) {
		q->counters.dropped++;
		return "; dropped: the queue is full";
	}
	memcpy(to ? to->at : q->packets + place * q->stride, frame, size);
	if (to) {
		to->hash = s->hash;
		to->meta = s->meta;
		to->mark = s->mark;
	}
	q->ring[place] = (struct doca_gpu_dev_eth_rxq_entry){.timestamp_ns = now_ns(CLOCK_REALTIME),
							     .bytes = (uint32_t)size};
	q->producer++;
	q->counters.frames++;
	q->counters.bytes += size;
	return "";
}

static void receive_port_frame(struct port *p, const uint8_t *frame, size_t size)
{
	char rule[RULE_MAX + 64] = "";
	struct steered s = {.rule = p->capture.file ? rule : NULL, .wants_hash = p->placed};
	const int number = p->steer ? p->steer(p->context, frame, size, &s) : PORT_DROP;
	struct port_rxq *q = number >= 0 && number < PORT_QUEUES ? p->numbered[number] : NULL;
	p->unsteered += !q;
	const char *dropped = q ? deliver(q, frame, size, &s) : "; dropped: no queue";
	if (s.rule)
		strcat(rule, dropped);
	capture_port_frame(p, frame, size, false, q ? number : -1, rule);
}

/* Publishes what was received at once, as finish() does. */
static bool serve_interface(struct port *p)
{
	struct iovec frames[BURST];
	int sizes[BURST];
	for (int i = 0; i < BURST; i++)
		frames[i] = (struct iovec){p->received[i], FRAME_MAX};
	const int n = interface_receive(&p->interface, frames, BURST, sizes);
	for (int i = 0; i < n; i++)
		receive_port_frame(p, p->received[i], (size_t)sizes[i]);
	for (struct port_rxq *q = p->rxqs; q && n > 0; q = q->next)
		store(&q->words->producer, q->producer);
	if (n < 0)
		fail_port(p);
	return n > 0;
}

/* ---- the thread ---- */

/* Serves all queues once. Returns whether there was anything to do. */
static bool serve_all(struct port *p)
{
	bool worked = false;
	pthread_mutex_lock(&p->lock);
	p->due_ns = 0;
	p->full = false;
	for (struct port_txq *q = p->txqs; q; q = q->next)
		worked |= serve_txq(p, q);
	if (!p->gone)
		worked |= serve_interface(p);
	if (worked)
		capture_flush(&p->capture);
	pthread_mutex_unlock(&p->lock);
	return worked;
}

/* Waits for a frame, or until the interface takes one again, for `ns` at most, and not beyond the time of an entry. */
static void pause_for(const struct port *p, uint64_t ns)
{
	struct pollfd fd = {.fd = p->gone ? -1 : p->interface.fd,
			    .events = p->full ? POLLIN | POLLOUT : POLLIN};
	if (p->due_ns) {
		const uint64_t now = now_ns(CLOCK_REALTIME);
		const uint64_t left = p->due_ns > now ? p->due_ns - now : 0;
		if (left < 2 * (uint64_t)SPIN_NS)
			return;
		ns = ns < left - SPIN_NS ? ns : left - SPIN_NS;
	}
	ppoll(&fd, 1, &(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static void *port_thread(void *port)
{
	struct port *p = port;
	uint64_t last = now_ns(CLOCK_MONOTONIC), pause = PAUSE_NS;
	while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
		while (atomic_load_explicit(&p->waiting, memory_order_relaxed))
			sched_yield();
		if (serve_all(p)) {
			last = now_ns(CLOCK_MONOTONIC);
			pause = PAUSE_NS;
		} else if (!p->full && now_ns(CLOCK_MONOTONIC) - last < SPIN_NS) {
			sched_yield();
		} else {
			pause_for(p, pause);
			pause = pause < LONG_NS / 2 ? 2 * pause : LONG_NS - 1;
		}
	}
	return NULL;
}

/* Signals are for the program's threads. */
static int start_thread(struct port *p)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	const int rc = pthread_create(&p->thread, NULL, port_thread, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

/* ---- users ---- */

static bool is_own(const struct port *p)
{
	return p->pid == getpid();
}

static void close_files(struct port *p)
{
	interface_close(&p->interface);
	capture_close(&p->capture);
}

/* The lowest number that no open port of this process has. */
static unsigned free_number(void)
{
	unsigned n = 0;
	const struct port *p = ports;
	while (p) {
		const bool is_taken = is_own(p) && p->number == n;
		n += is_taken;
		p = is_taken ? ports : p->next;
	}
	return n;
}

static doca_error_t open_port(struct doca_dev *dev, struct port **out)
{
	if (dev_is_adapter(dev))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "%s is an RDMA adapter, without Ethernet queues",
			      dev->info.f.ibdev);
	struct port *p = calloc(1, sizeof *p);
	if (!p)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a port");
	doca_error_t error = interface_open(&p->interface, dev->info.f.net);
	if (!error)
		error = capture_open(p->interface.name, p->number = free_number(), &p->capture);
	p->dev = dev;
	p->pid = getpid();
	pthread_mutex_init(&p->lock, NULL);
	const int rc = error ? 0 : start_thread(p);
	if (rc)
		error = REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "a thread: %s", strerror(rc));
	if (error) {
		close_files(p);
		free(p);
		return error;
	}
	softdoca_log(DOCA_LOG_LEVEL_INFO, __func__, "%s sends and receives by %s", dev->info.f.pci,
		     p->interface.name);
	p->next = ports;
	*out = ports = p;
	return DOCA_SUCCESS;
}

doca_error_t softdoca_port_take(struct doca_dev *dev, struct port **out)
{
	doca_error_t error = DOCA_SUCCESS;
	pthread_mutex_lock(&ports_lock);
	struct port *p = ports;
	while (p && (p->dev != dev || !is_own(p)))
		p = p->next;
	if (!p)
		error = open_port(dev, &p);
	if (!error) {
		p->users++;
		*out = p;
	}
	pthread_mutex_unlock(&ports_lock);
	return error;
}

static void close_port(struct port *p)
{
	struct port **at = &ports;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (is_own(p)) {
		atomic_store(&p->stop, true);
		pthread_join(p->thread, NULL);
		softdoca_log(DOCA_LOG_LEVEL_INFO, __func__, "%s: no rule took %llu frames",
			     p->interface.name, (unsigned long long)p->unsteered);
	}
	close_files(p);
	free(p);
}

void softdoca_port_drop(struct port *p)
{
	pthread_mutex_lock(&ports_lock);
	if (!--p->users)
		close_port(p);
	pthread_mutex_unlock(&ports_lock);
}

void softdoca_port_lock(struct port *p)
{
	if (!is_own(p))
		return;
	atomic_fetch_add_explicit(&p->waiting, 1, memory_order_relaxed);
	pthread_mutex_lock(&p->lock);
	atomic_fetch_sub_explicit(&p->waiting, 1, memory_order_relaxed);
}

void softdoca_port_unlock(struct port *p)
{
	if (is_own(p))
		pthread_mutex_unlock(&p->lock);
}

void softdoca_port_set_steer(struct port *p, port_steer *steer, void *context)
{
	softdoca_port_lock(p);
	p->steer = steer;
	p->context = context;
	softdoca_port_unlock(p);
}

void softdoca_port_add_txq(struct port *p, struct port_txq *q)
{
	softdoca_port_lock(p);
	q->next = p->txqs;
	p->txqs = q;
	if (p->gone)
		fail_txq(q);
	softdoca_port_unlock(p);
}

void softdoca_port_add_rxq(struct port *p, struct port_rxq *q)
{
	softdoca_port_lock(p);
	q->next = p->rxqs;
	q->number = -1;
	p->rxqs = q;
	p->placed += q->places != NULL;
	store(&q->words->failed, p->gone);
	softdoca_port_unlock(p);
}

void softdoca_port_remove_txq(struct port *p, struct port_txq *q)
{
	struct port_txq **at = &p->txqs;
	const struct port_counters *c = &q->counters;
	softdoca_port_lock(p);
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	softdoca_port_unlock(p);
	fail_txq(q);
	store(&q->words->done, UINT64_MAX); /* nobody waits for a place */
	softdoca_log(DOCA_LOG_LEVEL_INFO, "doca_ctx_stop",
		     "sent %llu frames of %llu bytes, and the interface refused %llu; %llu had a time, "
		     "and were sent %llu ns after it on average, %llu ns at most",
		     (unsigned long long)c->frames, (unsigned long long)c->bytes,
		     (unsigned long long)c->dropped, (unsigned long long)c->timed,
		     (unsigned long long)(c->timed ? c->late_ns / c->timed : 0),
		     (unsigned long long)c->latest_ns);
}

void softdoca_port_remove_rxq(struct port *p, struct port_rxq *q)
{
	struct port_rxq **at = &p->rxqs;
	const struct port_counters *c = &q->counters;
	softdoca_port_lock(p);
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	if (q->number >= 0)
		p->numbered[q->number] = NULL;
	p->placed -= q->places != NULL;
	softdoca_port_unlock(p);
	store(&q->words->failed, 1);
	softdoca_log(DOCA_LOG_LEVEL_INFO, "doca_ctx_stop",
		     "received %llu frames of %llu bytes, dropped %llu because the queue was full and "
		     "%llu because they were longer than its packets",
		     (unsigned long long)c->frames, (unsigned long long)c->bytes,
		     (unsigned long long)c->dropped, (unsigned long long)c->too_long);
}

bool softdoca_port_number_rxq(struct port *p, struct port_rxq *q, int number)
{
	softdoca_port_lock(p);
	const bool is_free = !p->numbered[number] || p->numbered[number] == q;
	if (is_free && q->number >= 0)
		p->numbered[q->number] = NULL;
	if (is_free) {
		p->numbered[number] = q;
		q->number = number;
	}
	softdoca_port_unlock(p);
	return is_free;
}
