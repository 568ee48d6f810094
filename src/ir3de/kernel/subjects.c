/* `Subjects` and `Look`: how near a prompt is to the experts' subjects, and whether it is surely in domain. */
#include "native.h"

#define STEP 16 /* products are found so many at a time: centroids are padded to it */
#define FEW 512  /* centroids whose products are kept at a time */
#define LINE 64  /* bytes that come from memory at a time */

struct Subjects {
    PyObject_HEAD
    Py_ssize_t width, centroids, padded, experts;
    void *room;        /* where `across` is */
    double *across;    /* (padded / STEP, width, STEP)  the centroids, STEP of them side by side */
    double *of_centre; /* (padded,)  their products with the centre */
    double *centre;    /* (width,) */
    Py_ssize_t *bounds; /* (experts + 2,)  where each expert's centroids begin, then the background's, then the end */
    double square, means[2], spreads[2], farthest, nearest;
};

struct Look {
    PyObject_HEAD
    Subjects *subjects; /* or NULL */
    Py_ssize_t column;  /* of the familiarities */
    double base, familiarity, strangeness, strange, most, between, within, mean, unit, least, nearness, contrast, safety;
};

static PyTypeObject *subjects_type, *look_type;

/* --- products with all centroids: whole numbers of one unit below 2^53, so their order does not matter */

INLINE void multiply_here(const Subjects *self, const double *sums, double tokens, Py_ssize_t begin, Py_ssize_t end,
                          double *products)
{
    const Py_ssize_t first = begin / STEP * STEP;
    Py_ssize_t j, k;
    int i;
    for (j = first; j < end; j += STEP) {
        const double *across = self->across + j * self->width;
        Four total[STEP / 4];
        for (i = 0; i < STEP / 4; i++) total[i] = NO_FOUR;
        for (k = 0; k < self->width; k++, across += STEP)
            for (i = 0; i < STEP / 4; i++) {
                Four some;
                memcpy(&some, across + 4 * i, sizeof(some));
                ADD_TIMES(total[i], some, sums[k]);
            }
        memcpy(products + (j - first), total, sizeof(total));
        for (i = 0; i < STEP; i++) products[j - first + i] -= tokens * self->of_centre[j + i];
    }
}

static void multiply_plainly(const Subjects *self, const double *sums, double tokens, Py_ssize_t begin, Py_ssize_t end,
                             double *products)
{
    multiply_here(self, sums, tokens, begin, end, products);
}

#ifdef WIDE
WIDE static void multiply_widely(const Subjects *self, const double *sums, double tokens, Py_ssize_t begin,
                                 Py_ssize_t end, double *products)
{
    multiply_here(self, sums, tokens, begin, end, products);
}
#endif

/* The largest product with the centroids from `begin` to `end`. */
static double find_nearest(const Subjects *self, const double *sums, double tokens, Py_ssize_t begin, Py_ssize_t end)
{
    double products[FEW + STEP], found = 0.0;
    Py_ssize_t from, j;
    for (from = begin; from < end; from += FEW) {
        Py_ssize_t to = from + FEW < end ? from + FEW : end, first = from / STEP * STEP;
        double even, odd;
#ifdef WIDE
        if (has_wide) multiply_widely(self, sums, tokens, from, to, products);
        else
#endif
            multiply_plainly(self, sums, tokens, from, to, products);
        even = odd = products[from - first];
        for (j = from - first; j + 1 < to - first; j += 2) {
            even = products[j] > even ? products[j] : even;
            odd = products[j + 1] > odd ? products[j + 1] : odd;
        }
        if (j < to - first && products[j] > even) even = products[j];
        if (odd > even) even = odd;
        if (from == begin || even > found) found = even;
    }
    return found;
}

INLINE double cut(const Subjects *self, double deviations)
{
    return deviations < self->farthest ? self->farthest : deviations > self->nearest ? self->nearest : deviations;
}

/* One divided by the length of the sums less the centre, tokens times. */
static double find_scale(const Subjects *self, const double *sums, double tokens)
{
    double ss = 0.0, sm = 0.0, square;
    Py_ssize_t k;
    for (k = 0; k < self->width; k++) {
        ss += sums[k] * sums[k];
        sm += sums[k] * self->centre[k];
    }
    square = ss - tokens * (2.0 * sm - tokens * self->square);
    return square > 0 ? 1.0 / sqrt(square) : 0.0;
}

/* The operations of `Subjects.measure` in Python, in the same order. */
static void measure(const Subjects *self, const double *sums, double tokens, Py_ssize_t best, double found[2])
{
    const Py_ssize_t *bounds = self->bounds, last = self->experts;
    double scale = find_scale(self, sums, tokens);
    double own = find_nearest(self, sums, tokens, bounds[best], bounds[best + 1]);
    double background = find_nearest(self, sums, tokens, bounds[last], bounds[last + 1]);
    double contrast = (find_nearest(self, sums, tokens, 0, bounds[last]) - background) * scale;
    found[0] = cut(self, (own * scale - self->means[0]) / self->spreads[0]);
    found[1] = cut(self, (contrast - self->means[1]) / self->spreads[1]);
}

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

/* --- measure(sums, tokens, best) of Python */

static PyObject *measure_prompt(Subjects *self, PyObject *const *given, Py_ssize_t count)
{
    Numbers sums;
    double tokens, found[2];
    Py_ssize_t best;
    if (check_count(count, 3, "measure") < 0) return NULL;
    tokens = PyFloat_AsDouble(given[1]);
    best = PyLong_AsSsize_t(given[2]);
    if (PyErr_Occurred()) return NULL;
    if (read_numbers(given[0], "d", 1, 0, &sums) < 0) return NULL;
    if (sums.rows != self->width || best < 0 || best >= self->experts) {
        release_numbers(&sums);
        PyErr_SetString(PyExc_ValueError, "the sums or the expert do not fit the subjects");
        return NULL;
    }
    measure(self, sums.view.buf, tokens, best, found);
    release_numbers(&sums);
    return Py_BuildValue("dd", found[0], found[1]);
}

/* --- the types */

static void delete_subjects(Subjects *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    free(self->room);
    free(self->of_centre);
    free(self->centre);
    free(self->bounds);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int fill(Subjects *self, const Numbers *M, const Numbers *Mm, const Numbers *m, const Numbers *bounds)
{
    Py_ssize_t j, k, c;
    self->width = M->columns;
    self->centroids = M->rows;
    self->padded = (M->rows + STEP - 1) / STEP * STEP;
    self->experts = bounds->rows - 1;
    if (M->rows < 1 || M->columns < 1 || M->step != M->columns * (Py_ssize_t)sizeof(double) || Mm->rows != M->rows || m->rows != M->columns || self->experts < 1) return -1;
    for (c = 0; c <= self->experts; c++) { /* every stretch has a centroid */
        int64_t begin = ((const int64_t *)bounds->view.buf)[c];
        int64_t end = c < self->experts ? ((const int64_t *)bounds->view.buf)[c + 1] : (int64_t)M->rows;
        if (begin < 0 || end <= begin || end > (int64_t)M->rows) return -1;
    }
    self->room = calloc((size_t)(self->padded * self->width) + LINE / sizeof(double), sizeof(double));
    self->across = (double *)(((uintptr_t)self->room + LINE - 1) / LINE * LINE);
    self->of_centre = calloc((size_t)self->padded, sizeof(double));
    self->centre = calloc((size_t)self->width, sizeof(double));
    self->bounds = calloc((size_t)self->experts + 2, sizeof(Py_ssize_t));
    if (!self->room || !self->of_centre || !self->centre || !self->bounds) return -1;
    for (j = 0; j < M->rows; j++) /* STEP centroids side by side, one after the other */
        for (k = 0; k < self->width; k++)
            self->across[j / STEP * STEP * self->width + k * STEP + j % STEP] =
                ((const double *)M->view.buf)[j * self->width + k];
    memcpy(self->of_centre, Mm->view.buf, sizeof(double) * (size_t)M->rows);
    memcpy(self->centre, m->view.buf, sizeof(double) * (size_t)self->width);
    for (c = 0; c <= self->experts; c++) self->bounds[c] = (Py_ssize_t)((const int64_t *)bounds->view.buf)[c];
    self->bounds[self->experts + 1] = M->rows;
    return 0;
}

static PyObject *make_subjects(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *given[4];
    Numbers M, Mm, m, bounds;
    int filled = -1;
    Subjects *self = (Subjects *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zeros */
    (void)named;
    if (self == NULL) return NULL;
    Mm.view.obj = m.view.obj = bounds.view.obj = NULL;
    if (!PyArg_ParseTuple(arguments, "OOOO(dd)(dd)ddd", &given[0], &given[1], &given[2], &given[3], &self->means[0],
                          &self->means[1], &self->spreads[0], &self->spreads[1], &self->square, &self->farthest,
                          &self->nearest) ||
        read_numbers(given[0], "d", 2, 0, &M) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (read_numbers(given[1], "d", 1, 0, &Mm) == 0 && read_numbers(given[2], "d", 1, 0, &m) == 0 &&
        read_numbers(given[3], "q", 1, 0, &bounds) == 0) {
        filled = fill(self, &M, &Mm, &m, &bounds);
        if (filled < 0) PyErr_SetString(PyExc_ValueError, "the parts of the subjects do not fit each other");
    }
    release_numbers(&M);
    release_numbers(&Mm);
    release_numbers(&m);
    release_numbers(&bounds);
    if (filled < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

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
    if (subjects != Py_None) {
        if (!PyObject_TypeCheck(subjects, subjects_type)) {
            PyErr_SetString(PyExc_TypeError, "expected Subjects or None");
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        Py_INCREF(subjects);
        self->subjects = (Subjects *)subjects;
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    METHOD("measure", measure_prompt, "measure(sums, tokens, best): nearness and contrast of one prompt."),
    {NULL, NULL, 0, NULL}};

static PyType_Slot subjects_slots[] = {{Py_tp_new, make_subjects}, {Py_tp_dealloc, delete_subjects},
                                       {Py_tp_methods, methods}, {0, NULL}};
static PyType_Slot look_slots[] = {{Py_tp_new, make_look}, {Py_tp_dealloc, delete_look}, {0, NULL}};

static PyType_Spec subjects_spec = {"ir3de.kernel._native.Subjects", sizeof(Subjects), 0, Py_TPFLAGS_DEFAULT,
                                    subjects_slots};
static PyType_Spec look_spec = {"ir3de.kernel._native.Look", sizeof(Look), 0, Py_TPFLAGS_DEFAULT, look_slots};

int add_subjects(PyObject *module)
{
    if (subjects_type == NULL) subjects_type = (PyTypeObject *)PyType_FromSpec(&subjects_spec);
    if (look_type == NULL) look_type = (PyTypeObject *)PyType_FromSpec(&look_spec);
    if (subjects_type == NULL || look_type == NULL) return -1;
    if (PyModule_AddObjectRef(module, "Subjects", (PyObject *)subjects_type) < 0) return -1;
    return PyModule_AddObjectRef(module, "Look", (PyObject *)look_type);
}
