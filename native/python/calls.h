/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python types whose methods call the core directly, in the limited API: what a program calls once a
 * transfer. All else of dgkit.h is called through cffi, whose calls cost several times as much: they
 * release the GIL, and convert each argument by its declaration.
 *
 * These methods hold the GIL while nothing can block: a post, an inline copy of at most HELD_BYTES,
 * and the first HELD_NS of a wait. They release it for the rest. Unusual cases (other arguments than
 * ints, errors, time-outs) are handled by Python functions, the hooks, so that each check and each
 * error is written once.
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

/* A view of a dg_wc: its own, or one that `owner` keeps alive. */
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

/* What regions derive from: the id that work requests carry. */
struct region_handle {
	PyObject_HEAD
	uint32_t id;
};

/* A NumPy array of dg_wr or dg_wc that was passed lately: finding its memory costs as much as a
 * batch. `raw` is the buffer that keeps the memory in place. */
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
	PyObject *owner; /* keeps q valid, even after it is closed */
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
/* completion.c, queue.c, prepared.c: add their types to the module. Return 0 or -1. */
int dg_add_completion_types(PyObject *module);
int dg_add_queue_types(PyObject *module);
int dg_add_prepared_type(PyObject *module);
extern PyTypeObject *dg_completion_type;

/* Makes a type from its spec and adds it to the module under the spec's last name. NULL: error. */
PyTypeObject *dg_add_type(PyObject *module, PyType_Spec *spec, PyObject *bases);
/* Calls a hook that raises. Returns NULL. */
PyObject *dg_call_hook(PyObject *hook, PyObject *argument);
/* Raises the exception of a negative result. Returns NULL. */
PyObject *dg_raise_for(int64_t rc);
/* A completion of `type` that holds wc, or if wc is NULL one that is not complete. */
struct completion *dg_completion_new(PyTypeObject *type, const dg_wc *wc);

#endif
