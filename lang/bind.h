/* bind.h -- the arguments of a call, checked against the variant; and the
 * plans that run it. No Lua here: a script's call and a host's are the same.
 */
#ifndef FLIN_BIND_H
#define FLIN_BIND_H

#include "../compiler/domain.h"
#include "../compiler/pipeline.h"
#include "../compiler/transition.h"
#include "lang.h"

/* A tensor as the caller has it. data is element 0; strides count elements. */
typedef struct Given {
    bool given, device;                 /* device: data is an address there */
    bool number;                        /* made of one: moves as it must */
    void *data;
    DType dtype;
    int rank;
    int64_t shape[TENSOR_RANK], stride[TENSOR_RANK];
} Given;

/* A gradient written over what it is of; what has no entries lies nowhere. */
static inline bool overwrites(const Given *d, const Given *x)
{
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] == 0)
            return false;
    return d->given && d->data && d->data == x->data;
}

typedef enum Mode { M_FORWARD, M_REFERENCE, M_STEP, M_BACKWARD,
                    M_REFERENCE_BACKWARD, M_VERIFY } Mode;
extern const char *const mode_name[];
/* Token by token, as decoding goes. */
static inline bool mode_steps(Mode m)
{
    return m == M_STEP || m == M_VERIFY;
}

typedef struct Backend Backend;

/* Which parts of a layer are computed within others: the cheapest, none, as
 * many as can be, these and products with weights. */
typedef enum Fusion { FUSE_CHEAPEST, FUSE_NONE, FUSE_MOST, FUSE_WHOLE,
                      FUSE_TILES, FUSE_PIECES, FUSE_STACK, FUSIONS } Fusion;
/* "separate", "fused", "whole", "tiles" (the cheapest, but products that one
 * program over rows reads are made in tiles), "pieces" (the cheapest, but calls
 * in training run in pieces), "stack" (the same, for layers of many), "" (the
 * cheapest); false: no such word. */
bool fusion_named(const char *word, Fusion *f);

typedef struct Args {
    Mode mode;
    Given in[MAX_INPUTS], state[MAX_STATES];   /* as the step declares them */
    Given index;                        /* of the states in their pools */
    const int64_t *cu;                  /* N + 1 ends; NULL: not packed */
    const void *device_cu;              /* the same on the GPU, int64 */
    int64_t ncu;
    int chunk, threads;                 /* 0: the default */
    int cache, way;                     /* as in Call */
    int64_t memory;                     /* of a layer: see flin.h; 0: any */
    bool part;                          /* of a layer */
    bool unread;                        /* tensors are still to come: of those
                                           here only the sizes are known */
    bool serial;                        /* one token after another */
    bool ends;                          /* of the states alone: no result */
    Fusion fusion;                      /* a layer's */
    bool checkpoint;                    /* of a layer: its inputs alone are kept
                                           for the way back */
    bool spend;                         /* backward: nobody reads what is saved
                                           again, and it may be written over */
    bool leaves;                        /* workspace is asked for of the call
                                           that saves */
    int validate;                       /* 1: yes, 2: growth, too, -1: no, 0:
                                           as FLIN_CHECK says */
    const Backend *backend;             /* NULL: the default */
} Args;

typedef struct Bound {
    Call call;                          /* results are not yet in it */
    int64_t B, T, N;                    /* N: sequences */
    int64_t states;                     /* of each pool; else N */
    DType dtype, state_dtype;           /* of the results; but state_dtype()
                                           of a tensor that is made for one */
} Bound;

enum { CHUNK_AUTO = -1,
       AXIS_MAX = 65536,
       LAYER_AXIS_MAX = 1 << 24 };      /* counted in float32 */

/* Checks everything; fails naming what it got and what it wants. Sequences
 * are allocated in c. */
void bind_call(Ctx *c, const Graph *step, const Args *a, Bound *b);

/* Axes that stand before an argument's own: batch entries, tokens, heads; of a
 * constant heads alone, of a state sequences and heads. A layer's tensors have
 * none of heads: these are axes as others. */
static inline int input_lead(const Graph *step, bool timed)
{
    return (timed ? 2 : 0) + !step->layer;
}

static inline int state_lead(const Graph *step)
{
    return 1 + !step->layer;
}

/* The shape of result o, of a state that is left behind (where each token's
 * is, [N, T, H, ...]; of pools [P, H, ...]); returns the rank. */
int result_shape(const Graph *step, const Bound *b, int o, int64_t *shape);
int state_shape(const Graph *step, const Bound *b, int s, int64_t *shape);
/* Of a tensor that is made for a state: float64 for a sum, of which decoding
 * rounds each token's, where that is carried on. */
DType state_dtype(const Graph *step, const Bound *b, int s);
/* Of one that is made for a result: float32 for a number a token of a layer's,
 * as a loss is. */
DType y_dtype(const Graph *step, const Bound *b);
/* Strides behind batch (or sequence), token and head. */
View input_view(const Graph *step, int i, const Given *t);
View result_view(const Graph *step, int o, const Given *t);
View state_view(const Graph *step, int s, const Given *t);
/* Of what is left behind: as state_shape has it. */
View final_view(const Graph *step, const Bound *b, int s, const Given *t);

/* "[2, 7, 1, 16]". In c. */
char *shape_text(Ctx *c, int rank, const int64_t *shape);
/* Fails, naming both, where the tensor has not this shape, or is of whole
 * numbers. */
void check_shape(Ctx *c, const char *what, const char *name, const Given *t,
                 int rank, const int64_t *shape);

/* Sizes of axes that others determine: equal ones across flin.rename, angles
 * half their axis. Fills what is 0 in size, where it can be known. */
void sizes_complete(const Graph *step, int32_t size[NAXES], bool guess);

/* ---- plans (plans.c) ---- */

/* One row a backend. compile keeps what it makes until release; run may be
 * called by several threads at a time. Those that run on a device keep a
 * workspace there for calls that bring none. */
struct Backend {
    const char *name;
    const Machine *(*machine)(Ctx *c, const Shared *s); /* plans are for */
    int chunk;                          /* usual; 0: as plan_best_chunk says */
    PlanJudge *larger;                  /* NULL: it cuts no plan further */
    void *(*compile)(Ctx *c, const Plan *p, const Shared *s);
    void (*run)(Ctx *c, void *program, const Plan *p, const Call *call);
    void (*release)(void *program);
    /* What run would make when it meets such a call first (results' types and
     * shapes are in it, addresses need not be); the bytes of its workspace.
     * NULL: nothing, none. */
    void (*prepare)(Ctx *c, void *program, const Plan *p, const Call *call);
    int64_t (*workspace)(Ctx *c, void *program, const Plan *p,
                         const Call *call);
    /* Bytes of Call.kept. NULL: cannot run a part of a plan. */
    int64_t (*kept)(Ctx *c, void *program, const Plan *p, const Call *call);
    /* What stands for how it is kept; NULL: always alike. */
    uint64_t (*layout)(Ctx *c, void *program, const Call *call);
    /* Whether such a call may run in two parts (Call.part); NULL: none may. */
    bool (*may_begin)(Ctx *c, void *program, const Call *call);
    /* Whether such a call's result may lie where the input does; NULL: never.
     */
    bool (*lies_over)(Ctx *c, void *program, const Call *call, int output,
                      int input);
    /* Seconds that the call is predicted to take, of one in parts all of them;
     * NULL or 0: that is not known. */
    double (*seconds)(Ctx *c, void *program, const Call *call);
    void *(*keep)(Ctx *c, struct Gpu *gpu, const Call *call, int64_t bytes);
    void (*clear)(Ctx *c, struct Gpu *gpu, const Call *call, void *at,
                  int64_t bytes);
    /* The same with n numbers of float32. */
    void (*fill)(Ctx *c, struct Gpu *gpu, const Call *call, void *at, float x,
                 int64_t n);
    void (*put)(Ctx *c, struct Gpu *gpu, const Call *call, void *to,
                const void *from, int64_t bytes);
    /* Of tensors on the device: `first` of each probe (false: it cannot be
     * known now), and what lies there. */
    bool (*probe)(Ctx *c, void *program, const Call *call, Probe *p, int n);
    /* Why the program cannot be used: "gets y wrong (by 0.5)"; or NULL. */
    const char *(*wrong)(void *program);
    void (*read)(Ctx *c, void *program, void *to, const void *from,
                 size_t bytes);
    void (*write)(Ctx *c, void *program, void *to, const void *from,
                  size_t bytes);
};
const Backend *backend_named(const char *name);     /* NULL: none such */
const char *backend_names(void);                    /* for messages */

struct PlanEntry {
    PlanEntry *next;
    int32_t size[NAXES];
    int chunk;                          /* as asked or chosen; 0: one token */
    bool joint;                         /* backward, too */
    bool ends;                          /* the states alone, no result */
    bool exact;                         /* no other chunk that runs faster */
    const Backend *backend;
    Plan *plan;                         /* serial where note is set */
    const char *note;
    void *program;
    PlanEntry *_Atomic instead;         /* its kernels were found wrong: the
                                           plan that runs in its place */
    double seconds;                     /* that making it took */
    bool passed;                        /* by what runs faster: a window's two
                                           scans */
    double price;                       /* of what is weighed on the CPU:
                                           seconds that a token and head are
                                           predicted to take */
    uint64_t mark;                      /* the same for equal joint plans */
};

/* The plan for these sizes, made if it is new; chunk CHUNK_AUTO: as best_chunk
 * says; no backend: the first. Fails through c. */
PlanEntry *plan_for(Ctx *c, Variant *v, const int32_t size[NAXES], int chunk,
                    bool joint, const Backend *named);
/* The same of a way forward whose call asks for no result: what only results
 * are made of is not computed. */
PlanEntry *plan_for_ends(Ctx *c, Variant *v, const int32_t size[NAXES],
                         int chunk, const Backend *named);
void plans_release(Variant *v);         /* and what is shared */
/* f(c, ud), which takes plans; again where a plan's kernels were found wrong
 * meanwhile and another one, of fewer tokens at once, stands in for it. Says
 * that it does. */
void plans_try(Ctx *c, Variant *v, void (*f)(Ctx *c, void *ud), void *ud);
/* Behind such an f that has failed: puts another plan in the place of one whose
 * kernels were found wrong; false: there is none. One thread at a time, beside
 * any that run by the plans. */
bool plans_turn(Ctx *c, Variant *v);
/* What CHUNK_AUTO stands for on this machine, found once, and what it was
 * weighed against (which may be NULL). */
int plan_best_chunk(Ctx *c, Variant *v, const int32_t size[NAXES],
                    bool joint, Weighed *weighed);
/* The chunk that the arguments ask plan_for for; 0 for one token at a time,
 * CHUNK_AUTO where they name none. */
int plan_chunk(const Args *a);

/* The one that the arguments name, else by where the tensors are. Fails when
 * the call cannot run there. */
const Backend *call_backend(Ctx *c, const Args *a, const Call *call);

/* Runs what is bound; makes all that this needs; says how many bytes of
 * workspace it takes (of what has been prepared). */
void run_bound(Ctx *c, Variant *v, const Args *a, const Bound *b);
/* Does the call go over all pairs of tokens, on the device? */
bool on_device_pairs(const Variant *v, const Args *a, const Bound *b);
void prepare_bound(Ctx *c, Variant *v, const Args *a, const Bound *b);
int64_t workspace_bound(Ctx *c, Variant *v, const Args *a, const Bound *b);

/* Which call has left what is saved: hashes of its plan, of its sizes, types
 * and sequences, of where its tensors and this lie. plan 0: none has. */
typedef struct Note { uint64_t plan, call, place; } Note;

typedef struct Stored {
    void *at;
    int64_t bytes;
    bool device, begun;                 /* begun: the call has been, forward
                                           or back */
    Note note;
} Stored;

/* saved.c: what a forward call saves for the backward one: how many bytes (0:
 * nothing, that one computes it all again), and the call that fills them, by
 * the plans that run_backward takes. It gives saved_bytes; where the room has
 * fewer, it has run nothing. The note is that of what such a call leaves `at`,
 * or starts from. */
int64_t saved_bytes(Ctx *c, Variant *v, const Args *a, const Bound *b);
int64_t run_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                  Stored room);
/* Begins that call, of which the starts are not yet known: its first kernels,
 * then what they tell of it, as run_summary has it: its final states, `own`,
 * and the transition, a state's next value. False: it cannot, or the room has
 * too few bytes, and nothing has run. What has been begun goes on by
 * run_saved, where room.begun. */
bool begin_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                 Stored room, int state, View moves);
/* The same of a call that goes forward alone, which is not begun by that. */
bool tell_ends(Ctx *c, Variant *v, const Args *a, const Bound *b, View moves);
/* Seconds that the call is predicted to take on its GPU, both ways or forward
 * alone; 0: that is not known. */
double bound_seconds(Ctx *c, Variant *v, const Args *a, const Bound *b,
                     bool both_ways);
/* The same of the way forward of the plan that goes both. */
double forward_seconds(Ctx *c, Variant *v, const Args *a, const Bound *b);
/* Bytes of workspace of run_saved. */
int64_t saved_workspace(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        Stored room);
Note note_saved(Ctx *c, Variant *v, const Args *a, const Bound *b,
                const void *at);
/* A note's plan, of one that saves, or goes back: in it is how it is kept. */
uint64_t note_plan(Ctx *c, const PlanEntry *e, const Call *call);

/* What a backward call has beside a forward one. Results as wide as their
 * tensors: fewer heads than the call has take the sum. */
typedef struct Adjoint {
    Stored stored;                      /* by run_saved; by another call
                                           than this: not used */
    Given dy[MAX_RESULTS], dstate[MAX_STATES];  /* not given: zero */
    Given dx[MAX_INPUTS], ds[MAX_STATES];       /* results; not given: not
                                                   wanted */
    bool add[MAX_INPUTS];               /* a layer's: to what dx holds */
} Adjoint;

/* backward.c: checks the shapes of what comes in, and runs what is bound
 * forwards and backwards. Has it gone back from what was stored, so that its
 * workspace has what one that is begun goes on from? */
bool run_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                  const Adjoint *d);
/* The call of the joint plan that b is, with gradients bound as where all are
 * wanted: kernels on a device differ by that. */
Call joint_call(Ctx *c, Variant *v, const Args *a, const Bound *b);
/* Bytes of workspace of this very call, of tensors on the device. */
int64_t room_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                      const Adjoint *d);
/* Whether the gradient of input i may be written over that input, or over dy
 * (OVER_DY), by the plan of both passes. */
enum { OVER_DY = -1 };
bool gradient_lies_over(Ctx *c, Variant *v, const Args *a, const Bound *b,
                        int i, int over);
/* All gradients, as wide as what they are of; on a device with an address, as
 * kernels differ by what is wanted. */
Adjoint *all_gradients(Ctx *c, const Graph *step, const Args *a,
                       const Bound *b);
/* The same for all gradients that there are. */
void prepare_backward(Ctx *c, Variant *v, const Args *a, const Bound *b);
int64_t workspace_backward(Ctx *c, Variant *v, const Args *a, const Bound *b,
                           Stored stored);

/* ---- summaries (summary.c) ---- */

/* The step's transition, or that of the stage that it is; fails, saying why,
 * where it has none. Its shape: the state's own where entries go on by
 * themselves, [N, H, kappa], or, where it mixes them, [N, H, kappa, n kappa]:
 * M, by which
 *     S_end[n, h, i, :] = M[n, h, i] S[n, h, i, :] + own, or
 *     S_end[n, h, i, :] = sum over j of M[n, h, i, j] S[n, h, j, :] + own,
 * one for each of its states, whose rows S has one below the other.
 */
void find_transition(Ctx *c, const Graph *step, Transition *t);
/* The step's stages; or why there are none, in c. */
const char *stages_of(Ctx *c, const Graph *step, Stages *all);
int transition_shape(const Graph *step, const Transition *t, const Bound *b,
                     int64_t *shape);
/* Runs the call, which is bound with final states, `own`, of these alone, and
 * leaves the transitions, one for each of them, where they are to be. */
void run_summary(Ctx *c, Variant *v, const Args *a, const Bound *b,
                 const Given *transition);
/* The same as the beginning of a call that saves; false: that cannot be, and
 * nothing has run. */
bool run_beginning(Ctx *c, Variant *v, const Args *a, const Bound *b,
                   const Given *transition, Stored room);

/* ---- layers (layer_run.c) ---- */

/* A layer for given sizes: its parts, each a variant of its own, which has its
 * plans, or a matrix product (NULL). */
typedef struct LayerProgram LayerProgram;
struct LayerParts;
enum { LAYER_ROOMS = 16, LAYER_CALLS = 16 };
/* What a call takes of the device's memory: for the way back, and beside that.
 * used: how far values lie in the former. large, small: what does not stay,
 * which a way forward may have behind these, and then nothing beside. over: of
 * its first parts that have plans, which inputs their gradients may be written
 * over, and which of these gradients over the result's, a bit each. */
typedef struct LayerRoom {
    uint64_t call;                      /* a hash of it; 0: none */
    int64_t kept, rest, used, large, small;
    bool fills;                         /* Arena.fills */
    uint64_t over[LAYER_CALLS];
} LayerRoom;
/* In how many pieces a layer's calls run in training; whether the way back of
 * each begins with its way forward, as nothing but states is kept; whether what
 * rows make for them is made again, too. most: bytes that a call keeps at
 * least, so that the way back works behind what is kept, and in the place of
 * what it has read already; -1: as many as it takes. */
typedef struct LayerCut {
    uint64_t call;                      /* a hash of it; 0: none */
    int n;
    bool again, rows;
    int64_t most;
} LayerCut;
struct LayerProgram {
    LayerProgram *next;
    int32_t size[NAXES];
    Fusion fusion;                      /* as asked for */
    bool device;
    const Machine *machine;             /* that it runs on */
    uint64_t mark;                      /* of what is computed where */
    struct LayerParts *parts;
    struct Joints *joints;              /* of products */
    Variant **variant;
    unsigned wished;                    /* for kernels over rows of the way
                                           forward (1), and back (2) */
    int *sum, *tile;                    /* see find_sums, find_tiles */
    struct Columns **columns;           /* per part: of a program over rows
                                           whose product may be made so */
    struct RowStep **row;               /* of parts that are row programs */
    uint8_t **over;                     /* of these, per input: its gradient may
                                           be written over it */
    struct Rows **rows;                 /* on a device, of parts that have one;
                                           NULL: not looked for yet */
    struct Passes **passes;             /* the same of row programs */
    uint64_t numbers;                   /* the layer's, on the device; or 0 */
    struct KeptEnds *ends;              /* there, too, for recorded graphs */
    struct Ends *cutter;                /* makes ends of blocks there; or NULL
                                           */
    int nnumbers, nrooms;
    LayerRoom room[LAYER_ROOMS];
    LayerCut cut[LAYER_ROOMS];
    int ncuts;
};

/* How a layer is run: what calls in general (plans.c, backward.c, saved.c)
 * leave to it. It runs its parts by these, in turn. */
typedef struct LayerRuns {
    /* Makes all that such a call needs beside its tensors: runs only read it.
     */
    void (*prepare)(Ctx *c, Variant *v, const Args *a, const Bound *b);
    void (*release)(Variant *v);
    /* A plan of one of its parts, by which tensors on the device are read;
     * NULL: it has none there. */
    const PlanEntry *(*plan)(Ctx *c, Variant *v, const Args *a,
                             const Bound *b);
    /* Bytes of workspace of such a call; d: of gradients, or NULL. */
    int64_t (*workspace)(Ctx *c, Variant *v, const Args *a, const Bound *b,
                         const Adjoint *d);
    /* Runs what is bound, part after part: forward or a token's step. */
    void (*forward)(Ctx *c, Variant *v, const Args *a, const Bound *b);
    /* Gradients: d's dy and dstate have been checked. */
    void (*backward)(Ctx *c, Variant *v, const Args *a, const Bound *b,
                     const Adjoint *d);
    /* As saved_bytes and run_saved; what stands for a plan's mark. */
    int64_t (*saved_bytes)(Ctx *c, Variant *v, const Args *a, const Bound *b);
    int64_t (*run_saved)(Ctx *c, Variant *v, const Args *a, const Bound *b,
                         Stored room);
    uint64_t (*mark)(const Variant *v, const Args *a, const Bound *b);
    /* Does this call go so? d: of gradients, or NULL. NULL: all do. */
    bool (*takes)(Ctx *c, const Variant *v, const Args *a, const Bound *b,
                  const Adjoint *d);
    /* The variant of part i; NULL: it has none. Not of a layer. */
    Variant *(*part)(Ctx *c, Variant *v, int i);
} LayerRuns;
extern const LayerRuns layer_runs_by_parts;
/* The same of a mask of both directions (ways.c), which has two scans. */
extern const LayerRuns runs_both_ways;
/* The same of sums over the tokens before as pairs of tokens (scores_call.c):
 * what is made token by token, sum after sum, and the result of them. */
extern const LayerRuns runs_over_pairs;

/* How such a call runs in parts; NULL: it does not, as the truth. d: of
 * gradients, or NULL. */
const LayerRuns *runs_of(Ctx *c, const Variant *v, const Args *a,
                         const Bound *b, const Adjoint *d);

/* Does such a call keep its inputs alone for the way back (bind.c)? Then it
 * runs as one that keeps all, for the same bits, in memory that ends with it.
 */
bool layer_checkpoints(const Variant *v, const Args *a);

/* ---- validation (validate.c) ---- */

/* After a call has run by this plan (NULL: in the host's memory): where it
 * wants that (Args.validate), fails if an input breaks its domain or a result
 * is not finite, naming the first place and what is to blame. What ran has
 * written its results all the same; but states that it has updated in place
 * are what they were, if validate_before (else NULL) has looked at the call
 * before it ran. The last one for the tensors of d, too. */
typedef struct Validation Validation;
Validation *validate_before(Ctx *c, const Variant *v, const Args *a,
                            const Bound *b, const PlanEntry *e);
void validate_call(Ctx *c, const Variant *v, const Args *a, const Bound *b,
                   const PlanEntry *e, const Validation *before);
void validate_gradients(Ctx *c, const Variant *v, const Args *a,
                        const Bound *b, const PlanEntry *e,
                        const Adjoint *d);
/* stable.c: why states may grow without bound on these inputs, which lie in
 * the host's memory: what the step's universal form tells of a head of the
 * call's first sequence, in the user's names; NULL: nothing is found. */
const char *find_growth(Ctx *c, const Graph *step, const Call *call,
                        int head);

/* ---- what Lua's side of it shares ---- */

/* What a variant says of itself (describe.c): pushes a table of such methods;
 * with all methods in it, it goes into the metatable below, as __index, with
 * __tostring. */
void describe_methods(lua_State *L);
void describe_fields(lua_State *L);
bool in_list(const char *word, const char *const *list, int n);
/* "a b c", pushed. */
const char *words_text(lua_State *L, const char *const *list, int n);
/* "did you mean 'x'? what: a b c", or "what: a b c"; pushed. */
const char *suggest(lua_State *L, const char *word, const char *what,
                    const char *const *list, int n);
/* Sizes of all axes from the table of options at `arg` (or nothing): axis k by
 * K or k. What it leaves out is `usual`, half an axis for its angles. */
void sizes_arg(lua_State *L, const char *what, const Graph *g, int arg,
               int32_t usual, int32_t size[NAXES]);
/* Refuses options that are neither sizes of axes nor in `also`. */
void check_options(lua_State *L, const char *what, const Graph *g, int arg,
                   const char *const *also, int n);
/* A whole number among the options, or `usual`. */
lua_Integer option_int(lua_State *L, const char *what, int arg,
                       const char *name, lua_Integer usual);
/* true or false among the options; false where it is not there. */
bool option_flag(lua_State *L, const char *what, int arg, const char *name);
/* Sets cache and way of the arguments from the table's options of these names:
 * the way back over all pairs of tokens. */
void pairs_options(lua_State *L, const char *what, int arg, Args *a);
/* Lua error where the variant is a layer: METHOD is for single variants yet. */
void refuse_layer(lua_State *L, const Variant *v, const char *method);
/* Of a mask's two directions the one that the option `from` asks for, whose
 * step is a variant of its own; -1: there are no two. */
int way_arg(lua_State *L, const char *what, int arg, const Variant *v);
const Graph *step_of_way(const Variant *v, int way);
/* Or is a mask that has no plan. */
void refuse_pairs(lua_State *L, const Variant *v, const char *method);
/* What the option `plan` of a layer's call asks for. */
Fusion fusion_option(lua_State *L, const char *what, int arg);
/* Bytes, from that table's option; 0: it has none. */
int64_t memory_option(lua_State *L, const char *what, int arg);
/* Chunk, threads, backend: from the options, else from the flin table. */
void run_options(lua_State *L, const char *what, int arg, Args *a);

/* A layer's values by their names: what calls and products give, and what
 * stands between them. By node; in g's context. */
const char **layer_names(const Graph *g, const struct LayerParts *p);
/* Pushes what v:plan gives of a layer, with options at 2. */
int layer_show_plan(lua_State *L, Variant *v, const Machine *m, bool backward);
/* Pushes lists of names: weights of the same values, in the order in which they
 * may lie beside one another. */
void layer_push_beside(lua_State *L, Variant *v);
/* form.c: a line or two for each state, and how the variant runs. */
const char *variant_form(lua_State *L, Variant *v);
/* Why the latest plan goes token by token, or NULL. */
const char *latest_note(const Variant *v);
/* The first time that a call which wanted chunks has gone token by token, the
 * line that says so, in c; else NULL. */
const char *road_taken(Ctx *c, Variant *v, const Args *a);
/* Gives that line to whom say_to has named, else to Lua's warnings. */
void say_road(lua_State *L, Ctx *c, Variant *v, const Args *a);

/* source.c: methods. */
int variant_source(lua_State *L);
int variant_compile(lua_State *L);

/* check.c: v:check, into the methods on top. */
void check_methods(lua_State *L);

#endif
