/* counted.h -- how many calls a fuzzer has made, and how many are enough: in a
 * run that counts calls (FUZZ_CALLS) and not seconds, the process ends with
 * status 0 when it has made that many and nothing leaks.
 */
#ifndef FLIN_TESTS_COUNTED_H
#define FLIN_TESTS_COUNTED_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sanitizer/lsan_interface.h>

/* What NVRTC keeps for the main thread, where LeakSanitizer does not look. */
const char *__lsan_default_suppressions(void)
{
    return "leak:pthread_setspecific\n";
}

/* Behind an input. libFuzzer takes exit() for a fault of what it tests. */
static void stop_when_enough(unsigned long long calls, void report(void))
{
    const char *enough = getenv("FUZZ_CALLS");

    if (!enough || calls < strtoull(enough, NULL, 10))
        return;
    report();
    if (__lsan_do_recoverable_leak_check())
        abort();
    _exit(0);
}

#endif
