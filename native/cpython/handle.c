// SPDX-License-Identifier: Apache-2.0
/*
 * Handles of the core's objects, each freed with the last reference to it, and never before.
 *
 * cffi's ffi.gc() is no substitute. The cycle collector calls its destructor with the finalizers of
 * all garbage, in any order; a finalizer that passes its object to a thread, or simply runs later,
 * then uses a handle that is freed. This type has no finalizer, and the collector does not see it: a
 * handle refers to nothing but its parents and their memory, so it is never part of a cycle.
 */
#include "calls.h"

enum kind { DEVICE, REGION, QUEUE, QP, PREP, NIC, NIC_QP, NIC_CQ, KINDS };

static const char *const names[KINDS] = {
	[DEVICE] = "dg_device", [REGION] = "dg_region", [QUEUE] = "dg_queue",	[QP] = "dg_qp",
	[PREP] = "dg_prep",	[NIC] = "dg_nic",	[NIC_QP] = "dg_nic_qp", [NIC_CQ] = "dg_nic_cq",
};

static enum kind kind_of(const char *name)
{
	enum kind kind = 0;
	while (kind < KINDS && strcmp(names[kind], name))
		kind++;
	return kind;
}

static void free_object(enum kind kind, void *at)
{
	switch (kind) {
	case DEVICE:
		dg_device_free(at);
		break;
	case REGION:
		dg_region_free(at);
		break;
	case QUEUE:
		dg_queue_free(at);
		break;
	case QP:
		dg_qp_free(at);
		break;
	case PREP:
		dg_prep_close(at);
		break;
	case NIC:
		dg_nic_close(at);
		break;
	case NIC_QP:
		dg_nic_qp_close(at);
		break;
	case NIC_CQ:
		dg_nic_cq_close(at);
		break;
	case KINDS:
		break;
	}
}

static void free_once(struct handle *h)
{
	void *at = h->at;
	h->at = NULL; /* first: another thread may run while the GIL is released */
	if (!at)
		return;
	PyThreadState *state = PyEval_SaveThread();
	free_object((enum kind)h->kind, at);
	PyEval_RestoreThread(state);
}

/* Handle(type, address, c, parents): see _native.pyi.in. */
static PyObject *handle_new(PyTypeObject *type, PyObject *args, PyObject *names_of_args)
{
	unsigned long long address;
	PyObject *c, *parents;
	const char *name;
	(void)names_of_args;
	if (!PyArg_ParseTuple(args, "sKOO!", &name, &address, &c, &PyTuple_Type, &parents))
		return NULL;
	enum kind kind = kind_of(name);
	if (kind == KINDS)
		return PyErr_Format(PyExc_ValueError, "no handle has the type %s", name);
	struct handle *h = (struct handle *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!h)
		return NULL;
	Py_INCREF(c);
	Py_INCREF(parents);
	h->kind = kind;
	h->at = (void *)(uintptr_t)address;
	h->c = c;
	h->parents = parents;
	return (PyObject *)h;
}

/* free(): frees the object now, although references to the handle are left. */
static PyObject *handle_free(PyObject *self, PyObject *none)
{
	(void)none;
	free_once((struct handle *)self);
	Py_RETURN_NONE;
}

static void handle_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	struct handle *h = (struct handle *)self;
	free_once(h);
	Py_XDECREF(h->c);
	Py_XDECREF(h->parents);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef methods[] = {
	{"free", handle_free, METH_NOARGS, NULL},
	{0},
};
static PyMemberDef members[] = {
	{"c", T_OBJECT_EX, offsetof(struct handle, c), READONLY, NULL},
	{0},
};
static PyType_Slot slots[] = {
	{Py_tp_new, handle_new},
	{Py_tp_dealloc, handle_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_members, members},
	{0},
};
static PyType_Spec spec = {
	"dgkit._native.Handle", sizeof(struct handle), 0, Py_TPFLAGS_DEFAULT, slots,
};

PyTypeObject *dg_handle_type;

int dg_add_handle_type(PyObject *module)
{
	dg_handle_type = dg_add_type(module, &spec, NULL);
	return dg_handle_type ? 0 : -1;
}
