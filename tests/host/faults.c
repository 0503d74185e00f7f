/* faults.c -- memory runs out: at every allocation in turn, once, twice, and
 * for good. A host opens a state, loads, computes, closes; whatever fails is
 * reported, nothing is lost, and afterwards all works as before.
 *
 * The C library's allocator is replaced, so that Lua's, the compiler's and
 * GLPK's allocations count alike. `faults full` tries every allocation,
 * `faults` a sample.
 */
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) \
    && !defined(__SANITIZE_THREAD__)
#define _GNU_SOURCE
#endif
#include "host.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) \
    && !defined(__SANITIZE_THREAD__)
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

enum Kind { ONCE, TWICE, EVER, NKINDS };
static const char *const kind_name[] = { "once", "twice", "for good" };

static atomic_long count, fail_from, fail_to, live;

/* Whether this allocation is to fail. */
static bool denied(void)
{
    long n = atomic_fetch_add(&count, 1);

    if (n < fail_from || n >= fail_to)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    atomic_fetch_add(&live, p != NULL);
    return p;
}

void *malloc(size_t n)
{
    return denied() ? NULL : counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
    return denied() ? NULL : counted(__libc_calloc(n, size));
}

/* To shrink never fails, as Lua expects of it. */
void *realloc(void *p, size_t n)
{
    if (p && n && n <= malloc_usable_size(p))
        return __libc_realloc(p, n);
    if (n && denied())
        return NULL;
    if (!p)
        return counted(__libc_realloc(p, n));
    atomic_fetch_sub(&live, n == 0);
    return __libc_realloc(p, n);
}

void *memalign(size_t align, size_t n)
{
    return denied() ? NULL : counted(__libc_memalign(align, n));
}

void *aligned_alloc(size_t align, size_t n)
{
    return memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    *p = memalign(align, n);
    return *p ? 0 : ENOMEM;
}

void free(void *p)
{
    atomic_fetch_sub(&live, p != NULL);
    __libc_free(p);
}

static void deny(long from, enum Kind kind)
{
    count = 0;
    fail_to = kind == ONCE ? from + 1 : kind == TWICE ? from + 2 : 1L << 60;
    fail_from = from;
}

static void allow(void)
{
    fail_from = fail_to = 1L << 60;
}

/* ---- a host ---- */

/* New each time, or it would be found, with its plans. */
static const char script[] =
    "local flin = require 'flin'\n"
    "return flin.variant {\n"
    "  input = { q = 't k', k = 't k', v = 't v', g = 't' },\n"
    "  state = { S = 'k v' },\n"
    "  step = function (x, s)\n"
    "    local S = flin.exp(x.g) * s.S\n"
    "    S = S + flin.outer(x.k, x.v - flin.dot(x.k, S))\n"
    "    return { S = S }, flin.dot(x.q, S)\n"
    "  end }\n";

enum { T = 100, H = 2, D = 8, N = T * H * D };

typedef struct Host {
    float x[N], g[T * H], y[N], dy[N], dx[N];
    _Alignas(256) char saved[1 << 18];
    flin_Bind in[4], dinput;
    flin_Call call;
    flin_Grad grad;
} Host;

static Host *host_new(void)
{
    Host *h = aligned_alloc(256, sizeof *h);
    flin_Tensor t = { h->x, FLIN_F32, 4, { 1, T, H, D }, { 0 } };

    memset(h, 0, sizeof *h);
    for (int i = 0; i < N; i++)
        h->x[i] = h->dy[i] = (float)sin(i) / 4;
    h->in[0] = (flin_Bind){ "q", t };
    h->in[1] = (flin_Bind){ "k", t };
    h->in[2] = (flin_Bind){ "v", t };
    h->in[3] = (flin_Bind){ "g", { h->g, FLIN_F32, 3, { 1, T, H }, { 0 } } };
    h->call = (flin_Call){ .size = sizeof h->call, .input = h->in,
                           .ninputs = 4, .y = t, .threads = 1 };
    h->call.y.data = h->y;
    h->dinput = (flin_Bind){ "k", t };
    h->dinput.tensor.data = h->dx;
    h->grad = (flin_Grad){ .size = sizeof h->grad, .dy = t,
                           .dinput = &h->dinput, .ndinput = 1 };
    h->grad.dy.data = h->dy;
    return h;
}

/* The first failure, and what it says. */
typedef struct Outcome { int code; char message[1024]; } Outcome;

static void note(Outcome *o, const flin_Error *e)
{
    if (e->code && !o->code) {
        o->code = e->code;
        memcpy(o->message, e->message, sizeof o->message);
    }
}

/* Forward, and backward from what that has saved. */
static void train(flin_Variant *v, Host *h, Outcome *o)
{
    flin_Saved saved = { h->saved, sizeof h->saved, 0, 0, 0 };
    flin_Call call = h->call;
    flin_Error e;

    call.saved = &saved;
    flin_forward(v, &call, &e);
    note(o, &e);
    if (!e.code)
        flin_backward(v, &call, &h->grad, &e);
    note(o, &e);
}

/* What a host does with one variant. */
static Outcome use(flin_State *s, Host *h)
{
    flin_Error e = { 0 };
    Outcome o = { 0 };
    flin_Variant *v = flin_load_string(s, script, "host.lua", &e);
    flin_Kernel *k = NULL;

    note(&o, &e);
    if (v) {
        flin_forward(v, &h->call, &e);
        note(&o, &e);
        flin_backward(v, &h->call, &h->grad, &e);
        note(&o, &e);
        train(v, h, &o);
        k = flin_prepare(v, FLIN_FORWARD, &h->call, &e);
        note(&o, &e);
    }
    flin_release(v);
    if (k) {
        flin_run(k, &h->call, NULL, &e);
        note(&o, &e);
    }
    flin_free(k);
    return o;
}

static Outcome open_and_use(Host *h)
{
    flin_Error e = { 0 };
    Outcome o = { 0 };
    flin_State *s = flin_open(NULL, &e);

    note(&o, &e);
    if (s)
        o = use(s, h);
    flin_close(s);
    return o;
}

/* ---- the trials ---- */

/* A scenario, whole or (`s`) in an open state. */
static Outcome run(flin_State *s, Host *h)
{
    return s ? use(s, h) : open_and_use(h);
}

static long count_allocations(flin_State *s, Host *h)
{
    allow();
    count = 0;
    CHECK(run(s, h).code == FLIN_OK);
    return count;
}

static void try_all(flin_State *s, long step, const char *what)
{
    Host *h = host_new(), *right = host_new();
    long n = count_allocations(s, right), bad = 0, refused = 0;

    for (int kind = 0; kind < NKINDS; kind++)
        for (long i = kind % step; i < n; i += step) {
            long before = live;
            deny(i, (enum Kind)kind);
            Outcome o = run(s, h);
            allow();
            refused += o.code == FLIN_ERROR_MEMORY;
            bool ok = o.code == FLIN_OK || o.code == FLIN_ERROR_MEMORY;
            if (!s)
                ok = ok && live == before;
            if (!ok && bad++ < 5)
                printf("%s: allocation %ld denied %s: code %d, %s; %ld lost\n",
                       what, i, kind_name[kind], o.code, o.message,
                       live - before);
        }
    CHECK(bad == 0 && refused >= n / step);
    CHECK(run(s, h).code == FLIN_OK && !memcmp(h->y, right->y, sizeof h->y)
          && !memcmp(h->dx, right->dx, sizeof h->dx));
    printf("%s: %ld allocations, every %ldth denied, %ld refusals\n", what, n,
           step, refused);
    free(h);
    free(right);
}

int main(int argc, char **argv)
{
    bool full = argc > 1 && !strcmp(argv[1], "full");
    long before;

    allow();
    setvbuf(stdout, NULL, _IONBF, 0);
    Host *h = host_new();
    CHECK(!open_and_use(h).code);     /* what libraries keep for ever */
    before = live;
    flin_State *s = flin_open(NULL, NULL);
    CHECK(!use(s, h).code);
    try_all(s, full ? 1 : 11, "in an open state");
    flin_close(s);
    CHECK(live == before);
    try_all(NULL, full ? 1 : 181, "from open to close");
    CHECK(live == before);
    free(h);
    return report();
}

#else

int main(void)
{
    puts("skip: the allocator cannot be replaced here");
    return 0;
}

#endif
