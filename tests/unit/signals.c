/* signals.c -- two threads in NVRTC at a time: whichever comes and goes first,
 * the host's handlers are as they were. Here NVRTC is the C library: its
 * handlers, and how it takes and puts back the host's.
 */
#define _DEFAULT_SOURCE                 /* signal() as NVRTC has it */
#include "../../backend/cuda/signals.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { SIGNALS = 2, STEPS = 5 };
static const int number[SIGNALS] = { SIGINT, SIGTERM };
static pthread_barrier_t next;
static void *nvrtc;                     /* an address there, */
static void (*theirs)(int);             /* and as a handler */
static int bad;

/* In which step a thread holds the signals, NVRTC takes them, puts back what
 * it found there, and the thread leaves. */
typedef struct Turn { int hold, take, give, leave; } Turn;

static void on_signal(int sig) { (void)sig; }

static void *take_turn(void *ud)
{
    const Turn *t = ud;
    void (*was[SIGNALS])(int) = { NULL };
    sigset_t mask;
    for (int step = 0; step < STEPS; step++) {
        if (step == t->hold)
            signals_hold(&mask, nvrtc);
        for (int i = 0; i < SIGNALS && step == t->take; i++)
            was[i] = signal(number[i], theirs);
        for (int i = 0; i < SIGNALS && step == t->give; i++)
            signal(number[i], was[i]);
        if (step == t->leave) {
            signals_end(&mask);
            signals_leave();
        }
        pthread_barrier_wait(&next);
    }
    return NULL;
}

static void check(const char *what, Turn a, Turn b)
{
    struct sigaction mine = { .sa_handler = on_signal }, now;
    Turn turn[2] = { a, b };
    pthread_t thread[2];
    sigaddset(&mine.sa_mask, SIGALRM);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(number[i], &mine, NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, take_turn, &turn[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(number[i], NULL, &now);
        if (now.sa_handler == on_signal && !(now.sa_flags & SA_RESTART)
            && sigismember(&now.sa_mask, SIGALRM) == 1)
            continue;
        printf("%s: signal %d is not the host's as it was\n", what, number[i]);
        bad++;
    }
}

int main(void)
{
    nvrtc = dlsym(dlopen(NULL, RTLD_LAZY), "rand");
    memcpy(&theirs, &nvrtc, sizeof theirs);
    pthread_barrier_init(&next, NULL, 2);
    check("one after the other", (Turn){ 0, 0, 1, 1 }, (Turn){ 2, 2, 3, 3 });
    check("at once", (Turn){ 0, 1, 2, 3 }, (Turn){ 0, 1, 2, 3 });
    check("the first leaves first", (Turn){ 0, 0, 2, 2 },
          (Turn){ 1, 1, 3, 4 });
    check("the first leaves last", (Turn){ 0, 0, 4, 4 }, (Turn){ 1, 1, 2, 3 });
    check("the second comes between", (Turn){ 0, 1, 2, 4 },
          (Turn){ 1, 2, 3, 3 });
    return bad != 0;
}
