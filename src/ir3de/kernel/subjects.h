/* What `Subjects`, `Look` and `Values` share: the subjects of a router's experts. */
#ifndef IR3DE_SUBJECTS_H
#define IR3DE_SUBJECTS_H

#include "native.h"

#define STEP 16 /* products are found so many at a time: centroids are padded to it */

struct Subjects {
    PyObject_HEAD
    Py_ssize_t width, centroids, padded, experts;
    void *room;        /* where `across` is */
    double *across;    /* (padded / STEP, width, STEP)  the centroids, STEP of them side by side */
    double *of_centre; /* (padded,)  their products with the centre */
    double *centre;    /* (width,) */
    Py_ssize_t *bounds; /* (experts + 2,)  where each expert's centroids begin, then the background's, then the end */
    int16_t *rough;     /* (centroids, wide)  in parts of ONE, row by row; NULL where they are too long for it */
    Py_ssize_t wide;    /* the width, padded to STEP */
    int32_t error;      /* how far a rough cosine may be from the exact one, in parts of ONE * ONE */
    double square, means[2], spreads[2], farthest, nearest;
};

/* The largest product of the sums less the centre, tokens times, with the centroids from `begin` to `end`. */
double find_nearest(const Subjects *self, const double *sums, double tokens, Py_ssize_t begin, Py_ssize_t end);
double find_scale(const Subjects *self, const double *sums, double tokens); /* one divided by their length */
/* Nearness and contrast of a prompt, by the operations of `Subjects.measure` in Python in the same order. */
void measure_subjects(const Subjects *self, const double *sums, double tokens, Py_ssize_t best, double found[2]);
/* The subjects, with a new reference, or NULL for None; -1 with an error. */
int take_subjects(PyObject *object, Subjects **found);

INLINE double cut(const Subjects *self, double deviations)
{
    return deviations < self->farthest ? self->farthest : deviations > self->nearest ? self->nearest : deviations;
}

#endif
