/* base.c -- arenas, errors, protected calls. */
#include "base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ArenaBlock {
    ArenaBlock *next;
    size_t used, size;
    bool zeroed;
    max_align_t data[];
};

enum { BLOCK = 64 * 1024 };

void *mem_new(const Memory *m, size_t size)
{
    void *p;

    if (!m->alloc)
        return calloc(1, size);
    p = m->alloc(m->ud, NULL, 0, size);
    return p ? memset(p, 0, size) : NULL;
}

void *mem_raw(const Memory *m, size_t size)
{
    return m->alloc ? m->alloc(m->ud, NULL, 0, size) : malloc(size);
}

void mem_free(const Memory *m, void *p, size_t size)
{
    if (!m->alloc)
        free(p);
    else if (p)
        m->alloc(m->ud, p, size, 0);
}

Tally *tally_new(size_t limit)
{
    Tally *t = calloc(1, sizeof *t);

    if (t) {
        t->limit = limit;
        atomic_store(&t->refs, 1);
    }
    return t;
}

void tally_release(Tally *t)
{
    if (t && atomic_fetch_sub(&t->refs, 1) == 1)
        free(t);
}

void ctx_count(Ctx *c, size_t bytes)
{
    Tally *t = c->tally;

    if (c->limit && (c->used > c->limit || bytes > c->limit - c->used))
        fail_code(c, ERR_LIMIT, "out of memory: the compilation needs more "
                  "than its limit of %zu bytes", c->limit);
    if (!t)
        return;
    size_t all = atomic_fetch_add(&t->used, bytes) + bytes;
    if (t->limit && (all > t->limit || atomic_load(&t->beside)
                                       > t->limit - all)) {
        atomic_fetch_sub(&t->used, bytes);
        fail_code(c, ERR_LIMIT, "out of memory: what has been compiled, and "
                  "Lua, need more than their limit of %zu bytes", t->limit);
    }
}

void ctx_uncount(Ctx *c, size_t bytes)
{
    if (c->tally)
        atomic_fetch_sub(&c->tally->used, bytes);
}

Ctx *ctx_like(const Ctx *like)
{
    Ctx *c = mem_new(&like->mem, sizeof *c);

    if (c) {
        c->limit = like->limit;
        c->tally = like->tally;
        if (c->tally)
            atomic_fetch_add(&c->tally->refs, 1);
        c->max_nodes = like->max_nodes;
        c->mem = like->mem;
        c->interrupted = like->interrupted;
        c->interrupt_ud = like->interrupt_ud;
        c->progress = like->progress;
        c->progress_ud = like->progress_ud;
        c->say = like->say;
        c->say_ud = like->say_ud;
        c->parallel = like->parallel;
        c->parallel_ud = like->parallel_ud;
    }
    return c;
}

Ctx *ctx_new(void)
{
    return ctx_like(&(Ctx){ .limit = 0 });
}

void ctx_free(Ctx *c)
{
    if (!c)
        return;
    Memory mem = c->mem;
    ctx_uncount(c, c->used);
    tally_release(c->tally);
    for (ArenaBlock *b = c->block, *next; b; b = next) {
        next = b->next;
        mem_free(&mem, b, sizeof *b + b->size);
    }
    mem_free(&mem, c, sizeof *c);
}

static void add_block(Ctx *c, size_t bytes)
{
    size_t size = bytes > BLOCK ? bytes : BLOCK;

    ctx_count(c, size);
    /* large ones may come zeroed from the system, others are as they are used
     */
    ArenaBlock *b = (size > BLOCK ? mem_new : mem_raw)(&c->mem,
                                                       sizeof *b + size);
    if (!b) {
        ctx_uncount(c, size);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    b->used = 0;
    b->size = size;
    b->zeroed = size > BLOCK;
    c->used += size;
    b->next = c->block;
    c->block = b;
}

void *ctx_alloc(Ctx *c, size_t bytes)
{
    size_t align = sizeof(max_align_t);

    if (bytes > SIZE_MAX / 2)
        fail_code(c, ERR_MEMORY, "out of memory");
    bytes = (bytes + align - 1) / align * align;
    if (!c->block || c->block->size - c->block->used < bytes)
        add_block(c, bytes);
    void *p = (char *)c->block->data + c->block->used;
    c->block->used += bytes;
    return c->block->zeroed ? p : memset(p, 0, bytes);
}

void *ctx_grow(Ctx *c, void *old, size_t old_bytes, size_t new_bytes)
{
    void *p = ctx_alloc(c, new_bytes);

    if (old_bytes)
        memcpy(p, old, old_bytes);
    return p;
}

char *ctx_string(Ctx *c, const char *s)
{
    size_t n = strlen(s) + 1;

    return memcpy(ctx_alloc(c, n), s, n);
}

char *ctx_format(Ctx *c, const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = ctx_alloc(c, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

void ctx_rethrow(Ctx *c)
{
    if (!c->catch)
        abort();                /* our bug: a pass ran outside ctx_protect */
    longjmp(*c->catch, 1);
}

void ctx_raise(Ctx *c, const Error *e)
{
    c->err = *e;
    ctx_rethrow(c);
}

static _Noreturn void throw_error(Ctx *c, int code, int line)
{
    c->err.code = code;
    c->err.line = line;
    snprintf(c->err.file, sizeof c->err.file, "%s", c->file ? c->file : "");
    ctx_rethrow(c);
}

void fail(Ctx *c, int line, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->err.message, sizeof c->err.message, fmt, ap);
    va_end(ap);
    c->err.help[0] = 0;
    throw_error(c, ERR_USER, line);
}

void fail_help(Ctx *c, int line, const char *help, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->err.message, sizeof c->err.message, fmt, ap);
    va_end(ap);
    snprintf(c->err.help, sizeof c->err.help, "%s", help ? help : "");
    throw_error(c, ERR_USER, line);
}

void error_set(const Ctx *c, Error *e, int line, const char *help,
                const char *fmt, ...)
{
    va_list ap;

    *e = (Error){ .code = ERR_USER, .line = line };
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    snprintf(e->help, sizeof e->help, "%s", help ? help : "");
    snprintf(e->file, sizeof e->file, "%s", c->file ? c->file : "");
}

void ctx_refuse(Ctx *c, Refusal *no, int code, int line, const char *help,
                const char *fmt, ...)
{
    Error *e = no ? &no->why : &c->err;
    va_list ap;

    e->code = code;
    e->line = line;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    snprintf(e->help, sizeof e->help, "%s", help ? help : "");
    snprintf(e->file, sizeof e->file, "%s", c->file ? c->file : "");
    if (!no)
        ctx_rethrow(c);
    longjmp(no->end, 1);
}

void fail_code(Ctx *c, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->err.message, sizeof c->err.message, fmt, ap);
    va_end(ap);
    c->err.help[0] = 0;
    throw_error(c, code, 0);
}

void fail_internal(Ctx *c, int line, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->err.message, sizeof c->err.message, fmt, ap);
    va_end(ap);
    snprintf(c->err.help, sizeof c->err.help, "this is a fault of flin, not "
             "of the script: please report it with the script");
    throw_error(c, ERR_INTERNAL, line);
}

bool ctx_protect(Ctx *c, void (*f)(Ctx *, void *), void *ud)
{
    jmp_buf here, *outer = c->catch;
    volatile bool done = false;         /* err may hold what f has caught */

    c->err.code = ERR_NONE;
    c->catch = &here;
    if (setjmp(here) == 0) {
        f(c, ud);
        done = true;
        c->err.code = ERR_NONE;
    }
    c->catch = outer;
    return done;
}

void ctx_within(Ctx *c, Ctx *own, void (*f)(Ctx *, void *), void *ud)
{
    if (!ctx_protect(own, f, ud))
        ctx_raise(c, &own->err);
}

void ctx_apart(Ctx *c, void (*f)(Ctx *, void *), void *ud)
{
    Ctx *own = ctx_like(c);

    if (!own)
        fail_code(c, ERR_MEMORY, "out of memory");
    own->file = c->file;
    own->doing = c->doing;
    own->done = c->done;
    bool ok = ctx_protect(own, f, ud);
    Error e = own->err;
    ctx_free(own);
    if (!ok)
        ctx_raise(c, &e);
}

void ctx_poll(Ctx *c)
{
    ctx_progress(c);
    if (c->interrupted && c->interrupted(c->interrupt_ud))
        fail_code(c, ERR_INTERRUPT, "interrupted");
}

void ctx_doing(Ctx *c, const char *what, const char *name)
{
    if (c->progress)
        c->doing = ctx_format(c, "%s %s", what, name);
    c->done = -1;
}

double clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void ctx_progress(Ctx *c)
{
    enum { EVERY_MS = 50 };
    double now;

    if (!c->progress || !c->doing)
        return;
    now = clock_now();
    if (c->progress_due > 0 && now >= c->progress_due)
        c->progress(c->progress_ud, c->doing, c->done);
    if (now >= c->progress_due)
        c->progress_due = now + 1e-3 * EVERY_MS;
}

void buf_put(Buf *b, const char *s, size_t n)
{
    if (b->len + n + 1 > b->cap) {
        size_t cap = (b->len + n + 1) * 2 + 64;
        b->s = ctx_grow(b->ctx, b->s, b->len, cap);
        b->cap = cap;
    }
    if (n)
        memcpy(b->s + b->len, s, n);
    b->len += n;
    b->s[b->len] = 0;
}

void buf_printf(Buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if ((size_t)n < sizeof small) {
        buf_put(b, small, (size_t)n);
    } else {
        char *s = ctx_alloc(b->ctx, (size_t)n + 1);
        vsnprintf(s, (size_t)n + 1, fmt, again);
        buf_put(b, s, (size_t)n);
    }
    va_end(again);
}

uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *at = p;

    h += 0x9e3779b97f4a7c15u;
    while (n) {
        size_t part = n < sizeof h ? n : sizeof h;
        uint64_t x = 0;
        memcpy(&x, at, part);
        h = (h ^ x) * 0xff51afd7ed558ccdu;
        h ^= h >> 29;
        at += part;
        n -= part;
    }
    return h;
}
