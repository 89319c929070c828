// SPDX-License-Identifier: Apache-2.0
/* dgkit._native: cffi's module (`ffi`, `lib`), with the types of calls.h added. */
#include "calls.h"

struct hooks dg_hooks;

/* cffi's own PyInit__native, which CMakeLists.txt renames. */
PyMODINIT_FUNC dg_cffi_init(void);

PyTypeObject *dg_add_type(PyObject *module, PyType_Spec *spec, PyObject *bases)
{
	PyObject *type = PyType_FromSpecWithBases(spec, bases);
	const char *name = strrchr(spec->name, '.') + 1;
	if (!type)
		return NULL;
	Py_INCREF(type);
	if (PyModule_AddObject(module, name, type)) {
		Py_DECREF(type);
		Py_DECREF(type);
		return NULL;
	}
	return (PyTypeObject *)type;
}

PyObject *dg_call_hook(PyObject *hook, PyObject *argument)
{
	PyObject *none = hook ? PyObject_CallFunctionObjArgs(hook, argument, NULL) : NULL;
	if (none) { /* it should have raised */
		Py_DECREF(none);
		PyErr_SetString(PyExc_SystemError, "a hook of dgkit._native did not raise");
	} else if (!PyErr_Occurred()) {
		PyErr_SetString(PyExc_SystemError, "dgkit._native has no hooks: import dgkit.dma");
	}
	return NULL;
}

PyObject *dg_raise_for(int64_t rc)
{
	PyObject *code = PyLong_FromLongLong(rc);
	if (!code)
		return NULL;
	dg_call_hook(dg_hooks.raise_for, code);
	Py_DECREF(code);
	return NULL;
}

static PyObject *set_hooks(PyObject *module, PyObject *args)
{
	PyObject *raise_for, *raise_failed, *not_complete, *timed_out, *nanoseconds, *closed;
	(void)module;
	if (!PyArg_ParseTuple(args, "OOOOOO", &raise_for, &raise_failed, &not_complete, &timed_out,
			      &nanoseconds, &closed))
		return NULL;
	/* Set only once, for the life of the process. */
	if (dg_hooks.raise_for)
		Py_RETURN_NONE;
	Py_INCREF(raise_for);
	Py_INCREF(raise_failed);
	Py_INCREF(not_complete);
	Py_INCREF(timed_out);
	Py_INCREF(nanoseconds);
	Py_INCREF(closed);
	dg_hooks.raise_for = raise_for;
	dg_hooks.raise_failed = raise_failed;
	dg_hooks.not_complete = not_complete;
	dg_hooks.timed_out = timed_out;
	dg_hooks.nanoseconds = nanoseconds;
	dg_hooks.closed = closed;
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"set_hooks", set_hooks, METH_VARARGS, NULL},
	{0},
};

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__native(void)
{
	PyObject *module = dg_cffi_init();
	if (module && (PyModule_AddFunctions(module, functions) || dg_add_handle_type(module) ||
		       dg_add_completion_types(module) || dg_add_queue_types(module) ||
		       dg_add_prepared_type(module))) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
