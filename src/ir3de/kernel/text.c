/* `Reader`: finds the texts that the fast tokenizer may get as they are, which are nearly all. */
#include "native.h"

#define PLANE 0x10000     /* code points that have an entry in the table; a text with any other is not plain */
#define LAST_CASED 0x2000 /* capitals inside words are looked for below this code point */
#define EXAMINED 256      /* characters in which they are looked for */

/* what is known of a character */
enum {
    DOUBTFUL = 1, /* the fast engine may not be trusted with it */
    KNOWN = 2,    /* the bits below are set; Python is asked when the character first occurs */
    CAPITAL = 4,  /* `lower` changes it */
    SMALL = 8,    /* `upper` changes it, but not `lower` */
    UPPER = 16,   /* as `isupper` says */
    HINDERS = 32  /* a text with it is not `isupper` */
};

typedef struct {
    PyObject_HEAD
    unsigned char *table; /* (PLANE,) */
    int apostrophes;      /* whether an apostrophe after a character beyond ASCII is doubtful */
    Py_ssize_t longest, changes;
} Reader;

static int differs(PyObject *text, const char *method)
{
    PyObject *changed = PyObject_CallMethod(text, method, NULL);
    int found = changed == NULL ? -1 : PyUnicode_Compare(changed, text) != 0;
    Py_XDECREF(changed);
    return found;
}

static int is_upper(PyObject *text)
{
    PyObject *answer = text == NULL ? NULL : PyObject_CallMethod(text, "isupper", NULL);
    int found = answer == NULL ? -1 : answer == Py_True;
    Py_XDECREF(answer);
    return found;
}

/* Ask Python what a character is; -1 with an error. */
static int learn(Reader *self, uint32_t point)
{
    PyObject *alone = PyUnicode_FromFormat("%c", (int)point), *after = PyUnicode_FromFormat("A%c", (int)point);
    int lower = alone == NULL ? -1 : differs(alone, "lower"), upper = alone == NULL ? -1 : differs(alone, "upper");
    int capital = is_upper(alone), all = is_upper(after);
    Py_XDECREF(alone);
    Py_XDECREF(after);
    if (lower < 0 || upper < 0 || capital < 0 || all < 0) return -1;
    self->table[point] |= (unsigned char)(KNOWN | (capital ? UPPER : 0) | (all ? 0 : HINDERS));
    if (point < LAST_CASED && (lower || upper)) self->table[point] |= lower ? CAPITAL : SMALL;
    return 0;
}

/* Whether the text is neither long, nor doubtful, nor in capitals, nor perhaps in random case; -1 with an error. */
static int is_plain(Reader *self, const unsigned char *text, Py_ssize_t size)
{
    const unsigned char *const table = self->table;
    Py_ssize_t i = 0, characters = 0;
    unsigned seen = 0, before = 0, changes = 0, found;
    if (size > self->longest) return 0;
    while (i < size) {
        Py_ssize_t left = size - i, end = i + (left < EXAMINED - characters ? left : EXAMINED - characters);
        uint32_t point;
        if (text[i] < 0x80) { /* a stretch of ASCII */
            characters -= i;
            for (; i < end && text[i] < 0x80; i++) {
                found = table[text[i]];
                seen |= found;
                changes += (before / SMALL) & (found / CAPITAL) & 1;
                before = found;
            }
            characters += i;
            if (characters >= EXAMINED)
                for (; i < size && text[i] < 0x80; i++) seen |= table[text[i]];
            continue;
        }
        if (text[i] >= 0xF0) return 0;
        if (text[i] >= 0xE0) { /* Python's UTF-8 is always whole */
            point = (text[i] & 0x0Fu) << 12 | (text[i + 1] & 0x3Fu) << 6 | (text[i + 2] & 0x3Fu);
            i += 3;
        } else {
            point = (text[i] & 0x1Fu) << 6 | (text[i + 1] & 0x3Fu);
            i += 2;
        }
        if (!(table[point] & KNOWN) && learn(self, point) < 0) return -1;
        if (self->apostrophes && i < size && text[i] == '\'') return 0;
        found = table[point];
        seen |= found;
        if (characters < EXAMINED) changes += (before / SMALL) & (found / CAPITAL) & 1;
        before = found;
        if (characters < EXAMINED) characters++;
    }
    return !(seen & DOUBTFUL) && (Py_ssize_t)changes < self->changes && !((seen & UPPER) && !(seen & HINDERS));
}

int read_plain(PyObject *reader, PyObject *text)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes != NULL) return is_plain((Reader *)reader, (const unsigned char *)bytes, size);
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1; /* not a text */
    PyErr_Clear(); /* half of a surrogate pair */
    return 0;
}

static PyObject *read_text(Reader *self, PyObject *text)
{
    int plain = read_plain((PyObject *)self, text);
    return plain < 0 ? NULL : PyBool_FromLong(plain);
}

static PyObject *find_unusual(Reader *self, PyObject *texts)
{
    Py_ssize_t count = PyList_Size(texts), i;
    PyObject *found = count < 0 ? NULL : PyList_New(0);
    for (i = 0; found != NULL && i < count; i++) {
        PyObject *plain = read_text(self, PyList_GetItem(texts, i));
        if (plain == Py_False) {
            PyObject *place = PyLong_FromSsize_t(i);
            if (place == NULL || PyList_Append(found, place) < 0) Py_CLEAR(found);
            Py_XDECREF(place);
        } else if (plain == NULL) {
            Py_CLEAR(found);
        }
        Py_XDECREF(plain);
    }
    return found;
}

/* --- the type */

static void delete(Reader *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    free(self->table);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *given;
    Numbers doubtful;
    uint32_t point;
    int failed;
    Reader *self = (Reader *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zeros */
    (void)named;
    if (self == NULL) return NULL;
    if (!PyArg_ParseTuple(arguments, "Opnn", &given, &self->apostrophes, &self->longest, &self->changes) ||
        read_numbers(given, "B", 1, 0, &doubtful) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    failed = doubtful.rows != PLANE || (self->table = calloc(PLANE, 1)) == NULL;
    if (failed) PyErr_SetString(PyExc_ValueError, "the table of doubtful characters has another size");
    for (point = 0; point < PLANE && !failed; point++)
        if (((const unsigned char *)doubtful.view.buf)[point]) self->table[point] = DOUBTFUL;
    for (point = 0; point < 0x80 && !failed; point++) failed = learn(self, point) < 0;
    release_numbers(&doubtful);
    if (failed) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"is_plain", (PyCFunction)(void (*)(void))read_text, METH_O, "is_plain(text): whether it may be encoded as it is."},
    {"find_unusual", (PyCFunction)(void (*)(void))find_unusual, METH_O, "find_unusual(texts): places of the others."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, make}, {Py_tp_dealloc, delete}, {Py_tp_methods, methods},
                              {Py_tp_doc, "Reader(doubtful, apostrophes, longest, changes)"}, {0, NULL}};

static PyType_Spec spec = {"ir3de.kernel._native.Reader", sizeof(Reader), 0, Py_TPFLAGS_DEFAULT, slots};

static PyTypeObject *reader_type;

int is_reader(PyObject *object) { return PyObject_TypeCheck(object, reader_type); }

int add_reader(PyObject *module)
{
    if (reader_type == NULL) reader_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return reader_type == NULL ? -1 : PyModule_AddObjectRef(module, "Reader", (PyObject *)reader_type);
}
