/* expect.h -- checks that count. */
#ifndef FLIN_TESTS_CUDA_EXPECT_H
#define FLIN_TESTS_CUDA_EXPECT_H

#include <stdbool.h>
#include <stdio.h>

static int passed, failed;

static inline void expect(bool ok, const char *what)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAIL %s\n", what);
}

static inline int report(void)
{
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

#endif
