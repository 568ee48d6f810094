/* `Look`: whether a prompt is surely in domain, however uncertain its best expert is. */
#include "subjects.h"

struct Look {
    PyObject_HEAD
    Subjects *subjects; /* or NULL */
    Py_ssize_t column;  /* of the familiarities */
    double base, familiarity, strangeness, strange, most, between, within, mean, unit, least, nearness, contrast, safety;
};

static PyTypeObject *look_type;

/* Whether the subjects leave the log-odds above the limit, without the centroids of the other experts: the contrast is at
   least that of the best expert. Most prompts need neither the background nor all centroids of that expert. */
static int is_near(const Look *look, const double *sums, double tokens, Py_ssize_t best, double odds)
{
    const Subjects *self = look->subjects;
    const Py_ssize_t *bounds = self->bounds, last = self->experts;
    const double scale = find_scale(self, sums, tokens), lowest = look->contrast * self->farthest;
    double own = 0.0, near = 0.0, background;
    Py_ssize_t from, to;
    if (look->contrast < 0 || look->nearness < 0) return 0;
    for (from = bounds[best]; from < bounds[best + 1]; from = to) {
        double found;
        to = (from / STEP + 1) * STEP < bounds[best + 1] ? (from / STEP + 1) * STEP : bounds[best + 1];
        found = find_nearest(self, sums, tokens, from, to);
        if (from == bounds[best] || found > own) own = found;
        near = look->nearness * cut(self, (own * scale - self->means[0]) / self->spreads[0]);
        if (odds + near + lowest > look->safety) return 1;
    }
    background = find_nearest(self, sums, tokens, bounds[last], bounds[last + 1]);
    odds += near + look->contrast * cut(self, ((own - background) * scale - self->means[1]) / self->spreads[1]);
    return odds > look->safety;
}

int is_surely_in_domain(const Look *look, const double *tally, Py_ssize_t columns, Py_ssize_t tokens, Py_ssize_t best)
{
    double n = (double)tokens, odds, f;
    if (columns <= look->column) return 0;
    f = (tally[look->column] / (look->unit * n) - look->mean) / sqrt(look->between + look->within / n);
    if (f > look->most) f = look->most;
    odds = look->base + look->familiarity * f;
    if (f < -look->strange) odds += look->strangeness * (f + look->strange);
    if (look->subjects == NULL || odds + look->least > look->safety) return odds + look->least > look->safety;
    if (columns == look->column + 1) return odds > look->safety;
    if (columns - look->column - 1 != look->subjects->width || best >= look->subjects->experts) return 0;
    return is_near(look, tally + look->column + 1, n, best, odds);
}

const Look *as_look(PyObject *object)
{
    if (PyObject_TypeCheck(object, look_type)) return (const Look *)object;
    PyErr_SetString(PyExc_TypeError, "expected a Look or None");
    return NULL;
}

/* --- the type */

static void delete_look(Look *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF((PyObject *)self->subjects);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *make_look(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *subjects;
    Look *self = (Look *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zeros */
    (void)named;
    if (self == NULL) return NULL;
    if (!PyArg_ParseTuple(arguments, "Onddddddddddddd", &subjects, &self->column, &self->base, &self->familiarity,
                          &self->strangeness, &self->strange, &self->most, &self->between, &self->within, &self->mean,
                          &self->unit, &self->least, &self->nearness, &self->contrast, &self->safety)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (take_subjects(subjects, &self->subjects) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyType_Slot slots[] = {{Py_tp_new, make_look}, {Py_tp_dealloc, delete_look}, {0, NULL}};

static PyType_Spec spec = {"ir3de.kernel._native.Look", sizeof(Look), 0, Py_TPFLAGS_DEFAULT, slots};

int add_look(PyObject *module)
{
    if (look_type == NULL) look_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return look_type == NULL ? -1 : PyModule_AddObjectRef(module, "Look", (PyObject *)look_type);
}
