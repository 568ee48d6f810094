/* `Subjects`: how near a prompt is to the experts' subjects. */
#include "subjects.h"

#define FEW 512  /* centroids whose products are kept at a time */
#define LINE 64  /* bytes that come from memory at a time */
#define ONE 16384 /* a cosine of 1 among the rough ones */
#define LONGEST 1.001 /* the length of a centroid, up to which there are rough cosines */

static PyTypeObject *subjects_type;

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

double find_nearest(const Subjects *self, const double *sums, double tokens, Py_ssize_t begin, Py_ssize_t end)
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

double find_scale(const Subjects *self, const double *sums, double tokens)
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

/* --- rough cosines of small whole numbers: they find the few centroids that may be the nearest */

/* The direction of the sums less the centre in parts of ONE; 0 where there is none. `wide` numbers. */
static int find_direction(const Subjects *self, const double *sums, double tokens, int16_t *direction)
{
    double square = 0.0, scale;
    Py_ssize_t k;
    for (k = 0; k < self->width; k++) {
        double turned = sums[k] - tokens * self->centre[k];
        square += turned * turned;
    }
    if (!(square > 0.0 && square < HUGE_VAL)) return 0;
    scale = ONE / sqrt(square);
    for (k = 0; k < self->width; k++)
        direction[k] = (int16_t)floor((sums[k] - tokens * self->centre[k]) * scale + 0.5);
    for (; k < self->wide; k++) direction[k] = 0;
    return 1;
}

/* The largest product with the centroids from `begin` to `end`: the exact one of those whose rough cosine may be it. */
static double find_by_cosines(const Subjects *self, const double *sums, double tokens, const int32_t *cosines,
                              Py_ssize_t begin, Py_ssize_t end)
{
    int32_t most = cosines[begin];
    double found = -HUGE_VAL;
    Py_ssize_t j, k;
    for (j = begin; j < end; j++) most = cosines[j] > most ? cosines[j] : most;
    for (j = begin; j < end; j++) {
        const double *across = self->across + j / STEP * STEP * self->width + j % STEP;
        double product = 0.0;
        if (cosines[j] < most - 2 * self->error) continue;
        for (k = 0; k < self->width; k++) product += across[k * STEP] * sums[k];
        product -= tokens * self->of_centre[j];
        if (product > found) found = product;
    }
    return found;
}

/* The nearest of the best expert's centroids, of all experts' and of the background's. */
static void find_all_nearest(const Subjects *self, const double *sums, double tokens, Py_ssize_t best, double nearest[3])
{
    const Py_ssize_t *bounds = self->bounds, last = self->experts;
    const Py_ssize_t begin[3] = {bounds[best], 0, bounds[last]}, end[3] = {bounds[best + 1], bounds[last], bounds[last + 1]};
    int16_t *direction = self->rough == NULL ? NULL : malloc(sizeof(int16_t) * (size_t)self->wide);
    int32_t *cosines = direction == NULL ? NULL : malloc(sizeof(int32_t) * (size_t)self->centroids);
    int i, is_rough = cosines != NULL && find_direction(self, sums, tokens, direction);
    Py_ssize_t j, k;
    for (j = 0; is_rough && j < self->centroids; j++) {
        const int16_t *row = self->rough + j * self->wide;
        int32_t sum = 0;
        for (k = 0; k < self->wide; k += STEP)
            for (i = 0; i < STEP; i++) sum += (int32_t)row[k + i] * (int32_t)direction[k + i];
        cosines[j] = sum;
    }
    for (i = 0; i < 3; i++)
        nearest[i] = is_rough ? find_by_cosines(self, sums, tokens, cosines, begin[i], end[i])
                              : find_nearest(self, sums, tokens, begin[i], end[i]);
    free(direction);
    free(cosines);
}

void measure_subjects(const Subjects *self, const double *sums, double tokens, Py_ssize_t best, double found[2])
{
    double nearest[3], scale = find_scale(self, sums, tokens), contrast;
    find_all_nearest(self, sums, tokens, best, nearest);
    contrast = (nearest[1] - nearest[2]) * scale;
    found[0] = cut(self, (nearest[0] * scale - self->means[0]) / self->spreads[0]);
    found[1] = cut(self, (contrast - self->means[1]) / self->spreads[1]);
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
    measure_subjects(self, sums.view.buf, tokens, best, found);
    release_numbers(&sums);
    return Py_BuildValue("dd", found[0], found[1]);
}

/* --- the type */

int take_subjects(PyObject *object, Subjects **found)
{
    *found = NULL;
    if (object == Py_None) return 0;
    if (!PyObject_TypeCheck(object, subjects_type)) {
        PyErr_SetString(PyExc_TypeError, "expected Subjects or None");
        return -1;
    }
    Py_INCREF(object);
    *found = (Subjects *)object;
    return 0;
}

static void delete_subjects(Subjects *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    free(self->room);
    free(self->of_centre);
    free(self->centre);
    free(self->bounds);
    free(self->rough);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Round the centroids to parts of ONE. With both factors off by a half in each of n places, a product of two vectors of
   length ONE is off by sqrt(n) ONE at most, and by n / 4. */
static int fill_rough(Subjects *self, const Numbers *M)
{
    const double *given = M->view.buf;
    Py_ssize_t j, k;
    self->wide = (self->width + STEP - 1) / STEP * STEP;
    for (j = 0; j < M->rows; j++) {
        double square = 0.0;
        for (k = 0; k < self->width; k++) square += given[j * self->width + k] * given[j * self->width + k];
        if (!(square < LONGEST * LONGEST)) return 0;
    }
    self->error = (int32_t)(LONGEST * ONE * sqrt((double)self->width) + (double)self->width / 4.0) + 1;
    self->rough = self->width > ONE ? NULL : calloc((size_t)(M->rows * self->wide), sizeof(int16_t));
    if (self->rough == NULL) return self->width > ONE ? 0 : -1;
    for (j = 0; j < M->rows; j++)
        for (k = 0; k < self->width; k++)
            self->rough[j * self->wide + k] = (int16_t)floor(given[j * self->width + k] * ONE + 0.5);
    return 0;
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
    return fill_rough(self, M);
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

static PyMethodDef methods[] = {
    METHOD("measure", measure_prompt, "measure(sums, tokens, best): nearness and contrast of one prompt."),
    {NULL, NULL, 0, NULL}};

static PyType_Slot subjects_slots[] = {{Py_tp_new, make_subjects}, {Py_tp_dealloc, delete_subjects},
                                       {Py_tp_methods, methods}, {0, NULL}};

static PyType_Spec subjects_spec = {"ir3de.kernel._native.Subjects", sizeof(Subjects), 0, Py_TPFLAGS_DEFAULT,
                                    subjects_slots};

int add_subjects(PyObject *module)
{
    if (subjects_type == NULL) subjects_type = (PyTypeObject *)PyType_FromSpec(&subjects_spec);
    return subjects_type == NULL ? -1 : PyModule_AddObjectRef(module, "Subjects", (PyObject *)subjects_type);
}
