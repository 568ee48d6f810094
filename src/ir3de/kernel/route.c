/* `Route`: from a plain text to its decision in one call; the tokenizer is called from here. */
#include "native.h"

enum { RULES, TALLY, TOKENS, COUNTED, BEST, PENALTIES, REASON, KEPT, FIELDS }; /* of a `Decision` */
static const char *const fields[FIELDS] = {"_rules",     "_given_tally", "_tokens", "_counted",
                                           "_best", "_penalties",   "_reason", "_kept"};

typedef struct {
    PyObject_HEAD
    PyObject *tables, *look, *reader, *encode; /* how a text becomes a tally */
    PyObject *decision, *rules, *finish;               /* how a tally becomes a decision */
    PyObject *generic, *require_content;               /* words that any text may have; a function, or None */
    PyObject *names[FIELDS], *no_reason;
    Py_ssize_t experts, cap, limit, longest_generic;
} Route;

/* --- short texts */

INLINE int is_white(unsigned char byte) { return byte == ' ' || (byte >= 9 && byte <= 13) || (byte >= 28 && byte <= 31); }

INLINE int is_mark(unsigned char byte)
{
    return (byte >= '!' && byte <= '/') || (byte >= ':' && byte <= '@') || (byte >= '[' && byte <= '`') ||
           (byte >= '{' && byte <= '~');
}

/* Whether a text surely has a word that is not generic; -1 with an error. */
static int has_content(const Route *self, const unsigned char *text, Py_ssize_t size)
{
    Py_ssize_t at = 0;
    while (at < size) {
        char word[128];
        Py_ssize_t begin, end, i;
        int is_generic;
        PyObject *found;
        while (at < size && is_white(text[at])) at++;
        for (begin = at; at < size && !is_white(text[at]); at++)
            if (text[at] >= 0x80) return 0;
        for (end = at; end > begin && is_mark(text[end - 1]); end--) {}
        while (begin < end && is_mark(text[begin])) begin++;
        if (begin == end) continue;
        if (end - begin > (Py_ssize_t)sizeof(word)) return 1;
        for (i = begin; i < end; i++) word[i - begin] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
        if ((found = PyUnicode_FromStringAndSize(word, end - begin)) == NULL) return -1;
        is_generic = PySet_Contains(self->generic, found);
        Py_DECREF(found);
        if (is_generic <= 0) return is_generic < 0 ? -1 : 1;
    }
    return 0;
}

/* The decision, or what Python makes of it if the text is short and may have no content. It takes the reference. */
static PyObject *check_content(const Route *self, PyObject *text, PyObject *decision)
{
    Py_ssize_t size;
    const char *bytes;
    PyObject *checked;
    int content;
    if (decision == NULL || self->require_content == Py_None || PyUnicode_GetLength(text) > self->longest_generic)
        return decision;
    bytes = PyUnicode_AsUTF8AndSize(text, &size);
    content = bytes == NULL ? -1 : has_content(self, (const unsigned char *)bytes, size);
    if (content > 0) return decision;
    checked = content < 0 ? NULL : PyObject_CallFunctionObjArgs(self->require_content, decision, text, NULL);
    Py_DECREF(decision);
    return checked;
}

/* --- decisions */

static PyObject *make_decision(const Route *self, PyObject *tally, Py_ssize_t tokens, Py_ssize_t best)
{
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)self->decision, 0), *numbers[3];
    PyObject *values[FIELDS] = {self->rules, tally, NULL, NULL, NULL, Py_None, self->no_reason, Py_None};
    int i, failed = made == NULL;
    values[TOKENS] = numbers[0] = PyLong_FromSsize_t(tokens);
    values[COUNTED] = numbers[1] = PyLong_FromSsize_t(tokens < self->limit ? tokens : self->limit);
    values[BEST] = numbers[2] = PyLong_FromSsize_t(best);
    for (i = 0; i < FIELDS && !failed; i++)
        failed = values[i] == NULL || PyObject_SetAttr(made, self->names[i], values[i]) < 0;
    for (i = 0; i < 3; i++) Py_XDECREF(numbers[i]);
    if (failed) Py_CLEAR(made);
    return made;
}

/* The decision on token ids; None for no token, or more than the cap. */
static PyObject *decide(const Route *self, const uint32_t *ids, Py_ssize_t tokens)
{
    Py_ssize_t best;
    PyObject *tally, *made = NULL;
    if (tokens < 1 || tokens > self->cap) Py_RETURN_NONE;
    tally = PyBytes_FromStringAndSize(NULL, count_columns(self->tables) * (Py_ssize_t)sizeof(double));
    if (tally == NULL) return NULL;
    if (decide_prompt(self->tables, ids, tokens, (double *)PyBytes_AsString(tally), self->experts,
                      as_look(self->look), &best) == 0)
        made = best >= 0 ? make_decision(self, tally, tokens, best)
                         : PyObject_CallFunction(self->finish, "Onn", tally, tokens, ~best);
    Py_DECREF(tally);
    return made;
}

static PyObject *decide_by_tokenizer(const Route *self, PyObject *text)
{
    PyObject *texts = PyList_New(1), *encoded, *made = NULL;
    Numbers ids;
    if (texts == NULL) return NULL;
    Py_INCREF(text);
    PyList_SetItem(texts, 0, text);
    encoded = PyObject_CallFunctionObjArgs(self->encode, texts, Py_False, NULL);
    Py_DECREF(texts);
    if (encoded == NULL) return NULL;
    if (read_numbers(PyTuple_GetItem(encoded, 0), "I", 1, 0, &ids) == 0) {
        made = decide(self, ids.view.buf, ids.rows);
        release_numbers(&ids);
    }
    Py_DECREF(encoded);
    return made;
}

/* decide(text): its decision; None for a text that must be examined, or that has no token or too many. */
static PyObject *decide_text(Route *self, PyObject *text)
{
    PyObject *made;
    int plain = read_plain(self->reader, text);
    if (plain <= 0) {
        PyErr_Clear(); /* not a text: the caller has the error for it */
        Py_RETURN_NONE;
    }
    made = decide_by_tokenizer(self, text);
    return made == Py_None ? made : check_content(self, text, made);
}

/* --- the type */

static PyObject **list_parts(Route *self, int place)
{
    PyObject **parts[] = {&self->tables, &self->look,   &self->reader,  &self->encode,          &self->decision,
                          &self->rules,  &self->finish, &self->generic, &self->require_content, NULL};
    return parts[place];
}

static void delete(Route *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    int i;
    for (i = 0; list_parts(self, i) != NULL; i++) Py_XDECREF(*list_parts(self, i));
    for (i = 0; i < FIELDS; i++) Py_XDECREF(self->names[i]);
    Py_XDECREF(self->no_reason);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static int is_fit(const Route *self)
{
    return is_tables(self->tables) && is_reader(self->reader) && as_look(self->look) != NULL &&
           PyType_Check(self->decision) && PyAnySet_Check(self->generic) && self->limit > 0;
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    Route *self = (Route *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zeros */
    Route given;
    int i, failed;
    (void)named;
    if (self == NULL) return NULL;
    memset(&given, 0, sizeof(given));
    failed = !PyArg_ParseTuple(arguments, "OOOOOOOOOnnnn", &given.tables, &given.look, &given.reader,
                               &given.encode, &given.decision, &given.rules, &given.finish, &given.generic,
                               &given.require_content, &self->experts, &self->cap, &self->limit, &self->longest_generic);
    for (i = 0; !failed && list_parts(self, i) != NULL; i++) Py_INCREF(*list_parts(self, i) = *list_parts(&given, i));
    if (!failed && !is_fit(self)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the parts of a route have other types");
        failed = 1;
    }
    for (i = 0; i < FIELDS && !failed; i++) failed = (self->names[i] = PyUnicode_InternFromString(fields[i])) == NULL;
    if (!failed) failed = (self->no_reason = PyUnicode_InternFromString("")) == NULL;
    if (failed) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"decide", (PyCFunction)(void (*)(void))decide_text, METH_O, "decide(text): its decision, or None."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, make}, {Py_tp_dealloc, delete}, {Py_tp_methods, methods}, {0, NULL}};

static PyType_Spec spec = {"ir3de.kernel._native.Route", sizeof(Route), 0, Py_TPFLAGS_DEFAULT, slots};

int add_route(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int added = type == NULL ? -1 : PyModule_AddObjectRef(module, "Route", type);
    Py_XDECREF(type);
    return added;
}
