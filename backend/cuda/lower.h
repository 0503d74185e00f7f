/* lower.h -- a plan on its way to a module of kernels: how it is cut, what each
 * of its kernels has and leaves for others. module.c has the whole.
 */
#ifndef FLIN_CUDA_LOWER_H
#define FLIN_CUDA_LOWER_H

#include "cuda.h"
#include "../../compiler/machine.h"
#include "source.h"

/* A kernel of the plan as it is cut. Lists are per node. */
typedef struct Lowered {
    Ctx *c;
    const Plan *p;
    const Kernel *k;
    const Graph *g;
    const CudaOptions *o;
    CudaModule *m;
    CudaKernel *out;
    const struct Schedule *plain;       /* where the kernel has none by roles */
    int at, chunk;                      /* the kernel's number; tokens that
                                           matrices have room for */
    const int32_t (*ext)[NAXES];
    bool waits;                         /* its schedule keeps no products under
                                           way that a program could wait for */
    const struct Schedule *others[CUDA_ATTEMPTS]; /* of attempts before */
    int nothers;
    uint8_t *has, *stored_here;
    bool out_here[MAX_OUTPUTS];
    uint8_t *wide;                      /* read other than by products that
                                           round what they multiply */
    const uint8_t *stored_narrow;
    DType narrow;                       /* what those are of */
    const uint8_t *asked;               /* the same, as a schedule was asked
                                           for */
    const int64_t *stored_at;           /* bytes */
    const uint8_t *stored_later;        /* among those of m->later */
} Lowered;

/* ---- lower.c ---- */

Lowered *lowered_new(Ctx *c, const Plan *p, const CudaOptions *o, CudaModule *m,
                     int kernel);
/* What it has and leaves; needs t->ext. */
void lowered_analyse(Lowered *t);
/* A comment on what is in it. */
void put_comment(const Lowered *t, Buf *b);
/* Of a value that kernels keep for one another. */
int64_t stored_bytes(const Lowered *t, Ref r);

/* ---- precision.c ---- */

/* Marks what the kernel's nodes read other than by products that round. */
void find_wide(const Lowered *t, uint8_t *wide);

/* ---- split.c ---- */

/* deferred: adjoints that no matrix needs have a walk behind the kernels of all
 * chunks; ahead: scores that no state goes into are made before the walk;
 * apart: those that sums under decays take behind it, in a kernel before that
 * of the sums, as is what scans of scores on the way back do without; forward:
 * scores are made before walks forward, too, for all; entire: those do all
 * themselves; ends: scores alone that what states become needs; solved: what
 * those solve is kept for the way back; none: kernels are left as they are;
 * walks: states that do not need one another have walks of their own; whole:
 * walks back do all that is not deferred; factors: what walks multiply, and is
 * made of no product and no state, is made ahead of them with the scores: 1,
 * for all kernels behind; 2, for walks alone; rest: what the states of walks
 * forward do not need is made behind those; bare: so are sums of what matrices
 * of the walk become. */
typedef struct Split {
    bool deferred, ahead, apart, forward, entire, ends, solved, none, walks,
         whole, rest, bare;
    int factors;
} Split;

/* The plan with what a scan need not do in kernels of all chunks at once; in
 * `of`, for each of its kernels, which of p's it is of. */
const Plan *plan_split(const Plan *p, Split how, int **of);

/* Whether there are sums of tokens under decays per key, or scans of scores on
 * the way back. */
bool may_stand_apart(const Graph *g);
/* Whether there are sums of what a matrix becomes on the way back. */
bool may_be_bare(const Graph *g);

/* ---- cut.c ---- */

/* RESULT: a kernel of all chunks, the first half of which leaves that result.
 * FACTOR: a matrix that products take, and no state of the kernel goes into,
 * in a kernel of all chunks before it; CUT_ALL: all that its states go together
 * with. BEHIND: a result of a walk that its next states do not need in a kernel
 * of all chunks behind it; CUT_ALL: all of those. STATES: a walk of its own for
 * the state of that number, from one on, with those it needs. */
typedef enum CutHow { CUT_RESULT, CUT_FACTOR, CUT_BEHIND, CUT_STATES, NCUTS }
CutHow;
enum { CUT_ALL = 1 };                   /* the first node, which is a leaf, and
                                           so neither a factor nor a result */

/* The plan with a kernel as two, at the next node, or number, behind *with,
 * which is moved on to it; with that goes what needs no more matrices than it
 * does. NULL: there is none any more. `of` goes with the kernels. */
const Plan *plan_cut(const Plan *p, int kernel, CutHow how, Ref *with,
                     const int *of, int **of_halves);

/* ---- shares.c ---- */

/* Kernels behind the plan's own, for what heads share. */
void emit_shares(Ctx *c, const Plan *p, const CudaOptions *o, CudaModule *m,
                 Buf *b);

#endif
