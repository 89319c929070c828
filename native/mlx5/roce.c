// SPDX-License-Identifier: Apache-2.0
/*
 * Packets of RoCE v2 as an adapter would send them for the entries that have ended, in pcapng
 * (draft-ietf-opsawg-pcapng): Ethernet, IPv4, UDP, and InfiniBand's transport headers with the invariant CRC
 * (InfiniBand Architecture Specification, volume 1, chapter 9 and annexes A16, A17).
 *
 * No network was involved: the packets are computed from the entry and its memory. Answers are one acknowledgement
 * an entry; nothing is ever sent again.
 */
#include <arpa/inet.h>
#include <string.h>
#include <time.h>

#include "trace.h"

enum { SECTION = 0x0a0d0d0a, INTERFACE = 1, PACKET = 6 };
enum { END = 0, COMMENT = 1, FLAGS = 2, QUEUE = 6, RESOLUTION = 9 };
enum { ETHERNET_LINK = 1, INBOUND = 1, OUTBOUND = 2, NANOSECONDS = 9 };
enum { ETHERNET = 14, IPV4 = 20, UDP = 8, BTH = 12, CRC = 4, PAYLOAD_MAX = 4096, ROCE_PORT = 4791 };
enum { AT_IP = ETHERNET, AT_UDP = AT_IP + IPV4, AT_BTH = AT_UDP + UDP, AT_MORE = AT_BTH + BTH };
/* Opcodes of the reliable connection; of the unreliable one, 32 more. */
enum {
	SEND_FIRST = 0,
	WRITE_FIRST = 6,
	READ_REQUEST = 12,
	READ_RESPONSE_FIRST = 13,
	READ_RESPONSE_ONLY = 16,
	ACKNOWLEDGE = 17,
	ATOMIC_ACKNOWLEDGE = 18,
	COMPARE_SWAP = 19,
	FETCH_ADD = 20,
	SEND_LAST_INVAL = 22,
	SEND_ONLY_INVAL = 23,
	UNRELIABLE = 32
};
/* Of the acknowledgement extended header: no credits are told; negative ones. */
enum { ACK = 0x1f, RNR_NAK = 0x20, NAK = 0x60 };

/* Of a queue pair that was connected. */
static struct path {
	uint32_t mtu, psn, messages; /* mtu: 0, none */
	bool unreliable;
} paths[DG_NIC_QPS];

static uint32_t crc_table[256];

/* A packet that is being made. */
struct frame {
	uint8_t bytes[AT_MORE + 32 + PAYLOAD_MAX + CRC];
	uint32_t size; /* up to now, without the CRC */
	bool answer;
};

/* A place in the local memory of an entry. */
struct cursor {
	const struct nic_wqe *wqe;
	const uint8_t *entry; /* for inline bytes */
	uint32_t segment;
	uint64_t used;
};

static void put16(uint8_t *at, uint32_t value)
{
	value = htons((uint16_t)value);
	memcpy(at, &value, 2);
}

static void put32(uint8_t *at, uint32_t value)
{
	value = htonl(value);
	memcpy(at, &value, 4);
}

static uint8_t *append(struct frame *f, uint32_t size)
{
	uint8_t *at = f->bytes + f->size;
	f->size += size;
	return at;
}

static void add32(struct frame *f, uint32_t value)
{
	put32(append(f, 4), value);
}

static void add64(struct frame *f, uint64_t value)
{
	add32(f, (uint32_t)(value >> 32));
	add32(f, (uint32_t)value);
}

static uint32_t crc32_of(uint32_t crc, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		crc = crc_table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
	return crc;
}

/* Over the packet as of its IP header, with ones in the place of a link header and of what routers change. */
static uint32_t invariant_crc(const struct frame *f)
{
	uint8_t masked[AT_MORE - AT_IP];
	memcpy(masked, f->bytes + AT_IP, sizeof masked);
	masked[1] = masked[8] = 0xff; /* type of service, time to live */
	memset(masked + 10, 0xff, 2); /* IP's checksum */
	memset(masked + IPV4 + 6, 0xff, 2); /* UDP's */
	masked[IPV4 + UDP + 4] = 0xff; /* congestion bits */
	static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint32_t crc = crc32_of(UINT32_MAX, ones, sizeof ones);
	crc = crc32_of(crc, masked, sizeof masked);
	return ~crc32_of(crc, f->bytes + AT_MORE, f->size - AT_MORE);
}

static uint32_t ip_checksum(const uint8_t *header)
{
	uint32_t sum = 0;
	for (uint32_t i = 0; i < IPV4; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum & 0xffff;
}

/* A locally administered address for each process. */
static void put_mac(uint8_t *at, uint32_t qpn)
{
	memcpy(at, "\x02\0\0\0\0", 5);
	at[5] = (uint8_t)(qpn >> NIC_PART_SHIFT);
}

/* The headers up to BTH, whose packet sequence number comes with it. */
static void start(struct frame *f, const struct dg_nic_qp *qp, bool answer, uint32_t opcode, uint32_t psn)
{
	const uint32_t from = answer ? qp->address.qpn : qp->qpn, to = answer ? qp->qpn : qp->address.qpn;
	memset(f->bytes, 0, AT_MORE);
	f->answer = answer;
	f->size = AT_MORE;
	put_mac(f->bytes, to);
	put_mac(f->bytes + 6, from);
	put16(f->bytes + 12, 0x0800);
	uint8_t *ip = f->bytes + AT_IP;
	ip[0] = 0x45;
	put16(ip + 6, 0x4000); /* do not fragment */
	ip[8] = 64;
	ip[9] = 17;
	put32(ip + 12, INADDR_LOOPBACK);
	put32(ip + 16, INADDR_LOOPBACK);
	put16(f->bytes + AT_UDP, 0xc000 | ((from ^ from >> 12) & 0x3fff));
	put16(f->bytes + AT_UDP + 2, ROCE_PORT);
	uint8_t *bth = f->bytes + AT_BTH;
	bth[0] = (uint8_t)(opcode + (paths[qp_index(qp->qpn)].unreliable ? UNRELIABLE : 0));
	put16(bth + 2, 0xffff); /* the partition */
	put32(bth + 4, to);
	put32(bth + 8, psn & 0xffffff);
}

/* Ends the packet, of which the last `payload` bytes are data, and writes its block. */
static void finish(struct frame *f, const struct dg_nic_qp *qp, uint32_t payload, const char *comment)
{
	const uint32_t pad = -payload & 3;
	memset(append(f, pad), 0, pad);
	f->bytes[AT_BTH + 1] |= (uint8_t)(pad << 4);
	put16(f->bytes + AT_IP + 2, f->size + CRC - AT_IP);
	put16(f->bytes + AT_UDP + 4, f->size + CRC - AT_UDP);
	put16(f->bytes + AT_IP + 10, ip_checksum(f->bytes + AT_IP));
	const uint32_t crc = invariant_crc(f); /* on the wire its lowest byte is the first */
	memcpy(append(f, CRC), &crc, CRC);

	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	const uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	const uint32_t padded = (f->size + 3) & ~3u, text = (uint32_t)strlen(comment);
	const uint32_t with_text = text ? 4 + ((text + 3) & ~3u) : 0;
	const uint32_t size = 28 + padded + 8 + 8 + with_text + 4 + 4;
	static _Alignas(8) uint8_t block[sizeof f->bytes + 256];
	const uint32_t head[] = {PACKET, size, 0, (uint32_t)(ns >> 32), (uint32_t)ns, f->size, f->size};
	const uint32_t options[] = {FLAGS | 4 << 16, f->answer ? INBOUND : OUTBOUND, QUEUE | 4 << 16, qp->qpn};
	memset(block, 0, size);
	memcpy(block, head, sizeof head);
	memcpy(block + 28, f->bytes, f->size);
	uint8_t *at = block + 28 + padded;
	memcpy(at, options, sizeof options);
	at += sizeof options;
	if (text) {
		const uint32_t option = COMMENT | text << 16;
		memcpy(at, &option, 4);
		memcpy(at + 4, comment, text);
		at += with_text;
	}
	memcpy(at + 4, &size, 4); /* behind the end of the options */
	dg_mlx5_trace_write(block, size);
}

/* Appends the next bytes of the entry's local memory; zeros, where the entry has no right to them. */
static void add_bytes(struct frame *f, struct dg_nic_qp *qp, struct cursor *c, uint32_t size)
{
	while (size) {
		const struct nic_segment *s = &c->wqe->segments[c->segment];
		const uint64_t left = s->size - c->used;
		const uint32_t n = left < size ? (uint32_t)left : size;
		struct exec_piece p;
		uint8_t *to = append(f, n);
		if (s->is_inline)
			memcpy(to, c->entry + s->at + c->used, n);
		else if (dg_nic_find_local(qp, s, 0, &p) == EXECUTED && is_plain(p.local->entry) &&
			 region_is_open(p.local->id))
			memcpy(to, exec_local(&p) + c->used, n);
		else
			memset(to, 0, n);
		c->used += n;
		size -= n;
		if (c->used == s->size && size) {
			c->segment++;
			c->used = 0;
		}
	}
}

static uint32_t packets_of(uint64_t bytes, uint32_t mtu)
{
	return bytes ? (uint32_t)((bytes + mtu - 1) / mtu) : 1;
}

static void add_target(struct frame *f, const struct nic_wqe *w)
{
	add64(f, w->remote);
	add32(f, w->rkey);
}

static void add_answer(struct frame *f, uint32_t syndrome, uint32_t messages)
{
	add32(f, syndrome << 24 | (messages & 0xffffff));
}

/* SEND or WRITE: in a message of several packets the opcodes are first, middle, last; else only. */
static void send_message(struct dg_nic_qp *qp, struct cursor *c, uint32_t psn, uint32_t mtu, const char *comment)
{
	static struct frame f;
	const struct nic_wqe *w = c->wqe;
	const bool write = w->opcode == WQE_WRITE || w->opcode == WQE_WRITE_IMM;
	const bool invalidates = w->opcode == WQE_SEND_INVAL;
	const bool immediate = w->opcode == WQE_WRITE_IMM || w->opcode == WQE_SEND_IMM || invalidates;
	const uint32_t n = packets_of(w->total, mtu), first = write ? WRITE_FIRST : SEND_FIRST;
	const bool corrupt = qp->verdict.corrupt;
	for (uint32_t i = 0; i < n; i++) {
		const bool last = i == n - 1;
		const uint32_t kind = n == 1 ? 4 : !i ? 0 : last ? 2 : 1;
		const uint64_t left = w->total - (uint64_t)i * mtu;
		const uint32_t size = left < mtu ? (uint32_t)left : mtu;
		const uint32_t opcode = last && invalidates ? (n == 1 ? SEND_ONLY_INVAL : SEND_LAST_INVAL)
							    : first + kind + (last && immediate);
		start(&f, qp, false, opcode, psn + i);
		if (last) /* an acknowledgement is wanted; an event, if so */
			f.bytes[AT_BTH + 8] |= paths[qp_index(qp->qpn)].unreliable ? 0 : 0x80;
		if (last && w->flags & WQE_SOLICITED)
			f.bytes[AT_BTH + 1] |= 0x80;
		if (write && !i) {
			add_target(&f, w);
			add32(&f, (uint32_t)w->total);
		}
		if (last && immediate)
			memcpy(append(&f, 4), &w->immediate, 4);
		add_bytes(&f, qp, c, size);
		if (!i && size && corrupt)
			f.bytes[f.size - size] ^= 1;
		finish(&f, qp, size, comment);
	}
}

static void send_request(struct dg_nic_qp *qp, const struct nic_wqe *w, uint32_t psn, const char *comment)
{
	static struct frame f;
	const bool read = w->opcode == WQE_READ;
	start(&f, qp, false, read ? READ_REQUEST : w->atomic.adds ? FETCH_ADD : COMPARE_SWAP, psn);
	f.bytes[AT_BTH + 8] |= 0x80;
	add_target(&f, w);
	if (read) {
		add32(&f, (uint32_t)w->total);
	} else {
		add64(&f, w->atomic.operand);
		add64(&f, w->atomic.compare);
	}
	finish(&f, qp, 0, comment);
}

static void answer_read(struct dg_nic_qp *qp, struct cursor *c, uint32_t psn, uint32_t mtu, uint32_t messages)
{
	static struct frame f;
	const uint32_t n = packets_of(c->wqe->total, mtu);
	for (uint32_t i = 0; i < n; i++) {
		const bool last = i == n - 1;
		const uint64_t left = c->wqe->total - (uint64_t)i * mtu;
		const uint32_t size = left < mtu ? (uint32_t)left : mtu;
		const uint32_t opcode = n == 1 ? READ_RESPONSE_ONLY
					: !i   ? READ_RESPONSE_FIRST
					       : READ_RESPONSE_FIRST + (last ? 2 : 1);
		start(&f, qp, true, opcode, psn + i);
		if (!i || last)
			add_answer(&f, ACK, messages);
		add_bytes(&f, qp, c, size);
		finish(&f, qp, size, "");
	}
}

/* The old value, which the local memory has in the CPU's byte order. */
static void answer_atomic(struct dg_nic_qp *qp, struct cursor *c, uint32_t psn, uint32_t messages)
{
	static struct frame f, value;
	uint64_t old = 0;
	value.size = 0;
	add_bytes(&value, qp, c, (uint32_t)c->wqe->total);
	memcpy(&old, value.bytes, c->wqe->total <= 8 ? c->wqe->total : 8);
	start(&f, qp, true, ATOMIC_ACKNOWLEDGE, psn);
	add_answer(&f, ACK, messages);
	add64(&f, old);
	finish(&f, qp, 0, "");
}

/* syndrome: of the acknowledgement. */
static void acknowledge(struct dg_nic_qp *qp, uint32_t psn, uint32_t syndrome, uint32_t messages)
{
	static struct frame f;
	start(&f, qp, true, ACKNOWLEDGE, psn);
	add_answer(&f, syndrome, messages);
	finish(&f, qp, 0, "");
}

/* What the peer answers to a request with this syndrome of a CQE; 0: nothing. */
static uint32_t answer_to(uint8_t syndrome)
{
	switch (syndrome) {
	case SYNDROME_NONE:
		return ACK;
	case SYNDROME_REMOTE_REQUEST:
		return NAK | 1;
	case SYNDROME_REMOTE_ACCESS:
		return NAK | 2;
	case SYNDROME_REMOTE_OPERATION:
		return NAK | 3;
	case SYNDROME_RECEIVE_RETRIES:
		return RNR_NAK;
	default:
		return 0;
	}
}

/* Whether the adapter itself finds the error, before it sends anything. */
static bool is_local(uint8_t syndrome)
{
	return syndrome && syndrome < SYNDROME_REMOTE_REQUEST;
}

/* Loads the entry, which its program leaves as it is until its completion. Returns whether it is valid. */
static bool load(const struct dg_nic_qp *qp, const struct nic_entry *e, uint8_t *bytes, struct nic_wqe *wqe)
{
	struct nic_fault fault;
	for (uint32_t i = 0; i < e->blocks; i++)
		load_words(bytes + i * WQE_BLOCK,
			   (const uint8_t *)qp->c.send_ring +
				   ((e->index + i) & (qp->c.send_entries - 1)) * WQE_BLOCK,
			   WQE_BLOCK / 8);
	return dg_nic_parse(bytes, (uint16_t)e->index, qp->qpn, qp->c.transport, wqe, &fault);
}

void dg_mlx5_roce_entry(struct dg_nic_qp *qp, const struct nic_entry *e, uint8_t syndrome)
{
	static _Alignas(8) uint8_t bytes[WQE_BLOCK * WQE_BLOCKS_MAX];
	static struct nic_wqe w;
	struct path *p = &paths[qp_index(qp->qpn)];
	if (!p->mtu || !load(qp, e, bytes, &w) || is_local(syndrome))
		return;
	const bool atomic = w.opcode >= WQE_ATOMIC_CS && w.opcode <= WQE_MASKED_FA;
	const bool sends = (w.opcode >= WQE_WRITE && w.opcode <= WQE_SEND_IMM) || w.opcode == WQE_SEND_INVAL;
	const uint32_t psn = p->psn, answer = answer_to(syndrome);
	const uint32_t n = atomic ? 1 : packets_of(w.total, p->mtu);
	struct cursor c = {.wqe = &w, .entry = bytes};
	if (!atomic && !sends && w.opcode != WQE_READ)
		return;
	p->psn += n;
	p->messages++;
	const char *comment = syndrome ? dg_mlx5_syndrome_name(syndrome) : "";
	if (sends)
		send_message(qp, &c, psn, p->mtu, comment);
	else
		send_request(qp, &w, psn, comment);
	if (p->unreliable || !answer)
		return;
	if (answer != ACK || sends)
		acknowledge(qp, psn + n - 1, answer, p->messages);
	else if (atomic)
		answer_atomic(qp, &c, psn, p->messages);
	else
		answer_read(qp, &c, psn, p->mtu, p->messages);
}

void dg_mlx5_roce_path(uint32_t qpn, uint32_t mtu, uint32_t psn, bool unreliable)
{
	paths[qp_index(qpn)] = (struct path){.mtu = mtu, .psn = psn, .unreliable = unreliable};
}

void dg_mlx5_roce_begin(void)
{
	static const char name[] = "mlx5_0";
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;
		for (uint32_t bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
		crc_table[i] = crc;
	}
	uint32_t words[7 + 11] = {SECTION, 28, 0x1a2b3c4d, 1, UINT32_MAX, UINT32_MAX, 28,
				  INTERFACE, 44, ETHERNET_LINK, 0};
	words[11] = FLAGS | 6 << 16; /* option 2 of an interface is its name */
	memcpy(&words[12], name, 6);
	words[14] = RESOLUTION | 1 << 16;
	words[15] = NANOSECONDS;
	words[16] = END;
	words[17] = 44;
	dg_mlx5_trace_write(words, sizeof words);
}
