/* turn.h -- angles that states turn with. */
#ifndef FLIN_TURN_H
#define FLIN_TURN_H

#include "ir.h"

/* x cos(angle) + rot90(x) sin(angle), the same angle for both of a pair. */
typedef struct Rotation { Ref x, angle, cos, sin; int axis; } Rotation;

bool rotation_of(const Graph *g, Ref r, Rotation *out);

/* An angle phi, states that turn with it, and all that reads them. */
typedef struct Turn {
    int angle, twin;                    /* the state phi; the one that it is
                                           a twin of, or -1 */
    int axis, pairs;                    /* what turns, pair by pair; phi's */
    StateSet states;                    /* that turn with it */
    uint8_t *type;                      /* of the forward nodes */
} Turn;

enum { TURN_STATES = 2 };

/* Whether, with phi larger by d from some chunk on and the states turned by d
 * there, all results are what they were, and the states that are left turned
 * by d: proved node by node. g: a chunk graph, without its gradient. */
bool turn_find(const Graph *g, int angle, Turn *t);

/* The adjoint of phi as the chunk leaves it; declares TURN_STATES states that
 * carry what it takes. adjoint: of the states, by number. */
Ref turn_adjoint(Graph *g, const Turn *t, const int *adjoint);

#endif
