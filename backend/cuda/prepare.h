/* prepare.h -- one way to cut a plan into kernels. */
#ifndef FLIN_CUDA_PREPARE_H
#define FLIN_CUDA_PREPARE_H

#include "lower.h"

/* A module's kernels, with what they keep, and their schedules; no text. */
typedef struct Prepared {
    const Plan *p;
    int *of;                            /* of which kernel of the whole plan */
    CudaModule *m;
    Lowered **t;
    bool ahead;                         /* inverses lie as such */
} Prepared;

/* A kernel that has been scheduled, of some way to cut the plan; ahead: where
 * inverses lie as such. */
typedef struct Known {
    const struct Known *next;
    const Lowered *t;
    bool ahead, roughly;
    const Schedule *s;
} Known;

/* Of a module, whose plans are all of one graph: ways to cut it differ in a few
 * kernels, so that each is scheduled once. */
typedef struct Search {
    Ctx *c;
    const CudaOptions *o;
    const int32_t (*ext)[NAXES];
    const Known *known;
    bool bare;                          /* how all is cut */
    bool drops;                         /* no axis is taken as longer beside a
                                           kernel without a schedule */
    bool roughly;                       /* room is all that is asked */
    int *trials;                        /* that are left for that */
} Search;

/* The plan as it is cut: its kernels' tiles, what they keep for one another and
 * where, the schedule of each that has one, and what each takes. */
Prepared prepare_as_cut(Search *search, const Plan *p, int *of, bool ahead);
/* The kernel's schedule; `ahead`: inverses lie as such; `roughly`: where it has
 * room, whatever it takes. It may say why there is none. */
const Schedule *find_schedule(const Lowered *t, bool ahead, bool roughly);
/* That of one which has none by roles. */
const Schedule *find_plain(const Lowered *t);
/* What the kernel takes, of what is known before it is printed. */
void lowered_price(Lowered *t);
bool lacks_schedule(const Prepared *y, int kernel);

#endif
