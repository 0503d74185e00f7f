/* flin.h -- flin in a C program: linear-attention and state-space layers.
 *
 * A **variant** is the mathematics of one token, written in Lua:
 *
 *     S_t, y_t = step(x_t, S_{t-1})
 *
 * flin derives from it how to compute many tokens at once, chunk by chunk, and
 * runs that on the caller's buffers. Typical use:
 *
 *     flin_Error e;
 *     flin_State *s = flin_open(NULL, &e);
 *     flin_Variant *v = flin_stdlib(s, "gla", &e);
 *     flin_Bind in[] = { { "q", { q, FLIN_F32, 4, { B, T, H, K } } }, ... };
 *     flin_Call call = { .size = sizeof call, .input = in, .ninputs = 4,
 *                        .y = { y, FLIN_F32, 4, { B, T, H, V } } };
 *     if (flin_forward(v, &call, &e))
 *         fprintf(stderr, "%s\n", e.text);
 *     flin_close(s);
 *
 * For many calls of one shape, compile once and share it between threads:
 *
 *     flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &call, &e);
 *     flin_run(k, &call, NULL, &e);
 *
 * Rules that hold throughout:
 * - Functions never print, exit or abort. Those that can fail return NULL, a
 *   code or a negative number, and fill in the error, where the caller gives
 *   one (else NULL). A call that fails has checked its arguments before it
 *   computed anything; interrupted or out of memory, its results are
 *   unspecified.
 * - NULL, for a handle that an earlier function could not make or for a text
 *   or struct that a function cannot do without, is an error and does no harm:
 *   functions without a flin_Error then return NULL, -1 where they count bytes
 *   or sizes, and 0 where they count arguments; what ends a handle does
 *   nothing. A list is NULL where its count is 0, and not else.
 * - A state and its variants belong to one thread at a time; states share
 *   nothing. A kernel belongs to no thread: several may run it at a time.
 * - The caller's buffers are the caller's: flin keeps no pointer to them after
 *   a call has returned (on a device: after what it queued has run).
 * - In a struct that begins with its size, set that to sizeof, and what you do
 *   not use to 0, which means the default. Later versions append fields.
 * - Sizes are counted in elements, memory in bytes, gates in natural
 *   logarithms (a decay of exp(g), g <= 0).
 */
#ifndef FLIN_H
#define FLIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLIN_VERSION_MAJOR 0
#define FLIN_VERSION_MINOR 1
#define FLIN_VERSION_PATCH 0
#define FLIN_VERSION_NUMBER (FLIN_VERSION_MAJOR * 10000 \
    + FLIN_VERSION_MINOR * 100 + FLIN_VERSION_PATCH)

#if defined(__GNUC__)
#define FLIN_API __attribute__((visibility("default")))
#else
#define FLIN_API
#endif

/* FLIN_VERSION_NUMBER of the library that is linked. */
FLIN_API int flin_version(void);

/* ---- errors ---- */

typedef enum flin_Code {
    FLIN_OK,
    FLIN_ERROR,                 /* in a script, or in a call's arguments */
    FLIN_ERROR_MEMORY,
    FLIN_ERROR_LIMIT,           /* a limit of flin_Options was reached */
    FLIN_ERROR_INTERRUPT,       /* the host asked to stop */
    FLIN_ERROR_DEVICE,          /* no such device here, or it failed */
    FLIN_ERROR_INTERNAL         /* a bug of flin */
} flin_Code;

/* What went wrong, and where: file and line of the script ("" and 0 when none
 * is to blame), the message alone, what would be right ("" if unknown), and
 * all of it as flin prints it, with the line of source. */
typedef struct flin_Error {
    int code;                   /* flin_Code */
    int line;
    char file[128];
    char message[1024];
    char help[512];
    char text[2560];
} flin_Error;

/* ---- states ---- */

typedef struct flin_State flin_State;

/* Hooks get their `ud` back. A kernel keeps the hooks of its state: they must
 * be there as long as it is, and bear being called from the threads that run
 * it. A hook must not call flin for the same state. */
typedef struct flin_Options {
    size_t size;                /* sizeof(flin_Options) */
    uint64_t instructions;      /* of Lua, a script; default 10^9 */
    size_t memory;              /* bytes of Lua and of all that is compiled,
                                   together; default 2^30 */
    uint32_t nodes;             /* of one graph; default 20000 */
    int trusted;                /* 1: scripts may use io and os and load
                                   modules; default: a sandbox */

    /* Memory for all that flin allocates itself, as lua_Alloc: p NULL makes,
     * size 0 frees; aligned as malloc aligns. Default: malloc. */
    void *(*alloc)(void *ud, void *p, size_t old_size, size_t size);
    void *alloc_ud;
    /* Asked every few milliseconds, on the thread that called; what is running
     * stops when it returns other than 0. */
    int (*interrupted)(void *ud);
    void *interrupted_ud;
    /* What scripts print, and what flin has to tell users, a line at a time,
     * without its end: once, that compiled kernels are not kept on disk, where
     * others may write into the folder or own it. Default: nowhere. */
    void (*log)(void *ud, const char *line);
    void *log_ud;
    /* What takes its time ("plan gla", "forward gla"), and which part of it
     * is done, from 0 to 1, less than 0 where that is not known; on the thread
     * that called. */
    void (*progress)(void *ud, const char *what, double done);
    void *progress_ud;
    /* The host's threads in place of flin's: calls f(arg, w) for each w from 0
     * to n - 1, at the same time or not, 0 on this thread, and returns when
     * all have. It may leave out any w other than 0. */
    void (*parallel)(void *ud, int n, void (*f)(void *arg, int w), void *arg);
    void *parallel_ud;
    /* What flin says once, such as that a variant's calls go token by token,
     * and why; with the script's line below, where one is to blame. Default:
     * `log`. */
    void (*warn)(void *ud, const char *text);
    void *warn_ud;
} flin_Options;

/* A new state; o may be NULL. */
FLIN_API flin_State *flin_open(const flin_Options *o, flin_Error *e);

/* A state on the host's own Lua 5.4: scripts see its globals and libraries, and
 * `require "flin"` works in it from now on. Memory, instructions and what a
 * script may use are that Lua's affair: of o, `memory` and `nodes` limit
 * compilations alone, and `alloc` serves them alone. Close it before L; what
 * it has loaded lives no longer. */
struct lua_State;
FLIN_API flin_State *flin_attach(struct lua_State *L, const flin_Options *o,
                                 flin_Error *e);

/* Ends it and all its variants; its kernels live on. NULL is allowed. */
FLIN_API void flin_close(flin_State *s);

/* ---- variants ---- */

typedef struct flin_Variant flin_Variant;

/* The variant that a script returns: of a file (no pipe: nothing here waits for
 * another program), of text (its `name` is for messages), of the standard
 * library ("gla", "gated_deltanet" ...). Variants live until they are released
 * or their state is closed. */
FLIN_API flin_Variant *flin_load_file(flin_State *s, const char *path,
                                      flin_Error *e);
FLIN_API flin_Variant *flin_load_string(flin_State *s, const char *text,
                                        const char *name, flin_Error *e);
FLIN_API flin_Variant *flin_stdlib(flin_State *s, const char *name,
                                   flin_Error *e);

/* Any of the three: `what` is a text if it has a line break, a file if it ends
 * in ".lua" or has a '/', else a name of the standard library. */
FLIN_API flin_Variant *flin_load(flin_State *s, const char *what,
                                 flin_Error *e);

/* The variant at index i of the host's Lua stack (from its bottom, or below 0
 * from its top), of an attached state: what flin.variant{...} gave there. */
FLIN_API flin_Variant *flin_to_variant(flin_State *s, struct lua_State *L,
                                       int i, flin_Error *e);

/* The variant that a script makes of v, which it gets as its argument:
 * "return (...):map { q = function (q) return 0.5 * q end }", or, with what its
 * step probes (flin.probe) as results beside y, "return (...):probed()". */
FLIN_API flin_Variant *flin_derive(flin_Variant *v, const char *text,
                                   const char *name, flin_Error *e);

/* Name i of the standard library, from 0, in order; NULL: there is none. */
FLIN_API const char *flin_stdlib_name(flin_State *s, int i);

/* NULL is allowed. */
FLIN_API void flin_release(flin_Variant *v);

typedef enum flin_Role { FLIN_INPUT, FLIN_OUTPUT, FLIN_STATE } flin_Role;

/* An argument. `axes` as the script names them:
 *   inputs, y with t ("t k")   shape [B, T, H, then the others in order]
 *   inputs without t ("k")     constants of a head: [H, ...]
 *   states ("k v")             [N, H, ...], N: batch entries or sequences
 * Each input may have fewer heads than y, if their count divides y's. A layer's
 * (flin.layer) heads are axes as others, and none of these shapes has H.
 * domain: what values make sense ("normal", "log_decay": <= 0, "unit": 0 to
 * 1 ...). */
typedef struct flin_Arg {
    const char *name;
    flin_Role role;
    const char *axes;
    const char *domain;
} flin_Arg;

/* Strings live as long as the variant. */
FLIN_API const char *flin_name(const flin_Variant *v);
FLIN_API int flin_args(const flin_Variant *v);              /* how many */
/* Argument i, from 0: inputs, then y and other results, then states. 0 if there
 * is none. */
FLIN_API int flin_arg(const flin_Variant *v, int i, flin_Arg *a);
/* How each state goes on, and whether calls run in chunks or token by token,
 * and why: lines of text, as v.form has them. NULL: see e. */
FLIN_API const char *flin_form(flin_Variant *v, flin_Error *e);
/* How long the variant fixes axis `axis` at; 0: the tensors say; -1: it has
 * no such axis. */
FLIN_API int64_t flin_axis_size(const flin_Variant *v, const char *axis);

/* ---- what a variant says of itself ---- */

/* The texts live until the variant's next report, or as long as it does. What
 * takes a while (v:check, v:bench) takes nothing of a script's budget, and is
 * stopped by flin_Options.interrupted. In JSON, what is infinite is 1e999, and
 * what is no number null. NULL: see e. */
typedef enum flin_Format { FLIN_TEXT, FLIN_JSON } flin_Format;

/* All of it: its name and what its script begins with (`about`), inputs, y and
 * states with axes, shapes, domains and units, sizes of axes, form. */
FLIN_API const char *flin_describe(flin_Variant *v, flin_Format format,
                                   flin_Error *e);
/* The kernels that a machine would run, and what each moves, as v:plan has
 * it. options: as Lua writes them, "K = 128, machine = \"h200\", backward =
 * true"; format = "svg" or "dot" gives a drawing. NULL: none. */
FLIN_API const char *flin_plan(flin_Variant *v, const char *options,
                               flin_Format format, flin_Error *e);
/* The plan as source text, as v:source has it; backend NULL: "cuda". */
FLIN_API const char *flin_source(flin_Variant *v, const char *backend,
                                 const char *options, flin_Error *e);
/* Any other: what a script gives that gets the variant as its argument, as
 * the prompt prints it or as data: "return (...):check { T = 300 }". */
FLIN_API const char *flin_report(flin_Variant *v, const char *text,
                                 const char *name, flin_Format format,
                                 flin_Error *e);

/* ---- calls ---- */

/* Whole numbers are of inputs that are declared an index ("t : index n"). */
typedef enum flin_DType { FLIN_F32, FLIN_BF16, FLIN_F16, FLIN_F64, FLIN_I32,
                          FLIN_I64 } flin_DType;

/* A buffer of the caller: data is element [0, ..., 0], aligned to its dtype.
 * Strides count elements and may be anything, 0 and negative included; all of
 * them 0: row-major. data NULL: not given (or, of a tensor without elements,
 * nowhere). A tensor has at most 2^48 bytes, and they lie at most as far apart;
 * that the memory is there, flin cannot tell. */
typedef struct flin_Tensor {
    void *data;
    flin_DType dtype;
    int rank;
    int64_t shape[8];
    int64_t stride[8];
} flin_Tensor;

typedef struct flin_Bind {
    const char *name;
    flin_Tensor tensor;
} flin_Bind;

/* What a forward call leaves for the backward one: the caller's memory, and
 * flin's note of the call. Backward refuses what a forward call has not left,
 * or one of another variant, plan, sizes, types, sequences or tensors; what its
 * inputs held then and hold now it cannot tell. One struct for each buffer, as
 * long as that holds something; zeroed at first. */
typedef struct flin_Saved {
    void *data;                 /* flin_saved bytes of the backend's memory,
                                   aligned to 256 */
    size_t bytes;
    uint64_t plan, call, place; /* flin's. Where you move data or a tensor of
                                   the call between the two calls, set place
                                   to 0 */
} flin_Saved;

/* A call. Backend "cuda": all data are pointers of one device, `stream` is a
 * CUstream, and calls return once their work is queued there. */
typedef struct flin_Call {
    size_t size;                /* sizeof(flin_Call) */
    const flin_Bind *input;     /* all inputs, in any order */
    int ninputs;
    const flin_Bind *initial;   /* states before the first token; default 0 */
    int ninitial;
    const flin_Bind *final;     /* states after the last one: written. One that
                                   is a sum (s + x) is rounded with each call
                                   unless both are float64 */
    int nfinal;
    flin_Tensor y;              /* written */
    const int64_t *cu_seqlens;  /* packed sequences, B = 1: nseq + 1 ends from
                                   0 to T; default: one sequence a row */
    int64_t nseq;
    int chunk;                  /* tokens at once, 1 to 256; default: flin's
                                   choice. It changes the rounding alone */
    int threads;                /* default: one a core */
    const char *backend;        /* "cpu", "cuda"; default: "cpu" */
    void *stream;               /* default: the device's default stream */
    void *workspace;            /* flin_workspace bytes of the backend's
                                   memory, aligned to 256, used until the call
                                   is done; default: flin's own */
    size_t workspace_size;
    const void *cu_seqlens_device;  /* cu_seqlens as int64 on the device, in
                                   place of the above; what it holds is then
                                   not checked: rows of results that are in no
                                   sequence become 0 */
    flin_Saved *saved;          /* for training: what forward leaves there
                                   spares backward the way forward; default:
                                   nothing */
    int validate;               /* 1: an input that breaks its domain (flin_Arg)
                                   or is not finite, and a result that is not,
                                   is an error with the first token, head and
                                   value; of a result, with the operation that
                                   made it, found by running the float64 step
                                   again. 2: so is a state that may grow without
                                   bound. -1: no. Default: no, or 1 where
                                   FLIN_CHECK=1 is in the environment. Results
                                   are written all the same, but states whose
                                   `initial` is `final` are left as they were.
                                   It reads each tensor once more, on a GPU in
                                   one kernel that the call waits for; while a
                                   stream records a graph nothing is
                                   validated */
    const char *plan;           /* a layer's: "separate", each part as kernels
                                   of its own; "tiles", what a program over
                                   rows alone reads of a product in tiles of
                                   tokens or of columns (see memory); "fused",
                                   norms, gates and maps of a head in the steps
                                   of the variants it calls, where they can be;
                                   "whole", products with weights, too;
                                   "pieces", variants in pieces of the call, for
                                   training in less memory: the least of memory
                                   times time, of all that is predicted to take
                                   a twentieth more time or less; "stack", the
                                   same for a layer among many, whose memory is
                                   what it keeps between the two ways, and a
                                   fifth more time;
                                   default: what is predicted to be cheapest of
                                   "separate" and "fused", or between them */
    int checkpoint;             /* 1, of a layer's forward call: nothing is
                                   saved for the way back (flin_saved is 0),
                                   which then begins with the way forward; the
                                   same bits */
    const flin_Bind *result;    /* results beside y, by name: written; what is
                                   left out is not wanted */
    int nresult;
    flin_Tensor state_index;    /* states in a pool, as a server keeps them:
                                   int32 or int64 [N], where the other tensors
                                   are: sequence n's state is entry
                                   state_index[n] of each `initial` and, where
                                   given, each `final` ([P, H, ...], mostly the
                                   same tensor), whose other entries stay as
                                   they are. -1: a place in the batch that no
                                   sequence has: no state is read or written
                                   for it, and its rows of y hold nothing. On
                                   the CPU other numbers than -1 to P - 1, and
                                   one for two sequences, are errors; on a
                                   device, where they are not looked at, any
                                   that is no entry is as -1, and of two that
                                   are the same either may be the one that is
                                   kept. Of flin_verify: [N, T + 1]. Not for
                                   gradients, nor with `validate` */
    int begun;                  /* 1, of a forward call that saves: flin_summary
                                   has begun it, with the same `saved`, whose
                                   `plan` it has left other than 0; of a
                                   backward one: one that `begins` was before
                                   it, with the same dy, `saved` and workspace,
                                   in which nothing has been written since */
    int begins;                 /* 1, of a backward call with `saved` and a
                                   workspace that gives gradients at starts
                                   alone (flin_Grad.dinitial): one with `begun`
                                   and any dfinal may follow, for which kernels
                                   that know nothing of that are not run again,
                                   where there are such */
    int in_parts;               /* 1, of all calls of a part of a sequence, from
                                   flin_saved and the summary that begins it to
                                   the way back: kernels are taken that a
                                   summary can begin, where the calls together
                                   are predicted to take less time so; a number
                                   of M may be off by what rounds 1 */
    int spend;                  /* 1, of a backward call with `saved`: no other
                                   reads that again. A layer's way back then
                                   works in its memory, too, and takes less
                                   workspace; the same bits. Behind it nothing
                                   is saved there. Of flin_workspace: what such
                                   a call takes, or, where y is given, the
                                   forward call before it. Of flin_prepare: all
                                   calls have `saved`, so that of a layer
                                   nothing is compiled for others */
    int64_t memory;             /* of a layer: so many bytes at most of what a
                                   product gives to a program over rows that
                                   alone reads it, logits say, are in memory at
                                   a time, whatever the plan; more are made some
                                   tokens or some columns at a time, whichever
                                   is predicted to take less, and once more on
                                   the way back. Of plan "tiles" the default is
                                   256 MB and a quarter of all, else any. Of
                                   plan "pieces" also bytes that a training call
                                   takes at most, its result among them: the
                                   least time in these, or the least memory. The
                                   same in a call that saves and in the one
                                   that goes back from there */
} flin_Call;

/* Runs the variant over the call's tokens, chunk by chunk, in float32 (inputs,
 * states and y of any dtype). Where the step has no chunk form, token by
 * token: flin_Options.warn is told, once, and flin_note says why. FLIN_OK or
 * what is in e->code. A state's `initial` and `final` may be the same tensor;
 * else no byte of a result may lie in another result, twice in its own (stride
 * 0) or in anything that is given: that is refused. */
FLIN_API int flin_forward(flin_Variant *v, const flin_Call *call,
                          flin_Error *e);

/* The same in double, token by token, by the variant's own Lua function, run
 * on numbers (of a kernel: by its trace): the truth that forward is held to. On
 * the CPU; takes nothing of a script's budget. */
FLIN_API int flin_reference(flin_Variant *v, const flin_Call *call,
                            flin_Error *e);

/* What the call's tokens do to the state, whatever it is before them: final has
 * `own`, what they leave of a state that is zero, and `transition` is written:
 * M [N, H, K] where entries along axis k only decay, [N, H, K, K] where the
 * step erases. From a state S [N, H, K, V] they leave
 *
 *     M[n,h,k] S[n,h,k,v] + own[n,h,k,v], or
 *     sum over j of M[n,h,k,j] S[n,h,j,v] + own[n,h,k,v]
 *
 * so parts of a sequence can be worked on at the same time, by several devices,
 * too, and then each from its own start. K: the axis that decays, or is erased
 * along. y must not be given, nor an initial state. An error, with the reason,
 * where the state is not one matrix that each token changes by a matrix of its
 * own: then there may be stages.
 *
 * With `saved`, on a GPU, it may begin the call that saves, whose start is not
 * yet known: then saved->plan is not 0, and flin_forward or flin_run with
 * `begun` goes on from there, with the same inputs, and takes less time than
 * the whole call. Else it is 0, and `begun` is refused.
 *
 * A gradient goes the same way, from the last part to the first: at a part's
 * start it is M transposed times that at its end, plus what flin_backward says
 * of the start (dinitial) where dfinal is left out; that call `begins` the one
 * for all gradients, which is `begun`. See examples/context.c. */
FLIN_API int flin_summary(flin_Variant *v, const flin_Call *call,
                          const flin_Tensor *transition, flin_Error *e);

/* How tokens act on the states that they find; `state` and `own` as above. */
typedef enum flin_Carry {
    FLIN_CARRY_ENTRIES,         /* M state + own, entry by entry: M is shaped as
                                   the state is */
    FLIN_CARRY_MAX,             /* max(M + state, own), entry by entry; the
                                   gradient passes where the first is as large
                                   as the second */
    FLIN_CARRY_ROWS,            /* M [N, H, K] */
    FLIN_CARRY_MATRIX           /* M [N, H, K, n K], for each of n states that
                                   are found together: the sum over j is over
                                   their rows, one state's below the other's */
} flin_Carry;

enum { FLIN_BLOCK = 8 };

typedef struct flin_Transition {
    flin_Carry carry;
    int rank;                   /* of M */
    const char *axis;           /* the name of axis K, valid as long as v;
                                   NULL: entry by entry */
    int nstates;
    int state[FLIN_BLOCK];      /* which they are: as flin_argument counts */
} flin_Transition;

/* What flin_summary would write: `transition` points to nstates tensors, and
 * final names these states. */
FLIN_API int flin_transition(flin_Variant *v, flin_Transition *to,
                             flin_Error *e);

/* Where a step carries several states, they are found one after another: a
 * stage is one of them, or some that need each other, and follows those that
 * it needs. How many stages there are; -1: there are none, as a state's next
 * value is not linear in it, and e names the term. */
FLIN_API int flin_stages(flin_Variant *v, flin_Error *e);
/* Stage i, from 0: a variant of the same inputs, whose states are the stage's,
 * those that it needs, and none else (y is less the first input; nobody has to
 * ask for it). flin_summary of it wants the initial states that it needs, and
 * none of the stage's own. Its last state may be the summary's own, NAME_moved.
 * Release it. */
FLIN_API flin_Variant *flin_stage(flin_Variant *v, int i, flin_Error *e);

/* One token (T = 1) of each of B sequences, for decoding. What a mask weighs
 * over all pairs of tokens keeps keys and values as its states, of its window
 * or of `tokens` places; flin_forward goes token by token, too, where such
 * states are given or asked for. */
FLIN_API int flin_step(flin_Variant *v, const flin_Call *call,
                       flin_Error *e);

/* T tokens of each of B sequences that may still be taken back, as speculative
 * decoding guesses them: one after another, in one call, and the state behind
 * each is kept. final is [B, T, H, ...]: entry t is the state that token t
 * leaves. With state_index [B, T + 1] the states are entries of a pool: column
 * 0 names the one that is read, column t + 1 the one that token t's is written
 * to (-1: it is not kept; it may be column 0's, which has been read by then).
 * So when n of the tokens are accepted, the next call's column 0 is this
 * one's column n, and nothing is copied. */
FLIN_API int flin_verify(flin_Variant *v, const flin_Call *call,
                         flin_Error *e);

/* The gradients of a loss L, where dy = dL/dy and dfinal = dL/d(final states)
 * are given, at least one of them, and what is left out is 0. Written: dL/dx of
 * any inputs x, as wide as they are in the call (an input with fewer heads
 * than y, or without t, gets the sum over all that share it), and dL/d(initial
 * states). States and dinitial are [N, H, ...] as in calls. */
typedef struct flin_Grad {
    size_t size;                /* sizeof(flin_Grad) */
    flin_Tensor dy;             /* of y's shape */
    const flin_Bind *dfinal;    /* by the names of states */
    int ndfinal;
    const flin_Bind *dinput;    /* by the names of inputs: written */
    int ndinput;
    const flin_Bind *dinitial;  /* by the names of states: written */
    int ndinitial;
                                /* an input of a layer may be given up: its
                                   gradient is then the very tensor that it is,
                                   and is written over it, with the same bits
                                   as elsewhere. An error where that cannot be:
                                   several parts read it, or one that is no
                                   program over rows */
    int add;                    /* 1: of a layer, the gradients of weights are
                                   added to what their tensors hold, which are
                                   float32: of several calls (micro-batches)
                                   they are the sum */
    const flin_Bind *dresult;   /* of results beside y, by name; what is left
                                   out is 0 */
    int ndresult;
} flin_Grad;

/* Runs forwards and backwards; of the call, y and final are not looked at.
 * With call->saved it runs backwards alone, from what forward has left there:
 * the call must be that one's, with what its inputs and initial states held.
 * The gradients are the same to the bit. The second in double, by reverse mode
 * on the trace of the step, which some of the call's tokens hold to the Lua
 * function first (not those of a kernel). */
FLIN_API int flin_backward(flin_Variant *v, const flin_Call *call,
                           const flin_Grad *grad, flin_Error *e);
FLIN_API int flin_reference_backward(flin_Variant *v, const flin_Call *call,
                                     const flin_Grad *grad, flin_Error *e);

/* The bytes of call->saved->data: what the plan of forward and backward keeps
 * between the two; no data is looked at. 0: nothing (token by token, backward
 * computes it all again, and `saved` is not used); -1: see e. */
FLIN_API int64_t flin_saved(flin_Variant *v, const flin_Call *call,
                            flin_Error *e);

/* The seconds that the call's kernels are predicted to take on its GPU, few
 * long sequences cut there as is predicted to take least: forward, or both
 * ways; `in_parts`: not cut, with its summary, and both ways with its gradients
 * at starts. Nothing is compiled, no data is looked at. 0: that is not known;
 * -1: see e. */
FLIN_API double flin_seconds(flin_Variant *v, int both_ways,
                             const flin_Call *call, flin_Error *e);

/* What the result of argument i (flin_arg: y, another or a state) must be for a
 * call of these inputs, y and final not looked at: shape and rank, the dtype
 * that scripts get, data NULL. */
FLIN_API int flin_shape(flin_Variant *v, const flin_Call *call, int i,
                        flin_Tensor *t, flin_Error *e);

/* Why forward goes token by token at the sizes of the latest call, "FILE:LINE:
 * ..." and below it that line of the script; or NULL if it goes by chunks (or
 * has not run). */
FLIN_API const char *flin_note(const flin_Variant *v);

/* ---- kernels ---- */

/* What a variant becomes for given sizes: compiled once, unchangeable, shared
 * between threads, alive until its last reference is freed, also when its
 * state is closed. */
typedef struct flin_Kernel flin_Kernel;

typedef enum flin_Mode { FLIN_FORWARD, FLIN_BACKWARD, FLIN_STEP,
                         FLIN_REFERENCE, FLIN_REFERENCE_BACKWARD,
                         FLIN_VERIFY } flin_Mode;

/* A kernel for calls like this one: with its sizes of axes, its dtypes, its
 * chunk and its backend. B, T, heads, sequences, strides, stream, threads and
 * which states are given are free. No data is looked at; give the inputs' rank,
 * shape and dtype. Nothing is compiled later: flin_run of it can be captured
 * in a CUDA graph. */
FLIN_API flin_Kernel *flin_prepare(flin_Variant *v, flin_Mode mode,
                                   const flin_Call *like, flin_Error *e);

/* The bytes of workspace that a run of this call takes at most, either way of
 * a kernel that goes both (but see `spend`), fewer where it has `saved`; 0:
 * none; -1: the call is not one of this kernel, and flin_run says why. */
FLIN_API int64_t flin_workspace(const flin_Kernel *k, const flin_Call *call);

/* Runs it; grad for the modes that go backwards, else NULL. Any thread,
 * several at a time, each with a workspace of its own. A kernel of
 * FLIN_BACKWARD is one for training: without grad it goes forward, and leaves
 * in call->saved, where that is given, what a run with it and grad starts
 * from. */
FLIN_API int flin_run(flin_Kernel *k, const flin_Call *call,
                      const flin_Grad *grad, flin_Error *e);

/* flin_saved of such a kernel; 0: nothing, or another mode; -1 as above. */
FLIN_API int64_t flin_kernel_saved(const flin_Kernel *k,
                                   const flin_Call *call);

/* Why it goes token by token, or NULL; it lives as long as the kernel. */
FLIN_API const char *flin_kernel_note(const flin_Kernel *k);

/* One more reference; one less, on any thread. NULL is allowed. */
FLIN_API void flin_retain(flin_Kernel *k);
FLIN_API void flin_free(flin_Kernel *k);

/* ---- Lua hosts ---- */

/* For a program that has Lua 5.4 itself: require "flin" there, in `lua5.4 -l
 * flin` too. flin_attach does it, and lets C and Lua share variants. */
FLIN_API int luaopen_flin(struct lua_State *L);

#ifdef __cplusplus
}
#endif

#endif
