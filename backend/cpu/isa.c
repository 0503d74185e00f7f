/* isa.c -- choose the instruction set. */
#include "isa.h"

#include <string.h>

static bool has_avx512(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

static bool has_avx2(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

const Isa *isa_find(const char *name)
{
    const struct { const Isa *isa; bool usable; } all[] = {
        { isa_avx512(), has_avx512() },
        { isa_avx2(), has_avx2() },
        { isa_plain(), true },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].usable && (!name || strcmp(name, all[i].isa->name) == 0))
            return all[i].isa;
    return NULL;
}
