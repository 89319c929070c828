/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python types whose methods call the core directly, in the limited API. They cover what a program
 * calls once per transfer. Everything else in dgkit.h is called through cffi, whose calls cost
 * several times as much, because they release the GIL and convert each argument according to its
 * declaration.
 *
 * These methods hold the GIL while nothing can block: a post, an inline copy of at most HELD_BYTES,
 * and the first HELD_NS of a wait. They release it otherwise. Unusual cases (arguments other than
 * ints, errors, time-outs) are handled by Python functions, the hooks, so that each check and each
 * error is written only once.
 */
#ifndef DG_PYTHON_CALLS_H
#define DG_PYTHON_CALLS_H

#include <Python.h>
#include <structmember.h>

#include "queue.h"

#define HELD_BYTES 65536u
#define HELD_NS	   2000u

/* Python functions: raise_for(rc), raise_failed(completion), not_complete(), timed_out(timeout),
 * nanoseconds(timeout), closed(prepared), and the classes of transfers. */
struct hooks {
	PyObject *raise_for, *raise_failed, *not_complete, *timed_out, *nanoseconds, *closed;
	PyTypeObject *transfer, *pending;
};
extern struct hooks dg_hooks;

/* Keeps an object of the core, and its parents: handle.c. */
struct handle {
	PyObject_HEAD
	uint32_t kind;
	void *at; /* NULL: freed */
	PyObject *c, *parents;
};

/* A view of a dg_wc, which is its own or kept alive by `owner`. */
struct completion {
	PyObject_HEAD
	const dg_wc *at; /* NULL: not complete */
	PyObject *owner;
	dg_wc own;
};

/* A transfer that may be in flight; `ticket` is 0 once it is complete. */
struct pending {
	struct completion completion;
	int64_t ticket;
	PyObject *queue;
};

/* The base of regions: the id that work requests carry. */
struct region_handle {
	PyObject_HEAD
	uint32_t id;
};

/* A recently passed NumPy array of dg_wr or dg_wc, cached because finding its memory costs as much
 * as a batch. `raw` is the buffer that keeps the memory in place. */
struct array_entry {
	PyObject *array, *raw;
	void *at;
	Py_ssize_t n;
	int completions;
};
#define ARRAYS 8

struct queue_handle {
	PyObject_HEAD
	dg_queue *q; /* NULL: not open */
	PyObject *owner; /* the struct handle of q, which is valid even after it is closed */
	struct array_entry arrays[ARRAYS];
	unsigned next_array;
};

/* batch.c: post(), poll() and run() of arrays. */
PyObject *dg_batch_post(PyObject *self, PyObject *batch);
PyObject *dg_batch_poll(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *dg_batch_run(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
void dg_drop_arrays(struct queue_handle *h);
/* Raises ClosedError for a queue that is not open. Returns NULL. */
PyObject *dg_raise_closed(PyObject *self);
/* Converts a timeout to ns; `absent` is the result for NULL. Returns 0, or -1 with an error set. */
int dg_timeout_ns(PyObject *timeout, uint64_t absent, uint64_t *out);
/* handle.c, completion.c, queue.c, prepared.c: add their types to the module. Return 0 or -1. */
int dg_add_handle_type(PyObject *module);
int dg_add_completion_types(PyObject *module);
int dg_add_queue_types(PyObject *module);
int dg_add_prepared_type(PyObject *module);
extern PyTypeObject *dg_completion_type, *dg_handle_type;

/* Creates a type from its spec and adds it to the module under the last part of the spec's name.
 * Returns NULL on an error. */
PyTypeObject *dg_add_type(PyObject *module, PyType_Spec *spec, PyObject *bases);
/* Calls a hook that raises. Returns NULL. */
PyObject *dg_call_hook(PyObject *hook, PyObject *argument);
/* Raises the exception of a negative result. Returns NULL. */
PyObject *dg_raise_for(int64_t rc);
/* Creates a completion of `type` that holds wc, or one that is not complete if wc is NULL. */
struct completion *dg_completion_new(PyTypeObject *type, const dg_wc *wc);

#endif
