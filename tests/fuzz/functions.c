/* functions.c -- the fuzzer's bytes choose what is called, and with what. */
#include "counted.h"
#include "functions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What is left of the input; zeros behind it. */
typedef struct Bytes { const uint8_t *at, *end; } Bytes;

static uint32_t take(void *ud, uint32_t n)
{
    Bytes *b = ud;
    uint32_t x = 0;

    for (uint32_t room = n - 1; room; room >>= 8)
        x = x << 8 | (b->at < b->end ? *b->at++ : 0);
    return x % n;
}

static unsigned long long calls;

static void report(void)
{
    fprintf(stderr, "functions: %llu calls\n", calls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { CALLS = 200, BYTES_A_CALL = 12 };
    static bool begun;
    Bytes b = { data, data + n };
    Caller c = { .choose = take, .ud = &b };
    size_t some = n / BYTES_A_CALL + 1;

    if (!begun)
        atexit(report);
    begun = true;
    if (caller_open(&c))
        caller_run(&c, some < CALLS ? (int)some : CALLS);
    caller_close(&c);
    if (c.late)
        abort();
    calls += (unsigned long long)c.calls;
    stop_when_enough(calls, report);
    return 0;
}
