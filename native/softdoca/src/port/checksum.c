// SPDX-License-Identifier: Apache-2.0
/* Checksums of frames (RFC 1071; pseudo-headers of RFC 768, 9293 and 8200), and the headers of segments. */
#include "port.h"

enum { ETH = 14, UDP = 17, TCP = 6 };

/* The transport's segment in a frame. */
struct segment {
	uint8_t *at;
	size_t size;
	uint32_t pseudo; /* sum of the pseudo-header */
	uint8_t protocol;
};

static uint32_t word(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t sum_words(const uint8_t *p, size_t n)
{
	uint32_t s = 0;
	for (; n > 1; n -= 2, p += 2)
		s += word(p);
	return s + (n ? (uint32_t)*p << 8 : 0);
}

static void store_checksum(uint8_t *at, uint32_t s)
{
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	at[0] = (uint8_t)(~s >> 8);
	at[1] = (uint8_t)~s;
}

/* Returns the size of an IPv4 header, 0 if the frame has none that is whole. */
static size_t ipv4_header(const uint8_t *frame, size_t size)
{
	size_t n = size > ETH + 20 ? (size_t)(frame[ETH] & 15) * 4 : 0;
	return word(frame + 12) == 0x0800 && frame[ETH] >> 4 == 4 && n >= 20 && ETH + n <= size ? n : 0;
}

void checksum_ip(uint8_t *frame, size_t size)
{
	size_t n = size >= ETH ? ipv4_header(frame, size) : 0;
	if (!n)
		return;
	frame[ETH + 10] = frame[ETH + 11] = 0;
	store_checksum(frame + ETH + 10, sum_words(frame + ETH, n));
}

static bool segment_of_ipv4(uint8_t *frame, size_t size, struct segment *s)
{
	const uint8_t *ip = frame + ETH;
	size_t n = ipv4_header(frame, size), total = n ? word(ip + 2) : 0;
	if (!n || total < n || ETH + total > size || word(ip + 6) & 0x3fff) /* a fragment */
		return false;
	*s = (struct segment){frame + ETH + n, total - n, sum_words(ip + 12, 8), ip[9]};
	return true;
}

static bool segment_of_ipv6(uint8_t *frame, size_t size, struct segment *s)
{
	const uint8_t *ip = frame + ETH;
	if (size < ETH + 40 || word(frame + 12) != 0x86dd || ip[0] >> 4 != 6 ||
	    ETH + 40 + word(ip + 4) > size)
		return false;
	*s = (struct segment){frame + ETH + 40, word(ip + 4), sum_words(ip + 8, 32), ip[6]};
	return true;
}

void checksum_transport(uint8_t *frame, size_t size)
{
	struct segment s;
	if (size < ETH || (!segment_of_ipv4(frame, size, &s) && !segment_of_ipv6(frame, size, &s)))
		return;
	size_t at = s.protocol == UDP ? 6 : 16;
	if ((s.protocol != UDP && s.protocol != TCP) || s.size < (s.protocol == UDP ? 8u : 20u))
		return;
	s.at[at] = s.at[at + 1] = 0;
	store_checksum(s.at + at,
		       sum_words(s.at, s.size) + s.pseudo + (uint32_t)s.size + s.protocol);
	if (s.protocol == UDP && !s.at[6] && !s.at[7])
		s.at[6] = s.at[7] = 0xff; /* RFC 768: 0 would say that there is none */
}

/* ---- segments ---- */

static void store_word(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static void complete_tcp(uint8_t *tcp, const struct part *part)
{
	enum { FIN = 1, PSH = 8, CWR = 128 };
	const uint32_t sequence = (word(tcp + 4) << 16 | word(tcp + 6)) + (uint32_t)part->offset;
	store_word(tcp + 4, sequence >> 16);
	store_word(tcp + 6, sequence);
	if (!part->is_last)
		tcp[13] &= (uint8_t)~(FIN | PSH);
	if (part->index)
		tcp[13] &= (uint8_t)~CWR;
}

void frame_complete_part(uint8_t *frame, size_t headers, size_t size, const struct part *part)
{
	uint8_t *ip = frame + ETH;
	size_t n = ipv4_header(frame, size);
	uint8_t protocol;
	if (n && ETH + n <= headers) {
		store_word(ip + 2, (uint32_t)(size - ETH));
		store_word(ip + 4, word(ip + 4) + part->index);
		protocol = ip[9];
	} else if (headers >= ETH + 40 && word(frame + 12) == 0x86dd && ip[0] >> 4 == 6) {
		n = 40;
		store_word(ip + 4, (uint32_t)(size - ETH - n));
		protocol = ip[6];
	} else {
		return;
	}
	if (protocol == TCP && ETH + n + 20 <= headers)
		complete_tcp(ip + n, part);
	if (protocol == UDP && ETH + n + 8 <= headers)
		store_word(ip + n + 4, (uint32_t)(size - ETH - n));
}
