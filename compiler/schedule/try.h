/* try.h -- what is switched on by FLIN_TRY while it is measured. */
#ifndef FLIN_TRY_H
#define FLIN_TRY_H
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
static inline bool tries(const char *name)
{
    const char *s = getenv("FLIN_TRY");
    size_t n = strlen(name);
    for (; s && *s; s += strcspn(s, ","), s += *s == ',')
        if (strcspn(s, ",") == n && !strncmp(s, name, n))
            return true;
    return false;
}
#endif
