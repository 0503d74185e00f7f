/* ptxas.c -- what ptxas has to say of a program, in its log's words. */
#include "nvrtc.h"

#include <stdlib.h>
#include <string.h>

/* The number before `what` on the line, -1 if it is not there. */
static int number_before(const char *line, const char *end, const char *what)
{
    const char *p = strstr(line, what);
    if (!p || p >= end)
        return -1;
    while (p > line && p[-1] == ' ')
        p--;
    while (p > line && p[-1] >= '0' && p[-1] <= '9')
        p--;
    return atoi(p);
}

static void raise_to(int *x, int y)
{
    if (y > *x)
        *x = y;
}

static void read_line(PtxasInfo *info, const char *line, const char *end)
{
    raise_to(&info->stack, number_before(line, end, " bytes stack frame"));
    raise_to(&info->spill_stores,
             number_before(line, end, " bytes spill stores"));
    raise_to(&info->spill_loads,
             number_before(line, end, " bytes spill loads"));
    raise_to(&info->registers, number_before(line, end, " registers"));
    const char *note = strstr(line, "C75");
    if (note && note < end) {
        int code = atoi(note + 1);
        if (code >= 7510 && code <= 7519)
            info->serialised = code;
    }
}

PtxasInfo ptxas_info(const char *log)
{
    PtxasInfo info = { 0 };
    for (const char *p = log; *p; ) {
        const char *end = strchr(p, '\n');
        if (!end)
            end = p + strlen(p);
        read_line(&info, p, end);
        p = *end ? end + 1 : end;
    }
    return info;
}
