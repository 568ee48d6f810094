/* Products of a sparse matrix of float32 with a dense one: each sum has one order, whatever the processor. */
#include "native.h"

#define AHEAD 12    /* entries whose rows are fetched before they are needed */
#define FETCHED 256 /* columns of such a row: the processor itself fetches more of a longer one */
#define LINE 16     /* numbers in a line of the cache */

/* Ask for a row that is needed soon: rows lie at random places, so the processor does not know which. */
INLINE void fetch_row(const float *row, Py_ssize_t columns)
{
    Py_ssize_t column;
    for (column = 0; column < columns && column < FETCHED; column += LINE) PREFETCH(row + column);
}

/* out = X W, where X has a row for each of `starts` but the last. */
INLINE void multiply_rows(const int64_t *starts, const int64_t *places, const float *values, const float *dense,
                          float *restrict out, Py_ssize_t rows, Py_ssize_t columns)
{
    const int64_t last = starts[rows];
    Py_ssize_t row;
    for (row = 0; row < rows; row++) {
        float *const total = out + row * columns;
        int64_t entry;
        memset(total, 0, (size_t)columns * sizeof(float));
        for (entry = starts[row]; entry < starts[row + 1]; entry++) {
            const float *const other = dense + places[entry] * columns;
            const float value = values[entry];
            Py_ssize_t column;
            if (entry + AHEAD < last) fetch_row(dense + places[entry + AHEAD] * columns, columns);
            for (column = 0; column < columns; column++) total[column] += value * other[column];
        }
    }
}

/* out += Xᵀ R. */
INLINE void scatter_rows(const int64_t *starts, const int64_t *places, const float *values, const float *dense,
                         float *restrict out, Py_ssize_t rows, Py_ssize_t columns)
{
    const int64_t last = starts[rows];
    Py_ssize_t row;
    for (row = 0; row < rows; row++) {
        const float *const own = dense + row * columns;
        int64_t entry;
        for (entry = starts[row]; entry < starts[row + 1]; entry++) {
            float *const total = out + places[entry] * columns;
            const float value = values[entry];
            Py_ssize_t column;
            if (entry + AHEAD < last) fetch_row(out + places[entry + AHEAD] * columns, columns);
            for (column = 0; column < columns; column++) total[column] += value * own[column];
        }
    }
}

typedef void (*Product)(const int64_t *, const int64_t *, const float *, const float *, float *, Py_ssize_t,
                        Py_ssize_t);

#define PLAIN(name, function, attribute) \
    attribute static void name(const int64_t *starts, const int64_t *places, const float *values, const float *dense, \
                               float *out, Py_ssize_t rows, Py_ssize_t columns) \
    { \
        function(starts, places, values, dense, out, rows, columns); \
    }

#define NO_ATTRIBUTE
PLAIN(multiply_anywhere, multiply_rows, NO_ATTRIBUTE)
PLAIN(scatter_anywhere, scatter_rows, NO_ATTRIBUTE)
#ifdef WIDE
PLAIN(multiply_wide, multiply_rows, WIDE)
PLAIN(scatter_wide, scatter_rows, WIDE)
#endif

/* Whether rows begin in order within the entries, and each entry names one of `width` rows of the other matrix. */
static int is_sparse(const Numbers *starts, const Numbers *places, const Numbers *values, Py_ssize_t width)
{
    const int64_t *begin = starts->view.buf, *place = places->view.buf;
    Py_ssize_t at;
    if (starts->rows < 1 || begin[0] != 0 || begin[starts->rows - 1] != places->rows || places->rows != values->rows)
        return 0;
    for (at = 1; at < starts->rows; at++)
        if (begin[at] < begin[at - 1]) return 0;
    for (at = 0; at < places->rows; at++)
        if (place[at] < 0 || place[at] >= width) return 0;
    return 1;
}

/* (starts, columns, values, dense, out): the matrix, and what it is multiplied with. */
static PyObject *multiply(PyObject *const *arguments, Py_ssize_t count, int is_transposed)
{
    Numbers found[4], out;
    static const char *const kinds[4] = {"q", "q", "f", "f"};
    Product product = is_transposed ? scatter_anywhere : multiply_anywhere;
    Py_ssize_t read = 0, rows, width, columns;
    PyObject *result = NULL;
    if (check_count(count, 5, is_transposed ? "multiply_transposed" : "multiply") < 0) return NULL;
    out.view.obj = NULL;
    for (; read < 4; read++)
        if (read_numbers(arguments[read], kinds[read], read == 3 ? 2 : 1, 0, &found[read]) < 0) goto end;
    if (write_numbers(arguments[4], 'f', &out) < 0) goto end;
    rows = found[0].rows - 1;
    columns = found[3].columns;
    width = is_transposed ? (columns ? out.rows / columns : 0) : found[3].rows;
    if (!is_sparse(&found[0], &found[1], &found[2], width) || (is_transposed && found[3].rows != rows) ||
        out.rows != (is_transposed ? width : rows) * columns) {
        PyErr_SetString(PyExc_ValueError, "the shapes of these matrices do not fit");
        goto end;
    }
#ifdef WIDE
    if (has_wide) product = is_transposed ? scatter_wide : multiply_wide;
#endif
    Py_BEGIN_ALLOW_THREADS
    if (is_transposed) memset(out.view.buf, 0, (size_t)out.view.len);
    product(found[0].view.buf, found[1].view.buf, found[2].view.buf, found[3].view.buf, out.view.buf, rows, columns);
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
end:
    while (read-- > 0) release_numbers(&found[read]);
    release_numbers(&out);
    return result;
}

static PyObject *multiply_sparse(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    return multiply(arguments, count, 0);
}

static PyObject *multiply_transposed(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    return multiply(arguments, count, 1);
}

static PyMethodDef functions[] = {
    METHOD("multiply", multiply_sparse, "Write X W, for a sparse X, into an array."),
    METHOD("multiply_transposed", multiply_transposed, "Write X^T R, for a sparse X, into an array."),
    {NULL, NULL, 0, NULL}};

int add_sparse(PyObject *module) { return PyModule_AddFunctions(module, functions); }
