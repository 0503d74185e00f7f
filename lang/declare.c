/* declare.c -- what a declaration may be: names, axes, domains. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "../compiler/domain.h"
#include "bind.h"
#include "declare.h"
#include "value.h"

static const char *const domain_names[] = {
#define DOMAIN(name, from, value, of, breaks, wanted, unit, help) #name,
#include "../compiler/domains.def"
#undef DOMAIN
};

/* What calls use themselves. */
static const char *const reserved[] = { "initial_state", "state", "saved",
    "save", "cu_seqlens", "chunk", "backend", "threads", "inplace", "dy",
    "plan", "memory", "checkpoint", "states", "spend" };
enum { NRESERVED = sizeof reserved / sizeof *reserved };

/* The axes less those that calls bring, in small letters; pushed. */
static const char *own_axes(lua_State *L, const char *axes)
{
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    for (const char *p = axes; *p && *p != ':'; p++) {
        bool alone = (p == axes || p[-1] == ' ') && strchr(" :", p[1]);
        if (alone && (*p == 'B' || *p == 'H'))
            p += p[1] == ' ';
        else
            luaL_addchar(&b, (char)tolower((unsigned char)*p));
    }
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

/* B, T and H mean sizes of calls wherever options are named. */
static void check_layout(lua_State *L, const char *who, const char *field,
                         const char *name, const char *axes)
{
    for (const char *p = axes; *p && *p != ':'; p++) {
        bool alone = (p == axes || p[-1] == ' ') && strchr(" :", p[1]);
        if (!alone || !strchr("BTH", *p))
            continue;
        lang_fail(L, lua_pushfstring(L, "%s = \"%s\"", name,
                                     own_axes(L, axes)),
                  "%s: %s '%s': axis %c: batch and heads are never "
                  "named, and the tokens' axis is t", who, field, name, *p);
    }
}

/* "index n" behind the colon. */
static void check_index(lua_State *L, const char *who, const char *name,
                        const char *text)
{
    char word[32], more[2];

    if (sscanf(text, " index %31s %1s", word, more) != 1)
        lang_fail(L, "label = \"t : index n\", for entries of axis n",
                  "%s: input '%s': an index is one of an axis", who, name);
    if (!axis_name_ok(word) || !strcmp(word, "t"))
        lang_fail(L, "label = \"t : index n\", for entries of axis n",
                  "%s: input '%s': '%s' is not the name of an axis", who,
                  name, word);
}

static void check_domain(lua_State *L, const char *who, const char *name,
                         const char *axes)
{
    const char *colon = strchr(axes, ':');
    char word[32], more[2];

    if (!colon)
        return;
    int n = sscanf(colon + 1, " %31s %1s", word, more);
    if (n > 0 && !strcmp(word, "index")) {
        check_index(L, who, name, colon + 1);
        return;
    }
    if (n < 1)
        lang_fail(L, words_text(L, domain_names, DOMAINS), "%s: input '%s': no "
                  "domain after ':'", who, name);
    if (n > 1 || !in_list(word, domain_names, DOMAINS))
        lang_fail(L, suggest(L, word, "domains", domain_names, DOMAINS),
                  "%s: input '%s': there is no domain '%s'", who, name,
                  n > 1 ? colon + 1 + strspn(colon + 1, " ") : word);
}

/* A state may be declared an angle. */
static void check_angle(lua_State *L, const char *who, const char *name,
                        const char *axes)
{
    const char *colon = strchr(axes, ':');
    char word[32] = "", more[2];

    if (colon && (sscanf(colon + 1, " %31s %1s", word, more) != 1
                  || strcmp(word, "angle")))
        lang_fail(L, "phi = \"p : angle\" keeps a state modulo 2 pi; else it "
                  "starts from what the call gives, or 0", "%s: "
                  "state '%s': '%s' is no domain of a state", who, name,
                  colon + 1 + strspn(colon + 1, " "));
}

void declared_axes(lua_State *L, const char *who, const char *field,
                   const char *name, const char *axes)
{
    check_layout(L, who, field, name, axes);
    if (*field == 's')
        check_angle(L, who, name, axes);
    else
        check_domain(L, who, name, axes);
}

void declared_name(lua_State *L, const char *who, const char *what,
                   const char *name)
{
    if (!axis_name_ok(name))
        lang_fail(L, "a letter, then letters, digits and _: 20 at most",
                  "%s: %s '%s' is not a usable name", who, what, name);
    if (*what == 'i' && in_list(name, reserved, NRESERVED))
        lang_fail(L, words_text(L, reserved, NRESERVED), "%s: input '%s':"
                  " that name is for what calls take themselves", who, name);
    if (*what == 'i' && !strncmp(name, "dy_", 3))
        lang_fail(L, NULL, "%s: input '%s': names with dy_ are for the "
                  "gradients of results", who, name);
    if (*what == 's' && !strncmp(name, "prev_", 5))
        lang_fail(L, "flin.prev(x.NAME) makes the state prev_NAME",
                  "%s: state '%s': names with prev_ are for flin.prev",
                  who, name);
}
