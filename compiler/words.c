/* words.c -- a graph's text, word by word: names, numbers, nodes. */
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool ends_line(char c)
{
    return c == 0 || c == '\n' || c == '#';
}

void text_next(Text *t)
{
    size_t n = 0;

    while (is_space(*t->p))
        t->p++;
    if (*t->p == '=' || *t->p == ':')
        t->word[n++] = *t->p++;
    else
        while (!ends_line(*t->p) && !is_space(*t->p) && *t->p != '='
               && *t->p != ':') {
            if (n + 1 == sizeof t->word)
                fail(t->c, t->line, "a word of more than %zu characters", n);
            t->word[n++] = *t->p++;
        }
    t->word[n] = 0;
}

bool text_at(const Text *t, const char *word)
{
    return !strcmp(t->word, word);
}

const char *text_shown(const Text *t)
{
    return *t->word ? t->word : "the end of the line";
}

void text_take(Text *t, const char *word)
{
    if (!text_at(t, word))
        fail(t->c, t->line, "expected %s, found %s", word, text_shown(t));
    text_next(t);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

void text_name(Text *t, const char *what, char *to, size_t size)
{
    bool ok = is_letter(t->word[0]);

    for (const char *s = t->word; *s; s++)
        ok &= is_letter(*s) || is_digit(*s);
    if (!ok || strlen(t->word) >= size)
        fail(t->c, t->line, "expected a name for the %s, of at most %zu "
             "letters and digits, found %s", what, size - 1, text_shown(t));
    memcpy(to, t->word, strlen(t->word) + 1);
    text_next(t);
}

int32_t text_decimal(const char *s, int32_t max)
{
    int64_t n = 0;

    if (!*s)
        return -1;
    for (; *s; s++) {
        if (!is_digit(*s) || (n = n * 10 + (*s - '0')) > max)
            return -1;
    }
    return (int32_t)n;
}

int32_t text_int(Text *t, const char *what, int32_t min, int32_t max)
{
    int32_t n = text_decimal(t->word, max);

    if (n < min)
        fail(t->c, t->line, "expected %s, from %d to %d, found %s", what, min,
             max, text_shown(t));
    text_next(t);
    return n;
}

Ref text_ref(Text *t)
{
    int32_t n = t->word[0] != '%' ? -1
              : text_decimal(t->word + 1, TEXT_MAX_NUMBER);

    if (n < 0)
        fail(t->c, t->line, "expected a node such as %%7, found %s",
             text_shown(t));
    if ((uint32_t)n >= t->nmap || !t->map[n])
        fail(t->c, t->line, "%%%d is not made yet", n);
    text_next(t);
    return t->map[n];
}

int32_t text_line(Text *t)
{
    int32_t n;

    if (t->word[0] != '@')
        return 0;
    n = text_decimal(t->word + 1, INT32_MAX);
    if (n < 0)
        fail(t->c, t->line, "expected a line such as @12, found %s",
             text_shown(t));
    text_next(t);
    return n;
}

/* ---- numbers ---- */

static int digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Digits with a point among them: the value without it, and how many stand
 * behind. False when they are too many to be exact. */
static bool read_digits(const char **p, int base, uint64_t *value,
                        int *behind)
{
    bool point = false, any = false;

    *value = 0;
    *behind = 0;
    for (;; ++*p) {
        if (**p == '.' && !point) {
            point = true;
            continue;
        }
        if (digit_value(**p) >= base)
            return any;
        if (*value > ((uint64_t)1 << 53))
            return false;
        *value = *value * (unsigned)base + (unsigned)digit_value(**p);
        *behind += point;
        any = true;
    }
}

/* The exponent behind `mark`, if it is there. */
static bool read_exponent(const char **p, char mark, int *e)
{
    int32_t n;
    bool minus;

    *e = 0;
    if ((**p | 32) != mark)
        return **p == 0;
    ++*p;
    minus = **p == '-';
    if (**p == '-' || **p == '+')
        ++*p;
    n = text_decimal(*p, 5000);
    *e = minus ? -n : n;
    return n >= 0;
}

/* Exact, whatever the locale: a decimal only where one division by a power
 * of ten is. */
static bool to_double(const char *s, double *x)
{
    double sign = *s == '-' ? -1 : 1, power = 1;
    uint64_t m;
    int behind, e;

    s += *s == '-';
    if (!strcmp(s, "inf") || !strcmp(s, "nan")) {
        *x = *s == 'i' ? sign * INFINITY : NAN;
        return true;
    }
    bool hex = s[0] == '0' && (s[1] | 32) == 'x';
    s += hex ? 2 : 0;
    if (!read_digits(&s, hex ? 16 : 10, &m, &behind)
        || !read_exponent(&s, hex ? 'p' : 'e', &e)
        || m > (uint64_t)1 << 53)
        return false;
    if (hex) {
        *x = sign * ldexp((double)m, e - 4 * behind);
        return true;
    }
    e -= behind;
    if (e < -22 || e > 22)
        return false;
    for (int i = 0; i < abs(e); i++)
        power *= 10;
    *x = sign * (e < 0 ? (double)m / power : (double)m * power);
    return true;
}

double text_num(Text *t)
{
    double x;

    if (!to_double(t->word, &x))
        fail_help(t->c, t->line, "in hexadecimal: 0x1.8p-1",
                  "%s is not a number that can be read exactly", text_shown(t));
    text_next(t);
    return x;
}
