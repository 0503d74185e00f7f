/* source.c -- text that both emitters print: indented, with the numbers of a
 * printed plan.
 */
#include "source.h"

#include <string.h>

void source_indent(Buf *to, const char *s)
{
    int depth = 0, more = 0;
    for (const char *end; *s; s = *end ? end + 1 : end) {
        end = strchr(s, '\n');
        if (!end)
            end = s + strlen(s);
        bool plain = *s == '#' || (*s == '/' && !depth) || !strncmp(s, " *", 2)
                  || !strncmp(s, "name", 4) || !strncmp(s, "}  //", 5);
        int shown = depth - (*s == '}');
        buf_printf(to, "%*s%.*s\n", plain ? 0 : 4 * (shown + more), "",
                   (int)(end - s), s);
        for (const char *p = s; p < end && !plain; p++)
            depth += (*p == '{') - (*p == '}');
        more = end > s && !plain && !strchr(";{}/", end[-1])
            && s[0] != 'e' ? 1 : 0;
    }
}

const Plan *plan_as_printed(Ctx *c, const Plan *p)
{
    Buf text = { .ctx = c };
    plan_print(p, &text);
    return plan_parse(c, text.s);
}
