/* cycles.c -- kernels are compiled and freed, variants loaded and released,
 * over and over, without growth: of what flin takes through the host's
 * allocator, and of the process. Now and then a state of its own, with threads.
 *
 *     cycles [N]      N cycles (1000); 100000 take minutes
 */
#include <unistd.h>

#include "host.h"

enum { WARM = 100, LOAD = 10, BACKWARD = 50, LOOK = 20, D = 4 };

static const char script[] =
    "local flin = require 'flin'\n"
    "return flin.variant {\n"
    "  input = { k = 't k', v = 't v', g = 't' }, state = { S = 'k v' },\n"
    "  step = function (x, s)\n"
    "    local S = flin.exp(x.g) * s.S + flin.outer(x.k, x.v)\n"
    "    return { S = S }, flin.dot(x.k, S)\n"
    "  end }\n";

static size_t in_use;

static void *counted(void *ud, void *p, size_t old, size_t size)
{
    (void)ud;
    in_use += size - (p ? old : 0);
    if (size)
        return realloc(p, size);
    free(p);
    return NULL;
}

/* Bytes of memory that the process has; 0: not known, or, with a sanitizer
 * that keeps what is freed, beside the point. */
static size_t resident(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 0;
#else
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");

    if (f && fscanf(f, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
#endif
}

/* One of each: what a kernel takes is given back to the last byte. */
static bool cycle(flin_State *s, flin_Variant *v, const Layer *l, long i)
{
    flin_Mode mode = i % BACKWARD ? FLIN_FORWARD : FLIN_BACKWARD;
    size_t before = in_use;
    flin_Kernel *k = flin_prepare(v, mode, &l->call, NULL);
    bool ok = k && in_use > before;

    flin_free(k);
    ok = ok && in_use == before;
    if (i % LOAD == 0) {
        v = flin_load_string(s, script, "again.lua", NULL);
        ok = ok && v && !flin_forward(v, &l->call, NULL);
        flin_release(v);
    }
    return ok;
}

/* A state with threads, gone before the kernel that runs on them. */
static bool state_cycle(const Layer *l)
{
    flin_Options o = { .size = sizeof o, .alloc = counted };
    size_t before = in_use;
    flin_State *s = flin_open(&o, NULL);
    flin_Variant *v = flin_load_string(s, script, "host.lua", NULL);
    flin_Kernel *k = flin_prepare(v, FLIN_FORWARD, &l->call, NULL);

    flin_close(s);
    bool ok = !flin_run(k, &l->call, NULL, NULL);
    flin_free(k);
    return ok && in_use == before;
}

int main(int argc, char **argv)
{
    flin_Options o = { .size = sizeof o, .alloc = counted };
    flin_State *s = flin_open(&o, NULL);
    flin_Variant *v = flin_load_string(s, script, "host.lua", NULL);
    Layer *l = layer_new(v, 1, 8, 1, D, FLIN_F32);
    Layer *many = layer_new(v, 1, 1024, 4, 2 * D, FLIN_F32);
    long n = argc > 1 ? atol(argv[1]) : 1000, good = 0;
    size_t most[2] = { 0 }, process[2] = { 0 };

    l->call.chunk = 16;
    many->call.threads = 2;
    for (long i = 0; i < WARM + n; i++) {
        good += cycle(s, v, l, i)
             && (i % BACKWARD || state_cycle(many));
        bool second = i >= WARM + n / 2;
        most[second] = in_use > most[second] ? in_use : most[second];
        if (i % LOOK == 0) {
            size_t now = resident();
            process[second] = now > process[second] ? now : process[second];
        }
    }
    CHECK(good == WARM + n);
    /* collections come when they come: the most of each half */
    CHECK(most[1] <= most[0] + most[0] / 20);
    CHECK(process[1] <= process[0] + (1 << 20));
    printf("%ld cycles: at most %zu bytes in the first half, %zu in the "
           "second\n", WARM + n, most[0], most[1]);
    layer_free(l);
    layer_free(many);
    flin_close(s);
    CHECK(in_use == 0);
    return report();
}
