/* What the files of the native kernel share: reading buffers of Python, and where functions for newer processors stand.

   Sums of whole numbers in float64 that stay below 2^53 are exact; other sums have one order of their own. So neither
   the compiler nor the processor changes a bit of a result. */
#ifndef IR3DE_NATIVE_H
#define IR3DE_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* Python 3.11: one binary serves it and all that follow */
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "this processor computes with other numbers than float64: numpy is used"
#endif

#define KERNEL_VERSION 7 /* the same as KERNEL_VERSION in __init__.py, which refuses any other */

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#define INLINE static inline __attribute__((always_inline))
#else
#define PREFETCH(address) ((void)(address))
#define INLINE static __inline
#endif

/* The same loops compiled once more for AVX2, which the processor is asked for when the module is loaded. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define WIDE __attribute__((target("avx2")))
extern int has_wide;
#endif

/* Numbers side by side. */
#if defined(__GNUC__) || defined(__clang__)
typedef double Four __attribute__((vector_size(32)));
typedef int8_t SixteenBytes __attribute__((vector_size(16)));
typedef int16_t Sixteen __attribute__((vector_size(32)));
#define NO_FOUR ((Four){0.0})
#define ADD_TIMES(total, some, factor) ((total) += (some) * (factor))
#define ADD_BYTES(total, some) ((total) += __builtin_convertvector(some, Sixteen))
#else
typedef struct { double at[4]; } Four;
typedef struct { int8_t at[16]; } SixteenBytes;
typedef struct { int16_t at[16]; } Sixteen;
static const Four NO_FOUR;
#define ADD_TIMES(total, some, factor) \
    do { int four; for (four = 0; four < 4; four++) (total).at[four] += (some).at[four] * (factor); } while (0)
#define ADD_BYTES(total, some) \
    do { int one; for (one = 0; one < 16; one++) (total).at[one] = (int16_t)((total).at[one] + (some).at[one]); } while (0)
#endif

typedef PyObject *(*Fast)(PyObject *, PyObject *const *, Py_ssize_t);
#define METHOD(name, function, text) {name, (PyCFunction)(void (*)(void))(Fast)(function), METH_FASTCALL, text}

/* A buffer of numbers: 'f', 'd' (floats), 'b' (int8), 'I' (uint32), 'q' (int64), 'B' (bytes or bool). */
typedef struct {
    Py_buffer view; /* view.obj is NULL where there is none */
    char kind;
    Py_ssize_t rows, columns, step; /* bytes from one row to the next */
} Numbers;

/* The buffer of an object whose kind is one of `kinds`; -1 with an error. None is taken if `optional`. The rows of two
   dimensions may lie apart, as those of a table do that shares its lines of memory with another. */
int read_numbers(PyObject *object, const char *kinds, int dimensions, int optional, Numbers *found);
int write_numbers(PyObject *object, char kind, Numbers *found);
void release_numbers(Numbers *numbers);
int check_count(Py_ssize_t given, Py_ssize_t least, const char *function);

/* How near a prompt is to the subjects of the experts; and the quick look whether it is in domain. */
typedef struct Subjects Subjects;
typedef struct Look Look;
int is_surely_in_domain(const Look *look, const double *tally, Py_ssize_t columns, Py_ssize_t tokens, Py_ssize_t best);
const Look *as_look(PyObject *object); /* NULL, with an error, for another object */

/* The bucket of two neighbouring tokens, as `hash_pairs` in Python finds it. */
INLINE uint32_t hash_pair(uint32_t left, uint32_t right)
{
    uint32_t hashed = left * 0x9E3779B1u + right * 0x85EBCA77u;
    hashed ^= hashed >> 15;
    return (hashed * 0x2C1B3C6Du) >> 16;
}

PyObject *sum_rows_of_stretches(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *count_pairs_of_prompts(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *add_triangle_of_square(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* The parts of a `Route`. */
int is_tables(PyObject *object);
int is_reader(PyObject *object);
int read_plain(PyObject *reader, PyObject *text); /* 1 for a plain text, 0 for another, -1 with an error */
Py_ssize_t count_columns(PyObject *tables); /* of a tally */
/* Fill the tally of a prompt, and find its best expert as `Tables.decide` does; -1 with an error. */
int decide_prompt(PyObject *tables, const uint32_t *ids, Py_ssize_t tokens, double *out, Py_ssize_t experts,
                  const Look *look, Py_ssize_t *best);

int add_tables(PyObject *module);
int add_route(PyObject *module);
int add_subjects(PyObject *module);
int add_look(PyObject *module);
int add_values(PyObject *module);
int add_reader(PyObject *module);
int add_sparse(PyObject *module);

#endif
