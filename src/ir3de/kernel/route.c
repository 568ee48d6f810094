/* `Route`: from a plain text to its tally and best expert in one call; the tokenizer is called from here. */
#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *tables, *reader, *encode, *empty, *columns, *look;
    Py_ssize_t experts, cap;
} Route;

/* decide(text): (tally, tokens, best) as of `Tables.decide`; None for a text that must be examined, or that has no token or
   too many. */
static PyObject *decide_text(Route *self, PyObject *text)
{
    PyObject *texts, *encoded, *tally = NULL, *best = NULL, *found = NULL;
    Py_ssize_t tokens = 0;
    int plain = read_plain(self->reader, text);
    if (plain <= 0) {
        PyErr_Clear(); /* not a text: the caller has the error for it */
        Py_RETURN_NONE;
    }
    texts = PyList_New(1);
    if (texts == NULL) return NULL;
    Py_INCREF(text);
    PyList_SetItem(texts, 0, text);
    encoded = PyObject_CallFunctionObjArgs(self->encode, texts, Py_False, NULL);
    Py_DECREF(texts);
    if (encoded == NULL) return NULL;
    tally = PyObject_CallFunctionObjArgs(self->empty, self->columns, NULL);
    if (tally != NULL) {
        PyObject *ids = PyTuple_GetItem(encoded, 0); /* borrowed */
        if (ids != NULL) best = decide_ids(self->tables, ids, tally, self->experts, self->look, self->cap, &tokens);
    }
    if (best == Py_None) {
        found = best;
        Py_INCREF(found);
    } else if (best != NULL) {
        found = Py_BuildValue("OnO", tally, tokens, best);
    }
    Py_DECREF(encoded);
    Py_XDECREF(tally);
    Py_XDECREF(best);
    return found;
}

static void delete(Route *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->tables);
    Py_XDECREF(self->reader);
    Py_XDECREF(self->encode);
    Py_XDECREF(self->empty);
    Py_XDECREF(self->columns);
    Py_XDECREF(self->look);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    Route *self = (Route *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zeros */
    PyObject *tables, *reader, *encode, *empty, *columns, *look;
    (void)named;
    if (self == NULL) return NULL;
    if (!PyArg_ParseTuple(arguments, "OOOOOnOn", &tables, &reader, &encode, &empty, &columns, &self->experts, &look,
                          &self->cap) ||
        !is_tables(tables) || !is_reader(reader) || (look != Py_None && as_look(look) == NULL)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected Tables and a Reader");
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_INCREF(self->tables = tables);
    Py_INCREF(self->reader = reader);
    Py_INCREF(self->encode = encode);
    Py_INCREF(self->empty = empty);
    Py_INCREF(self->columns = columns);
    Py_INCREF(self->look = look);
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"decide", (PyCFunction)(void (*)(void))decide_text, METH_O, "decide(text): (tally, tokens, best), or None."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, make}, {Py_tp_dealloc, delete}, {Py_tp_methods, methods},
                              {Py_tp_doc, "Route(tables, reader, encode, empty, columns, experts, look, cap)"}, {0, NULL}};

static PyType_Spec spec = {"ir3de.kernel._native.Route", sizeof(Route), 0, Py_TPFLAGS_DEFAULT, slots};

int add_route(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int added = type == NULL ? -1 : PyModule_AddObjectRef(module, "Route", type);
    Py_XDECREF(type);
    return added;
}
