// SPDX-License-Identifier: Apache-2.0
/* Completions, complete transfers, and transfers that may be in flight. */
#include "calls.h"

PyTypeObject *dg_completion_type;
static PyTypeObject *ready_type;

struct completion *dg_completion_new(PyTypeObject *type, const dg_wc *wc)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct completion *c = (struct completion *)alloc(type, 0);
	if (c && wc) {
		c->own = *wc;
		c->at = &c->own;
	}
	return c;
}

static void completion_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	Py_XDECREF(((struct completion *)self)->owner);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* Returns the completion of self; NULL with an error set if it is not complete. */
static const dg_wc *wc_of(PyObject *self)
{
	const dg_wc *at = ((struct completion *)self)->at;
	if (!at)
		dg_call_hook(dg_hooks.not_complete, NULL);
	return at;
}

#define FIELD(name, expression, convert)                             \
	static PyObject *get_##name(PyObject *self, void *closure)   \
	{                                                            \
		const dg_wc *wc = wc_of(self);                       \
		(void)closure;                                       \
		return wc ? convert(expression) : NULL;              \
	}
FIELD(status, wc->status, PyLong_FromLong)
FIELD(op, wc->op, PyLong_FromLong)
FIELD(path, wc->path, PyLong_FromLong)
FIELD(flags, wc->flags, PyLong_FromLong)
FIELD(size, wc->size, PyLong_FromUnsignedLongLong)
FIELD(user, wc->user, PyLong_FromUnsignedLongLong)
FIELD(submit_ns, wc->submit_ns, PyLong_FromUnsignedLongLong)
FIELD(post_ns, wc->post_ns, PyLong_FromUnsignedLongLong)
FIELD(complete_ns, wc->complete_ns, PyLong_FromUnsignedLongLong)
FIELD(latency_ns, (int64_t)(wc->complete_ns - wc->submit_ns), PyLong_FromLongLong)
#undef FIELD

static PyGetSetDef fields[] = {
	{"_status", get_status, NULL, NULL, NULL},
	{"_op", get_op, NULL, NULL, NULL},
	{"_path", get_path, NULL, NULL, NULL},
	{"_flags", get_flags, NULL, NULL, NULL},
	{"size", get_size, NULL,
	 "Bytes moved, over all rows and segments; 0 if the operation failed.", NULL},
	{"user", get_user, NULL, "Number that the work request carried.", NULL},
	{"submit_ns", get_submit_ns, NULL, "When the operation was requested.", NULL},
	{"post_ns", get_post_ns, NULL, "When the operation was handed to the provider.", NULL},
	{"complete_ns", get_complete_ns, NULL, "When the last byte had moved.", NULL},
	{"latency_ns", get_latency_ns, NULL, "`complete_ns - submit_ns`.", NULL},
	{0},
};

/* _view(address, owner): creates a view of the dg_wc at an address that `owner` keeps valid. */
static PyObject *view(PyObject *self, PyObject *args)
{
	struct completion *c = (struct completion *)self;
	unsigned long long address;
	PyObject *owner;
	if (!PyArg_ParseTuple(args, "KO", &address, &owner))
		return NULL;
	Py_INCREF(owner);
	Py_XDECREF(c->owner);
	c->owner = owner;
	c->at = (const dg_wc *)(uintptr_t)address;
	Py_RETURN_NONE;
}

static PyMethodDef completion_methods[] = {
	{"_view", view, METH_VARARGS, NULL},
	{0},
};

/* Reads the only argument of wait(): NULL if it is absent. Returns 0, or -1 with an error set. */
static int timeout_argument(PyObject *const *args, Py_ssize_t n, PyObject *names, PyObject **out)
{
	Py_ssize_t named = names ? PyTuple_Size(names) : 0;
	*out = n + named ? args[0] : NULL;
	if (*out == Py_None)
		*out = NULL;
	if (n + named > 1) {
		PyErr_Format(PyExc_TypeError, "wait() takes 1 argument, timeout, but %zd were given",
			     n + named);
		return -1;
	}
	if (named && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "timeout")) {
		PyErr_Format(PyExc_TypeError, "wait() got an unexpected keyword argument '%U'",
			     PyTuple_GetItem(names, 0));
		return -1;
	}
	return 0;
}

int dg_timeout_ns(PyObject *timeout, uint64_t absent, uint64_t *out)
{
	PyObject *ns = NULL;
	*out = absent;
	if (!timeout)
		return 0;
	ns = PyObject_CallFunctionObjArgs(dg_hooks.nanoseconds, timeout, NULL);
	*out = ns ? PyLong_AsUnsignedLongLong(ns) : 0;
	Py_XDECREF(ns);
	return PyErr_Occurred() ? -1 : 0;
}

/* Checks the timeout of a transfer that is complete, quickly if it is an ordinary number. */
static int check_timeout(PyObject *timeout)
{
	int overflow = 0;
	uint64_t ns;
	if (PyFloat_CheckExact(timeout) && PyFloat_AsDouble(timeout) >= 0)
		return 0;
	if (PyLong_CheckExact(timeout) && PyLong_AsLongAndOverflow(timeout, &overflow) >= 0)
		return 0;
	return dg_timeout_ns(timeout, 0, &ns);
}

static PyObject *ready_wait(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	PyObject *timeout = NULL;
	if ((n || names) && timeout_argument(args, n, names, &timeout))
		return NULL;
	if (timeout && check_timeout(timeout))
		return NULL;
	Py_INCREF(self);
	return self;
}

static PyObject *ready_done(PyObject *self, PyObject *none)
{
	(void)self;
	(void)none;
	Py_RETURN_TRUE;
}

#define WAIT_DOC                                                                                \
	"wait($self, /, timeout=None)\n--\n\n"                                                  \
	"Wait for the completion and return it. May be called again.\n\n"                       \
	"Args:\n    timeout: Seconds to wait; None for no limit.\n\n"                           \
	"Raises:\n    TransferError: The status is not OK; the error carries the completion.\n" \
	"    TimeoutError: Not complete after `timeout` seconds. The transfer stays in\n"       \
	"        flight, and `wait` may be called again.\n"                                     \
	"    QueueInUse: Another thread is using the queue.\n"
#define DONE_DOC \
	"done($self, /)\n--\n\nReturn whether the transfer is complete, without blocking.\n"

static PyMethodDef ready_methods[] = {
	{"wait", (PyCFunction)(void (*)(void))ready_wait, METH_FASTCALL | METH_KEYWORDS, WAIT_DOC},
	{"done", ready_done, METH_NOARGS, DONE_DOC},
	{0},
};

/* Waits for p's ticket: a microsecond or two with the GIL held, and the rest without it. Returns 0
 * or a negative errno. */
static int look(struct pending *p, uint64_t timeout_ns)
{
	int64_t ticket = p->ticket;
	int rc = -ETIME;
	dg_wc wc;
	if (!ticket) /* Python may have created p without a post, so that it has no queue */
		return 0;
	const dg_queue *q = ((struct queue_handle *)p->queue)->q;
	if (!q)
		return dg_fail(ESTALE, "the queue is closed");
	/* If spinning is disabled, a wait sleeps immediately, so release the GIL even for a short
	 * wait. */
	bool held = q->prompt && (q->spin_ns || !timeout_ns);
	if (held)
		rc = dg_transfer_wait(ticket, timeout_ns < HELD_NS ? timeout_ns : HELD_NS, &wc);
	if (rc == -ETIME && (timeout_ns > HELD_NS || !held)) {
		PyThreadState *state = PyEval_SaveThread();
		rc = dg_transfer_wait(ticket, timeout_ns, &wc);
		PyEval_RestoreThread(state);
	}
	if (rc == -EINVAL) /* another thread has taken the completion, and may not have stored it yet */
		return p->ticket ? dg_fail(EALREADY, "another thread is waiting for this transfer")
				 : 0;
	if (!rc) {
		p->completion.own = wc;
		p->completion.at = &p->completion.own;
		p->ticket = 0;
	}
	return rc;
}

/* A signal that arrives while a wait spins does not interrupt the sleep after it, so a sleep is at
 * most this long before Python's handlers are called. */
enum { SLICE_NS = 100000000 };

/* Waits for p's ticket, and calls Python's signal handlers meanwhile. Returns -1 with an error set. */
static int look_through_signals(struct pending *p, uint64_t timeout_ns)
{
	const uint64_t end = timeout_ns == UINT64_MAX ? UINT64_MAX : add_sat(now_ns(), timeout_ns);
	uint64_t left = timeout_ns;
	for (;;) {
		int rc = look(p, left < SLICE_NS ? left : SLICE_NS);
		if (rc != -EINTR && (rc != -ETIME || left <= SLICE_NS))
			return rc;
		if (PyErr_CheckSignals())
			return -1;
		const uint64_t now = now_ns();
		if (end != UINT64_MAX)
			left = end > now ? end - now : 0;
	}
}

static PyObject *pending_wait(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	struct pending *p = (struct pending *)self;
	PyObject *timeout = NULL;
	uint64_t ns = UINT64_MAX;
	if ((n || names) && timeout_argument(args, n, names, &timeout))
		return NULL;
	if (timeout && (p->ticket ? dg_timeout_ns(timeout, 0, &ns) : check_timeout(timeout)))
		return NULL;
	if (p->ticket) {
		int rc = look_through_signals(p, ns);
		if (rc && PyErr_Occurred())
			return NULL;
		if (rc == -ETIME)
			return dg_call_hook(dg_hooks.timed_out, timeout);
		if (rc)
			return dg_raise_for(rc);
	}
	if (p->completion.own.status != DG_OK)
		return dg_call_hook(dg_hooks.raise_failed, self);
	Py_INCREF(self);
	return self;
}

static PyObject *pending_done(PyObject *self, PyObject *none)
{
	int rc = look((struct pending *)self, 0);
	(void)none;
	if (rc && rc != -ETIME)
		return dg_raise_for(rc);
	return PyBool_FromLong(!rc);
}

/* _look(timeout_ns): returns 0 once complete, otherwise a negative errno. */
static PyObject *pending_look(PyObject *self, PyObject *timeout_ns)
{
	uint64_t ns = PyLong_AsUnsignedLongLong(timeout_ns);
	if (PyErr_Occurred())
		return NULL;
	return PyLong_FromLong(look((struct pending *)self, ns));
}

/* Drops the ticket of a transfer that is no longer referenced. If another thread is inside the
 * queue, the queue drops the ticket later. */
static void pending_finalize(PyObject *self)
{
	struct pending *p = (struct pending *)self;
	PyObject *type, *value, *traceback, *none;
	int64_t ticket = p->ticket;
	p->ticket = 0;
	if (!ticket || !p->queue || !((struct queue_handle *)p->queue)->q)
		return;
	if (!dg_transfer_drop(ticket))
		return;
	PyErr_Fetch(&type, &value, &traceback);
	none = PyObject_CallMethod(p->queue, "_drop_later", "L", (long long)ticket);
	if (!none)
		PyErr_WriteUnraisable(self);
	Py_XDECREF(none);
	PyErr_Restore(type, value, traceback);
}

static int pending_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct pending *)self)->queue);
	return 0;
}

static int pending_clear(PyObject *self)
{
	Py_CLEAR(((struct pending *)self)->queue);
	return 0;
}

static void pending_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	pending_clear(self);
	Py_XDECREF(((struct completion *)self)->owner);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef pending_methods[] = {
	{"wait", (PyCFunction)(void (*)(void))pending_wait, METH_FASTCALL | METH_KEYWORDS, WAIT_DOC},
	{"done", pending_done, METH_NOARGS, DONE_DOC},
	{"_look", pending_look, METH_O, NULL},
	{0},
};

static PyObject *pending_complete(PyObject *self, void *closure)
{
	(void)closure;
	return PyBool_FromLong(!((struct pending *)self)->ticket);
}

static PyGetSetDef pending_fields[] = {
	{"_complete", pending_complete, NULL, NULL, NULL},
	{0},
};
static PyMemberDef pending_members[] = {
	{"_ticket", T_LONGLONG, offsetof(struct pending, ticket), READONLY, NULL},
	{"_queue", T_OBJECT_EX, offsetof(struct pending, queue), READONLY, NULL},
	{0},
};

static PyType_Slot completion_slots[] = {
	{Py_tp_dealloc, completion_dealloc},
	{Py_tp_getset, fields},
	{Py_tp_methods, completion_methods},
	{0},
};
static PyType_Slot ready_slots[] = {{Py_tp_methods, ready_methods}, {0}};
static PyType_Slot pending_slots[] = {
	{Py_tp_dealloc, pending_dealloc},   {Py_tp_finalize, pending_finalize},
	{Py_tp_traverse, pending_traverse}, {Py_tp_clear, pending_clear},
	{Py_tp_methods, pending_methods},   {Py_tp_getset, pending_fields},
	{Py_tp_members, pending_members},   {0},
};
static PyType_Spec completion_spec = {
	"dgkit._native.Completion", sizeof(struct completion), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, completion_slots,
};
static PyType_Spec ready_spec = {
	"dgkit._native.Ready", sizeof(struct completion), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, ready_slots,
};
static PyType_Spec pending_spec = {
	"dgkit._native.InFlight", sizeof(struct pending), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, pending_slots,
};

/* in_flight(Transfer): returns the base class of transfers that may be in flight, derived from
 * Transfer. */
static PyObject *in_flight(PyObject *module, PyObject *transfer)
{
	PyObject *bases = PyTuple_Pack(1, transfer), *type;
	(void)module;
	if (!bases)
		return NULL;
	type = PyType_FromSpecWithBases(&pending_spec, bases);
	Py_DECREF(bases);
	return type;
}

/* set_transfers(Transfer, Pending): sets the classes that a post returns. */
static PyObject *set_transfers(PyObject *module, PyObject *args)
{
	PyObject *transfer, *pending;
	(void)module;
	if (!PyArg_ParseTuple(args, "OO", &transfer, &pending))
		return NULL;
	Py_INCREF(transfer);
	Py_INCREF(pending);
	dg_hooks.transfer = (PyTypeObject *)transfer;
	dg_hooks.pending = (PyTypeObject *)pending;
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"in_flight", in_flight, METH_O, NULL},
	{"set_transfers", set_transfers, METH_VARARGS, NULL},
	{0},
};

int dg_add_completion_types(PyObject *module)
{
	PyObject *bases;
	dg_completion_type = dg_add_type(module, &completion_spec, NULL);
	bases = dg_completion_type ? PyTuple_Pack(1, dg_completion_type) : NULL;
	if (!bases)
		return -1;
	ready_type = dg_add_type(module, &ready_spec, bases);
	Py_DECREF(bases);
	return ready_type ? PyModule_AddFunctions(module, functions) : -1;
}
