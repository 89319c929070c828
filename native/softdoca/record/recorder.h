/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the generated functions of the recorder call. A generated function has the name of one of
 * DOCA's, is found by the program in its place, calls it, and has the call recorded:
 *
 *	recorded_enter	formats the arguments, replaces callbacks by the recorder's
 *	recorded_leave	formats the result and what was returned through pointers, writes the record
 *	recorded_end	runs when the function is left, even by an exception of C++
 *
 * A callback of the recorder records that it was called, and calls the program's.
 */
#ifndef RECORDER_H
#define RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORDED_CALLBACKS 16 /* of one type; further ones are not recorded */

struct recorded_callback;

struct recorded_function {
	const char *name;
	const char *kinds;	  /* of the result, then of each parameter: see generate.py */
	const char *const *types; /* of handles, in the same order */
	struct recorded_callback *const *callbacks; /* of each parameter, or NULL */
	bool makes;		  /* a handle that it returns is a new object */
	void *next;		  /* the function of DOCA */
};

struct recorded_callback {
	struct recorded_function function;
	void *stubs[RECORDED_CALLBACKS];
	void *real[RECORDED_CALLBACKS]; /* the program's functions */
	unsigned long numbers[RECORDED_CALLBACKS];
};

struct recorded_call {
	const struct recorded_function *function;
	const uint64_t *arguments;
	unsigned long number;
	unsigned long outer; /* the call or callback in which this call was made, or 0 */
	uint64_t start_ns;
	bool nested; /* made by DOCA itself: not recorded */
	bool called_back;
	unsigned int length;
	char text[4096];
};

/* Returns the function that this one replaces. Ends the process if there is none. */
void *recorded_next(struct recorded_function *function);
void recorded_enter(struct recorded_call *call, const struct recorded_function *function,
		    uint64_t *arguments);
void recorded_leave(struct recorded_call *call, uint64_t result);
void recorded_end(struct recorded_call *call);
/* Records what a callback returned, if it is an error. */
void recorded_returned(const struct recorded_call *call, uint64_t result);
/* Records a callback; returns the program's function. */
void *recorded_call_back(struct recorded_call *call, struct recorded_callback *callback,
			 unsigned int slot, const uint64_t *arguments);

/* ---- numbers of handles, user data, addresses: names.c. Callers hold the lock. ---- */

/* Returns the number of a value among those of its class, a constant text compared by its address
 * or content. A new one gets `fresh`, and so does a known one whose number is below `after`. */
unsigned long recorded_number(const char *class, uint64_t value, unsigned long after);
/* Adds a range of memory; returns its number, negated if it is known already. */
long recorded_memory(uint64_t address, uint64_t size);
/* Writes "mem:1+64", "addr:2" or null. */
int recorded_address(char *out, size_t size, uint64_t address);
uint64_t recorded_digest(const void *bytes, size_t size);

#endif
