/* lang.h -- what the files of lang/ share. Only lang/ and repl/ see lua.h.
 *
 * Three kinds of userdata: a **value** (symbolic, while a step or a mask is
 * traced), a **tensor** (numbers), a **variant** (a traced step and the plans
 * made for it). Userdata is filled after its metatable is set.
 */
#ifndef FLIN_LANG_H
#define FLIN_LANG_H

#include <stdatomic.h>

#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>

#include "../compiler/plan.h"

/* ---- tensors (tensor.c, files.c) ---- */

enum { TENSOR_RANK = 8 };

/* Strides count elements; element (x..) is at data + at + sum(x * stride).
 * The store is shared between views and counted. */
typedef struct Store {
    int refs;
    size_t bytes;
    void *data;
    struct Gpu *gpu;                    /* where data is an address; or NULL */
    uint32_t writes;                    /* into it, since it was made */
} Store;
typedef struct Tensor {
    Store *store;
    DType dtype;
    int rank;
    int64_t shape[TENSOR_RANK], stride[TENSOR_RANK], at;
} Tensor;

#define TENSOR_META "flin.tensor"
#define VALUE_META "flin.value"
#define VARIANT_META "flin.variant"
#define VARIANT_METHODS "flin.methods"  /* in the registry: their table */
#define FLIN_OWN "flin.own"            /* in the registry: a table of what is
                                           for flin's own Lua alone */
#define SANDBOX_CLOSED "flin.closed"    /* in the registry: no files */
#define SANDBOX_FOLDER "flin.folder"    /* where require looks */

Tensor *tensor_check(lua_State *L, int arg);         /* not on a GPU */
Tensor *tensor_any(lua_State *L, int arg);           /* wherever it is */
Tensor *tensor_test(lua_State *L, int arg);          /* NULL: not one */
/* Pushes a new zeroed row-major tensor. Lua error when memory is out. */
Tensor *tensor_push(lua_State *L, DType d, int rank, const int64_t *shape);
void *tensor_data(const Tensor *t);                  /* element 0 */
int64_t tensor_count(const Tensor *t);
/* "[2, 7, 1, 16]" pushed as a string. */
const char *tensor_shape_text(lua_State *L, const Tensor *t);
/* A dtype by its name ("float32", "f32" ...); false: no such. The second
 * reads the option at `arg`: absent is float32, a wrong one a Lua error. */
bool dtype_named(const char *s, DType *d);
DType dtype_check(lua_State *L, int arg);
/* The seeded generator behind flin.randn and v:check: xoshiro256**. */
typedef struct Rng { uint64_t s[4]; } Rng;
void rng_seed(Rng *r, uint64_t seed);
double rng_uniform(Rng *r);                          /* [0, 1) */
double rng_normal(Rng *r);

/* ---- values and tracing (value.c) ---- */

/* A trace in progress. Owned by the userdata at registry `owner`; every value
 * holds that userdata alive by its first user value. `decide` is asked when
 * ordinary Lua compares symbolic values (a < b; cond is the 0/1 node); NULL
 * refuses with the line and a hint at flin.where. */
/* What flin.lt and its like have made: a value is true for Lua's `if`, so one
 * that nothing reads was meant to be asked. */
enum { MAX_COMPARED = 64, MAX_PREVS = 256 };
typedef struct Probed { char name[24]; int line; } Probed;
typedef struct Compared { Ref r; int line; bool read; } Compared;
typedef struct Tracer {
    Ctx *ctx;
    Graph *g;
    bool (*decide)(struct Tracer *t, lua_State *L, Ref cond);
    void *ud;
    bool closed;                        /* values may no longer be used */
    Compared compared[MAX_COMPARED];
    int ncompared;
    uint8_t prevs[MAX_PREVS];           /* each call of flin.prev: its state */
    int nprevs;
    bool step;                          /* it is of a step: of no mask, layer */
    Probed probes[MAX_RESULTS];         /* what flin.probe has named */
    int nprobes;
} Tracer;
typedef struct Value { Tracer *t; Ref r; int compared; } Value; /* its
                                           place there from 1 on, or 0 */

Value *value_test(lua_State *L, int arg);
/* What stands for no number, but for many, has this in its metatable: a
 * function that fails and says so; the check calls it. */
#define MISUSED "__flin_misused"
void check_misused(lua_State *L, int arg);
/* Pushes a value; the owner userdata is at stack index `owner`. */
void value_push(lua_State *L, int owner, Tracer *t, Ref r);
/* The value, number or boolean at `arg` as a node of t's graph; a Lua error
 * with the line if it is neither. */
Ref value_arg(lua_State *L, Tracer *t, int arg);
/* Lua error where there is a comparison that nothing has read. */
void check_compared(lua_State *L, const Tracer *t);
void value_open(lua_State *L);

/* Runs f under ctx_protect and turns its error into a Lua error, in the shape
 * of every flin error: "FILE:LINE: message", the source line with a caret
 * where one is known, "  help: ...". */
void protect(lua_State *L, Ctx *c, void (*f)(Ctx *, void *), void *ud);
/* Pushes a userdata of zeros that `gc` collects: filled afterwards, so that no
 * error can leak what it owns. */
void *push_owned(lua_State *L, size_t size, const char *meta,
                 lua_CFunction gc);
/* The line of the user's code that is running: innermost Lua function. */
int current_line(lua_State *L);

/* ---- errors (error.c) ---- */

/* Raises an error at the user's line that is running: "FILE:LINE: message",
 * the source line, "  help: ..." (help may be NULL). What follows a newline in
 * the message (a numeric witness) comes below the source line. */
_Noreturn void lang_fail(lua_State *L, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for memory that is not to be had. */
_Noreturn void lang_no_memory(lua_State *L, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Raises a compiler's error in the same shape; line 0: the running line. */
_Noreturn void lang_raise(lua_State *L, const Error *e);
/* The same about another line. */
typedef struct Place { const char *file; int line; } Place;
_Noreturn void lang_fail_at(lua_State *L, Place at, const char *help,
                            const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Pushes that line of the file (true), or nothing, when it is not known. */
bool source_line(lua_State *L, const char *file, int line);
/* The name of the file of the innermost running Lua function ("" if none);
 * pushed, too, so that it lives on. */
const char *current_file(lua_State *L);
/* Pushes the comment that the user's running script begins with, without its
 * dashes, or "". */
void current_about(lua_State *L);
/* Lua's own message at `at`, "FILE:LINE: attempt to ...", with the line of
 * source where that is known; another one as it is; pushed. What may have been
 * meant, or NULL (then nothing is pushed). */
const char *quoted_message(lua_State *L, int at);
const char *meant_instead(lua_State *L, int at);
/* What the value at `arg` is, for messages: "nil", "a tensor", "a string". */
const char *type_text(lua_State *L, int arg);
/* The value at `arg` as the user writes it, pushed: strings in quotes. */
const char *shown_text(lua_State *L, int arg);
/* The one of n names that is spelled almost like `name`, or NULL. */
const char *nearest_name(const char *name, const char *const *list, int n);

/* ---- work outside of the VM (sandbox.c) ---- */

/* `n` elements are about to be gone through: they are charged to the budget,
 * and an interrupt or a spent budget is a Lua error. The second, in a loop over
 * many, every WORK_PIECE of them. */
enum { WORK_PIECE = 1 << 16 };
void work(lua_State *L, uint64_t n);
void work_on(lua_State *L);
/* A compilation or a call begins, ends: it is charged by what it polls. Where
 * it was stopped by a spent budget, work_end raises that error. */
void work_begin(lua_State *L);
void work_end(lua_State *L, bool stopped);
/* a * b, or UINT64_MAX where that is less. */
uint64_t work_times(uint64_t a, uint64_t b);

/* ---- tables from a script (sandbox.c) ---- */

/* Pushes field `name` of the table at `table` as it stands there; returns its
 * type. No metamethod runs: the script could free or change what the call has
 * read already. */
int raw_field(lua_State *L, int table, const char *name);
/* Sets a field of the table on top. */
void set_number(lua_State *L, const char *name, double x);
void set_text(lua_State *L, const char *name, const char *text);
/* How many entries the list at `list` has: raw, read once, at most LIST_MAX;
 * more are an error that names `what`. */
enum { LIST_MAX = 1 << 24 };
lua_Integer list_length(lua_State *L, int list, const char *what);

/* ---- variants (variant.c: build; run.c: calls; check.c) ---- */

/* What the variants of a state share; each is counted, and outlives the state
 * where a kernel holds it. */
typedef struct Shared {
    struct Gpu *gpu;                    /* opened when it is first wanted */
    struct Pool *pool;                  /* the CPU's threads */
} Shared;

/* How sums over the tokens before are made: by price, or as the definition's
 * mode says, by states or over pairs of tokens. */
typedef enum Way { WAY_CHEAPER, WAY_STATES, WAY_PAIRS } Way;

typedef struct PlanEntry PlanEntry;
typedef struct BestChunk BestChunk;
typedef struct PlanView PlanView;
typedef struct Variant {
    Ctx *ctx;
    Graph *step;
    Shared shared;                      /* its state's */
    PlanEntry *_Atomic plans;           /* by sizes, chunk, backend */
    atomic_int turned;                  /* to other plans, how often */
    BestChunk *chunks;                  /* by sizes */
    PlanView *views;                    /* that v:plan has shown */
    struct LayerProgram *programs;      /* of a layer, by sizes */
    const struct LayerRuns *runs;       /* how a layer runs; NULL: it is none */
    struct Variant *decoder;            /* of a mask over all pairs: the variant
                                           of its steps; NULL: it has none */
    struct Variant **scan;              /* of a window: its two scans, once
                                           they are wanted (window.h) */
    Way way;                            /* where step->scores: as defined */
    int64_t limit;                      /* tokens that a sequence of a decoder
                                           has room for; 0: any number */
    struct PairPrograms *pairs;         /* on a device, of a mask over all
                                           pairs of tokens */
    const char *about;                  /* what its script begins with */
    const char *form;                   /* form.c's text, once it was asked
                                           for */
    bool weighed;                       /* its plans, against another's */
    bool said;                          /* that calls go token by token */
    bool has_function, masked;          /* its uservalue: a step's; a mask's */
    uint8_t *prevs;                     /* as the tracer's */
    int nprevs;
    int declared;                       /* states, without those of prev */
    Probed *probes;
    int nprobes;
} Variant;
/* A variant's uservalues: its step's function (a mask's); the tables of how
 * constants begin, and of how long axes usually are; of what v:map has made it;
 * v:probed(). */
enum { OF_FUNCTION = 1, OF_INITIAL, OF_USUAL, OF_MAP, OF_PROBED,
       OF_LAST = OF_PROBED };
Variant *variant_check(lua_State *L, int arg);
/* The variant whose calls these are: v, or, where they have states and v takes
 * all pairs of tokens, what keeps them. */
static inline Variant *variant_of_call(Variant *v, bool states)
{
    return states && v->decoder ? v->decoder : v;
}
/* Whose states are v's: that one's step. */
static inline const Graph *states_graph(const Variant *v)
{
    return v->decoder ? v->decoder->step : v->step;
}
void variant_meta(lua_State *L);    /* pushes their metatable */
void variant_open(lua_State *L);    /* flin.variant: adds its functions to the
                                       flin table on top of the stack, as do
                                       all that open something */
void variant_methods(lua_State *L); /* map, probed, probe */
void stage_methods(lua_State *L);   /* stages, stage */
void layer_part_methods(lua_State *L);  /* parts, part */
void run_methods(lua_State *L);     /* forward, reference, step into the
                                       method table on top */

/* ---- masks (mask.c) ---- */

/* Pushes the mask function of the definition table at `def`: causal where it
 * has none. */
void mask_push(lua_State *L, int def);
/* That function is at fn: trace it, factor it, and write the step that computes
 * it into t's graph (inputs, states, roots); or have it computed over all pairs
 * where that is asked for. Lua error if the mask does not factor. */
void mask_trace(lua_State *L, int def, int fn, int owner, Tracer *t);
void mask_open(lua_State *L);       /* flin.mask_report */

/* ---- the sandbox (sandbox.c) ---- */

typedef struct Limits {
    uint64_t instructions;              /* Lua VM instructions; 0: none */
    size_t memory;                      /* bytes of Lua memory; 0: none */
    uint32_t nodes;                     /* of one graph; 0: the default */
} Limits;
/* Opens the libraries that a script may use. open_files: io and os too, and
 * `require` finds text modules. Once, on a fresh state. */
void sandbox_open(lua_State *L, const Limits *lim, bool open_files);
/* A new budget of instructions, for the next script of this state. */
void sandbox_renew(lua_State *L);
/* From here on no budget is taken from, until the state gets back what this
 * returns: for the host's own scripts, which an interrupt stops. */
uint64_t budget_suspend(lua_State *L);
void budget_resume(lua_State *L, uint64_t instructions);
/* `ask` is polled while a script or a compilation runs; true stops it. */
void sandbox_interrupt(lua_State *L, bool (*ask)(void *ud), void *ud);
/* Both are called now and then: while Lua runs, and (by any thread) while a
 * compilation or a call does. */
void sandbox_progress(lua_State *L, void (*at_lua)(void),
                      void (*at_work)(void));
/* `ask` will say yes: have it asked at the next instruction. A signal handler
 * may call this. */
void sandbox_wake(lua_State *L);
/* Memory, progress and threads of compilations and calls, as `like` has them.
 */
void sandbox_hooks(lua_State *L, const Ctx *like);
/* The same, and limits of compilations, for a Lua that sandbox_open has not
 * opened; false: it has them already. */
bool sandbox_attach(lua_State *L, const Limits *lim);
void sandbox_detach(lua_State *L);
/* A compilation's context, with the limits and the hooks of its state (if
 * any). Lua error when memory is out. */
Ctx *sandbox_ctx(lua_State *L);
/* Loads text (never bytecode) as a chunk; as luaL_loadbufferx. The text is
 * kept for messages: sandbox_source finds it by chunk name ("@my.lua"), as in
 * lua_Debug.source; NULL if this state has not loaded it. */
int sandbox_load(lua_State *L, const char *s, size_t n, const char *name);
const char *sandbox_source(lua_State *L, const char *name, size_t *len);
/* The text that messages show in the place of what was loaded. */
void sandbox_show(lua_State *L, const char *s, const char *name);
/* The same for a file's text; NULL: standard input. Where it waits, a pipe or a
 * device will do as well. Pushes the function or a message. */
int sandbox_file(lua_State *L, const char *path, bool waits);

/* The stdlib, embedded at build time: source of module `name`, or NULL. */
const char *stdlib_source(const char *name, size_t *len);
/* Names, in order; NULL ends. */
const char *stdlib_name(int i);

/* form.c: who hears what flin says once: f(ud, line). NULL: Lua's warnings. */
void say_to(lua_State *L, void (*f)(void *ud, const char *line), void *ud);

/* measure.c: flin.clock; into the own table, what v:bench measures by. What
 * runs in c is heard by own.kernel_times, if that listens. */
void measure_hear(lua_State *L, Ctx *c);
void measure_open(lua_State *L);
void measure_own(lua_State *L);

/* initial.c: keeps what the definition says of how constants begin, and how
 * long axes usually are, or what
 * another variant's said; into the own table, what v:initial asks. */
void initial_keep(lua_State *L, int def, int variant, const char *what);
void initial_copy(lua_State *L, int to, int from);
void initial_own(lua_State *L);

/* luaopen_flin: builds the flin table (open functions above, then
 * stdlib/init.lua). */
int luaopen_flin(lua_State *L);

#endif
