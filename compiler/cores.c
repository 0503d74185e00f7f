/* cores.c -- how many processors there are for us. */
#define _GNU_SOURCE             /* sched_getaffinity */
#include "base.h"

#include <sched.h>
#include <unistd.h>

int cores(void)
{
    cpu_set_t ours;
    long n = sched_getaffinity(0, sizeof ours, &ours) == 0
           ? CPU_COUNT(&ours)
           : sysconf(_SC_NPROCESSORS_ONLN);    /* more than a set holds */

    return n < 1 ? 1 : (int)n;
}
