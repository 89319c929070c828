// SPDX-License-Identifier: Apache-2.0
/* Matches: fields of frames, and their comparison. */
#include <string.h>

#include "flow.h"

enum { ETH = 14 };
enum header { HEADER_ANY = 0, HEADER_IP4 = 1, HEADER_IP6 = 2, HEADER_TCP = 4, HEADER_UDP = 8, HEADER_ICMP = 16 };

/* The fields of a match, each with the header that a frame must have. */
#define FIELD(name, header)                                                                   \
	{offsetof(struct doca_flow_match, name), sizeof(((struct doca_flow_match *)0)->name), \
	 HEADER_##header}
static const struct field {
	size_t at, size;
	uint32_t header;
} fields[] = {
	FIELD(parser_meta.outer_l3_type, ANY),
	FIELD(parser_meta.outer_l4_type, ANY),
	FIELD(outer.eth.src_mac, ANY),
	FIELD(outer.eth.dst_mac, ANY),
	FIELD(outer.eth.type, ANY),
	FIELD(outer.l3_type, ANY),
	FIELD(outer.ip4.src_ip, IP4),
	FIELD(outer.ip4.dst_ip, IP4),
	FIELD(outer.ip4.next_proto, IP4),
	FIELD(outer.ip6.src_ip, IP6),
	FIELD(outer.ip6.dst_ip, IP6),
	FIELD(outer.ip6.next_proto, IP6),
	FIELD(outer.l4_type_ext, ANY),
	FIELD(outer.tcp.l4_port.src_port, TCP),
	FIELD(outer.tcp.l4_port.dst_port, TCP),
	FIELD(outer.tcp.flags, TCP),
	FIELD(outer.udp.l4_port.src_port, UDP),
	FIELD(outer.udp.l4_port.dst_port, UDP),
	FIELD(outer.icmp.type, ICMP),
	FIELD(outer.icmp.code, ICMP),
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static bool all_are(const uint8_t *bytes, size_t n, uint8_t value)
{
	while (n && bytes[n - 1] == value)
		n--;
	return !n;
}

void match_mask(const struct doca_flow_match *match, struct doca_flow_match *mask)
{
	memset(mask, 0, sizeof *mask);
	for (int i = 0; i < FIELDS; i++)
		if (!all_are((const uint8_t *)match + fields[i].at, fields[i].size, 0))
			memset((uint8_t *)mask + fields[i].at, 0xff, fields[i].size);
}

void match_fill(const struct doca_flow_pipe *pipe, const struct doca_flow_match *entry,
		struct rule *rule)
{
	rule->value = pipe->match;
	rule->mask = pipe->mask;
	for (int i = 0; i < FIELDS && entry; i++) {
		uint8_t *value = (uint8_t *)&rule->value + fields[i].at;
		if (all_are(value, fields[i].size, 0xff))
			memcpy(value, (const uint8_t *)entry + fields[i].at, fields[i].size);
	}
}

bool match_frame(const struct rule *rule, const struct parsed *p)
{
	for (int i = 0; i < FIELDS; i++) {
		const uint8_t *mask = (const uint8_t *)&rule->mask + fields[i].at;
		const uint8_t *value = (const uint8_t *)&rule->value + fields[i].at;
		const uint8_t *found = (const uint8_t *)&p->fields + fields[i].at;
		if (all_are(mask, fields[i].size, 0))
			continue;
		if (fields[i].header & ~p->headers)
			return false;
		for (size_t at = 0; at < fields[i].size; at++)
			if ((value[at] ^ found[at]) & mask[at])
				return false;
	}
	return true;
}

/* ---- the parser ---- */

static uint16_t big16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void parse_transport(const uint8_t *at, size_t size, uint8_t protocol, struct parsed *p)
{
	struct doca_flow_match *m = &p->fields;
	if (protocol == IPPROTO_TCP && size >= 20) {
		p->headers |= HEADER_TCP;
		m->parser_meta.outer_l4_type = DOCA_FLOW_L4_META_TCP;
		m->outer.l4_type_ext = DOCA_FLOW_L4_TYPE_EXT_TCP;
		memcpy(&m->outer.tcp.l4_port, at, 4);
		m->outer.tcp.flags = at[13];
	} else if (protocol == IPPROTO_UDP && size >= 8) {
		p->headers |= HEADER_UDP;
		m->parser_meta.outer_l4_type = DOCA_FLOW_L4_META_UDP;
		m->outer.l4_type_ext = DOCA_FLOW_L4_TYPE_EXT_UDP;
		memcpy(&m->outer.udp.l4_port, at, 4);
	} else if ((protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6) && size >= 8) {
		p->headers |= HEADER_ICMP;
		m->parser_meta.outer_l4_type = DOCA_FLOW_L4_META_ICMP;
		m->outer.l4_type_ext = protocol == IPPROTO_ICMP ? DOCA_FLOW_L4_TYPE_EXT_ICMP
								: DOCA_FLOW_L4_TYPE_EXT_ICMP6;
		m->outer.icmp.type = at[0];
		m->outer.icmp.code = at[1];
	} else if (protocol == IPPROTO_ESP && size >= 8) {
		m->parser_meta.outer_l4_type = DOCA_FLOW_L4_META_ESP;
	}
}

/* A fragment other than the first has no transport header. */
static void parse_ip4(const uint8_t *ip, size_t size, struct parsed *p)
{
	const size_t header = size >= 20 ? (size_t)(ip[0] & 15) * 4 : 0;
	struct doca_flow_match *m = &p->fields;
	if (header < 20 || ip[0] >> 4 != 4 || big16(ip + 2) < header || big16(ip + 2) > size)
		return;
	p->headers |= HEADER_IP4;
	m->parser_meta.outer_l3_type = DOCA_FLOW_L3_META_IPV4;
	m->outer.l3_type = DOCA_FLOW_L3_TYPE_IP4;
	memcpy(&m->outer.ip4.src_ip, ip + 12, 4);
	memcpy(&m->outer.ip4.dst_ip, ip + 16, 4);
	m->outer.ip4.next_proto = ip[9];
	if (!(big16(ip + 6) & 0x1fff))
		parse_transport(ip + header, big16(ip + 2) - header, ip[9], p);
}

/* Extension headers are not followed. */
static void parse_ip6(const uint8_t *ip, size_t size, struct parsed *p)
{
	struct doca_flow_match *m = &p->fields;
	if (size < 40 || ip[0] >> 4 != 6 || 40u + big16(ip + 4) > size)
		return;
	p->headers |= HEADER_IP6;
	m->parser_meta.outer_l3_type = DOCA_FLOW_L3_META_IPV6;
	m->outer.l3_type = DOCA_FLOW_L3_TYPE_IP6;
	memcpy(m->outer.ip6.src_ip, ip + 8, 16);
	memcpy(m->outer.ip6.dst_ip, ip + 24, 16);
	m->outer.ip6.next_proto = ip[6];
	parse_transport(ip + 40, big16(ip + 4), ip[6], p);
}

void match_parse(const uint8_t *frame, size_t size, struct parsed *p)
{
	memset(p, 0, sizeof *p);
	if (size < ETH)
		return;
	memcpy(p->fields.outer.eth.dst_mac, frame, 6);
	memcpy(p->fields.outer.eth.src_mac, frame + 6, 6);
	memcpy(&p->fields.outer.eth.type, frame + 12, 2);
	if (big16(frame + 12) == DOCA_FLOW_ETHER_TYPE_IPV4)
		parse_ip4(frame + ETH, size - ETH, p);
	else if (big16(frame + 12) == DOCA_FLOW_ETHER_TYPE_IPV6)
		parse_ip6(frame + ETH, size - ETH, p);
}
