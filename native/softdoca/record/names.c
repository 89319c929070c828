// SPDX-License-Identifier: Apache-2.0
/* The numbers that stand in a trace for handles, user data, addresses, descriptors and texts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder.h"

struct entry {
	const char *class;
	uint64_t value;
	unsigned long number; /* 0: free */
};

struct range {
	uint64_t address, size;
};

#define MAX_RANGES 65536

static struct entry *entries;
static size_t capacity, used;
static unsigned long last_number;
static struct range *ranges;
static size_t num_ranges;

/* FNV-1a, 64 bits. */
uint64_t recorded_digest(const void *bytes, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (const unsigned char *byte = bytes; size--; byte++)
		hash = (hash ^ *byte) * 0x100000001b3;
	return hash;
}

static struct entry *find_entry(const char *class, uint64_t value)
{
	size_t at = recorded_digest(&value, sizeof(value)) + recorded_digest(class, strlen(class));

	for (;; at++) {
		struct entry *entry = &entries[at & (capacity - 1)];

		if (!entry->number || (entry->value == value && !strcmp(entry->class, class)))
			return entry;
	}
}

static bool grow_table(void)
{
	struct entry *old = entries;
	size_t old_capacity = capacity;
	struct entry *larger = calloc(capacity ? 2 * capacity : 1024, sizeof(*larger));

	if (!larger)
		return false;
	entries = larger;
	capacity = capacity ? 2 * capacity : 1024;
	for (size_t i = 0; i < old_capacity; i++)
		if (old[i].number)
			*find_entry(old[i].class, old[i].value) = old[i];
	free(old);
	return true;
}

unsigned long recorded_number(const char *class, uint64_t value, unsigned long after)
{
	struct entry *entry;

	if (used >= capacity / 2 && !grow_table())
		return 0;
	entry = find_entry(class, value);
	if (entry->number && entry->number >= after)
		return entry->number;
	if (!entry->number)
		used++;
	*entry = (struct entry){class, value, ++last_number};
	return last_number;
}

long recorded_memory(uint64_t address, uint64_t size)
{
	for (size_t i = num_ranges; i--;)
		if (ranges[i].address == address && ranges[i].size == size)
			return -(long)(i + 1);
	if (num_ranges % 64 == 0) {
		struct range *larger = num_ranges < MAX_RANGES
			? realloc(ranges, (num_ranges + 64) * sizeof(*ranges)) : NULL;

		if (!larger)
			return 0;
		ranges = larger;
	}
	ranges[num_ranges++] = (struct range){address, size};
	return (long)num_ranges;
}

/* Returns the newest range with an address, which may be its end unless another begins there; or -1. */
static long range_of(uint64_t address)
{
	long ending = -1;

	for (size_t i = num_ranges; i--;) {
		if (address - ranges[i].address < ranges[i].size)
			return (long)i;
		if (ending < 0 && address - ranges[i].address == ranges[i].size)
			ending = (long)i;
	}
	return ending;
}

int recorded_address(char *out, size_t size, uint64_t address)
{
	long range = range_of(address);

	if (!address)
		return snprintf(out, size, "null");
	if (range < 0)
		return snprintf(out, size, "\"addr:%lu\"", recorded_number("addr", address, 0));
	return snprintf(out, size, "\"mem:%ld+%" PRIu64 "\"", range + 1,
			address - ranges[range].address);
}
