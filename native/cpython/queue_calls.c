// SPDX-License-Identifier: Apache-2.0
/* Posting one read or write; the handles of queues and regions. */
#include "calls.h"

static PyTypeObject *region_type;
static PyObject *name_size, *name_local_offset, *name_remote_offset;

struct request {
	uint32_t local, remote;
	uint64_t size, local_offset, remote_offset;
};

static bool to_u64(PyObject *value, uint64_t *out)
{
	if (!PyLong_Check(value))
		return false;
	*out = PyLong_AsUnsignedLongLong(value);
	if (*out != UINT64_MAX || !PyErr_Occurred())
		return true;
	PyErr_Clear(); /* negative, or too large: the checked path reports it */
	return false;
}

/* Reads the usual arguments: two regions, and ints by name, including a size. Returns false for any
 * other arguments, which the Python methods check. */
static bool parse(PyObject *const *args, Py_ssize_t n, PyObject *names, struct request *out)
{
	Py_ssize_t named = names ? PyTuple_Size(names) : 0;
	bool sized = false;
	if (n != 2 || !PyObject_TypeCheck(args[0], region_type) ||
	    !PyObject_TypeCheck(args[1], region_type))
		return false;
	out->local = ((struct region_handle *)args[0])->id;
	out->remote = ((struct region_handle *)args[1])->id;
	for (Py_ssize_t i = 0; i < named; i++) {
		PyObject *name = PyTuple_GetItem(names, i);
		uint64_t *to = name == name_size	    ? &out->size
			       : name == name_local_offset  ? &out->local_offset
			       : name == name_remote_offset ? &out->remote_offset
							    : NULL;
		/* A name that is not interned takes the slow path, too. */
		if (!to || !to_u64(args[n + i], to))
			return false;
		sized |= to == &out->size;
	}
	return sized;
}

/* Calls the Python method, which checks each argument. */
static PyObject *post_checked(PyObject *self, uint32_t op, PyObject *const *args, Py_ssize_t n,
			      PyObject *names)
{
	Py_ssize_t named = names ? PyTuple_Size(names) : 0;
	PyObject *method = PyObject_GetAttrString(self, op == DG_WRITE ? "_write" : "_read");
	PyObject *tuple = PyTuple_New(n), *dict = PyDict_New(), *result = NULL;
	bool ready = method && tuple && dict;
	for (Py_ssize_t i = 0; ready && i < n; i++) {
		Py_INCREF(args[i]);
		ready = !PyTuple_SetItem(tuple, i, args[i]);
	}
	for (Py_ssize_t i = 0; ready && i < named; i++)
		ready = !PyDict_SetItem(dict, PyTuple_GetItem(names, i), args[n + i]);
	if (ready)
		result = PyObject_Call(method, tuple, dict);
	Py_XDECREF(method);
	Py_XDECREF(tuple);
	Py_XDECREF(dict);
	return result;
}

/* Returns the transfer for the result of a post. */
static PyObject *transfer_of(PyObject *self, int64_t ticket, const dg_wc *wc)
{
	if (ticket < 0) {
		PyObject *code = PyLong_FromLongLong(ticket);
		PyObject *none = code ? PyObject_CallMethod(self, "_raise_for", "O", code) : NULL;
		Py_XDECREF(code);
		Py_XDECREF(none);
		return NULL;
	}
	if (!ticket && wc->status == DG_OK)
		return (PyObject *)dg_completion_new(dg_hooks.transfer, wc);
	struct completion *c = dg_completion_new(dg_hooks.pending, ticket ? NULL : wc);
	if (!c) { /* out of memory: the ticket would be lost */
		if (ticket)
			dg_transfer_drop(ticket);
		return NULL;
	}
	Py_INCREF(self);
	((struct pending *)c)->queue = self;
	((struct pending *)c)->ticket = ticket;
	return (PyObject *)c;
}

static PyObject *post(PyObject *self, uint32_t op, PyObject *const *args, Py_ssize_t n,
		      PyObject *names)
{
	dg_queue *q = ((struct queue_handle *)self)->q;
	struct request r = {0};
	int64_t ticket;
	dg_wc wc;
	if (!q || !parse(args, n, names, &r))
		return post_checked(self, op, args, n, names);
	if (q->prompt && r.size <= HELD_BYTES) {
		ticket = dg_transfer_post(q, op, r.local, r.remote, r.size, r.local_offset,
					  r.remote_offset, 0, &wc);
	} else {
		PyThreadState *state = PyEval_SaveThread();
		ticket = dg_transfer_post(q, op, r.local, r.remote, r.size, r.local_offset,
					  r.remote_offset, 0, &wc);
		PyEval_RestoreThread(state);
	}
	return transfer_of(self, ticket, &wc);
}

static PyObject *queue_write(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	return post(self, DG_WRITE, args, n, names);
}

static PyObject *queue_read(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	return post(self, DG_READ, args, n, names);
}

/* _post_records(address, n): posts the n dg_wr at an address as one transfer. It is one call, so
 * that no exception of a signal handler comes between the post and the transfer that holds its
 * ticket. */
static PyObject *queue_post_records(PyObject *self, PyObject *args)
{
	dg_queue *q = ((struct queue_handle *)self)->q;
	unsigned long long address;
	unsigned int n;
	dg_wc wc;
	if (!PyArg_ParseTuple(args, "KI", &address, &n))
		return NULL;
	if (!q)
		return dg_raise_closed(self);
	PyThreadState *state = PyEval_SaveThread();
	int64_t ticket = dg_transfer_post_wr(q, (const dg_wr *)(uintptr_t)address, n, &wc);
	PyEval_RestoreThread(state);
	return transfer_of(self, ticket, &wc);
}

/* _bind(handle): sets the dg_queue. */
static PyObject *queue_bind(PyObject *self, PyObject *args)
{
	struct queue_handle *h = (struct queue_handle *)self;
	PyObject *owner;
	if (!PyArg_ParseTuple(args, "O!", dg_handle_type, &owner))
		return NULL;
	Py_INCREF(owner);
	Py_XDECREF(h->owner);
	h->owner = owner;
	h->q = ((struct handle *)owner)->at;
	Py_RETURN_NONE;
}

#define POST_DOC(name, what, from, to)                                                         \
	name "($self, local, remote, *, size=None, local_offset=0, remote_offset=0, "          \
	     "fence=False)\n--\n\n" what "\n\n"                                                \
	     "Args:\n    local: Region to " from "; it may be imported if it is GPU memory.\n    remote: Remote region to " to ".\n"   \
	     "    size: Bytes; None for all that `local` holds from `local_offset` on.\n"      \
	     "    local_offset: Bytes.\n    remote_offset: Bytes.\n"                           \
	     "    fence: Start only when all operations posted before are complete.\n\n"       \
	     "Returns:\n    The transfer, already complete if it was done inline.\n"

#define POST_BATCH_DOC             \
	"post($self, batch, /)\n--\n\n" \
	"Post a flat array of WR_DTYPE, entirely or not at all; reap completions with `poll`.\n"
#define POLL_DOC                                                                                   \
	"poll($self, out, timeout=0.0)\n--\n\n"                                                    \
	"Reap completions of posted work requests into `out`.\n\n"                                  \
	"Args:\n    out: Flat, writable array of WC_DTYPE; at most `len(out)` completions are\n"     \
	"        taken.\n"                                                                           \
	"    timeout: Seconds to wait for the first completion.\n\n"                                \
	"Returns:\n    The number of completions written to `out`.\n"
#define RUN_DOC                                                                                    \
	"run($self, batch, out, timeout=None)\n--\n\n"                                             \
	"Post a batch and reap all its completions in one call.\n\n"                                \
	"Args:\n    batch: Flat array of WR_DTYPE.\n"                                               \
	"    out: Flat, writable array of WC_DTYPE, at least as long as `batch`.\n"                 \
	"    timeout: Seconds to wait; None for no limit.\n\n"                                      \
	"Returns:\n    The number of completions written to `out`.\n\n"                            \
	"Raises:\n    PeerTimeout: Completions are missing after `timeout` seconds; they are\n"     \
	"        discarded when they arrive.\n"

static void queue_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	dg_drop_arrays((struct queue_handle *)self);
	Py_XDECREF(((struct queue_handle *)self)->owner);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef queue_methods[] = {
	{"write", (PyCFunction)(void (*)(void))queue_write, METH_FASTCALL | METH_KEYWORDS,
	 POST_DOC("write", "Write local bytes to a remote region.", "read from", "write to")},
	{"read", (PyCFunction)(void (*)(void))queue_read, METH_FASTCALL | METH_KEYWORDS,
	 POST_DOC("read", "Read remote bytes into a local region.", "write to", "read from")},
	{"post", dg_batch_post, METH_O, POST_BATCH_DOC},
	{"poll", (PyCFunction)(void (*)(void))dg_batch_poll, METH_FASTCALL | METH_KEYWORDS, POLL_DOC},
	{"run", (PyCFunction)(void (*)(void))dg_batch_run, METH_FASTCALL | METH_KEYWORDS, RUN_DOC},
	{"_post_records", queue_post_records, METH_VARARGS, NULL},
	{"_bind", queue_bind, METH_VARARGS, NULL},
	{0},
};

static PyMemberDef region_members[] = {
	{"id", T_UINT, offsetof(struct region_handle, id), 0,
	 "What the `local` and `remote` of work requests take."},
	{0},
};

static PyType_Slot queue_slots[] = {
	{Py_tp_dealloc, queue_dealloc},
	{Py_tp_methods, queue_methods},
	{0},
};
static PyType_Slot region_slots[] = {{Py_tp_members, region_members}, {0}};
static PyType_Spec queue_spec = {
	"dgkit._native.QueueHandle", sizeof(struct queue_handle), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, queue_slots,
};
static PyType_Spec region_spec = {
	"dgkit._native.RegionHandle", sizeof(struct region_handle), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, region_slots,
};

int dg_add_queue_types(PyObject *module)
{
	name_size = PyUnicode_InternFromString("size");
	name_local_offset = PyUnicode_InternFromString("local_offset");
	name_remote_offset = PyUnicode_InternFromString("remote_offset");
	region_type = dg_add_type(module, &region_spec, NULL);
	return name_size && name_local_offset && name_remote_offset && region_type &&
			       dg_add_type(module, &queue_spec, NULL)
		       ? 0
		       : -1;
}
