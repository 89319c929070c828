// SPDX-License-Identifier: Apache-2.0
#include "share/importer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "share/import_reply.h"
#include "clock.h"
#include "error.h"

struct dg_peer {
	struct dg_peer *next;
	uintptr_t
		id; /* what the door calls it: a pointer could be of a peer that was freed meanwhile */
	uint32_t refs;
	char path[DOOR_PATH_MAX];
	int fd, pidfd;
	pid_t pid;
	char *control;
	struct dg_mapping *mappings;
	struct dg_region *regions;
	atomic_bool lost, deaf; /* deaf: it left its socket full */
	pthread_mutex_t talk; /* one question and its answer at a time */
	uint32_t tag;
	uint32_t late; /* questions that were given up, whose answers are still to come */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dg_peer *peers;
static uintptr_t last_id;

/* How long a copy through the exporter waits for it before it ends as DG_TIMED_OUT. */
#define ASK_TIMEOUT_NS 1000000000ull

void dg_peer_fork_lock(void)
{
	pthread_mutex_lock(&lock);
}

void dg_peer_fork_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void dg_peer_forget(void)
{
	for (struct dg_peer *p = peers; p; p = p->next) {
		close(p->fd);
		if (p->pidfd >= 0)
			close(p->pidfd);
	}
	peers = NULL;
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
		close(fds[--*n_fds]);
}

/* A good answer, or -errno and then no fds. */
static int hear(struct dg_peer *p, struct door_answer *a, int fds[2], int *n_fds,
		uint64_t deadline_ns)
{
	*n_fds = 0;
	int rc = wait_readable(p->fd, deadline_ns);
	if (rc)
		return rc;
	ssize_t n = dg_sock_recv(p->fd, a, sizeof *a, fds, n_fds);
	if (n == (ssize_t)sizeof *a && a->magic == DOOR_MAGIC)
		return 0;
	close_fds(fds, n_fds);
	return n <= 0 ? -ENOTCONN : -EPROTONOSUPPORT;
}

static int map_control(struct dg_peer *p, int fd)
{
	int rc = dg_memfd_check(fd, CONTROL_SIZE);
	if (rc)
		return rc;
	void *at = mmap(NULL, CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return dg_fail_errno("mapping the exporter's control memory");
	p->control = at;
	return 0;
}

/* The control memory comes with the first good answer only. It is kept before p->talk is given up:
 * who hears the next answer counts on it. */
static int keep_control(struct dg_peer *p, const struct door_answer *a, const int fds[2], int n_fds)
{
	if (a->error || !a->has_control || p->control)
		return 0;
	return n_fds ? map_control(p, fds[0])
		     : dg_fail(EBADMSG, "the exporter's answer lacks an fd");
}

static void send_release(struct dg_peer *p, uint32_t slot)
{
	struct door_ask q = {
		.magic = DOOR_MAGIC, .version = DOOR_VERSION, .kind = DOOR_RELEASE, .slot = slot};
	struct pollfd fd = {p->fd, POLLOUT, 0};
	/* Else the slot is lost: one that is only slow gets a moment, one that does not use it no other. */
	bool full = dg_sock_send(p->fd, &q, sizeof q, NULL, 0) == -EAGAIN;
	if (full && !atomic_load(&p->deaf) && poll(&fd, 1, 100) == 1)
		full = dg_sock_send(p->fd, &q, sizeof q, NULL, 0) == -EAGAIN;
	atomic_store(&p->deaf, full);
}

/* Hears the answers to questions that were given up, before another is asked: until then the
 * exporter may still read or write the bounce buffer for them. An import that nobody waits for any
 * more is given back, and the control memory that came with it is kept: it comes only once. */
static int settle(struct dg_peer *p, uint64_t deadline_ns)
{
	struct door_answer a;
	int fds[2], n_fds;
	for (; p->late; p->late--) {
		int rc = hear(p, &a, fds, &n_fds, deadline_ns);
		if (rc)
			return rc;
		keep_control(p, &a, fds, n_fds);
		if (!a.error && a.size)
			send_release(p, a.slot);
		close_fds(fds, &n_fds);
	}
	return 0;
}

/* One question and its answer. Gives 0 or -errno; a->error is the exporter's own. */
static int talk(struct dg_peer *p, struct door_ask *q, struct door_answer *a, int fds[2],
		int *n_fds, uint64_t deadline_ns)
{
	*n_fds = 0;
	int rc = settle(p, deadline_ns);
	if (rc)
		return rc;
	q->magic = DOOR_MAGIC;
	q->version = DOOR_VERSION;
	q->tag = ++p->tag;
	ssize_t n = dg_sock_send(p->fd, q, sizeof *q, NULL, 0);
	if (n < 0)
		return n == -EAGAIN ? -ETIMEDOUT : -ENOTCONN;
	rc = hear(p, a, fds, n_fds, deadline_ns);
	p->late += rc == -ETIMEDOUT;
	return rc || a->tag == q->tag ? rc : -EPROTONOSUPPORT;
}

static int connect_to(const char *path, uint64_t deadline_ns)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return dg_fail_errno("a socket to the exporter");
	while (connect(fd, (struct sockaddr *)&a, sizeof a)) {
		int err = errno;
		if (err == EAGAIN && now_ns() < deadline_ns) {
			usleep(1000); /* its backlog is full */
			continue;
		}
		close(fd);
		if (err == ECONNREFUSED || err == ENOENT)
			return dg_fail(ENOTCONN, "the exporter is gone: nobody listens on %s",
				       path);
		return err == EAGAIN
			       ? dg_fail(ETIMEDOUT, "the exporter does not answer on %s", path)
			       : dg_fail(err, "%s: %s", path, strerror(err));
	}
	return fd;
}

static int peer_open(const char *path, uint64_t deadline_ns, struct dg_peer **out)
{
	struct ucred cred = {0};
	socklen_t len = sizeof cred;
	int fd = connect_to(path, deadline_ns);
	if (fd < 0)
		return fd;
	struct dg_peer *p = calloc(1, sizeof *p);
	if (!p) {
		close(fd);
		return dg_fail(ENOMEM, "no memory for an exporter");
	}
	p->fd = fd;
	p->pidfd = -1;
	p->id = ++last_id;
	snprintf(p->path, sizeof p->path, "%s", path);
	pthread_mutex_init(&p->talk, NULL);
	int rc = 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.uid != geteuid())
		rc = dg_fail(EPERM, "the process behind %s is of another user", path);
	p->pid = cred.pid;
	p->pidfd = rc ? -1 : dg_pidfd_open(cred.pid);
	if (!rc)
		rc = dg_door_watch(fd, p->pidfd, (void *)p->id);
	if (rc) {
		close(fd);
		if (p->pidfd >= 0)
			close(p->pidfd);
		free(p);
		return rc;
	}
	p->next = peers;
	peers = p;
	*out = p;
	return 0;
}

static void peer_drop(struct dg_peer *p)
{
	if (--p->refs)
		return;
	struct dg_peer **at = &peers;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	dg_door_unwatch(p->fd, p->pidfd);
	close(p->fd);
	if (p->pidfd >= 0)
		close(p->pidfd);
	if (p->control)
		munmap(p->control, CONTROL_SIZE);
	pthread_mutex_destroy(&p->talk);
	free(p);
}

/* Another thread may be in the middle of a long wait for this exporter. 0 or -ETIMEDOUT. */
static int lock_talk(struct dg_peer *p, uint64_t deadline_ns)
{
	struct timespec t;
	uint64_t now = now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
	/* By the clock of the day: the monotonic one came to mutexes late, and tools do not know it. */
	clock_gettime(CLOCK_REALTIME, &t);
	uint64_t ns = (uint64_t)t.tv_nsec + left % 1000000000u;
	t.tv_sec += (time_t)(left / 1000000000u + ns / 1000000000u);
	t.tv_nsec = (long)(ns % 1000000000u);
	return -pthread_mutex_timedlock(&p->talk, &t);
}

/* Why there is no good answer to an import: talk()'s own rc, or the exporter's error. */
static int import_error(const struct dg_peer *p, int rc, const struct door_answer *a)
{
	if (rc == -ETIMEDOUT)
		return dg_fail(ETIMEDOUT,
			       "the exporter (process %d) does not answer: is it stopped?",
			       (int)p->pid);
	if (rc == -EPROTONOSUPPORT)
		return dg_fail(-rc, "the exporter (process %d) speaks another version",
			       (int)p->pid);
	if (rc)
		return dg_fail(ENOTCONN, "the exporter (process %d) is gone", (int)p->pid);
	if (a->error) /* 4095 is the largest errno of Linux (MAX_ERRNO). */
		return dg_fail(a->error <= 4095 ? (int)a->error : EBADMSG, "%.127s", a->text);
	return 0;
}

static int ask_import(struct dg_region *r, const struct dg_descriptor *d, uint64_t deadline_ns,
		      struct dg_hot *hot)
{
	struct door_ask q = {.kind = DOOR_IMPORT};
	struct door_answer a;
	int fds[2], n_fds = 0;
	struct dg_peer *p = r->peer;
	memcpy(q.key, d->key, sizeof q.key);
	int kept = 0, rc = lock_talk(p, deadline_ns);
	if (!rc) {
		rc = talk(p, &q, &a, fds, &n_fds, deadline_ns);
		kept = rc ? 0 : keep_control(p, &a, fds, n_fds);
		pthread_mutex_unlock(&p->talk);
	}
	rc = import_error(p, rc, &a);
	if (!rc) {
		r->slot = a.slot;
		pthread_mutex_lock(&lock);
		const struct exporter from = {p->pid, p->control, &p->mappings};
		rc = kept ? kept : dg_answer_take(r, &from, &a, fds, n_fds, hot);
		pthread_mutex_unlock(&lock);
		/* Not under the lock: the provider's own library may ask the exporter, too. */
		if (!rc && r->from)
			rc = dg_answer_open(r, &a, hot);
		if (rc)
			send_release(p, a.slot);
	}
	close_fds(fds, &n_fds);
	return rc;
}

int dg_peer_import(struct dg_region *r, const struct dg_descriptor *d, uint64_t timeout_ns,
		   struct dg_hot *hot)
{
	uint64_t deadline = add_sat(now_ns(), timeout_ns);
	int rc = 0;
	pthread_mutex_lock(&lock);
	struct dg_peer *p = peers;
	while (p && (strcmp(p->path, d->path) || atomic_load(&p->lost)))
		p = p->next;
	if (!p)
		rc = peer_open(d->path, deadline, &p);
	if (!rc)
		p->refs++;
	pthread_mutex_unlock(&lock);
	if (rc)
		return rc;
	r->peer = p;
	rc = ask_import(r, d, deadline, hot);
	if (rc) {
		r->peer = NULL;
		pthread_mutex_lock(&lock);
		peer_drop(p);
		pthread_mutex_unlock(&lock);
	}
	return rc;
}

void dg_peer_add_region(struct dg_region *r)
{
	pthread_mutex_lock(&lock);
	r->peer_next = r->peer->regions;
	if (r->peer_next)
		r->peer_next->peer_prev = r;
	r->peer->regions = r;
	if (atomic_load(&r->peer->lost))
		atomic_store(&r->hot->lost, 1);
	pthread_mutex_unlock(&lock);
}

int32_t dg_peer_pid(struct dg_region *r)
{
	return r->peer ? r->peer->pid : r->far ? 0 : getpid();
}

/* Whether the process ends now: its memory is gone a while before its pidfd says so. */
static bool ending(pid_t pid)
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

bool dg_peer_gone(struct dg_region *r)
{
	const struct dg_peer *p = r->peer;
	return p && (atomic_load(&p->lost) || (p->pidfd >= 0 && dg_pid_dead(p->pidfd)) ||
		     ending(p->pid));
}

void dg_peer_release(struct dg_region *r)
{
	struct dg_peer *p = r->peer;
	pthread_mutex_lock(&lock);
	if (r->peer_prev)
		r->peer_prev->peer_next = r->peer_next;
	else if (p->regions == r)
		p->regions = r->peer_next;
	if (r->peer_next)
		r->peer_next->peer_prev = r->peer_prev;
	send_release(p, r->slot);
	dg_mapping_drop(&p->mappings, r->mapping);
	peer_drop(p);
	pthread_mutex_unlock(&lock);
}

void dg_peer_died(void *cookie)
{
	pthread_mutex_lock(&lock);
	struct dg_peer *p = peers;
	while (p && p->id != (uintptr_t)cookie)
		p = p->next;
	if (p) {
		atomic_store(&p->lost, true);
		dg_door_unwatch(p->fd, p->pidfd);
		for (struct dg_region *r = p->regions; r; r = r->peer_next)
			atomic_store(&r->hot->lost, 1);
	}
	pthread_mutex_unlock(&lock);
}

static int silence(int rc)
{
	return rc == -ETIMEDOUT ? DG_TIMED_OUT : DG_PEER_LOST;
}

static int ask_copy(struct dg_peer *p, struct door_ask *q, uint64_t deadline_ns)
{
	struct door_answer a;
	int fds[2], n_fds = 0;
	int rc = talk(p, q, &a, fds, &n_fds, deadline_ns);
	close_fds(fds, &n_fds);
	if (rc)
		return silence(rc);
	/* Not any number: OP_MORE would make the engine go on past the end of the operation. */
	return a.error || a.status > DG_IO_FAILED ? DG_IO_FAILED : (int)a.status;
}

int dg_peer_copy(struct dg_hot *remote, char *here, uint64_t offset, uint64_t n, bool write,
		 bool may_fault)
{
	struct dg_peer *p = remote->region->peer;
	char *bounce = p->control + BOUNCE_OFFSET;
	int status = DG_OK;
	if (lock_talk(p, now_ns() + ASK_TIMEOUT_NS))
		return DG_TIMED_OUT;
	while (n && status == DG_OK) {
		uint64_t part = n < BOUNCE_SIZE ? n : BOUNCE_SIZE;
		struct door_ask q = {.kind = write ? DOOR_PUT : DOOR_GET,
				     .slot = remote->slot,
				     .offset = offset,
				     .size = part};
		uint64_t deadline = now_ns() + ASK_TIMEOUT_NS;
		int rc = settle(p, deadline);
		if (rc) {
			status = silence(rc);
			break;
		}
		if (write && may_fault && dg_copy_guarded(bounce, here, part))
			status = DG_LOCAL_ERROR;
		else if (write && !may_fault)
			dg_copy(bounce, here, part);
		if (status == DG_OK)
			status = ask_copy(p, &q, deadline);
		if (!write && status == DG_OK && may_fault && dg_copy_guarded(here, bounce, part))
			status = DG_LOCAL_ERROR;
		else if (!write && status == DG_OK && !may_fault)
			dg_copy(here, bounce, part);
		here += part, offset += part, n -= part;
	}
	pthread_mutex_unlock(&p->talk);
	return status;
}
