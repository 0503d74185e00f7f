/* product.c -- products of whole matrices: by each machine's routines, by
 * OpenBLAS (one that stands in for it), and where it is not there; the same
 * bits whoever makes them. */
#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS */
#include "../../backend/cpu/product.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static int bad;

static void expect(bool ok, const char *what, const Product *p)
{
    if (ok)
        return;
    bad++;
    printf("%s: %lld x %lld x %lld, strides %td %td %td %td, %s\n",
           what, (long long)p->m, (long long)p->n, (long long)p->k, p->ars,
           p->brs, p->bcs, p->crs, p->isa ? p->isa->name : "");
}

/* m, n, k; between rows of b; is a turned, is b, is it added? */
static const int shapes[][7] = {
    { 1, 5, 7, 5, 0, 0, 0 },         { 9, 17, 3, 20, 1, 0, 1 },
    { 100, 300, 70, 512, 0, 0, 0 },  { 33, 256, 520, 256, 1, 0, 0 },
    { 200, 40, 300, 1024, 0, 0, 1 }, { 8, 257, 513, 768, 1, 0, 1 },
    { 16, 1, 9, 256, 0, 0, 0 },      { 97, 31, 0, 256, 0, 0, 0 },
    { 1, 40, 270, 0, 0, 1, 0 },      { 100, 270, 300, 0, 0, 1, 1 },
    { 300, 1000, 20, 1000, 0, 0, 0 },
};

static float *numbers(Ctx *c, size_t n, uint64_t *seed)
{
    float *x = ctx_alloc(c, (n + TILE_SLACK) * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = (float)normal(seed);
    return x;
}

/* b, to the end of a page behind which there is none. */
static float *whole(Ctx *c, const int s[7], uint64_t *seed)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size_t)(s[2] * s[1]);

    if (!s[5])
        n = s[2] ? (size_t)((s[2] - 1) * s[3] + s[1]) : 0;
    size_t bytes = (n * sizeof(float) + page - 1) / page * page;
    char *at = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    float *b = (float *)(at + bytes) - n;
    memcpy(b, numbers(c, n, seed), n * sizeof *b);
    mprotect(at + bytes, page, PROT_NONE);
    return b;
}

static bool is_right(const Product *p, const float *before)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->add ? before[i * p->crs + j] : 0, most = 1;
            for (int64_t q = 0; q < p->k; q++) {
                double x = (double)p->a[i * p->ars + q * p->acs]
                         * p->b[q * p->brs + j * p->bcs];
                sum += x;
                most += fabs(x);
            }
            if (fabs(p->c[i * p->crs + j] - sum) > 1e-6 * most)
                return false;
        }
    return true;
}

/* What lies between the rows of c is the caller's. */
static bool is_untouched(const Product *p, const float *before)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = p->n; j < p->crs; j++)
            if (p->c[i * p->crs + j] != before[i * p->crs + j])
                return false;
    return true;
}

static void check_shape(Ctx *c, Pool *pool, const Isa *isa, const int s[7],
                        uint64_t *seed)
{
    int64_t crs = s[1] + 3;
    size_t nc = (size_t)(s[0] * crs) * sizeof(float);
    float *before = numbers(c, (size_t)(s[0] * crs), seed);
    float *once = ctx_alloc(c, nc + 1);
    Product p = { .m = s[0], .n = s[1], .k = s[2], .isa = isa,
                  .a = numbers(c, (size_t)(s[0] * (s[2] + 2)), seed),
                  .b = whole(c, s, seed),
                  .c = ctx_alloc(c, nc + TILE_SLACK * sizeof(float)),
                  .ars = s[4] ? 1 : s[2] + 2, .acs = s[4] ? s[0] : 1,
                  .brs = s[5] ? 1 : s[3], .bcs = s[5] ? s[2] : 1,
                  .crs = crs, .bare = true, .add = s[6] };

    for (int threads = 1; threads <= 3; threads++) {
        memcpy(p.c, before, nc);
        cpu_product(c, pool, threads, &p);
        expect(is_right(&p, before), "a product", &p);
        expect(is_untouched(&p, before), "what lies beside it", &p);
        if (threads == 1)
            memcpy(once, p.c, nc);
        expect(!memcmp(once, p.c, nc), "the bits of several threads", &p);
    }
}

static void check_products(Ctx *c, void *ud)
{
    static const char *const name[] = { "avx512", "avx2", "plain" };
    Pool *pool = pool_new(&c->mem);
    uint64_t seed = 11;

    (void)ud;
    for (int i = 0; i < 3; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (isa_find(name[i]))
                check_shape(c, pool, isa_find(name[i]), shapes[s], &seed);
    pool_release(pool);
}

static int run(void)
{
    Ctx *c = ctx_new();

    if (!ctx_protect(c, check_products, NULL)) {
        printf("%s\n", c->err.message);
        bad++;
    }
    ctx_free(c);
    return bad;
}

/* In a process of its own: which library there is is asked once. */
static int apart(int (*f)(const char *), const char *path)
{
    int status = 1;
    pid_t pid = fork();

    if (!pid)
        exit(f(path) != 0);
    waitpid(pid, &status, 0);
    return status != 0;
}

static int without(const char *path)
{
    (void)path;
    setenv("FLIN_BLAS", "0", 1);
    return run();
}

/* Where the loader has no such library; else by that one. */
static int as_found(const char *path)
{
    (void)path;
    setenv("FLIN_BLAS", "1", 1);
    return run();
}

static int number_of(void *lib, const char *name)
{
    atomic_int *x = dlsym(lib, name);

    return x ? atomic_load(x) : -1;
}

static int by_another(const char *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!lib) {
        printf("%s\n", dlerror());
        return 1;
    }
    unsetenv("FLIN_BLAS");
    run();
    bool taken = number_of(lib, "fake_calls") > 0;
    if (!taken) {
        printf("where it is faster it is not called\n");
        bad++;
    }
    if (number_of(lib, "fake_crowded") || number_of(lib, "fake_threads") != 5) {
        printf("its threads: %d calls with several, %d behind them\n",
               number_of(lib, "fake_crowded"), number_of(lib, "fake_threads"));
        bad++;
    }
    return bad;
}

/* Beside this program's folder. */
int main(int argc, char **argv)
{
    char path[4096];
    const char *end = argc ? strrchr(argv[0], '/') : NULL;

    snprintf(path, sizeof path, "%.*s/../cuda/fake/libopenblas.so.0",
             end ? (int)(end - argv[0]) : 1, end ? argv[0] : ".");
    bad = apart(without, path) + apart(as_found, path)
        + apart(by_another, path);
    return bad != 0;
}
