/* SPDX-License-Identifier: Apache-2.0 */
/* Common code of the kernels that answer for an IPv4 address. */
#ifndef SAMPLES_ETHERNET_CUH
#define SAMPLES_ETHERNET_CUH

#include <arpa/inet.h>
#include <stdio.h>

#include "ethernet.h"

#define ETHER	 14u /* bytes of an Ethernet header */
#define ARP	 28u /* bytes of an ARP message for IPv4 */
#define TYPE_ARP 0x0806

/* Address of the GPU: 02:00:00 and the last bytes of its IPv4 address. */
struct station {
	uint8_t mac[6], ip[4];
};

/* Reads --ip. */
static inline doca_error_t read_station(const char *address, struct station *own)
{
	*own = {{2}, {}};
	if (inet_pton(AF_INET, address, own->ip) != 1) {
		fprintf(stderr, "--ip is %s; it must be an address like 10.0.0.2\n", address);
		return DOCA_ERROR_INVALID_VALUE;
	}
	memcpy(own->mac + 3, own->ip + 1, 3);
	return DOCA_SUCCESS;
}

static __device__ bool same(const uint8_t *a, const uint8_t *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return false;
	return true;
}

static __device__ void copy(uint8_t *to, const uint8_t *from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = from[i];
}

static __device__ uint32_t big16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* Returns the frame to its sender. */
static __device__ void turn(uint8_t *frame, const struct station &own)
{
	copy(frame, frame + 6, 6);
	copy(frame + 6, own.mac, 6);
}

/* RFC 826. Hardware and protocol are Ethernet and IPv4, the operation is a request for our address. */
static __device__ bool answer_arp(uint8_t *frame, uint32_t bytes, const struct station &own)
{
	const uint8_t request[8] = {0, 1, 8, 0, 6, 4, 0, 1};
	uint8_t *arp = frame + ETHER;

	if (bytes < ETHER + ARP || !same(arp, request, 8) || !same(arp + 24, own.ip, 4))
		return false;
	turn(frame, own);
	arp[7] = 2; /* reply */
	copy(arp + 18, arp + 8, 10);
	copy(arp + 8, own.mac, 6);
	copy(arp + 14, own.ip, 4);
	return true;
}

#endif
