/* source.c -- what kernels' texts are made of: indented, with the numbers of a
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

const char *ctype_text(DType d)
{
    static const char *const text[NDTYPES] = {
        [F32] = "float", [BF16] = "bf16", [F16] = "f16", [F64] = "double"
    };

    return text[d];
}

/* Bits, not digits: printf's decimal point depends on the locale. */
void number_text(Buf *b, double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (x == (int)x && x >= 0 && x < 1000)
        buf_printf(b, "%d.f", (int)x);
    else
        buf_printf(b, "bits(0x%08x)", (unsigned)u);
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'
        || (c >= '0' && c <= '9');
}

/* Whether the character at p of v is a name by itself. */
static bool is_name(const char *v, const char *p)
{
    return (p == v || !word_char(p[-1])) && word_char(*p) && !word_char(p[1]);
}

void value_text(Buf *b, int op, const char *const operand[3])
{
    const char *v = op_info[op].value;
    for (const char *p = v; *p; p++) {
        if (is_name(v, p) && *p >= 'a' && *p <= 'c')
            buf_printf(b, "%s", operand[*p - 'a']);
        else
            buf_put(b, p, 1);
    }
}

char *entry_text(Ctx *c, const Node *n, const char *k, EntryAt *x,
                 const void *ud)
{
    static const char index[] = "n->index";
    Buf b = { .ctx = c }, *to = &b, at = { .ctx = c };
    const char *v = op_info[n->op].value;
    for (const char *p = v; *p; p++) {
        if (is_name(v, p) && *p == 'k') {
            buf_printf(to, "%s", k);
        } else if (is_name(v, p) && *p == 'x') {
            to = &at;                   /* up to its parenthesis */
            at.len = 0;
            p++;
        } else if (to == &at && *p == ')') {
            to = &b;
            buf_printf(to, "%s", x(ud, n->a[0], at.s));
        } else if (!strncmp(p, index, sizeof index - 1)) {
            buf_printf(to, "%d", n->index);
            p += sizeof index - 2;
        } else {
            buf_put(to, p, 1);
        }
    }
    return b.s;
}
