// SPDX-License-Identifier: Apache-2.0
/* Running and posting prepared operations. */
#include "calls.h"

struct prepared {
	PyObject_HEAD
	dg_prep *p; /* NULL: closed */
	PyObject *owner; /* the struct handle of p; a run references it, too */
	PyObject *result; /* what run() returns */
	bool raises; /* run() raises if an operation failed */
};

/* Returns the object if it is open; otherwise NULL with an error set. */
static struct prepared *opened(PyObject *self)
{
	struct prepared *o = (struct prepared *)self;
	if (o->p)
		return o;
	dg_call_hook(dg_hooks.closed, self);
	return NULL;
}

static int run_without_gil(dg_prep *p, int (*run)(dg_prep *p))
{
	PyThreadState *state = PyEval_SaveThread();
	int rc = run(p);
	PyEval_RestoreThread(state);
	return rc;
}

static int start_large(dg_prep *p)
{
	return dg_prep_start(p, 0);
}

/* Posts and waits without the GIL, except at the start of a small run. Returns the result of
 * dg_prep_run(); -EINTR: a signal handler raised an exception, and the run was abandoned. */
static int run_to_end(dg_prep *p)
{
	bool held = p->q->prompt && p->total <= HELD_BYTES;
	int rc = held ? dg_prep_start(p, HELD_NS) : run_without_gil(p, start_large);
	while (rc == -EINPROGRESS || rc == -EINTR) {
		if (rc == -EINTR && PyErr_CheckSignals()) {
			dg_prep_cancel(p);
			break;
		}
		rc = run_without_gil(p, dg_prep_finish);
	}
	return rc;
}

static PyObject *prepared_run(PyObject *self, PyObject *none)
{
	struct prepared *o = opened(self);
	int rc;
	(void)none;
	if (!o)
		return NULL;
	dg_prep *p = o->p;
	PyObject *owner = o->owner, *result = o->result;
	if (!result)
		return dg_call_hook(dg_hooks.closed, self);
	/* Another thread may close the object while this thread waits. */
	Py_INCREF(owner);
	Py_INCREF(result);
	rc = run_to_end(p);
	if (rc > 0 && o->raises)
		dg_call_hook(dg_hooks.raise_failed, result);
	else if (rc < 0 && rc != -EINTR)
		dg_raise_for(rc);
	else if (rc >= 0) {
		Py_DECREF(owner);
		return result;
	}
	Py_DECREF(owner);
	Py_DECREF(result);
	return NULL;
}

static PyObject *prepared_post(PyObject *self, PyObject *none)
{
	struct prepared *o = opened(self);
	int rc;
	(void)none;
	if (!o)
		return NULL;
	if (o->p->q->prompt && o->p->total <= HELD_BYTES) {
		rc = dg_prep_post(o->p);
	} else {
		PyObject *owner = o->owner;
		Py_INCREF(owner);
		rc = run_without_gil(o->p, dg_prep_post);
		Py_DECREF(owner);
	}
	if (rc)
		return dg_raise_for(rc);
	Py_RETURN_NONE;
}

/* _bind(handle, result, raises). */
static PyObject *prepared_bind(PyObject *self, PyObject *args)
{
	struct prepared *o = (struct prepared *)self;
	PyObject *owner, *result;
	int raises;
	if (!PyArg_ParseTuple(args, "O!Op", dg_handle_type, &owner, &result, &raises))
		return NULL;
	Py_INCREF(owner);
	Py_INCREF(result);
	Py_XDECREF(o->owner);
	Py_XDECREF(o->result);
	o->owner = owner;
	o->result = result;
	o->raises = raises;
	o->p = ((struct handle *)owner)->at;
	Py_RETURN_NONE;
}

/* _unbind(): marks the object as closed. */
static PyObject *prepared_unbind(PyObject *self, PyObject *none)
{
	struct prepared *o = (struct prepared *)self;
	(void)none;
	o->p = NULL;
	Py_CLEAR(o->owner);
	Py_CLEAR(o->result);
	Py_RETURN_NONE;
}

static void prepared_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	Py_XDECREF(((struct prepared *)self)->owner);
	Py_XDECREF(((struct prepared *)self)->result);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef methods[] = {
	{"run", prepared_run, METH_NOARGS,
	 "run($self, /)\n--\n\n"
	 "Post all of it and wait for it.\n\n"
	 "Returns:\n    The completion, or the array of completions, of the last run: the same object\n"
	 "    each time, which the next run overwrites.\n\n"
	 "Raises:\n"
	 "    TransferError: The status of a single operation is not OK. In a batch, check the\n"
	 "        `status` of each completion.\n"
	 "    QueueFull: The queue has too few free slots.\n"
	 "    ClosedError: The operation, a region or the queue is closed.\n"},
	{"post", prepared_post, METH_NOARGS,
	 "post($self, /)\n--\n\n"
	 "Post the operation; its completions come from the queue's `poll`.\n\n"
	 "Raises:\n    QueueFull: The queue has too few free slots.\n"
	 "    ClosedError: The operation, a region or the queue is closed.\n"},
	{"_bind", prepared_bind, METH_VARARGS, NULL},
	{"_unbind", prepared_unbind, METH_NOARGS, NULL},
	{0},
};
static PyType_Slot slots[] = {
	{Py_tp_dealloc, prepared_dealloc},
	{Py_tp_methods, methods},
	{0},
};
static PyType_Spec spec = {
	"dgkit._native.Prepared", sizeof(struct prepared), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots,
};

int dg_add_prepared_type(PyObject *module)
{
	return dg_add_type(module, &spec, NULL) ? 0 : -1;
}
