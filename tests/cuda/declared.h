/* declared.h -- what a printed kernel uses and does not declare: a fault that a
 * compiler alone would find, and where there is one another kernel runs.
 */
#ifndef FLIN_TESTS_DECLARED_H
#define FLIN_TESTS_DECLARED_H

#include "../../compiler/base.h"

#include <ctype.h>
#include <string.h>

enum { MOST_NAMES = 1 << 14 };

static bool is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The length of the name at s, if it is one of values: a letter, numbers. */
static size_t value_name(const char *s)
{
    static const char *const types[] = { "u8", "u16", "u32", "u64", "i8",
                                         "i16", "i32", "i64" };
    size_t n = 1 + strspn(s + 1, "0123456789");

    if (!islower((unsigned char)*s) || n == 1)
        return 0;
    if (s[n] == '_')
        n += 1 + strspn(s + n + 1, "0123456789");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == n && !strncmp(types[i], s, n))
            return 0;
    return is_of_name(s[n]) ? 0 : n;
}

/* Whether the name at s stands behind a type, or behind others that do. Behind
 * one with parameters, and not behind "greater than": it is given a value. */
static bool is_declared_at(const char *text, const char *s)
{
    const char *before = s, *behind = s + value_name(s);
    if (s - text > 2 && s[-1] == ' ' && s[-2] == '>' && s[-3] != ' ')
        return *behind == '(' || !strncmp(behind, " = ", 3);
    while (before > text && strchr(" *&", before[-1]))
        before--;
    if (before[-1] == '(' && *before == '&')
        before--;
    while (before > text && before[-1] == ' ')
        before--;
    if (before == text || before[-1] != ',')
        return before > text && before < s && is_of_name(before[-1])
            && strncmp(before - 6, "return", 6);
    while (before > text && !strchr(";{}", before[-1]))
        before--;
    before += strspn(before, " \n");
    size_t type = 0;
    while (is_of_name(before[type]))
        type++;
    return type && before[type] == ' ';
}

/* The place of the name in a table of names of the text, or where it is to
 * stand. */
static const char **find_name(const char **names, const char *s, size_t len)
{
    uint32_t h = 0;
    for (size_t i = 0; i < len; i++)
        h = h * 31 + (unsigned char)s[i];
    for (h %= MOST_NAMES; names[h]; h = (h + 1) % MOST_NAMES)
        if (!strncmp(names[h], s, len) && !is_of_name(names[h][len]))
            break;
    return &names[h];
}

/* The first such name; NULL: there is none. */
static const char *find_undeclared(Ctx *c, const char *text)
{
    const char **names = ctx_alloc(c, MOST_NAMES * sizeof *names);
    size_t len;

    for (const char *s = text; *s; s += len ? len : 1) {
        if (s[0] == '/' && s[1] == '/')
            s += strcspn(s, "\n");
        bool inside = s > text && (is_of_name(s[-1]) || s[-1] == '.');
        len = inside ? 0 : value_name(s);
        if (!len)
            continue;
        const char **at = find_name(names, s, len);
        if (!*at && !is_declared_at(text, s))
            return ctx_format(c, "%.*s", (int)len, s);
        *at = s;
    }
    return NULL;
}

#endif
