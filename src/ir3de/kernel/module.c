/* The module `ir3de.kernel._native`, and how it reads buffers. */
#include "native.h"

#ifdef WIDE
int has_wide = 0;
#endif

static char find_kind(const Py_buffer *view)
{
    const char *format = view->format == NULL ? "B" : view->format;
    if (*format == '<' || *format == '=' || *format == '@') format++;
    if (format[0] == '\0' || format[1] != '\0') return 0;
    switch (format[0]) {
    case 'l': case 'q': return view->itemsize == 8 ? 'q' : view->itemsize == 4 ? 'i' : 0;
    case 'L': case 'I': case 'Q': return view->itemsize == 4 ? 'I' : view->itemsize == 8 ? 'Q' : 0;
    case '?': case 'B': return 'B';
    default: return format[0];
    }
}

int read_numbers(PyObject *object, const char *kinds, int dimensions, int optional, Numbers *found)
{
    found->view.obj = NULL;
    found->view.buf = NULL;
    found->rows = found->columns = 0;
    if (optional && object == Py_None) return 0;
    if (PyObject_GetBuffer(object, &found->view, (dimensions > 1 ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS) | PyBUF_FORMAT) < 0) {
        found->view.obj = NULL;
        return -1;
    }
    found->kind = find_kind(&found->view);
    if (found->kind == 0 || strchr(kinds, found->kind) == NULL || found->view.ndim != dimensions ||
        (uintptr_t)found->view.buf % (uintptr_t)found->view.itemsize ||
        (dimensions > 1 && (found->view.strides[1] != found->view.itemsize || found->view.strides[0] < 0 ||
                            found->view.strides[0] % found->view.itemsize))) {
        PyErr_Format(PyExc_TypeError, "expected an aligned array of %d dimensions and kind %s, found %d and %s",
                     dimensions, kinds, found->view.ndim, found->view.format);
        release_numbers(found);
        return -1;
    }
    found->rows = found->view.shape[0];
    found->columns = dimensions > 1 ? found->view.shape[1] : 1;
    found->step = dimensions > 1 ? found->view.strides[0] : found->view.itemsize;
    return 0;
}

int write_numbers(PyObject *object, char kind, Numbers *found)
{
    found->view.obj = NULL;
    if (PyObject_GetBuffer(object, &found->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE) < 0) {
        found->view.obj = NULL;
        return -1;
    }
    found->kind = find_kind(&found->view);
    if (found->kind != kind) {
        PyErr_Format(PyExc_TypeError, "expected an array of kind %c to write to, found %s", kind, found->view.format);
        release_numbers(found);
        return -1;
    }
    found->rows = found->view.len / found->view.itemsize;
    found->columns = 1;
    return 0;
}

void release_numbers(Numbers *numbers)
{
    if (numbers->view.obj != NULL) PyBuffer_Release(&numbers->view);
    numbers->view.obj = NULL;
}

int check_count(Py_ssize_t given, Py_ssize_t expected, const char *function)
{
    if (given == expected) return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, found %zd", function, expected, given);
    return -1;
}

static int fill(PyObject *module)
{
#ifdef WIDE
    __builtin_cpu_init();
    has_wide = __builtin_cpu_supports("avx2") != 0;
#endif
    if (PyModule_AddIntConstant(module, "KERNEL_VERSION", KERNEL_VERSION) < 0) return -1;
    if (add_tables(module) < 0 || add_subjects(module) < 0 || add_look(module) < 0 || add_values(module) < 0) return -1;
    return add_reader(module) < 0 || add_route(module) < 0 ? -1 : add_sparse(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static PyMethodDef functions[] = {
    METHOD("sum_rows", sum_rows_of_stretches, "sum_rows(matrix, flat, first, size, sums): sums of stretches of tokens."),
    METHOD("count_pairs", count_pairs_of_prompts, "count_pairs(flat, starts, lengths, counts): add to the counts."),
    METHOD("add_triangle", add_triangle_of_square, "add_triangle(square, times, packed): add the upper triangle."),
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "The inner loops that numpy does badly. Only ir3de.kernel imports it.", 0, functions,
    slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
