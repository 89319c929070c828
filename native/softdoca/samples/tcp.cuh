/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP of a kernel that serves one reply a connection, then closes it. It retransmits what is not
 * acknowledged, keeps to the peer's window and to a congestion window (RFC 5681), probes a closed
 * window, and answers segments of no connection with RST. It has neither window scaling nor SACK nor
 * timestamps, and takes segments in their order only.
 *
 * Each thread owns the connections of the peers' ports that are its number modulo the threads: so no
 * two threads change a connection. What a thread wants to send it adds to a list of the block.
 */
#ifndef SAMPLES_TCP_CUH
#define SAMPLES_TCP_CUH

#include "ethernet.cuh"

#define THREADS	   32
#define SLOTS	   8 /* connections of a thread */
#define SEGMENTS   64 /* of a round */
#define TCP	   54u /* bytes of the headers of Ethernet, IPv4 and TCP without options */
#define MSS	   1460u /* of our segments and of those we take */
#define WINDOW	   65535u /* that we grant */
#define RTO_NS	   200000000ull /* first time-out, for a network of one hop; doubled by each further one */
#define TRIES	   8 /* time-outs until a connection is given up */
#define LINGER_NS  1000000000ull /* how long a closed connection still answers */
#define SILENCE_NS 30000000000ull /* that a peer may say nothing */

enum flags { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };

/* Memory of GPU and CPU. */
struct state {
	uint32_t stop, ended, failed;
	uint64_t replies; /* that were acknowledged to the end */
	uint64_t opened, lost, refused; /* connections; lost: without acknowledgements, or by RST */
	uint64_t segments, again; /* sent; again: bytes sent before */
	uint64_t wrong; /* segments that were dropped for their checksums */
};

struct reply {
	const uint8_t *bytes;
	uint32_t size;
};

/* A segment to send. flags 0: a whole frame. */
struct segment {
	uint8_t mac[6], ip[4], ports[4]; /* in the order of the header */
	uint32_t seq, ack;
	uint16_t flags;
	const uint8_t *data;
	uint32_t size;
};

/* A received segment. */
struct arrival {
	const uint8_t *frame, *data;
	uint32_t seq, ack, flags, window, mss, size;
	uint16_t port, to; /* of the peer, and ours */
};

/* Sequence numbers: iss is that of our SYN, `acked` the first that the peer lacks, `next` the next to
 * send, `top` the first never sent, `wanted` the peer's next. */
struct connection {
	bool used, fin, ack_due, resend, recovers, probe, served;
	uint8_t mac[6], ip[4];
	uint16_t port;
	uint32_t iss, acked, next, top, wanted, recover;
	uint32_t window, mss, congestion, threshold, duplicates;
	uint32_t seen, get, ended; /* bytes of the request, of "GET / ", and of the empty line */
	struct reply reply; /* once it was requested; bytes NULL: not yet */
	uint64_t timer, rto, heard;
	int tries;
};

/* What the threads of the block have to send in a round; in shared memory. */
struct outbox {
	uint32_t n; /* segments */
	struct segment list[SEGMENTS];
	uint64_t now;
};

struct server {
	struct station own;
	uint32_t port;
	struct reply page, missing;
	struct state *state;
};

static __device__ uint32_t big32(const uint8_t *p)
{
	return big16(p) << 16 | big16(p + 2);
}

static __device__ void put(uint8_t *p, uint32_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

static __device__ void count(uint64_t *counter, uint64_t n)
{
	atomicAdd((unsigned long long *)counter, n);
}

static __device__ uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* ---- what is to be sent ---- */

/* Adds a segment to the list; returns NULL if it is full. */
static __device__ struct segment *add(struct outbox *out)
{
	const uint32_t i = atomicAdd(&out->n, 1);
	return i < SEGMENTS ? &out->list[i] : NULL;
}

static __device__ void address(struct segment *s, const uint8_t *mac, const uint8_t *ip,
			       uint32_t own_port, uint32_t port)
{
	copy(s->mac, mac, 6);
	copy(s->ip, ip, 4);
	put(s->ports, own_port, 2);
	put(s->ports + 2, port, 2);
}

static __device__ bool emit(const struct server *v, struct outbox *out, struct connection *c, uint32_t seq,
			    uint32_t flags, const uint8_t *data, uint32_t size)
{
	struct segment *s = add(out);
	if (!s)
		return false;
	address(s, c->mac, c->ip, v->port, c->port);
	s->seq = seq;
	s->ack = c->wanted;
	s->flags = (uint16_t)flags;
	s->data = data;
	s->size = size;
	c->ack_due = false;
	count(&v->state->segments, 1);
	return true;
}

/* RFC 793, 3.4: of a segment that belongs to no connection. */
static __device__ void refuse(const struct server *v, struct outbox *out, const struct arrival *a)
{
	struct segment *s = a->flags & RST ? NULL : add(out);
	if (!s)
		return;
	address(s, a->frame + 6, a->frame + 26, a->to, a->port);
	s->seq = a->flags & ACK ? a->ack : 0;
	s->ack = a->seq + a->size + !!(a->flags & SYN) + !!(a->flags & FIN);
	s->flags = a->flags & ACK ? RST : RST | ACK;
	s->size = 0;
	count(&v->state->refused, 1);
}

/* First sequence number behind all that is to be sent so far: SYN, the reply, FIN. */
static __device__ uint32_t end_of(const struct connection *c)
{
	return c->iss + 1 + (c->reply.bytes ? c->reply.size + 1 : 0);
}

/* Sends the segment that begins at seq, of up to `room` bytes of data. Returns the sequence numbers that
 * it takes; 0 if there is no room in the list. */
static __device__ uint32_t send_at(const struct server *v, struct outbox *out, struct connection *c,
				   uint32_t seq, uint32_t room)
{
	const uint32_t at = seq - c->iss - 1;
	if (seq == c->iss)
		return emit(v, out, c, seq, SYN | ACK, NULL, 0);
	const uint32_t size = least(least(c->reply.size - at, c->mss), room);
	const bool last = at + size == c->reply.size;
	if (!emit(v, out, c, seq, ACK | (last ? FIN | PSH : 0), c->reply.bytes + at, size))
		return 0;
	if (seq != c->top)
		count(&v->state->again, size);
	return size + last;
}

/* RFC 9293, 3.8.6.2.1: a small segment only if it is the last one, or if nothing is on its way. */
static __device__ bool is_worth(const struct connection *c, uint32_t room)
{
	const uint32_t left = c->reply.size - (c->next - c->iss - 1);
	return left == 0 || room >= least(c->mss, left) || (room && c->next == c->acked);
}

static __device__ void send_window(const struct server *v, struct outbox *out, struct connection *c)
{
	const uint32_t limit = least(c->window, c->congestion);
	while (c->next != end_of(c)) {
		const uint32_t flight = c->next - c->acked;
		const uint32_t room = limit > flight ? limit - flight : c->probe && !flight;
		if (c->next != c->iss && (c->acked == c->iss || !is_worth(c, room)))
			break;
		if (flight == 0)
			c->timer = out->now;
		const uint32_t sent = send_at(v, out, c, c->next, room);
		if (!sent)
			break;
		c->probe = false;
		c->next += sent;
		if (c->next - c->acked > c->top - c->acked)
			c->top = c->next;
	}
}

/* ---- time ---- */

static __device__ void give_up(const struct server *v, struct outbox *out, struct connection *c)
{
	emit(v, out, c, c->next, RST | ACK, NULL, 0);
	count(&v->state->lost, 1);
	c->used = false;
}

/* RFC 5681, 3.1, and RFC 6298, 5. */
static __device__ void time_out(const struct server *v, struct outbox *out, struct connection *c)
{
	const uint32_t half = (c->top - c->acked) / 2;
	if (++c->tries > TRIES) {
		give_up(v, out, c);
		return;
	}
	c->threshold = half > 2 * c->mss ? half : 2 * c->mss;
	c->congestion = c->mss;
	c->next = c->acked;
	c->recovers = c->resend = false;
	c->probe = true;
	c->duplicates = 0;
	c->rto *= 2;
	c->timer = out->now;
}

static __device__ void look_at_clock(const struct server *v, struct outbox *out, struct connection *c)
{
	const bool done = c->served && c->fin;
	if (done && out->now - c->heard > LINGER_NS) {
		c->used = false;
	} else if (!done && c->acked != c->top) {
		if (out->now - c->timer > c->rto)
			time_out(v, out, c);
	} else if (!done && c->next != end_of(c) && out->now - c->timer > c->rto) {
		c->probe = true; /* the peer's window is closed */
	} else if (out->now - c->heard > SILENCE_NS) {
		give_up(v, out, c);
	}
}

/* ---- what was received ---- */

static __device__ void grow(struct connection *c, uint32_t acked)
{
	if (c->congestion < c->threshold)
		c->congestion += least(acked, c->mss);
	else if (c->congestion < WINDOW)
		c->congestion += c->mss * c->mss / c->congestion + 1;
}

/* RFC 6582: the first of the lost segments is sent again for each acknowledgement of a part. */
static __device__ void take_progress(struct connection *c, uint32_t acked, uint64_t now)
{
	c->acked += acked;
	if (c->next - c->acked > c->top - c->acked)
		c->next = c->acked;
	c->duplicates = 0;
	c->rto = RTO_NS;
	c->timer = now;
	if (!c->recovers) {
		grow(c, acked);
	} else if ((int32_t)(c->acked - c->recover) >= 0) {
		c->recovers = false;
		c->congestion = c->threshold;
	} else {
		c->resend = true;
	}
}

static __device__ void take_duplicate(struct connection *c)
{
	const uint32_t half = (c->top - c->acked) / 2;
	if (++c->duplicates == 3 && !c->recovers) {
		c->threshold = half > 2 * c->mss ? half : 2 * c->mss;
		c->congestion = c->threshold + 3 * c->mss;
		c->recover = c->top;
		c->recovers = c->resend = true;
	} else if (c->recovers) {
		c->congestion += c->mss;
	}
}

static __device__ void take_ack(const struct server *v, struct connection *c, const struct arrival *a,
				uint64_t now)
{
	const uint32_t acked = a->ack - c->acked;
	if (!(a->flags & ACK) || acked > c->top - c->acked)
		return;
	c->tries = 0;
	if (acked)
		take_progress(c, acked, now);
	else if (c->acked != c->top && a->size == 0 && a->window && a->window == c->window)
		take_duplicate(c);
	c->window = a->window;
	if (!c->served && c->reply.bytes && c->acked == end_of(c)) {
		c->served = true;
		count(&v->state->replies, 1);
	}
}

/* Looks for "GET / " at the start of a request, and for the empty line at its end. */
static __device__ void read_request(const struct server *v, struct connection *c, const uint8_t *data,
				    uint32_t size)
{
	const char get[] = "GET / ", end[] = "\r\n\r\n";
	for (uint32_t i = 0; i < size && !c->reply.bytes; i++) {
		c->get += c->seen < 6 && data[i] == (uint8_t)get[c->seen];
		c->seen++;
		c->ended = data[i] == (uint8_t)end[c->ended] ? c->ended + 1 : data[i] == '\r';
		if (c->ended == 4)
			c->reply = c->get == 6 ? v->page : v->missing;
	}
}

/* Takes the part of a segment's data that is new, and its FIN. */
static __device__ void take_data(const struct server *v, struct connection *c, const struct arrival *a)
{
	const uint32_t old = c->wanted - a->seq;
	const uint32_t size = a->size - old;
	if (c->fin || !(size || a->flags & FIN))
		return;
	read_request(v, c, a->data + old, size);
	c->wanted += size;
	c->ack_due = true;
	if (a->flags & FIN) {
		c->wanted++;
		c->fin = true;
		if (!c->reply.bytes) /* it will not ask */
			c->reply = {v->missing.bytes, 0};
	}
}

static __device__ void begin(const struct server *v, struct connection *c, const struct arrival *a,
			     uint64_t now)
{
	*c = {};
	c->used = true;
	copy(c->mac, a->frame + 6, 6);
	copy(c->ip, a->frame + 26, 4);
	c->port = a->port;
	c->iss = c->acked = c->next = c->top = (uint32_t)(now >> 12); /* RFC 793, 3.3 */
	c->wanted = a->seq + 1;
	c->window = a->window;
	c->mss = a->mss;
	c->congestion = 10 * c->mss; /* RFC 6928 */
	c->threshold = WINDOW;
	c->rto = RTO_NS;
	c->timer = c->heard = now;
	count(&v->state->opened, 1);
}

/* RFC 9293, 3.10.7.4, for a peer that we never ask for anything. */
static __device__ void take(const struct server *v, struct connection *c, const struct arrival *a,
			    uint64_t now)
{
	const uint32_t old = c->wanted - a->seq;
	if (a->flags & RST) {
		if (old == 0 && !(c->served && c->fin))
			count(&v->state->lost, 1);
		c->used = c->used && old != 0;
	} else if (a->flags & SYN && c->acked == c->iss && old == 1) {
		c->next = c->iss; /* our SYN was lost */
	} else if (a->flags & SYN || old > a->size) {
		c->ack_due = true; /* not what comes next */
	} else {
		c->heard = now;
		take_ack(v, c, a, now);
		if (c->acked != c->iss)
			take_data(v, c, a);
	}
}

/* Returns whether a new connection should replace c rather than `other`: a free place is best, then
 * the oldest half-open connection, because a SYN flood leaves many of those. */
static __device__ bool is_better(const struct connection *c, const struct connection *other)
{
	const bool is_free = !c->used || (c->served && c->fin);
	if (!is_free && c->acked != c->iss)
		return false;
	if (!other || is_free)
		return true;
	return other->used && other->acked == other->iss && c->heard < other->heard;
}

static __device__ void take_arrival(const struct server *v, struct outbox *out, struct connection *own,
				    const struct arrival *a)
{
	struct connection *place = NULL;
	for (int i = 0; i < SLOTS && a->to == v->port; i++) {
		struct connection *c = &own[i];
		const bool is = c->used && c->port == a->port && same(c->ip, a->frame + 26, 4);
		const bool again = is && a->flags & SYN && c->served && c->fin;
		if (is && !again) {
			take(v, c, a, out->now);
			return;
		}
		if (again || is_better(c, place))
			place = c;
	}
	if (a->to != v->port || (a->flags & (SYN | ACK | RST)) != SYN)
		refuse(v, out, a);
	else if (place) /* else the peer tries again */
		begin(v, place, a, out->now);
}

/* ---- headers ---- */

/* The value of the option "maximum segment size", RFC 9293, 3.7.1, as far as we use it. */
static __device__ uint32_t read_mss(const uint8_t *options, uint32_t size)
{
	uint32_t mss = 536;
	for (uint32_t at = 0; at < size && options[at] != 0;) {
		const uint32_t length = options[at] == 1 ? 1 : at + 1 < size ? options[at + 1] : 0;
		if (options[at] == 2 && length == 4 && at + 4 <= size)
			mss = big16(options + at + 2);
		if (length == 0 || (length == 1 && options[at] != 1))
			break;
		at += length;
	}
	return mss < 64 ? 64 : least(mss, MSS);
}

/* Returns whether a frame is a whole TCP segment for our address. */
static __device__ bool read_segment(const struct server *v, const uint8_t *frame, uint32_t bytes,
				    struct arrival *a)
{
	const uint8_t *ip = frame + ETHER;
	const uint32_t header = bytes < ETHER + 40 ? 0 : (ip[0] & 15) * 4, all = header ? big16(ip + 2) : 0;
	if (header < 20 || big16(frame + 12) != DOCA_FLOW_ETHER_TYPE_IPV4 || ip[0] >> 4 != 4 || ip[9] != 6)
		return false;
	if (all < header + 20 || ETHER + all > bytes || big16(ip + 6) & 0x3fff)
		return false;
	const uint8_t *tcp = ip + header;
	const uint32_t offset = (tcp[12] >> 4) * 4;
	if (!same(ip + 16, v->own.ip, 4) || offset < 20 || header + offset > all)
		return false;
	*a = {frame, tcp + offset, big32(tcp + 4), big32(tcp + 8), tcp[13], big16(tcp + 14),
	      read_mss(tcp + 20, offset - 20), all - header - offset, (uint16_t)big16(tcp),
	      (uint16_t)big16(tcp + 2)};
	return true;
}

static __device__ uint32_t add_words(uint32_t sum, const uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i + 1 < n; i += 2)
		sum += big16(p + i);
	sum += n % 2 ? (uint32_t)p[n - 1] << 8 : 0;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* RFC 791, 3.1, and RFC 9293, 3.1: the latter with a pseudo-header of addresses, protocol and size. */
static __device__ bool is_right(const struct server *v, const struct arrival *a)
{
	const uint8_t *ip = a->frame + ETHER, *tcp = ip + (ip[0] & 15) * 4;
	const uint32_t size = (uint32_t)(a->data - tcp) + a->size;
	const bool right = add_words(0, ip, (uint32_t)(tcp - ip)) == 0xffff &&
			   add_words(add_words(6 + size, ip + 12, 8), tcp, size) == 0xffff;
	if (!right)
		count(&v->state->wrong, 1);
	return right;
}

/* Writes the headers before the data that is in place; returns the frame's size. The NIC writes the
 * checksums. */
static __device__ uint32_t write_headers(const struct server *v, const struct segment *s, uint8_t *frame)
{
	const uint32_t options = s->flags & SYN ? 4 : 0;
	uint8_t *ip = frame + ETHER, *tcp = ip + 20;
	if (!s->flags)
		return s->size;
	copy(frame, s->mac, 6);
	copy(frame + 6, v->own.mac, 6);
	put(frame + 12, DOCA_FLOW_ETHER_TYPE_IPV4, 2);
	put(ip, 0x45000000 | (40 + options + s->size), 4);
	put(ip + 4, 0x4000, 4); /* not to be cut into fragments */
	put(ip + 8, 0x40060000, 4); /* 64 hops, TCP */
	copy(ip + 12, v->own.ip, 4);
	copy(ip + 16, s->ip, 4);
	copy(tcp, s->ports, 4);
	put(tcp + 4, s->seq, 4);
	put(tcp + 8, s->ack, 4);
	put(tcp + 12, (20 + options) << 26 | (uint32_t)s->flags << 16 | WINDOW, 4);
	put(tcp + 16, 0, 4);
	if (options)
		put(tcp + 20, 0x02040000 | MSS, 4);
	return TCP + options + s->size;
}

#endif
