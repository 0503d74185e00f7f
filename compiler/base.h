/* base.h -- memory by lifetime, and one way to fail. */
#ifndef FLIN_BASE_H
#define FLIN_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What went wrong, in the user's words. line is 0 where no source line is to
 * blame; help says what would be right, and may be empty. */
typedef struct Error {
    int code;                           /* enum ErrorCode */
    int line;
    char file[128];
    char message[1024];
    char help[512];
} Error;

enum ErrorCode { ERR_NONE, ERR_USER, ERR_MEMORY, ERR_LIMIT, ERR_INTERRUPT,
                 ERR_DEVICE, ERR_INTERNAL };

typedef struct ArenaBlock ArenaBlock;

/* Where memory comes from, as lua_Alloc: p NULL makes, size 0 frees. alloc
 * NULL: malloc. New memory is zeroed, raw is not; NULL when memory is out. */
typedef struct Memory {
    void *(*alloc)(void *ud, void *p, size_t old_size, size_t size);
    void *ud;
} Memory;
void *mem_new(const Memory *m, size_t size);
void *mem_raw(const Memory *m, size_t size);
void mem_free(const Memory *m, void *p, size_t size);   /* p may be NULL */

/* What the contexts that share it hold together, and who made them holds beside
 * that: at most `limit` bytes (0: any). Counted: a context may outlive who made
 * it. */
typedef struct Tally {
    atomic_size_t used, beside;
    size_t limit;
    atomic_uint refs;
} Tally;
Tally *tally_new(size_t limit);         /* NULL when memory is out */
void tally_release(Tally *t);           /* NULL: nothing */

/* A kernel that has run: which of its plan's, under what name, for how long,
 * and for how long it was predicted to, 0: it was not. bytes: what went between
 * memory and tiles; 0: nobody counts. */
typedef struct KernelTime {
    const struct Plan *plan;
    const struct Call *call;
    int kernel;
    const char *name;
    double seconds, bytes, predicted;
} KernelTime;

/* A compilation: its memory, its error, and what it may use up. Everything a
 * pass allocates lives until ctx_free. */
typedef struct Ctx {
    ArenaBlock *block;
    size_t used, limit;                 /* bytes; limit 0: none */
    Tally *tally;                       /* or NULL */
    uint32_t max_nodes;                 /* a graph's size; 0: the default */
    Error err;
    jmp_buf *catch;
    const char *file;                   /* the script, for messages; arena */
    /* The host's hooks; any may be NULL. */
    Memory mem;
    bool (*interrupted)(void *ud);      /* polled in long loops */
    void *interrupt_ud;
    void (*progress)(void *ud, const char *what, double done);
    void *progress_ud;
    void (*say)(void *ud, const char *text);    /* what users should know,
                                                   once; no line break at its
                                                   end */
    void *say_ud;
    void (*timed)(void *ud, const KernelTime *t);   /* of each kernel; a GPU's
                                                       run then waits */
    void *timed_ud;
    const char *doing;                  /* what it is told; NULL: nothing */
    double done;                        /* of it, to 1; < 0: not known */
    double progress_due;                /* when it is told again */
    void (*parallel)(void *ud, int n, void (*f)(void *arg, int worker),
                     void *arg);
    void *parallel_ud;                  /* see flin.h */
} Ctx;

/* NULL when memory is out. The second has the hooks and limits of `like`. */
Ctx *ctx_new(void);
Ctx *ctx_like(const Ctx *like);
void ctx_free(Ctx *c);

/* Counts memory that is used beside the context's, and counts it out again. The
 * first fails where that is more than the limits allow. */
void ctx_count(Ctx *c, size_t bytes);
void ctx_uncount(Ctx *c, size_t bytes);

/* Zeroed memory that lives as long as the context; fails, never NULL. */
void *ctx_alloc(Ctx *c, size_t bytes);
void *ctx_grow(Ctx *c, void *old, size_t old_bytes, size_t new_bytes);
char *ctx_string(Ctx *c, const char *s);
char *ctx_format(Ctx *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Stop with an error that names a line (0: none). The first form sets no
 * help; `help` may be NULL in the second. Both return to ctx_protect. */
_Noreturn void fail(Ctx *c, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void fail_help(Ctx *c, int line, const char *help,
                         const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
_Noreturn void fail_code(Ctx *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A fault of flin itself, found while it worked on a line (0: none). */
_Noreturn void fail_internal(Ctx *c, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same as an answer: nobody jumps. Raises one. */
void error_set(const Ctx *c, Error *e, int line, const char *help,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
_Noreturn void ctx_raise(Ctx *c, const Error *e);
/* Pass on the error that ctx_protect caught. */
_Noreturn void ctx_rethrow(Ctx *c);

/* Whether something can be had, asked of code that finds out deep inside: who
 * asks sets `end` by setjmp, and has the reason as its answer where that is not
 * 0. Nothing is said to anybody, and errors pass. no NULL: it is an error. */
typedef struct Refusal { jmp_buf end; Error why; } Refusal;
_Noreturn void ctx_refuse(Ctx *c, Refusal *no, int code, int line,
                          const char *help, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* Run f(c, ud); false, with c->err set, if it failed. May nest. */
bool ctx_protect(Ctx *c, void (*f)(Ctx *, void *), void *ud);
/* f(own, ud) in another's memory; its error goes on in c. */
void ctx_within(Ctx *c, Ctx *own, void (*f)(Ctx *, void *), void *ud);
/* The same in memory that ends with it. */
void ctx_apart(Ctx *c, void (*f)(Ctx *, void *), void *ud);

/* Fails with ERR_INTERRUPT once the host has asked for it. Tells it, too, what
 * is being done. */
void ctx_poll(Ctx *c);

/* Seconds, from some time on. */
double clock_now(void);
/* Processors that this thread may run on (taskset, a batch system's share), no
 * more than a container's quota pays for. */
int cores(void);
/* From now on it is "WHAT NAME" that is done. */
void ctx_doing(Ctx *c, const char *what, const char *name);
/* Tells the host, now and then, how much of c->doing is done. */
void ctx_progress(Ctx *c);

/* Text that grows in the arena. */
typedef struct Buf { Ctx *ctx; char *s; size_t len, cap; } Buf;
void buf_put(Buf *b, const char *s, size_t n);
void buf_printf(Buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Goes on from h: 0, or what another call gave. For keys of our own. */
uint64_t hash_bytes(uint64_t h, const void *p, size_t n);

#endif
