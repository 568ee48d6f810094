/* What is counted of texts: sums of embedding rows, pairs of neighbours, hashes of texts. All are whole numbers. */
#include "native.h"

#define EXACT 8192 /* rows of entries up to 2^11 that float32 sums exactly */
#define PAIR_BUCKETS (1 << 16)

/* --- sum_rows(matrix, flat, first, size, sums): the sum of the rows of each stretch of tokens, without Python's lock */

INLINE void add_row_here(const float *row, float *total, Py_ssize_t width)
{
    Py_ssize_t c;
    for (c = 0; c < width; c++) total[c] += row[c];
}

static void add_row_plainly(const float *row, float *total, Py_ssize_t width) { add_row_here(row, total, width); }

#ifdef WIDE
WIDE static void add_row_widely(const float *row, float *total, Py_ssize_t width) { add_row_here(row, total, width); }
#endif

static void sum_stretch(const Numbers *matrix, const int64_t *flat, int64_t size, float *total, double *out)
{
    void (*add)(const float *, float *, Py_ssize_t) = add_row_plainly;
    const char *base = matrix->view.buf;
    Py_ssize_t width = matrix->columns, c;
    int64_t i, part;
#ifdef WIDE
    if (has_wide) add = add_row_widely;
#endif
    for (c = 0; c < width; c++) out[c] = 0.0;
    for (part = 0; part < size; part += EXACT) { /* nearly always once */
        int64_t end = part + EXACT < size ? part + EXACT : size;
        memset(total, 0, sizeof(float) * (size_t)width);
        for (i = part; i < end; i++) add((const float *)(base + flat[i] * matrix->step), total, width);
        for (c = 0; c < width; c++) out[c] += total[c];
    }
}

PyObject *sum_rows_of_stretches(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    Numbers matrix, flat, first, size, out;
    const int64_t *ids, *begin, *tokens;
    PyObject *result = NULL;
    float *total = NULL;
    Py_ssize_t i;
    (void)module;
    if (check_count(count, 5, "sum_rows") < 0) return NULL;
    flat.view.obj = first.view.obj = size.view.obj = out.view.obj = NULL;
    if (read_numbers(given[0], "f", 2, 0, &matrix) < 0) return NULL;
    if (read_numbers(given[1], "q", 1, 0, &flat) < 0 || read_numbers(given[2], "q", 1, 0, &first) < 0 ||
        read_numbers(given[3], "q", 1, 0, &size) < 0 || write_numbers(given[4], 'd', &out) < 0)
        goto done;
    ids = flat.view.buf;
    begin = first.view.buf;
    tokens = size.view.buf;
    if (size.rows != first.rows || out.rows != first.rows * matrix.columns) {
        PyErr_SetString(PyExc_ValueError, "the sums do not fit the stretches");
        goto done;
    }
    for (i = 0; i < flat.rows; i++)
        if (ids[i] < 0 || ids[i] >= (int64_t)matrix.rows) {
            PyErr_SetString(PyExc_IndexError, "a token id is not in the matrix");
            goto done;
        }
    for (i = 0; i < first.rows; i++)
        if (begin[i] < 0 || tokens[i] < 0 || begin[i] > (int64_t)flat.rows || tokens[i] > (int64_t)flat.rows - begin[i]) {
            PyErr_SetString(PyExc_ValueError, "a stretch does not lie within the ids");
            goto done;
        }
    if ((total = malloc(sizeof(float) * (size_t)(matrix.columns + 1))) == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (i = 0; i < first.rows; i++)
        sum_stretch(&matrix, ids + begin[i], tokens[i], total, (double *)out.view.buf + i * matrix.columns);
    Py_END_ALLOW_THREADS
    Py_INCREF(Py_None);
    result = Py_None;
done:
    free(total);
    release_numbers(&matrix);
    release_numbers(&flat);
    release_numbers(&first);
    release_numbers(&size);
    release_numbers(&out);
    return result;
}

/* --- count_pairs(flat, starts, lengths, counts): how often each bucket of neighbours occurs within the prompts */

PyObject *count_pairs_of_prompts(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    Numbers flat, starts, lengths, out;
    const int64_t *start, *length;
    PyObject *result = NULL;
    Py_ssize_t i;
    (void)module;
    if (check_count(count, 4, "count_pairs") < 0) return NULL;
    starts.view.obj = lengths.view.obj = out.view.obj = NULL;
    if (read_numbers(given[0], "I", 1, 0, &flat) < 0) return NULL;
    if (read_numbers(given[1], "q", 1, 0, &starts) < 0 || read_numbers(given[2], "q", 1, 0, &lengths) < 0 ||
        write_numbers(given[3], 'q', &out) < 0)
        goto done;
    start = starts.view.buf;
    length = lengths.view.buf;
    if (out.rows != PAIR_BUCKETS || lengths.rows != starts.rows) {
        PyErr_SetString(PyExc_ValueError, "the counts do not fit the prompts");
        goto done;
    }
    for (i = 0; i < starts.rows; i++)
        if (start[i] < 0 || length[i] < 0 || start[i] > (int64_t)flat.rows || length[i] > (int64_t)flat.rows - start[i]) {
            PyErr_SetString(PyExc_ValueError, "a prompt does not lie within the ids");
            goto done;
        }
    Py_BEGIN_ALLOW_THREADS
    for (i = 0; i < starts.rows; i++) {
        const uint32_t *at = (const uint32_t *)flat.view.buf + start[i];
        int64_t token;
        for (token = 0; token + 1 < length[i]; token++) ((int64_t *)out.view.buf)[hash_pair(at[token], at[token + 1])]++;
    }
    Py_END_ALLOW_THREADS
    Py_INCREF(Py_None);
    result = Py_None;
done:
    release_numbers(&flat);
    release_numbers(&starts);
    release_numbers(&lengths);
    release_numbers(&out);
    return result;
}

/* --- add_triangle(square, times, packed): add the upper triangle of whole numbers, row by row, so many times */

PyObject *add_triangle_of_square(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    Numbers square, out;
    Py_ssize_t times, row, column;
    (void)module;
    if (check_count(count, 3, "add_triangle") < 0) return NULL;
    times = PyLong_AsSsize_t(given[1]);
    if (times == -1 && PyErr_Occurred()) return NULL;
    if (read_numbers(given[0], "d", 2, 0, &square) < 0) return NULL;
    if (write_numbers(given[2], 'q', &out) < 0) {
        release_numbers(&square);
        return NULL;
    }
    if (square.rows != square.columns || out.rows != square.rows * (square.rows + 1) / 2) {
        PyErr_SetString(PyExc_ValueError, "the triangle does not fit the square");
    } else {
        int64_t *packed = out.view.buf;
        Py_BEGIN_ALLOW_THREADS
        for (row = 0; row < square.rows; row++) {
            const double *from = (const double *)((const char *)square.view.buf + row * square.step);
            for (column = row; column < square.columns; column++) *packed++ += (int64_t)times * (int64_t)from[column];
        }
        Py_END_ALLOW_THREADS
    }
    release_numbers(&square);
    release_numbers(&out);
    if (PyErr_Occurred()) return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}
