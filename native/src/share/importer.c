// SPDX-License-Identifier: Apache-2.0
#include "share/importer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "copy.h"
#include "memory_fault.h"
#include "share/import_reply.h"
#include "share/peer_fds.h"
#include "share/unix_socket.h"
#include "clock.h"
#include "error.h"
#include "thread.h"

struct dg_exporter {
	struct dg_exporter *next;
	uintptr_t id; /* cookie for the share server; a pointer could refer to a freed exporter */
	uint32_t refs;
	char path[SHARE_PATH_MAX];
	int fd, pidfd;
	pid_t pid;
	bool connecting; /* a thread is connecting, without the lock */
	char *control;
	struct dg_mappings mappings;
	struct dg_region *regions;
	atomic_bool lost, unresponsive; /* unresponsive: it does not empty its socket */
	bool exchanging; /* a thread is between a request and its reply */
	uint32_t tag;
	uint32_t late_replies; /* replies that are still to come for abandoned requests */
};

/* Guards the list, the fields that change, and the lists of regions. Nothing that an exporter can
 * delay is done with the lock held: connecting, requests, messages, mapping its memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* an exporter has left `connecting` or `exchanging` */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dg_exporter *exporters;
static uintptr_t last_id;

/* A copy by an exporter that does not reply within this time ends with DG_TIMED_OUT. */
#define COPY_TIMEOUT_NS 1000000000ull

void dg_importer_fork_lock(void)
{
	pthread_mutex_lock(&lock);
}

void dg_importer_fork_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static void init_changed(void)
{
	dg_cond_init(&changed);
}

/* Waits for `changed`. Returns 0 or ETIMEDOUT. Call with the lock held. */
static int wait_changed(uint64_t deadline_ns)
{
	const struct timespec t = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
	return pthread_cond_timedwait(&changed, &lock, &t);
}

void dg_importer_forget_all(void)
{
	for (struct dg_exporter *p = exporters; p; p = p->next) {
		close(p->fd);
		if (p->pidfd >= 0)
			close(p->pidfd);
	}
	exporters = NULL;
	/* Discard the waiting threads, which are the parent's. */
	init_changed();
}

static int wait_readable(int fd, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now = now_ns();
		uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
		struct pollfd p = {fd, POLLIN, 0};
		struct timespec t = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
		int n = ppoll(&p, 1, &t, NULL);
		if (n > 0)
			return 0;
		if (n == 0 || (errno == EINTR && now_ns() >= deadline_ns))
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

static void close_fds(int fds[2], int *n_fds)
{
	while (*n_fds)
		close_peer_fd(fds[--*n_fds]);
}

/* Receives one reply. Returns 0; or -errno, without fds. */
static int receive_reply(struct dg_exporter *p, struct dg_share_reply *a, int fds[2], int *n_fds,
			 uint64_t deadline_ns)
{
	*n_fds = 0;
	TRY(wait_readable(p->fd, deadline_ns));
	ssize_t n = dg_unix_socket_recv(p->fd, a, sizeof *a, fds, n_fds);
	if (n == -ECONNRESET) /* reported once, before a reply that was sent earlier */
		n = dg_unix_socket_recv(p->fd, a, sizeof *a, fds, n_fds);
	if (n == (ssize_t)sizeof *a && a->magic == SHARE_MAGIC)
		return 0;
	close_fds(fds, n_fds);
	return n <= 0 ? -ENOTCONN : -EPROTONOSUPPORT;
}

static int map_control(struct dg_exporter *p, int fd)
{
	TRY(dg_memfd_check(fd, CONTROL_SIZE));
	void *at = mmap(NULL, CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return dg_fail_errno("cannot map the exporter's control memory");
	p->control = at;
	return 0;
}

/* The control memory comes with the first successful reply only. It is mapped before
 * p->exchanging is cleared, because the receiver of the next reply relies on it. */
static int keep_control(struct dg_exporter *p, const struct dg_share_reply *a, const int fds[2],
			int n_fds)
{
	if (a->error || !a->has_control || p->control)
		return 0;
	return n_fds ? map_control(p, fds[0])
		     : dg_fail(EBADMSG, "the exporter's reply lacks the fd of its control memory");
}

static void send_release(struct dg_exporter *p, uint32_t slot)
{
	struct dg_share_request q = {.magic = SHARE_MAGIC,
				     .version = SHARE_VERSION,
				     .kind = SHARE_RELEASE,
				     .slot = slot};
	struct pollfd fd = {p->fd, POLLOUT, 0};
	/* A release that is not sent leaks the slot, so a slow exporter is given 100 ms. An
	 * exporter that did not read its messages in that time is not waited for again. */
	bool full = dg_unix_socket_send(p->fd, &q, sizeof q, NULL, 0) == -EAGAIN;
	if (full && !atomic_load(&p->unresponsive) && poll(&fd, 1, 100) == 1)
		full = dg_unix_socket_send(p->fd, &q, sizeof q, NULL, 0) == -EAGAIN;
	atomic_store(&p->unresponsive, full);
}

/* Receives the replies to abandoned requests before the next request is sent: until then the
 * exporter may still read or write the bounce buffer for them. An import that is no longer wanted
 * is released; control memory that came with it is kept, because it is sent only once. */
static int receive_late_replies(struct dg_exporter *p, uint64_t deadline_ns)
{
	struct dg_share_reply a;
	int fds[2], n_fds;
	for (; p->late_replies; p->late_replies--) {
		TRY(receive_reply(p, &a, fds, &n_fds, deadline_ns));
		keep_control(p, &a, fds, n_fds);
		if (!a.error && a.size)
			send_release(p, a.slot);
		close_fds(fds, &n_fds);
	}
	return 0;
}

/* Sends a request and receives its reply. Returns 0 or -errno; a->error is the exporter's own
 * error. */
static int exchange(struct dg_exporter *p, struct dg_share_request *q, struct dg_share_reply *a,
		    int fds[2], int *n_fds, uint64_t deadline_ns)
{
	*n_fds = 0;
	TRY(receive_late_replies(p, deadline_ns));
	q->magic = SHARE_MAGIC;
	q->version = SHARE_VERSION;
	q->tag = ++p->tag;
	if (dg_unix_socket_send(p->fd, q, sizeof *q, NULL, 0) == -EAGAIN)
		return -ETIMEDOUT;
	/* Also after another error: an exporter that refuses the connection has sent the reason. */
	int rc = receive_reply(p, a, fds, n_fds, deadline_ns);
	p->late_replies += rc == -ETIMEDOUT;
	if (rc)
		return rc;
	bool refused = a->error && a->tag == SHARE_NO_TAG;
	return a->tag == q->tag || refused ? 0 : -EPROTONOSUPPORT;
}

/* Connects p->fd, and checks who owns the socket. Called without the lock: the exporter may delay
 * accepting. */
static int exporter_connect(struct dg_exporter *p, uint64_t deadline_ns)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct ucred cred = {0};
	socklen_t len = sizeof cred;
	snprintf(a.sun_path, sizeof a.sun_path, "%s", p->path);
	while (connect(p->fd, (struct sockaddr *)&a, sizeof a)) {
		int err = errno;
		if (err == EAGAIN && now_ns() < deadline_ns) {
			usleep(1000); /* its backlog is full */
			continue;
		}
		if (err == ECONNREFUSED || err == ENOENT)
			return dg_fail(ENOTCONN, "the exporter is gone: no process listens on %s",
				       p->path);
		return err == EAGAIN
			       ? dg_fail(ETIMEDOUT, "the exporter does not answer on %s", p->path)
			       : dg_fail(err, "%s: %s", p->path, strerror(err));
	}
	if (getsockopt(p->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.uid != geteuid())
		return dg_fail(EPERM, "the process that listens on %s belongs to another user",
			       p->path);
	p->pid = cred.pid;
	return 0;
}

/* Adds an exporter that is not connected yet to the list. Call with the lock held. */
static int exporter_new(const char *path, struct dg_exporter **out)
{
	struct dg_exporter *p = calloc(1, sizeof *p);
	if (!p)
		return dg_fail(ENOMEM, "out of memory for a connection to an exporter");
	p->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->fd < 0) {
		free(p);
		return dg_fail_errno("cannot create a socket to the exporter");
	}
	p->pidfd = -1;
	p->id = ++last_id;
	p->refs = 1;
	p->connecting = true;
	snprintf(p->path, sizeof p->path, "%s", path);
	pthread_mutex_init(&p->mappings.lock, NULL);
	p->next = exporters;
	exporters = p;
	*out = p;
	return 0;
}

/* Drops a reference, with the lock held. Returns p if it was the last one, which the caller then
 * frees without the lock. The fds are closed with the lock held, because a child that is forked
 * later closes only those in the list. */
static struct dg_exporter *exporter_drop(struct dg_exporter *p)
{
	if (--p->refs)
		return NULL;
	struct dg_exporter **at = &exporters;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (!p->connecting)
		dg_share_server_unwatch(p->fd, p->pidfd);
	close(p->fd);
	if (p->pidfd >= 0)
		close(p->pidfd);
	return p;
}

static void exporter_free(struct dg_exporter *p)
{
	if (!p)
		return;
	if (p->control)
		munmap(p->control, CONTROL_SIZE);
	pthread_mutex_destroy(&p->mappings.lock);
	free(p);
}

static void exporter_release(struct dg_exporter *p)
{
	pthread_mutex_lock(&lock);
	struct dg_exporter *last = exporter_drop(p);
	pthread_mutex_unlock(&lock);
	exporter_free(last);
}

/* Connects the exporter that this thread has added to the list. On failure its reference is
 * dropped, and a waiting thread then tries by itself. */
static int exporter_open(struct dg_exporter *p, uint64_t deadline_ns)
{
	int rc = exporter_connect(p, deadline_ns);
	int pidfd = rc ? -1 : dg_pidfd_open(p->pid);
	struct dg_exporter *last = NULL;
	pthread_mutex_lock(&lock);
	p->pidfd = pidfd;
	if (!rc)
		rc = dg_share_server_watch(p->fd, p->pidfd, (void *)p->id);
	if (rc)
		last = exporter_drop(p);
	else
		p->connecting = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	exporter_free(last);
	return rc;
}

/* Takes a reference to the exporter that listens on `path`. If several threads need an exporter
 * that is not connected yet, one of them connects and the others wait for it, until their own
 * deadlines. */
static int exporter_take(const char *path, uint64_t deadline_ns, struct dg_exporter **out)
{
	struct dg_exporter *p;
	int rc = 0;
	pthread_once(&once, init_changed);
	pthread_mutex_lock(&lock);
	for (;;) {
		p = exporters;
		while (p && (strcmp(p->path, path) || atomic_load(&p->lost)))
			p = p->next;
		if (!p || !p->connecting || rc)
			break;
		rc = wait_changed(deadline_ns);
	}
	bool is_new = !p;
	if (is_new)
		rc = exporter_new(path, &p);
	else if (p->connecting)
		rc = dg_fail(ETIMEDOUT, "the exporter does not answer on %s", path);
	else
		rc = 0, p->refs++;
	pthread_mutex_unlock(&lock);
	if (!rc && is_new)
		rc = exporter_open(p, deadline_ns);
	*out = p;
	return rc;
}

/* Begins an exchange; another thread may be waiting for this exporter. Returns 0 or -ETIMEDOUT. */
static int begin_exchange(struct dg_exporter *p, uint64_t deadline_ns)
{
	int rc = 0;
	pthread_mutex_lock(&lock);
	while (p->exchanging && !rc)
		rc = wait_changed(deadline_ns);
	if (!p->exchanging)
		p->exchanging = true, rc = 0;
	pthread_mutex_unlock(&lock);
	return -rc;
}

static void end_exchange(struct dg_exporter *p)
{
	pthread_mutex_lock(&lock);
	p->exchanging = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* Returns the error of an import, which is that of exchange() or the exporter's own, or 0. */
static int import_error(const struct dg_exporter *p, int rc, const struct dg_share_reply *a)
{
	if (rc == -ETIMEDOUT)
		return dg_fail(
			ETIMEDOUT,
			"the exporter (process %d) does not answer: check whether it is stopped",
			(int)p->pid);
	if (rc == -EPROTONOSUPPORT)
		return dg_fail(-rc,
			       "the exporter (process %d) uses another protocol version: use the "
			       "same release of dgkit on both sides",
			       (int)p->pid);
	if (rc)
		return dg_fail(ENOTCONN, "the exporter (process %d) is gone", (int)p->pid);
	if (a->error) /* 4095: the largest errno of Linux (MAX_ERRNO) */
		return dg_fail(a->error <= 4095 ? (int)a->error : EBADMSG, "%.127s", a->text);
	return 0;
}

/* Whether this process may read the exporter's memory by its pid, and the pid still belongs to the
 * exporter. The latter is checked after opening the memory, with the pidfd that was opened before
 * the exporter replied. The exporter allows the access (PR_SET_PTRACER) before it replies. */
static bool can_read_memory(const struct dg_exporter *p)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/mem", (int)p->pid);
	int fd = p->pidfd < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	close(fd);
	return !dg_pidfd_dead(p->pidfd);
}

static int request_import(struct dg_region *r, const struct dg_descriptor *d, uint64_t deadline_ns,
			  struct dg_region_entry *entry)
{
	bool by_cpu = !r->dev->gpu && !r->dev->registers;
	struct dg_share_request q = {.kind = SHARE_IMPORT, .size = by_cpu ? SHARE_BY_CPU : 0};
	struct dg_share_reply a;
	int fds[2], n_fds = 0;
	struct dg_exporter *p = r->exporter;
	memcpy(q.key, d->key, sizeof q.key);
	int kept = 0, rc = begin_exchange(p, deadline_ns);
	if (!rc) {
		rc = exchange(p, &q, &a, fds, &n_fds, deadline_ns);
		kept = rc ? 0 : keep_control(p, &a, fds, n_fds);
		end_exchange(p);
	}
	rc = import_error(p, rc, &a);
	if (!rc) {
		r->slot = a.slot;
		bool direct = a.method != DG_METHOD_MAP && a.method != DG_METHOD_GPU;
		const struct reply_source from = {p->pid, direct && can_read_memory(p), p->control,
						  &p->mappings, deadline_ns};
		rc = kept ? kept : dg_import_reply_apply(r, &from, &a, fds, n_fds, entry);
		if (rc)
			send_release(p, a.slot);
	}
	close_fds(fds, &n_fds);
	return rc;
}

int dg_importer_import(struct dg_region *r, const struct dg_descriptor *d, uint64_t timeout_ns,
		       struct dg_region_entry *entry)
{
	uint64_t deadline = add_sat(now_ns(), timeout_ns);
	struct dg_exporter *p;
	TRY(exporter_take(d->path, deadline, &p));
	r->exporter = p;
	int rc = request_import(r, d, deadline, entry);
	if (rc) {
		r->exporter = NULL;
		exporter_release(p);
	}
	return rc;
}

void dg_importer_add_region(struct dg_region *r)
{
	pthread_mutex_lock(&lock);
	r->exporter_next = r->exporter->regions;
	if (r->exporter_next)
		r->exporter_next->exporter_prev = r;
	r->exporter->regions = r;
	if (atomic_load(&r->exporter->lost))
		atomic_store(&r->entry->lost, 1);
	pthread_mutex_unlock(&lock);
}

int32_t dg_importer_exporter_pid(struct dg_region *r)
{
	return r->exporter ? r->exporter->pid : r->other_machine ? 0 : getpid();
}

/* Whether the process is exiting: its memory is freed some time before its pidfd becomes
 * readable. */
static bool is_exiting(pid_t pid)
{
	enum { PF_EXITING = 4 }; /* <linux/sched.h>; in proc_pid_stat(5) the field `flags` */
	char text[512], path[32];
	unsigned flags = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return true;
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = 0;
	const char *name_end = strrchr(text, ')');
	return name_end && sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       (flags & PF_EXITING);
}

bool dg_importer_exporter_gone(struct dg_region *r)
{
	const struct dg_exporter *p = r->exporter;
	return p && (atomic_load(&p->lost) || (p->pidfd >= 0 && dg_pidfd_dead(p->pidfd)) ||
		     is_exiting(p->pid));
}

void dg_importer_release(struct dg_region *r)
{
	struct dg_exporter *p = r->exporter;
	pthread_mutex_lock(&lock);
	if (r->exporter_prev)
		r->exporter_prev->exporter_next = r->exporter_next;
	else if (p->regions == r)
		p->regions = r->exporter_next;
	if (r->exporter_next)
		r->exporter_next->exporter_prev = r->exporter_prev;
	pthread_mutex_unlock(&lock);
	send_release(p, r->slot);
	dg_mapping_drop(&p->mappings, r->mapping);
	exporter_release(p);
}

void dg_importer_exporter_died(void *cookie)
{
	pthread_mutex_lock(&lock);
	struct dg_exporter *p = exporters;
	while (p && p->id != (uintptr_t)cookie)
		p = p->next;
	if (p) {
		atomic_store(&p->lost, true);
		dg_share_server_unwatch(p->fd, p->pidfd);
		for (struct dg_region *r = p->regions; r; r = r->exporter_next)
			atomic_store(&r->entry->lost, 1);
	}
	pthread_mutex_unlock(&lock);
}

/* Reads by pid. The result is valid if the exporter is alive afterwards, because its pid was then
 * not reused. */
static ssize_t vm_read(const struct dg_exporter *p, void *to, uint64_t from, uint64_t n)
{
	struct iovec local = {to, n}, remote = {(void *)(uintptr_t)from, n};
	ssize_t got = process_vm_readv(p->pid, &local, 1, &remote, 1, 0);
	int error = errno;
	if (dg_pidfd_dead(p->pidfd))
		error = ESRCH, got = -1;
	errno = error;
	return got;
}

/* Reads by the exporter's pid. Writes are done by the exporter's thread, because a write by pid
 * could hit another process that got the same pid. */
int dg_importer_vm_copy(struct dg_region_entry *remote, char *local, uint64_t address, uint64_t n,
			bool write, bool may_fault)
{
	const struct dg_exporter *p = remote->region->exporter;
	if (write) {
		uint64_t offset = address - (uint64_t)(uintptr_t)remote->base;
		return dg_importer_proxy_copy(remote, local, offset, n, true, may_fault);
	}
	while (n) {
		ssize_t got = vm_read(p, local, address, n);
		if (got <= 0) {
			char byte;
			if (got < 0 && errno == ESRCH)
				return DG_PEER_LOST;
			got = vm_read(p, &byte, address, 1);
			if (got == 1)
				return DG_LOCAL_ERROR;
			return got < 0 && errno == ESRCH ? DG_PEER_LOST : DG_REMOTE_ACCESS_ERROR;
		}
		local += got, address += (uint64_t)got, n -= (uint64_t)got;
	}
	return DG_OK;
}

static int status_of_failure(int rc)
{
	return rc == -ETIMEDOUT ? DG_TIMED_OUT : DG_PEER_LOST;
}

static int request_copy(struct dg_exporter *p, struct dg_share_request *q, uint64_t deadline_ns)
{
	struct dg_share_reply a;
	int fds[2], n_fds = 0;
	int rc = exchange(p, q, &a, fds, &n_fds, deadline_ns);
	close_fds(fds, &n_fds);
	if (rc)
		return status_of_failure(rc);
	/* The exporter's value is not trusted: OP_MORE would make the engine continue past the end
	 * of the operation. */
	return a.error || a.status > DG_IO_FAILED ? DG_IO_FAILED : (int)a.status;
}

/* Copies between the bounce buffer and local memory. may_fault: dg_memory_may_fault() says so of the memory,
 * which is copied by system calls; other memory faults only if the program has unmapped it. */
static int copy_local(void *to, const void *from, uint64_t n, bool may_fault)
{
	if (may_fault)
		return guarded_status(dg_copy_guarded(to, from, n), DG_LOCAL_ERROR);
	return dg_copy_caught(to, from, n, n) ? DG_LOCAL_ERROR : DG_OK;
}

int dg_importer_proxy_copy(struct dg_region_entry *remote, char *local, uint64_t offset, uint64_t n,
			   bool write, bool may_fault)
{
	struct dg_exporter *p = remote->region->exporter;
	char *bounce = p->control + BOUNCE_OFFSET;
	int status = DG_OK;
	if (begin_exchange(p, now_ns() + COPY_TIMEOUT_NS))
		return DG_TIMED_OUT;
	while (n && status == DG_OK) {
		uint64_t part = n < BOUNCE_SIZE ? n : BOUNCE_SIZE;
		struct dg_share_request q = {.kind = write ? SHARE_PUT : SHARE_GET,
					     .slot = remote->slot,
					     .offset = offset,
					     .size = part};
		uint64_t deadline = now_ns() + COPY_TIMEOUT_NS;
		int rc = receive_late_replies(p, deadline);
		if (rc) {
			status = status_of_failure(rc);
			break;
		}
		if (write)
			status = copy_local(bounce, local, part, may_fault);
		if (status == DG_OK)
			status = request_copy(p, &q, deadline);
		if (!write && status == DG_OK)
			status = copy_local(local, bounce, part, may_fault);
		local += part, offset += part, n -= part;
	}
	end_exchange(p);
	return status;
}

int dg_importer_atomic(struct dg_region_entry *remote, uint64_t offset, const struct dg_atomic *a,
		       uint64_t *old)
{
	struct dg_exporter *p = remote->region->exporter;
	char *bounce = p->control + BOUNCE_OFFSET;
	struct dg_share_request q = {
		.kind = SHARE_ATOMIC, .slot = remote->slot, .offset = offset, .size = a->size};
	const uint64_t deadline = now_ns() + COPY_TIMEOUT_NS;
	if (begin_exchange(p, deadline))
		return DG_TIMED_OUT;
	const int rc = receive_late_replies(p, deadline);
	int status = rc ? status_of_failure(rc) : DG_OK;
	if (status == DG_OK) {
		memcpy(bounce, a, sizeof *a);
		status = request_copy(p, &q, deadline);
		memcpy(old, bounce, sizeof *old);
	}
	end_exchange(p);
	return status;
}
