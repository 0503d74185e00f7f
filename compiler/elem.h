/* elem.h -- the functions that ops.def's values call, in double. */
#ifndef FLIN_ELEM_H
#define FLIN_ELEM_H

#include <math.h>

/* Both pass a NaN on, whichever side it stands. */
static inline double max_(double a, double b)
{
    return a > b || a != a ? a : b;
}

static inline double min_(double a, double b)
{
    return a < b || a != a ? a : b;
}

static inline double exp_(double a) { return exp(a); }
static inline double log_(double a) { return log(a); }
static inline double sqrt_(double a) { return sqrt(a); }
static inline double rsqrt_(double a) { return 1 / sqrt(a); }
static inline double abs_(double a) { return fabs(a); }
static inline double sign_(double a) { return a > 0 ? 1 : a < 0 ? -1 : a; }
static inline double floor_(double a) { return floor(a); }
static inline double wrap_(double a)
{
    return a - 6.283185307179586 * floor(a / 6.283185307179586 + 0.5);
}

static inline double factor_(double a) { return a; }
static inline double sin_(double a) { return sin(a); }
static inline double cos_(double a) { return cos(a); }
static inline double tanh_(double a) { return tanh(a); }
static inline double sigmoid_(double a) { return 1 / (1 + exp(-a)); }

static inline double softplus_(double a)
{
    return max_(a, 0) + log1p(exp(-fabs(a)));
}

#endif
