/* text.h -- the text form, for those that add lines to it (plans). */
#ifndef FLIN_TEXT_H
#define FLIN_TEXT_H

#include "ir.h"

/* A text being read, a word at a time. A word ends at white space; = and :
 * stand alone; # starts a comment. */
typedef struct Text {
    Ctx *c;
    Graph *g;
    const char *p;                      /* unread */
    int line;
    char word[64];                      /* in hand; "" at a line's end */
    Ref *map;                           /* the text's numbers to nodes */
    uint32_t nmap;
} Text;

void text_next(Text *t);                /* the next word of the line */
bool text_at(const Text *t, const char *word);
void text_take(Text *t, const char *word);  /* that word, or a fault */
Ref text_ref(Text *t);                  /* takes %7, a node made above */
int32_t text_int(Text *t, const char *what, int32_t min, int32_t max);
double text_num(Text *t);               /* takes a number, exactly */
int32_t text_line(Text *t);             /* takes @12, or nothing: 0 */
/* Takes a name (of what, for the message) into to[size]. */
void text_name(Text *t, const char *what, char *to, size_t size);

/* The word in hand, as a message shows it. */
const char *text_shown(const Text *t);
/* The decimal number at s, or -1; it is at most `max`. */
int32_t text_decimal(const char *s, int32_t max);
enum { TEXT_MAX_NUMBER = 100000 };      /* of a node */

/* parse_check.c: fails, with the line, on a node that node_new must not be
 * given, and on one (made) that is too large. */
void text_check(const Text *t, const Node *n);
void text_check_size(const Text *t, Ref r);

/* As graph_parse; `kernel` (or NULL) reads the lines that start so, the first
 * word taken. */
Graph *text_graph(Ctx *c, const char *s, void (*kernel)(Text *, void *),
                  void *ud);

/* As graph_print; the number that each node has in the text, 0: none. */
uint32_t *text_print(const Graph *g, Buf *out);

/* Words that no axis is written as, where it is called that. */
bool text_keyword(const char *s);

#endif
