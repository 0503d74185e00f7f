/* window.h -- calls of masks that end at a distance, as two scans, and one over
 * a sequence's first tokens, where these weigh otherwise. */
#ifndef FLIN_WINDOW_H
#define FLIN_WINDOW_H

#include "bind.h"

enum { WITHIN, ACROSS, KEPT, SINKS, NSCANS };

/* The plans of such a call: of its scans (SINKS: NULL where there is none), and
 * of what is kept of tokens; of where short blocks start; of the first tokens,
 * where it starts from states; else NULL. */
typedef struct WindowPlans {
    const PlanEntry *scan[NSCANS], *start, *first;
} WindowPlans;

/* Makes them, if they are new; d: of gradients, or NULL. NULL: the call is none
 * that two scans compute, or is predicted to be faster by the step's plan. */
WindowPlans *window_plans(Ctx *c, Variant *v, const Args *a, const Bound *b,
                          const Adjoint *d);

/* Makes those of all calls of the mode that differ but in their states. */
void window_prepare(Ctx *c, Variant *v, const Args *a, const Bound *b,
                    Mode mode);

void window_forward(Ctx *c, Variant *v, const WindowPlans *p, const Bound *b);
/* Gradients go where `to` says, with all of the call's heads; data NULL: not
 * wanted. A constant's has a row a sequence: their sum is in the first. */
void window_backward(Ctx *c, Variant *v, const WindowPlans *p, const Bound *b,
                     const Adjoint *d, const View to[MAX_INPUTS]);

#endif
