/* hostile.c -- no function of the library's takes what it is given on trust.
 *   hostile [CALLS [SEED [verbose]]]
 */
#include "tests/fuzz/functions.h"

static uint32_t draw(void *ud, uint32_t n)
{
    return (uint32_t)(rng_uniform(ud) * n);
}

int main(int argc, char **argv)
{
    enum { STATE = 500, ROUND = 50 };   /* calls in one state, on one budget */
    long most = argc > 1 ? atol(argv[1]) : 2000;
    Rng rng;
    Caller c = { .choose = draw, .ud = &rng, .verbose = argc > 3 };

    rng_seed(&rng, argc > 2 ? (uint64_t)atol(argv[2]) : 1);
    while (c.calls < most && c.late == 0) {
        if (!caller_open(&c))
            return 1;
        for (long from = c.calls; c.calls - from < STATE; )
            caller_run(&c, ROUND);
        caller_close(&c);
    }
    printf("%ld calls, %ld too late\n", c.calls, c.late);
    return c.late != 0;
}
