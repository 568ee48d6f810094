/* `Values`: what tallies are worth: the experts' probabilities, and the log-odds that the prompt is in domain.

   These are the operations of `Calibration.probabilities` and `Membership.find_log_odds` in Python, in the same order;
   exp, log and pow are those of the C library, as in Python's `math`. */
#include "subjects.h"

#define MOST_PARTS 64 /* of an exact sum of numbers from 0 to 1: each has 53 bits of its own */

typedef struct {
    PyObject_HEAD
    Subjects *subjects; /* or NULL */
    Py_ssize_t experts;
    double unit, scale, growth, trust; /* trust is 1 where probabilities are not drawn towards even odds */
    double *most;                      /* (experts,)  the largest probability of each; NULL where none is limited */
    int has_membership, has_familiarity;
    double bias, of_familiarity, of_strangeness, of_certainty, of_nearness, of_contrast;
    double strange, least_familiarity, most_familiarity, least_certainty, most_certainty;
    double mean, between, within, familiarity_unit;
} Values;

/* --- the sum that Python's `math.fsum` gives: exact, then rounded once, so it is the same in every order */

typedef struct {
    double at[MOST_PARTS]; /* that do not overlap, the smallest first */
    int size;
} Parts;

static void add_exactly(Parts *parts, double number)
{
    int i, kept = 0;
    for (i = 0; i < parts->size; i++) {
        double other = parts->at[i], sum, rest;
        if (fabs(number) < fabs(other)) {
            double larger = other;
            other = number;
            number = larger;
        }
        sum = number + other;
        rest = other - (sum - number);
        if (rest != 0.0) parts->at[kept++] = rest;
        number = sum;
    }
    parts->at[kept++] = number;
    parts->size = kept;
}

static double round_once(const Parts *parts)
{
    int i = parts->size - 1;
    double sum = parts->at[i], rest = 0.0;
    while (i > 0 && rest == 0.0) {
        double before = sum, other = parts->at[--i];
        sum = before + other;
        rest = other - (sum - before);
    }
    if (i > 0 && ((rest < 0.0 && parts->at[i - 1] < 0.0) || (rest > 0.0 && parts->at[i - 1] > 0.0))) {
        double twice = 2.0 * rest, next = sum + twice; /* half a bit is left, and what is smaller decides */
        if (next - sum == twice) sum = next;
    }
    return sum;
}

/* --- probabilities */

static void find_probabilities(const Values *self, const double *tally, double counted, double *values)
{
    const double unit = 1.0 / (self->unit * counted), sharpness = self->scale * pow(counted, self->growth);
    const double even = (1.0 - self->trust) / (double)self->experts;
    double best, share;
    Parts parts;
    Py_ssize_t c;
    for (c = 0; c < self->experts; c++) values[c] = tally[c] * unit;
    for (best = values[0], c = 1; c < self->experts; c++) best = values[c] > best ? values[c] : best;
    for (parts.size = 0, c = 0; c < self->experts; c++) {
        values[c] = exp(sharpness * (values[c] - best));
        if (values[c] > 0.0) add_exactly(&parts, values[c]);
    }
    share = 1.0 / round_once(&parts);
    for (c = 0; c < self->experts; c++) values[c] *= share;
    if (self->trust != 1.0)
        for (c = 0; c < self->experts; c++) values[c] = self->trust * values[c] + even;
}

/* The others share evenly what the best one has above its limit. */
static void limit(const Values *self, double *values)
{
    Py_ssize_t c, best = 0;
    double share;
    for (c = 1; c < self->experts; c++) best = values[c] > values[best] ? c : best;
    if (self->most == NULL || self->experts < 2 || values[best] <= self->most[best]) return;
    share = (values[best] - self->most[best]) / (double)(self->experts - 1);
    for (c = 0; c < self->experts; c++) values[c] = c == best ? self->most[c] : values[c] + share;
}

/* --- the log-odds that the prompt is in domain */

INLINE double keep_between(double least, double number, double most)
{
    return number < least ? least : number > most ? most : number;
}

static double find_log_odds(const Values *self, const double *tally, Py_ssize_t columns, double tokens,
                            const double *values)
{
    double f = 0.0, certainty, strangeness, odds, subject[2] = {0.0, 0.0}, largest = values[0];
    Py_ssize_t c, best = 0;
    for (c = 1; c < self->experts; c++) {
        if (tally[c] > tally[best]) best = c;
        if (values[c] > largest) largest = values[c];
    }
    if (self->has_familiarity && columns > self->experts)
        f = (tally[self->experts] / (self->familiarity_unit * tokens) - self->mean) /
            sqrt(self->between + self->within / tokens);
    if (self->subjects != NULL && columns > self->experts + 1)
        measure_subjects(self->subjects, tally + self->experts + 1, tokens, best, subject);
    certainty = largest < 1.0 ? log(largest / (1.0 - largest)) : self->most_certainty;
    f = keep_between(self->least_familiarity, f, self->most_familiarity);
    certainty = keep_between(self->least_certainty, certainty, self->most_certainty);
    strangeness = f < -self->strange ? f + self->strange : 0.0;
    odds = self->bias + self->of_familiarity * f + self->of_strangeness * strangeness + self->of_certainty * certainty;
    return odds + self->of_nearness * subject[0] + self->of_contrast * subject[1];
}

/* --- find(tally, tokens, counted): a list and the log-odds; None for a tally that Python must read */

static int fits(const Values *self, const Py_buffer *view, const Subjects *subjects)
{
    const char *format = view->format == NULL ? "B" : view->format;
    Py_ssize_t columns = view->len / (Py_ssize_t)sizeof(double);
    if ((uintptr_t)view->buf % sizeof(double) || view->len % (Py_ssize_t)sizeof(double) || columns < self->experts) return 0;
    if (view->ndim != 1 || !(strcmp(format, "B") == 0 || strcmp(format, "d") == 0)) return 0;
    return subjects == NULL || columns <= self->experts + 1 ||
           (columns == self->experts + 1 + subjects->width && self->experts <= subjects->experts);
}

static PyObject *list_numbers(const double *values, Py_ssize_t size)
{
    PyObject *made = PyList_New(size);
    Py_ssize_t c;
    for (c = 0; made != NULL && c < size; c++) {
        PyObject *value = PyFloat_FromDouble(values[c]);
        if (value == NULL || PyList_SetItem(made, c, value) < 0) Py_CLEAR(made);
    }
    return made;
}

static PyObject *find_values(Values *self, PyObject *const *given, Py_ssize_t count)
{
    Py_buffer tally;
    PyObject *made = NULL;
    double tokens, counted, odds = HUGE_VAL, *values;
    if (check_count(count, 3, "find") < 0) return NULL;
    tokens = PyFloat_AsDouble(given[1]);
    counted = PyFloat_AsDouble(given[2]);
    if (PyErr_Occurred()) return NULL;
    if (PyObject_GetBuffer(given[0], &tally, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyErr_Clear(); /* with gaps, or not an array */
        Py_RETURN_NONE;
    }
    if (!(counted > 0.0 && tokens > 0.0) || !fits(self, &tally, self->subjects)) {
        PyBuffer_Release(&tally);
        Py_RETURN_NONE;
    }
    values = malloc(sizeof(double) * (size_t)self->experts);
    if (values != NULL) {
        find_probabilities(self, tally.buf, counted, values);
        if (self->has_membership)
            odds = find_log_odds(self, tally.buf, tally.len / (Py_ssize_t)sizeof(double), tokens, values);
        limit(self, values); /* after the log-odds, which are those of the best expert as it was */
        if ((made = list_numbers(values, self->experts)) != NULL) made = Py_BuildValue("Nd", made, odds);
    } else
        PyErr_NoMemory();
    free(values);
    PyBuffer_Release(&tally);
    return made;
}

/* --- the type */

static void delete(Values *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF((PyObject *)self->subjects);
    free(self->most);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static int take_limits(Values *self, PyObject *given)
{
    Py_ssize_t c, size = PyTuple_Size(given);
    if (size == 0) return 0;
    if (size != self->experts) {
        PyErr_Format(PyExc_ValueError, "expected a limit for each of %zd experts, found %zd", self->experts, size);
        return -1;
    }
    if ((self->most = malloc(sizeof(double) * (size_t)size)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (c = 0; c < size; c++) self->most[c] = PyFloat_AsDouble(PyTuple_GetItem(given, c));
    return PyErr_Occurred() ? -1 : 0;
}

/* Values(subjects, experts, calibration, most, membership, familiarity); the last three are tuples, empty where there is
   nothing. */
static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *subjects, *most, *membership, *familiarity;
    Values *self = (Values *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zeros */
    int failed;
    (void)named;
    if (self == NULL) return NULL;
    failed = !PyArg_ParseTuple(arguments, "On(dddd)O!O!O!", &subjects, &self->experts, &self->unit, &self->scale,
                               &self->growth, &self->trust, &PyTuple_Type, &most, &PyTuple_Type, &membership,
                               &PyTuple_Type, &familiarity) ||
             take_subjects(subjects, &self->subjects) < 0 || take_limits(self, most) < 0;
    self->has_membership = !failed && PyTuple_Size(membership) > 0;
    self->has_familiarity = !failed && PyTuple_Size(familiarity) > 0;
    if (self->has_membership)
        failed = !PyArg_ParseTuple(membership, "ddddddddddd", &self->bias, &self->of_familiarity, &self->of_strangeness,
                                   &self->of_certainty, &self->of_nearness, &self->of_contrast, &self->strange,
                                   &self->least_familiarity, &self->most_familiarity, &self->least_certainty,
                                   &self->most_certainty);
    if (!failed && self->has_familiarity)
        failed = !PyArg_ParseTuple(familiarity, "dddd", &self->mean, &self->between, &self->within,
                                   &self->familiarity_unit);
    if (!failed && self->experts < 1) {
        PyErr_SetString(PyExc_ValueError, "values need an expert");
        failed = 1;
    }
    if (failed) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    METHOD("find", find_values, "find(tally, tokens, counted): the experts' probabilities and the log-odds, or None."),
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, make}, {Py_tp_dealloc, delete}, {Py_tp_methods, methods}, {0, NULL}};

static PyType_Spec spec = {"ir3de.kernel._native.Values", sizeof(Values), 0, Py_TPFLAGS_DEFAULT, slots};

int add_values(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int added = type == NULL ? -1 : PyModule_AddObjectRef(module, "Values", type);
    Py_XDECREF(type);
    return added;
}
