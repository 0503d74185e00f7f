/* cuda.h -- a plan as CUDA C++, and what a launch must pass it.
 *
 * cuda_tiles prints any plan on any GPU from Ampere on, from schedules. */
#ifndef FLIN_CUDA_H
#define FLIN_CUDA_H

#include "../../compiler/machine.h"
#include "../../compiler/plan.h"

enum { CUDA_MAPS = KERNEL_MAPS, CUDA_TENSORS = 200, CUDA_SEGMENTS = 4 };

enum { CUDA_ATTEMPTS = 3 };

/* How a plan is to be printed: the types of all tensors, and which results are
 * summed: a result that has fewer heads than the call is the sum over those
 * that share one; a final state that lies in one place for several sequences
 * (sb == 0) is the sum over them, too. cuda_call_options fills all that in. */
typedef struct CudaOptions {
    DType tile;                         /* what products multiply: BF16, F16 or
                                           F32 */
    int arch;                           /* 80, 90 ...; 0: 80 */
    int units;                          /* multiprocessors; 0: the machine's */
    const Machine *machine;             /* by whose rates kernels are chosen;
                                           NULL: the architecture's first */
    int attempt;                        /* under CUDA_ATTEMPTS; 1, 2: more or
                                           other registers for a thread, less
                                           to keep in them, or roles dealt
                                           otherwise, to be tried where the
                                           former spills */
    DType in[MAX_INPUTS], out[MAX_OUTPUTS], s0[MAX_STATES], s1[MAX_STATES];
    bool sum_out[MAX_OUTPUTS], sum_s1[MAX_STATES];
    bool scheduled;                     /* by roles, where there is such a
                                           schedule */
    int without;                        /* but for this one, counted from 1 */
    int spare;                          /* of those: registers that a thread has
                                           beside what it is known to need */
    bool few;                           /* of those: sequences and heads leave
                                           half the multiprocessors idle */
    bool scattered;                     /* of those: rows of the call's tensors
                                           lie anywhere, or not whole */
    bool single;                        /* of steps: a call has one token of
                                           each batch entry; all tensors are
                                           there, in whole rows, states dense */
    bool grouped;                       /* of those: heads share some of them */
    bool paged;                         /* of those: states lie in pools */
    bool wholly;                        /* of those: too large ones are not cut
                                           anyhow */
    bool cut;                           /* of those: they are of a call in
                                           segments, which goes forward alone */
    bool ends;                          /* of a plan from schedules its walks
                                           alone, for what their states end as,
                                           which find what the plan's own
                                           kernels keep */
    const char **fault;                 /* of those: KernelWish's */
} CudaOptions;

/* What prices are of. */
static inline const Machine *options_machine(const CudaOptions *o)
{
    return o->machine ? o->machine : machine_of_arch(o->arch);
}

/* ARG_STORED: what a kernel has kept of each chunk, at stored_at. */
typedef enum CudaArgKind { ARG_INPUT, ARG_OUTPUT, ARG_STATE, ARG_NEXT,
                           ARG_STORED } CudaArgKind;
typedef struct CudaArg {
    uint8_t kind, index;
    uint8_t dtype;                      /* what the source reads or writes */
    uint8_t part;                       /* of a state, a constant: that of its
                                           entries along the first axis, + 1; 0:
                                           all */
} CudaArg;

/* All of it. */
static inline CudaArg cuda_arg(int kind, int index, int dtype)
{
    return (CudaArg){ (uint8_t)kind, (uint8_t)index, (uint8_t)dtype, 0 };
}

static inline const View *view_of(const Call *call, CudaArg a)
{
    switch ((CudaArgKind)a.kind) {
    case ARG_INPUT:  return &call->in[a.index];
    case ARG_OUTPUT: return &call->out[a.index];
    case ARG_STATE:  return &call->s0[a.index];
    case ARG_NEXT:   return &call->s1[a.index];
    case ARG_STORED: break;
    }
    return NULL;
}

typedef enum CudaWalk {
    CUDA_SCHEDULED,                     /* print.c's: chunks dealt out to
                                           blocks that stay */
    CUDA_WALKED,                        /* its, too: sequences */
    CUDA_CHUNKS,                        /* a block a chunk */
    CUDA_SEQUENCES,                     /* a block a sequence */
    CUDA_SUM                            /* adds up what heads share */
} CudaWalk;

/* An output's sums over heads: so many blocks, or as many as there are tokens,
 * have a chunk's, each few numbers one after another. */
enum { SUM_PARTS = 8 };
static inline int sum_rows(int chunk)
{
    return (chunk + SUM_PARTS - 1) / SUM_PARTS;
}
static inline int sum_parts(int chunk)
{
    return (chunk + sum_rows(chunk) - 1) / sum_rows(chunk);
}

/* A kernel of the source, and its one argument by value: of those by roles
 * `nmaps` tensor maps of 128 bytes, `ntensors` of device.cuh's Tensor, then
 * run.cuh's Run; of others what tile.cuh says. */
typedef struct CudaKernel {
    char name[32];
    int threads, shared;
    int blocks, slice_axis;             /* of a head: each a slice of the axis
                                           of what has it */
    int resident;                       /* blocks on a multiprocessor, of
                                           those from schedules */
    bool paired;                        /* such blocks are clusters of two */
    int ranks;                          /* rows a token */
    int nmaps, ntensors;
    bool lanes;                         /* lanes copy what has maps, which are
                                           not passed */
    bool anywhere;                      /* rows of that may lie so */
    CudaArg map[CUDA_MAPS], tensor[CUDA_TENSORS];
    int64_t stored_at[CUDA_MAPS];       /* of ARG_STORED */
    bool stored_later[CUDA_MAPS];       /* among what the way back keeps */
    int32_t stored_rows[CUDA_MAPS], stored_cols[CUDA_MAPS];
    int32_t stored_pitch[CUDA_MAPS];    /* from row to row, in elements */
    const char *head;                   /* what its source begins with; NULL:
                                           as the module's does */
    const struct Schedule *schedule;    /* what it was printed from, or what
                                           one lacks; NULL: none was wished */
    bool part[CUDA_TENSORS];            /* float32 that is still to be summed,
                                           in the workspace */
    bool adds;                          /* a block has several heads of a chunk
                                           in sequence, and adds up their parts
                                           */
    uint8_t rows[CUDA_TENSORS];         /* of a matrix state the rows' axis */
    bool looked_up[CUDA_TENSORS];       /* a state that roles read where it
                                           lies, when they come to it */
    bool split;                         /* segments may be more than one */
    double lean, lean_moves;            /* the time of an iteration for the
                                           states alone, of another's, and its
                                           bytes; 0: it has none */
    double cycles, moves;               /* predicted: of a block for a chunk;
                                           bytes of a chunk and head; */
    double alone;                       /* of those cycles, what a head takes of
                                           a multiprocessor */
    int tokens;                         /* of that chunk */
    bool in_rows, ahead;                /* its states are rows in registers; a
                                           role works ahead of them */
    CudaWalk walk;
    int of;                             /* which of the plan's it belongs to:
                                           what a call of some runs */
    bool follows;                       /* waits for those before it by itself,
                                           and may be launched meanwhile */
    bool keeps;                         /* what later kernels read */
    int64_t spill;                      /* bytes a block has in memory */
    size_t text, end;                   /* its own part of the source; before
                                           the first lies what all need */
} CudaKernel;

/* Kernels in order. kept: bytes for a chunk of a head of what they leave for
 * one another. later: of what a joint plan's way back alone does, which lies in
 * the workspace, and nothing of it beside what a call saves. */
typedef struct CudaModule {
    char *source;
    const Plan *plan;                   /* as it is cut: its kernels are the
                                           first of these */
    char *schedules;                    /* the plan as it is cut and the
                                           kernels' schedules, if o.scheduled */
    CudaKernel *kernel;
    int nkernels, chunk;
    int threads;                        /* a block's, by no schedule */
    int units;                          /* blocks of a grid whose values lie in
                                           memory, at most */
    int64_t kept, later;
    uint64_t layout;                    /* of what kernels keep for one another:
                                           the same where it lies alike */
    bool sum_out[MAX_OUTPUTS], sum_s1[MAX_STATES]; /* as the options had it */
} CudaModule;

/* Prints any plan; %12 in its comments is %12 in plan_print. Dimensions and
 * types are the source's, B, T, heads and sequences a launch's. NULL, of
 * o->ends alone, where walks for ends have no schedules: *why says which. */
CudaModule *cuda_tiles_if(Ctx *c, const Plan *p, const CudaOptions *o,
                          Error *why);
CudaModule *cuda_tiles(Ctx *c, const Plan *p, const CudaOptions *o);

/* dump.c: that text for matrices of bfloat16. Fails as cuda_tiles. */
const char *cuda_schedules(Ctx *c, const Plan *p, const Machine *m);

/* What a call of usual sizes launches, and by which options. o->arch and the
 * types are given. Fails as cuda_tiles. */
CudaModule *cuda_usual(Ctx *c, const Plan *p, CudaOptions *o);
const char *cuda_usual_text(Ctx *c, const CudaModule *m);

/* A kernel that a call launches. */
typedef struct Launched {
    const char *name;
    int of;                             /* of which one it is a part, before
                                           the plan was cut */
    const char *form;                   /* "wgmma", "tcgen05", "mma.sync";
                                           "vectors": it has no products */
    const char *why;                    /* the limit that keeps it off wgmma;
                                           NULL: none does */
    const char *roles;                  /* "load 1, matrix 8": warps; NULL:
                                           all do the same */
    int warps, shared;                  /* bytes */
    int blocks, resident;               /* that share a head; a multiprocessor,
                                           0: not known */
    int buffers, regs[2];               /* of a schedule: a thread's, of other
                                           roles and of the matrix role */
    int tensor;                         /* columns of tensor memory that a block
                                           has; 0: none */
    int length;                         /* instructions, estimated; 0: not */
    double cycles, moves;               /* as a CudaKernel's */
} Launched;

/* All of them, in order, for matrices of bfloat16 and gates of float32: the
 * plan as it is cut has a kernel for each. chunk: in tokens. cutting: what a
 * call of few long sequences does. */
typedef struct Launches {
    Plan *p;
    int chunk;
    const Launched *kernel;
    const char *cutting;
} Launches;

/* What a call on that GPU launches. Fails as cuda_tiles. */
const Launches *cuda_launches(Ctx *c, const Plan *p, const Machine *m);

/* Per kernel of the plan: is there one without wgmma or a schedule among those
 * that such a call launches on that GPU, those that are too large being cut
 * anyhow, or as it is usual? */
uint8_t *cuda_plain(Ctx *c, const Plan *p, const Machine *m, bool anyhow);

/* The source in n parts that compile by themselves, side by side; of: the part
 * of each kernel. */
typedef struct CudaPrograms {
    int n;
    char **source;
    int *of;
} CudaPrograms;

/* Axes that a tensor has at most, besides batch, token and head; 1 at least.
 */
int cuda_rank(const Graph *g);

/* scheduled, without: FLIN_SCHEDULE=0 wants none, -2 all but the second kernel,
 * to compare. Requires arch. */
void cuda_schedule_options(CudaOptions *o);

/* ---- seconds.c ---- */

/* Seconds of a kernel of the call, of all before the loss, or behind it:
 * predicted by the machine's row of rates, with so many multiprocessors, from
 * the call's sequences, tokens and heads alone, and which tensors heads
 * share. */
double cuda_kernel_seconds(const Graph *g, const CudaKernel *k,
                           const Machine *m, int units, const Call *call);
double cuda_way_seconds(const Plan *p, const CudaModule *m, bool back,
                        const Machine *machine, int units, const Call *call);
/* Whether a way forward alone, of sequences and heads that leave some of the
 * machine idle, takes less time cut as for few, the walk's blocks with half the
 * columns each, than as for many. By price, where there is one walk: of 96
 * heads of 8,192 tokens kda takes .92 and 1.19 ms, by price 1.03 and 1.11;
 * hgrn2 .67 and .79 (.61, .91); rwkv7 1.72 and 2.2; gdn2 1.31 and 1.23 (1.39,
 * 1.27); precond_kda, which has two walks, 1.68 and 1.59 (an H200). The first:
 * whether the second is worth asking of such a plan. */
bool cuda_may_pay_as_few(const Plan *p, const CudaOptions *o);
bool cuda_pays_as_few(const Plan *p, const CudaModule *few,
                      const CudaModule *many, const Machine *m, int units,
                      const Call *call);

/* Blocks that share a sequence. */
int cuda_parts(const CudaKernel *k, int units, const Call *call);
/* How much longer a sequence is than the first of them. */
double cuda_parts_sum(const CudaKernel *k, int units, const Call *call);
/* What lean iterations move in all, of what the others do. */
double cuda_lean_bytes(const CudaKernel *k, int units, const Call *call);
/* Which chunks they have, in 1/4096 of all. */
int cuda_bounds(const CudaKernel *k, int units, const Call *call,
                int32_t bound[CUDA_SEGMENTS + 1]);

/* Types and sums as the call's views have them. */
void cuda_call_options(CudaOptions *o, const Graph *g, const Call *call);

/* From row to row of a matrix of so many columns that kernels keep for one
 * another: whole pieces of 16 bytes, of whatever type. */
static inline int32_t cuda_kept_pitch(int32_t cols)
{
    return (cols + 7) / 8 * 8;
}

/* Bytes of all that kernels store for one another. */
int64_t cuda_stored(const CudaModule *m, const Call *call);

/* Device memory that a run of all kernels needs beside its tensors and, where
 * the call has that, Call.kept; depends on the number of sequences, batch
 * entries, tokens and heads alone. */
int64_t cuda_workspace(const CudaModule *m, const Plan *p, const Call *call);

/* Whether the call has a place for any result of this kind that the kernel
 * writes: an output, or what a state ends as; and whether anybody wants what
 * that kernel of the module makes. */
bool cuda_writes(const CudaKernel *k, const Call *call, CudaArgKind kind);
bool cuda_is_asked(const CudaModule *m, const CudaKernel *k, const Call *call);

/* numbers.cuh's Divisor, run.cuh's Run. */
typedef struct HostDivisor { uint32_t n, share; } HostDivisor;
/* Of numbers below 2^32; n: so is it. */
HostDivisor cuda_divisor(int64_t n);
/* run.cuh's per_head, device.cuh's per_group: 2^32 / n, rounded up, 0 of one; a
 * quotient by it is exact of x where x n < 2^32. */
uint32_t cuda_share(int64_t n);
typedef struct HostRun {
    uint64_t seq;
    int64_t nseq, tokens, each, per_entry, items;
    uint64_t stored, later, spill;
    int32_t heads, ragged;
    int32_t parts, bound[CUDA_SEGMENTS + 1];
    uint32_t per_head;
    HostDivisor by_heads, by_slots, by_pieces;
} HostRun;

/* What an argument is passed, a part of a state without that axis. */
View cuda_view(const Call *call, CudaArg a);
/* Where a result that is still to be summed waits: [row, head, its axes]. */
View cuda_part(const CudaModule *m, const Plan *p, const Call *call,
               CudaArg a, uint64_t workspace);

/* Places of chunks of a head that kernels keep something for. */
int64_t cuda_slots(const CudaModule *m, const Call *call);

/* How many sequences each batch entry is cut in, all of as many whole chunks,
 * the last of which may have fewer tokens; 0: they are other sequences. */
int64_t cuda_pieces(const CudaModule *m, const Call *call);
/* What a kernel of the module has to do, and its grid (0: nothing).
 * seq: the sequences' table; 0: they are such pieces. */
HostRun cuda_run_of(const CudaModule *m, const CudaKernel *k, const Plan *p,
                    const Call *call, uint64_t seq, uint64_t workspace,
                    int64_t *grid);

/* The argument of a kernel without roles, and its grid (0: nothing to be
 * done). seq and workspace as in launch_new. Returns the argument's bytes. */
size_t cuda_tile_args(Ctx *c, const CudaModule *m, const CudaKernel *k,
                      const Plan *p, const Call *call, uint64_t seq,
                      uint64_t workspace, unsigned char **args,
                      int64_t *grid);

/* What a call's tensors lie in: batch entries, and tokens of the longest. */
typedef struct CudaExtent { int64_t batch, tokens; } CudaExtent;
CudaExtent cuda_extent(const Call *call);

#endif
