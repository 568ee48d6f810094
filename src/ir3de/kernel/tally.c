/* `Tables`: the ballots of a router as buffers. It sums the rows of a prompt's tokens and pairs. */
#include "native.h"

#define CHUNK 1024   /* tokens whose rows are fetched ahead of their sums */
#define FLUSH 256    /* sums of so many int8 fit in an int16 */
#define WIDTH 16     /* columns of int8 that are summed side by side */

typedef struct {
    PyObject_HEAD
    Numbers values, pairs, rank, familiarity, subjects;
    Py_ssize_t limit, columns;
} Tables;

/* --- sums of rows */

#define SUM_BLOCK(TYPE, BLOCK)                                                              \
    for (; c + (BLOCK) <= columns; c += (BLOCK)) {                                          \
        double total[BLOCK] = {0.0};                                                        \
        for (i = 0; i < n; i++) {                                                           \
            const TYPE *row = (const TYPE *)(base + (size_t)at[i] * step) + c;              \
            int j;                                                                          \
            for (j = 0; j < (BLOCK); j++) total[j] += row[j];                               \
        }                                                                                   \
        for (i = 0; i < (BLOCK); i++) out[c + i] += total[i];                               \
    }

#define SUM_ROWS(TYPE) SUM_BLOCK(TYPE, 8) SUM_BLOCK(TYPE, 4) SUM_BLOCK(TYPE, 2) SUM_BLOCK(TYPE, 1)

static void sum_rows(const Numbers *table, const uint32_t *at, Py_ssize_t n, double *out)
{
    const char *base = table->view.buf;
    const size_t step = (size_t)table->step;
    Py_ssize_t columns = table->columns, c = 0, i;
    if (table->kind == 'f') {
        SUM_ROWS(float)
    } else {
        SUM_ROWS(double)
    }
}

INLINE void sum_bytes_here(const Numbers *table, const uint32_t *at, Py_ssize_t n, double *out)
{
    const int8_t *base = table->view.buf;
    const size_t step = (size_t)table->step;
    Py_ssize_t columns = table->columns, c, i, begin;
    for (begin = 0; begin < n; begin += FLUSH) {
        Py_ssize_t end = begin + FLUSH < n ? begin + FLUSH : n;
        for (c = 0; c + WIDTH <= columns; c += WIDTH) {
            int16_t totals[WIDTH];
            Sixteen total;
            memset(&total, 0, sizeof(total));
            for (i = begin; i < end; i++) {
                SixteenBytes row;
                memcpy(&row, base + at[i] * step + c, sizeof(row));
                ADD_BYTES(total, row);
            }
            memcpy(totals, &total, sizeof(totals));
            for (i = 0; i < WIDTH; i++) out[c + i] += totals[i];
        }
        for (; c < columns; c++) {
            int32_t total = 0;
            for (i = begin; i < end; i++) total += base[at[i] * step + c];
            out[c] += total;
        }
    }
}

static void sum_bytes_plainly(const Numbers *table, const uint32_t *at, Py_ssize_t n, double *out)
{
    sum_bytes_here(table, at, n, out);
}

#ifdef WIDE
WIDE static void sum_bytes_widely(const Numbers *table, const uint32_t *at, Py_ssize_t n, double *out)
{
    sum_bytes_here(table, at, n, out);
}
#endif

static void sum_bytes(const Numbers *table, const uint32_t *at, Py_ssize_t n, double *out)
{
#ifdef WIDE
    if (has_wide) {
        sum_bytes_widely(table, at, n, out);
        return;
    }
#endif
    sum_bytes_plainly(table, at, n, out);
}

/* --- the tokens of lowest rank: a heap with the largest of those kept so far at its top */

static void sink(uint32_t *heap, Py_ssize_t size, Py_ssize_t place)
{
    uint32_t value = heap[place];
    for (;;) {
        Py_ssize_t child = 2 * place + 1;
        if (child >= size) break;
        if (child + 1 < size && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= value) break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = value;
}

static void sum_lowest(const Tables *self, const uint32_t *ids, Py_ssize_t n, uint32_t *heap, double *out)
{
    const uint32_t *rank = self->rank.view.buf;
    Py_ssize_t kept = n < self->limit ? n : self->limit, i;
    for (i = 0; i < kept; i++) heap[i] = rank[ids[i]];
    if (kept < n) {
        for (i = kept / 2 - 1; i >= 0; i--) sink(heap, kept, i);
        for (i = kept; i < n; i++) {
            uint32_t found = rank[ids[i]];
            if (found < heap[0]) {
                heap[0] = found;
                sink(heap, kept, 0);
            }
        }
    }
    sum_rows(&self->values, heap, kept, out);
}

/* --- one prompt */

INLINE void fetch(const Numbers *table, uint32_t row)
{
    const char *place = (const char *)table->view.buf + (size_t)row * (size_t)table->step;
    PREFETCH(place);
}

/* The tally of a prompt; -1 if a token is not in the table. `heap` has room for the limit where there are ranks. */
static int tally_prompt(const Tables *self, const uint32_t *ids, Py_ssize_t n, uint32_t *heap, double *out)
{
    uint32_t buckets[CHUNK], rows = (uint32_t)self->values.rows;
    Py_ssize_t begin, i, column = self->values.columns;
    const int has_pairs = self->pairs.view.obj != NULL, has_subjects = self->subjects.view.obj != NULL;
    const int has_ranks = self->rank.view.obj != NULL, has_familiarity = self->familiarity.view.obj != NULL;
    double familiarity = 0.0;
    for (i = 0; i < self->columns; i++) out[i] = 0.0;
    for (begin = 0; begin < n; begin += CHUNK) {
        const uint32_t *at = ids + begin;
        Py_ssize_t size = n - begin < CHUNK ? n - begin : CHUNK;
        Py_ssize_t pairs = !has_pairs ? 0 : begin + size < n ? size : size - 1;
        uint32_t largest = 0;
        for (i = 0; i < size; i++) largest = at[i] > largest ? at[i] : largest;
        if (largest >= rows) return -1;
        for (i = 0; i < size; i++) {
            if (!has_ranks) fetch(&self->values, at[i]);
            if (has_subjects) fetch(&self->subjects, at[i]);
            if (i < pairs) {
                buckets[i] = hash_pair(at[i], at[i + 1]);
                fetch(&self->pairs, buckets[i]);
            }
        }
        if (!has_ranks) sum_rows(&self->values, at, size, out);
        if (pairs > 0) sum_rows(&self->pairs, buckets, pairs, out);
        if (has_familiarity)
            for (i = 0; i < size; i++) familiarity += ((const float *)self->familiarity.view.buf)[at[i]];
        if (has_subjects) {
            double *sums = out + column + has_familiarity;
            if (self->subjects.kind == 'b') sum_bytes(&self->subjects, at, size, sums);
            else sum_rows(&self->subjects, at, size, sums);
        }
    }
    if (has_ranks) sum_lowest(self, ids, n, heap, out);
    if (has_familiarity) out[column] = familiarity;
    return 0;
}

static Py_ssize_t find_best(const double *tally, Py_ssize_t experts)
{
    Py_ssize_t best = 0, c;
    for (c = 1; c < experts; c++)
        if (tally[c] > tally[best]) best = c;
    return best;
}

static PyObject *refuse_token(void)
{
    PyErr_SetString(PyExc_IndexError, "a token id is not in the table: use the router's tokenizer");
    return NULL;
}

static uint32_t *make_heap(const Tables *self, Py_ssize_t longest)
{
    Py_ssize_t size = self->rank.view.obj == NULL ? 1 : longest < self->limit ? longest : self->limit;
    return malloc(sizeof(uint32_t) * (size_t)(size + 1));
}

Py_ssize_t count_columns(PyObject *tables) { return ((const Tables *)tables)->columns; }

int decide_prompt(PyObject *tables, const uint32_t *ids, Py_ssize_t tokens, double *out, Py_ssize_t experts,
                  const Look *look, Py_ssize_t *best)
{
    const Tables *self = (const Tables *)tables;
    uint32_t *heap = NULL;
    int failed;
    if (experts < 1 || experts > self->values.columns) {
        PyErr_SetString(PyExc_ValueError, "the tally does not fit the tables");
        return -1;
    }
    if (self->rank.view.obj != NULL && (heap = make_heap(self, tokens)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    failed = tally_prompt(self, ids, tokens, heap, out);
    free(heap);
    if (failed) {
        refuse_token();
        return -1;
    }
    *best = find_best(out, experts);
    if (look != NULL && !is_surely_in_domain(look, out, self->columns, tokens, *best)) *best = ~*best;
    return 0;
}

/* decide(ids, tally, experts, look): fill the tally. Returns the place of the best expert, and its complement ~place
   where a look is given and the prompt is not surely in domain. */
static PyObject *decide(Tables *self, PyObject *const *given, Py_ssize_t count)
{
    const Look *look = NULL;
    Numbers ids, out;
    PyObject *result = NULL;
    Py_ssize_t experts, best;
    if (check_count(count, 4, "decide") < 0) return NULL;
    experts = PyLong_AsSsize_t(given[2]);
    if (experts == -1 && PyErr_Occurred()) return NULL;
    if (given[3] != Py_None && (look = as_look(given[3])) == NULL) return NULL;
    if (read_numbers(given[0], "I", 1, 0, &ids) < 0) return NULL;
    if (write_numbers(given[1], 'd', &out) == 0) {
        if (out.rows != self->columns) PyErr_SetString(PyExc_ValueError, "the tally does not fit the tables");
        else if (decide_prompt((PyObject *)self, ids.view.buf, ids.rows, out.view.buf, experts, look, &best) == 0)
            result = PyLong_FromSsize_t(best);
        release_numbers(&out);
    }
    release_numbers(&ids);
    return result;
}

/* decide_many(flat, starts, lengths, tallies, bests, experts, look): the same for many prompts, without Python's lock. */
static PyObject *decide_many(Tables *self, PyObject *const *given, Py_ssize_t count)
{
    Numbers flat, starts, lengths, out, bests;
    const int64_t *start, *length;
    const Look *look = NULL;
    Py_ssize_t experts, longest = 0, i, n;
    PyObject *result = NULL;
    if (check_count(count, 7, "decide_many") < 0) return NULL;
    experts = PyLong_AsSsize_t(given[5]);
    if (experts == -1 && PyErr_Occurred()) return NULL;
    if (given[6] != Py_None && (look = as_look(given[6])) == NULL) return NULL;
    starts.view.obj = lengths.view.obj = out.view.obj = bests.view.obj = NULL;
    if (read_numbers(given[0], "I", 1, 0, &flat) < 0) return NULL;
    if (read_numbers(given[1], "q", 1, 0, &starts) < 0 || read_numbers(given[2], "q", 1, 0, &lengths) < 0 ||
        write_numbers(given[3], 'd', &out) < 0 || write_numbers(given[4], 'q', &bests) < 0)
        goto done;
    start = starts.view.buf;
    length = lengths.view.buf;
    n = starts.rows;
    if (lengths.rows != n || out.rows != n * self->columns || bests.rows != n || experts < 1 || experts > self->values.columns) {
        PyErr_SetString(PyExc_ValueError, "the tallies do not fit the tables");
        goto done;
    }
    for (i = 0; i < n; i++) {
        if (start[i] < 0 || length[i] < 0 || start[i] > (int64_t)flat.rows || length[i] > (int64_t)flat.rows - start[i]) {
            PyErr_SetString(PyExc_ValueError, "a prompt does not lie within the ids");
            goto done;
        }
        if (length[i] > (int64_t)longest) longest = (Py_ssize_t)length[i];
    }
    {
        uint32_t *heap = make_heap(self, longest);
        int failed = 0;
        if (heap == NULL) {
            PyErr_NoMemory();
            goto done;
        }
        Py_BEGIN_ALLOW_THREADS
        for (i = 0; i < n && !failed; i++) {
            double *tally = (double *)out.view.buf + i * self->columns;
            Py_ssize_t tokens = (Py_ssize_t)length[i], best;
            failed = tally_prompt(self, (const uint32_t *)flat.view.buf + start[i], tokens, heap, tally);
            if (failed) break;
            best = find_best(tally, experts);
            if (look != NULL && !is_surely_in_domain(look, tally, self->columns, tokens, best)) best = ~best;
            ((int64_t *)bests.view.buf)[i] = best;
        }
        Py_END_ALLOW_THREADS
        free(heap);
        if (failed) {
            refuse_token();
            goto done;
        }
    }
    Py_INCREF(Py_None);
    result = Py_None;
done:
    release_numbers(&flat);
    release_numbers(&starts);
    release_numbers(&lengths);
    release_numbers(&out);
    release_numbers(&bests);
    return result;
}

/* --- the type */

static void delete(Tables *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    release_numbers(&self->values);
    release_numbers(&self->pairs);
    release_numbers(&self->rank);
    release_numbers(&self->familiarity);
    release_numbers(&self->subjects);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *values, *rank, *familiarity, *pairs, *subjects;
    Py_ssize_t limit;
    Tables *self;
    (void)named;
    if (!PyArg_ParseTuple(arguments, "OOnOOO", &values, &rank, &limit, &familiarity, &pairs, &subjects)) return NULL;
    self = (Tables *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zeros */
    if (self == NULL) return NULL;
    if (read_numbers(values, "fd", 2, 0, &self->values) < 0 || read_numbers(rank, "I", 1, 1, &self->rank) < 0 ||
        read_numbers(familiarity, "f", 1, 1, &self->familiarity) < 0 ||
        read_numbers(pairs, "fd", 2, 1, &self->pairs) < 0 || read_numbers(subjects, "fb", 2, 1, &self->subjects) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    self->limit = limit;
    self->columns = self->values.columns + (self->familiarity.view.obj != NULL) + self->subjects.columns;
    if ((self->pairs.view.obj && (self->pairs.rows != 1 << 16 || self->pairs.columns != self->values.columns)) ||
        (self->rank.view.obj && self->rank.rows != self->values.rows) ||
        (self->familiarity.view.obj && self->familiarity.rows != self->values.rows) ||
        (self->subjects.view.obj && self->subjects.rows != self->values.rows) || limit < 1 ||
        self->values.rows < 1 || self->values.rows > (Py_ssize_t)UINT32_MAX || self->values.columns < 1) {
        PyErr_SetString(PyExc_ValueError, "the tables do not fit each other");
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (self->rank.view.obj) {
        const uint32_t *rank_of = self->rank.view.buf;
        Py_ssize_t i;
        for (i = 0; i < self->rank.rows; i++)
            if (rank_of[i] >= (uint32_t)self->values.rows) {
                PyErr_SetString(PyExc_ValueError, "a rank is larger than the number of tokens");
                Py_DECREF((PyObject *)self);
                return NULL;
            }
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    METHOD("decide", decide, "decide(ids, tally, experts, look): fill the tally, and find the best expert."),
    METHOD("decide_many", decide_many, "decide_many(flat, starts, lengths, tallies, bests, experts, look): many prompts."),
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_new, make}, {Py_tp_dealloc, delete}, {Py_tp_methods, methods},
                              {Py_tp_doc, "Tables(values, rank, limit, familiarity, pairs, subjects)"}, {0, NULL}};

static PyType_Spec spec = {"ir3de.kernel._native.Tables", sizeof(Tables), 0, Py_TPFLAGS_DEFAULT, slots};

static PyTypeObject *tables_type;

int is_tables(PyObject *object) { return PyObject_TypeCheck(object, tables_type); }

int add_tables(PyObject *module)
{
    if (tables_type == NULL) tables_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return tables_type == NULL ? -1 : PyModule_AddObjectRef(module, "Tables", (PyObject *)tables_type);
}
