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
 * Rules that hold throughout:
 * - Functions never print, exit or abort. Those that can fail return NULL or
 *   a code, and fill in the error, where the caller gives one (else NULL).
 * - A state and its variants belong to one thread at a time; states share
 *   nothing.
 * - The caller's buffers are the caller's: flin keeps no pointer to them after
 *   a call has returned.
 * - In a struct that begins with its size, set that to sizeof, and what you do
 *   not use to 0, which means the default.
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
    FLIN_ERROR_DEVICE,
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

typedef struct flin_Options {
    size_t size;                /* sizeof(flin_Options) */
    uint64_t instructions;      /* of Lua, a script; default 10^9 */
    size_t memory;              /* bytes of Lua, and of one compilation;
                                   default 2^30 */
    uint32_t nodes;             /* of one graph; default 20000 */
    int trusted;                /* 1: scripts may use io and os and load
                                   modules; default: a sandbox */

    /* Memory for Lua, as lua_Alloc: size 0 frees. Default: malloc. */
    void *(*alloc)(void *ud, void *p, size_t old_size, size_t size);
    void *alloc_ud;
    /* Asked every few milliseconds, on the thread that called; what is running
     * stops when it returns other than 0. */
    int (*interrupted)(void *ud);
    void *interrupted_ud;
    /* What scripts print, a line at a time, without its end. Default: nowhere.
     */
    void (*log)(void *ud, const char *line);
    void *log_ud;
} flin_Options;

/* A new state; o may be NULL. */
FLIN_API flin_State *flin_open(const flin_Options *o, flin_Error *e);

/* Ends it and all its variants. NULL is allowed. */
FLIN_API void flin_close(flin_State *s);

/* ---- variants ---- */

typedef struct flin_Variant flin_Variant;

/* The variant that a script returns: of a file, of text (its `name` is for
 * messages), of the standard library ("gla", "gated_deltanet" ...). Variants
 * live until they are released or their state is closed. */
FLIN_API flin_Variant *flin_load_file(flin_State *s, const char *path,
                                      flin_Error *e);
FLIN_API flin_Variant *flin_load_string(flin_State *s, const char *text,
                                        const char *name, flin_Error *e);
FLIN_API flin_Variant *flin_stdlib(flin_State *s, const char *name,
                                   flin_Error *e);
FLIN_API void flin_release(flin_Variant *v);

typedef enum flin_Role { FLIN_INPUT, FLIN_OUTPUT, FLIN_STATE } flin_Role;

/* An argument. `axes` as the script names them:
 *   inputs, y with t ("t k")   shape [B, T, H, then the others in order]
 *   inputs without t ("k")     constants of a head: [H, ...]
 *   states ("k v")             [N, H, ...], N: batch entries or sequences
 * Each input may have fewer heads than y, if their count divides y's. domain:
 * what values make sense ("normal", "log_decay": <= 0, "unit": 0 to 1 ...). */
typedef struct flin_Arg {
    const char *name;
    flin_Role role;
    const char *axes;
    const char *domain;
} flin_Arg;

/* Strings live as long as the variant. */
FLIN_API const char *flin_name(const flin_Variant *v);
FLIN_API int flin_args(const flin_Variant *v);              /* how many */
/* Argument i, from 0: inputs, then y, then states. 0 if there is none. */
FLIN_API int flin_arg(const flin_Variant *v, int i, flin_Arg *a);

/* ---- calls ---- */

typedef enum flin_DType { FLIN_F32, FLIN_BF16, FLIN_F16, FLIN_F64 } flin_DType;

/* A buffer of the caller. Strides count elements and may be anything, 0 and
 * negative included; all of them 0: row-major. data NULL: not given. */
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

typedef struct flin_Call {
    size_t size;                /* sizeof(flin_Call) */
    const flin_Bind *input;     /* all inputs, in any order */
    int ninputs;
    const flin_Bind *initial;   /* states before the first token; default 0 */
    int ninitial;
    const flin_Bind *final;     /* states after the last one: written */
    int nfinal;
    flin_Tensor y;              /* written */
    const int64_t *cu_seqlens;  /* packed sequences, B = 1: nseq + 1 ends from
                                   0 to T; default: one sequence a row */
    int64_t nseq;
    int chunk;                  /* tokens at once, 1 to 256; default 64. The
                                   result differs by rounding alone */
    int threads;                /* default: one a core */
    const char *backend;        /* "cpu"; default: the best there is */
} flin_Call;

/* Runs the variant over the call's tokens, chunk by chunk, in float32 (inputs,
 * states and y of any dtype). Where the step has no chunk form, token by
 * token. Checks every argument before it computes anything. FLIN_OK or what is
 * in e->code. `initial` and `final` may be the same memory. */
FLIN_API int flin_forward(flin_Variant *v, const flin_Call *call,
                          flin_Error *e);

/* The same in double, token by token: the truth that forward is held to. */
FLIN_API int flin_reference(flin_Variant *v, const flin_Call *call,
                            flin_Error *e);

/* One token (T = 1) of each of B sequences, for decoding. */
FLIN_API int flin_step(flin_Variant *v, const flin_Call *call,
                       flin_Error *e);

/* Why forward goes token by token at the sizes of the latest call, or NULL if
 * it goes by chunks (or has not run). */
FLIN_API const char *flin_note(const flin_Variant *v);

/* ---- Lua hosts ---- */

/* For a program that has Lua 5.4 itself: require "flin" there. */
struct lua_State;
FLIN_API int luaopen_flin(struct lua_State *L);

#ifdef __cplusplus
}
#endif

#endif
