/* cores.c -- how many processors there are for us. */
#define _GNU_SOURCE             /* sched_getaffinity */
#include "base.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* The first `n` numbers of a file; false: it has fewer. */
static bool numbers_of(const char *path, int n, long *x)
{
    FILE *f = fopen(path, "re");
    int got = 0;

    while (f && got < n && fscanf(f, "%ld", &x[got]) == 1)
        got++;
    if (f)
        fclose(f);
    return got == n;
}

/* What a container's quota of processor time comes to (`docker --cpus`,
 * control groups of both kinds), rounded up; 0: it has none. */
static long quota(void)
{
    long x[2];

    if (!numbers_of("/sys/fs/cgroup/cpu.max", 2, x)
        && !(numbers_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 1, &x[0])
             && numbers_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us", 1, &x[1])))
        return 0;
    return x[0] > 0 && x[1] > 0 ? (x[0] - 1) / x[1] + 1 : 0;
}

int cores(void)
{
    cpu_set_t ours;
    long n = sched_getaffinity(0, sizeof ours, &ours) == 0
           ? CPU_COUNT(&ours)
           : sysconf(_SC_NPROCESSORS_ONLN),    /* more than a set holds */
         most = quota();

    if (most > 0 && most < n)
        n = most;
    return n < 1 ? 1 : (int)n;
}
