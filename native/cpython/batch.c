// SPDX-License-Identifier: Apache-2.0
/* Posting and reaping arrays of work requests and completions. */
#include "calls.h"

void dg_drop_arrays(struct queue_handle *h)
{
	for (unsigned i = 0; i < ARRAYS; i++) {
		Py_CLEAR(h->arrays[i].array);
		Py_CLEAR(h->arrays[i].raw);
	}
}

/* Has Python check an array that is not in the cache, and adds it to the cache. */
static struct array_entry *add_array(struct queue_handle *h, PyObject *array, int completions)
{
	PyObject *found = PyObject_CallMethod((PyObject *)h, "_array", "Oi", array, completions);
	unsigned long long address;
	PyObject *raw;
	Py_ssize_t n;
	if (!found || !PyArg_ParseTuple(found, "OKn", &raw, &address, &n)) {
		Py_XDECREF(found);
		return NULL;
	}
	struct array_entry *e = &h->arrays[h->next_array++ % ARRAYS];
	PyObject *old_array = e->array, *old_raw = e->raw;
	Py_INCREF(array);
	Py_INCREF(raw);
	*e = (struct array_entry){array, raw, (void *)(uintptr_t)address, n, completions};
	Py_XDECREF(old_array);
	Py_XDECREF(old_raw);
	Py_DECREF(found);
	return e;
}

/* Returns the memory of a flat array of work requests or of completions, valid until the next call.
 * Returns NULL and sets an error for anything else. */
static const struct array_entry *array_of(PyObject *self, PyObject *array, int completions)
{
	struct queue_handle *h = (struct queue_handle *)self;
	struct array_entry *e = NULL;
	for (unsigned i = 0; i < ARRAYS && !e; i++)
		if (h->arrays[i].array == array && h->arrays[i].completions == completions)
			e = &h->arrays[i];
	if (e && e->n != PyObject_Size(array)) { /* it was resized in place, or is no longer flat */
		PyErr_Clear();
		Py_CLEAR(e->array);
		e = NULL;
	}
	return e ? e : add_array(h, array, completions);
}

/* Arrays longer than a queue's depth are refused, whatever their exact length is. */
static uint32_t length(const struct array_entry *e)
{
	return e->n < UINT32_MAX ? (uint32_t)e->n : UINT32_MAX;
}

/* Reads `most` arguments by position or by name. The last one, timeout, may be absent: NULL.
 * Returns 0, or -1 and sets an error. */
static int arguments(const char *const *name, PyObject *const *args, Py_ssize_t n,
		     PyObject *keywords, int most, PyObject **out)
{
	Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
	if (n > most) {
		PyErr_Format(PyExc_TypeError, "at most %d arguments are taken, not %zd", most, n);
		return -1;
	}
	for (int i = 0; i < most; i++)
		out[i] = i < n ? args[i] : NULL;
	for (Py_ssize_t k = 0; k < named; k++) {
		PyObject *keyword = PyTuple_GetItem(keywords, k);
		int i = 0;
		while (i < most && PyUnicode_CompareWithASCIIString(keyword, name[i]))
			i++;
		if (i == most || out[i]) {
			PyErr_Format(PyExc_TypeError, "the argument '%U' is unknown or given twice",
				     keyword);
			return -1;
		}
		out[i] = args[n + k];
	}
	for (int i = 0; i + 1 < most; i++)
		if (!out[i]) {
			PyErr_Format(PyExc_TypeError, "the argument '%s' is missing", name[i]);
			return -1;
		}
	if (out[most - 1] == Py_None)
		out[most - 1] = NULL;
	return 0;
}

static PyObject *raise_in_queue(PyObject *self, int rc)
{
	PyObject *none = PyObject_CallMethod(self, "_raise_for", "i", rc);
	Py_XDECREF(none);
	return NULL;
}

PyObject *dg_raise_closed(PyObject *self)
{
	dg_fail(ESTALE, "the queue is closed");
	return raise_in_queue(self, -ESTALE);
}

PyObject *dg_batch_post(PyObject *self, PyObject *batch)
{
	const struct array_entry *e = array_of(self, batch, 0);
	dg_queue *q = ((struct queue_handle *)self)->q;
	int rc;
	if (!e)
		return NULL;
	if (!q)
		return dg_raise_closed(self);
	const dg_wr *wr = e->at;
	uint32_t n = length(e);
	if (q->prompt && q->path == DG_PATH_WORKER) { /* posting copies nothing in this thread */
		rc = dg_queue_post(q, wr, n);
	} else {
		PyThreadState *state = PyEval_SaveThread();
		rc = dg_queue_post(q, wr, n);
		PyEval_RestoreThread(state);
	}
	if (rc)
		return raise_in_queue(self, rc);
	Py_RETURN_NONE;
}

static int poll_unlocked(dg_queue *q, dg_wc *wc, uint32_t n, uint64_t wait_ns)
{
	PyThreadState *state = PyEval_SaveThread();
	int rc = dg_queue_poll(q, wc, n, wait_ns);
	PyEval_RestoreThread(state);
	return rc;
}

PyObject *dg_batch_poll(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
	static const char *const name[] = {"out", "timeout"};
	PyObject *given[2];
	uint64_t wait_ns;
	if (arguments(name, args, n_args, names, 2, given) ||
	    dg_timeout_ns(given[1], 0, &wait_ns))
		return NULL;
	const struct array_entry *e = array_of(self, given[0], 1);
	dg_queue *q = ((struct queue_handle *)self)->q;
	if (!e)
		return NULL;
	if (!q)
		return dg_raise_closed(self);
	dg_wc *wc = e->at;
	uint32_t n = length(e);
	int rc = q->prompt ? dg_queue_poll(q, wc, n, 0) : poll_unlocked(q, wc, n, wait_ns);
	if (!rc && wait_ns && q->prompt)
		rc = poll_unlocked(q, wc, n, wait_ns);
	uint64_t end = rc == -EINTR ? add_sat(now_ns(), wait_ns) : 0;
	while (rc == -EINTR) { /* a signal restarts the timeout once */
		if (PyErr_CheckSignals())
			return NULL;
		uint64_t now = now_ns();
		rc = poll_unlocked(q, wc, n, end > now ? end - now : 0);
	}
	return rc < 0 ? raise_in_queue(self, rc) : PyLong_FromLong(rc);
}

/* Posts and waits without the GIL. -EINTR: a signal handler raised an exception, and the run was
 * abandoned. */
static int run_to_end(dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc, uint64_t wait_ns)
{
	PyThreadState *state = PyEval_SaveThread();
	int rc = dg_queue_run_start(q, wr, n, wc, wait_ns);
	PyEval_RestoreThread(state);
	uint64_t end = rc == -EINTR ? add_sat(now_ns(), wait_ns) : 0;
	while (rc == -EINTR) { /* a signal restarts the timeout once */
		if (PyErr_CheckSignals()) {
			dg_queue_run_cancel(q);
			break;
		}
		uint64_t now = now_ns(), left = end > now ? end - now : 0;
		state = PyEval_SaveThread();
		rc = dg_queue_run_resume(q, left);
		PyEval_RestoreThread(state);
	}
	return rc;
}

PyObject *dg_batch_run(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
	static const char *const name[] = {"batch", "out", "timeout"};
	PyObject *given[3];
	uint64_t wait_ns;
	if (arguments(name, args, n_args, names, 3, given) ||
	    dg_timeout_ns(given[2], UINT64_MAX, &wait_ns))
		return NULL;
	const struct array_entry *batch = array_of(self, given[0], 0);
	if (!batch)
		return NULL;
	const dg_wr *wr = batch->at;
	uint32_t n = length(batch);
	const struct array_entry *out = array_of(self, given[1], 1);
	dg_queue *q = ((struct queue_handle *)self)->q;
	if (!out)
		return NULL;
	dg_wc *wc = out->at;
	if (length(out) < n)
		return PyErr_Format(PyExc_ValueError, "out has %u places for %u completions",
				    length(out), n);
	if (!q)
		return dg_raise_closed(self);
	/* A signal handler may use other arrays, whose cache entries replace these. */
	PyObject *raw = out->raw;
	Py_INCREF(raw);
	int rc = run_to_end(q, wr, n, wc, wait_ns);
	Py_DECREF(raw);
	if (rc == -EINTR)
		return NULL;
	return rc < 0 ? raise_in_queue(self, rc) : PyLong_FromLong(rc);
}
