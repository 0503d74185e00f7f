/* pipeline.h -- from a step to a plan: the passes in order, and whether a
 * machine can hold what comes out.
 */
#ifndef FLIN_PIPELINE_H
#define FLIN_PIPELINE_H

#include "partition.h"

/* A row a pass, in the order in which they run. */
typedef struct Pass {
    char letter;                        /* of dumps (flin -d); 0: it has none */
    const char *name, *file;
    const char *needs, *gives;
} Pass;
enum { NPASSES = 9 };
extern const Pass pipeline[NPASSES];

enum { CHUNK_LEAST = 16, CHUNK_DEFAULT = 64, CHUNK_MAX = 256 };

/* A step's chunks as machine m is to run them, joint: with their gradient; or
 * NULL, with step->note set, where one of the two ways has no chunk form. */
Graph *by_chunks(Graph *step, const int32_t size[NAXES], int chunk, bool joint,
                 const Machine *m);
/* The step as it is run token by token. */
Graph *by_tokens(const Graph *step, const int32_t size[NAXES], bool joint);

/* Whether a plan whose kernels are larger than the machine can hold will do
 * there, as who runs it cuts them further; anyhow: into however many. */
typedef bool PlanJudge(Ctx *c, const Plan *p, const Machine *m, bool anyhow);

/* What a plan is asked for: chunks of so many tokens, kernels chosen among
 * many (`cut`) or one a pass. larger: NULL where none of those will do. */
typedef struct PlanWish {
    Graph *step;
    const int32_t *size;
    int chunk;
    bool joint, cut;
    const Machine *m;
    Effort effort;
    PlanJudge *larger;
} PlanWish;

/* The answer. FITS: plan, with its price in `info`. NO_CHUNKS: step->note says
 * which term breaks the chunk form. TOO_LARGE: `why` says, with the line, what
 * the machine cannot hold; info.held is 0. */
typedef enum Fit { FITS, NO_CHUNKS, TOO_LARGE } Fit;
typedef struct PlanTry {
    Fit fit;
    bool lacks;                         /* nothing fast runs all of it, nor of
                                           smaller chunks */
    Graph *g;                           /* that is planned; NULL: NO_CHUNKS */
    Plan *plan;
    PartitionInfo info;
    Error why;
} PlanTry;

/* In the step's context. Fails on what no chunk size mends. */
Fit plan_try(const PlanWish *w, PlanTry *out);

/* Whether whoever runs the plan lacks fast kernels for some of it, as far as
 * plan_try has asked; of chunks that are not usual it does. */
bool lacks_kernels(const PlanWish *w, const PlanTry *t);
/* A plan of the usual chunks, or half of that, whose kernels who runs it cuts
 * until all are fast; false, and `out` as it was: there is none. */
bool plan_anyhow(const PlanWish *w, PlanTry *out);

/* The tokens of the chunks that are asked for, as they are run: 64 for more, 32
 * for less than 64, where who runs the plan says that all of its kernels will
 * do then. */
int chunk_taken(const PlanWish *w);

/* A plan of the step, in its context: by chunks (joint, of backward, too: by
 * smaller ones where the machine cannot hold these), else, where there is no
 * chunk form or chunk is 0, one token at a time. The second, with less effort:
 * to compare it with others. */
Plan *plan_make(Graph *step, const int32_t size[NAXES], int chunk, bool joint,
                const Machine *machine, PlanJudge *larger);
Plan *plan_sketch(Graph *step, const int32_t size[NAXES], int chunk,
                  bool joint, const Machine *machine);

#endif
