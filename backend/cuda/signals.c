/* signals.c -- keeps NVRTC from ending the process on Ctrl-C. */
#define _GNU_SOURCE                     /* dladdr */
#include "signals.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const int number[NSIGNALS] = { SIGINT, SIGTERM };

/* The library in which the address lies, or NULL. */
static void *library_of(void *at)
{
    Dl_info info;
    return dladdr(at, &info) ? info.dli_fbase : NULL;
}

static bool is_nvrtc(const Signals *s, const struct sigaction *a)
{
    void *handler;
    memcpy(&handler, &a->sa_handler, sizeof handler);
    return s->nvrtc && library_of(handler) == s->nvrtc;
}

/* As signal() leaves them, by which NVRTC puts the host's handler back: waits
 * that the host wants to end with EINTR would go on, and a handler that wants
 * a siginfo_t would get none. */
static bool is_bare(const struct sigaction *a)
{
    return (a->sa_flags & (SA_RESTART | SA_SIGINFO | SA_ONSTACK | SA_NODEFER
                           | SA_RESETHAND)) == SA_RESTART;
}

static sigset_t held(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < NSIGNALS; i++)
        sigaddset(&set, number[i]);
    return set;
}

void signals_hold(Signals *s, void *of)
{
    sigset_t set = held();
    s->nvrtc = library_of(of);
    pthread_sigmask(SIG_BLOCK, &set, &s->mask);
    for (int i = 0; i < NSIGNALS; i++)
        sigaction(number[i], NULL, &s->was[i]);
}

void signals_restore(const Signals *s)
{
    struct sigaction now;
    for (int i = 0; i < NSIGNALS; i++) {
        bool theirs = is_nvrtc(s, &s->was[i]);  /* of another thread's call */
        sigaction(number[i], NULL, &now);
        bool half = now.sa_handler == s->was[i].sa_handler && is_bare(&now);
        if (!theirs && (is_nvrtc(s, &now) || half))
            sigaction(number[i], &s->was[i], NULL);
    }
}

void signals_pass(const Signals *s)
{
    sigset_t set = held();
    signals_restore(s);
    pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void signals_end(const Signals *s)
{
    signals_restore(s);
    pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
}
