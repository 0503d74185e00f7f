/* signals.c -- keeps NVRTC from ending the process on Ctrl-C. */
#define _GNU_SOURCE                     /* dladdr */
#include "signals.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { NSIGNALS = 2 };
static const int number[NSIGNALS] = { SIGINT, SIGTERM };

/* Handlers are the process's, and so is this. Where two threads are in NVRTC
 * the later one takes the handlers of the earlier for the host's, and may put
 * them back when that one is gone. */
static struct Host {
    pthread_mutex_t lock;
    int inside;                         /* who holds */
    pid_t pid;                          /* a forked child has no such threads */
    void *nvrtc;                        /* where the library lies */
    void *other;                        /* a handler that is not of it */
    bool known[NSIGNALS];
    struct sigaction was[NSIGNALS];
} host = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The library in which the address lies, or NULL. */
static void *library_of(void *at)
{
    Dl_info info;
    return dladdr(at, &info) ? info.dli_fbase : NULL;
}

/* Asked every millisecond, and the loader looks through all libraries. */
static bool is_nvrtc(const struct sigaction *a)
{
    void *handler;
    memcpy(&handler, &a->sa_handler, sizeof handler);
    if (!host.nvrtc || handler == host.other)
        return false;
    if (library_of(handler) == host.nvrtc)
        return true;
    host.other = handler;
    return false;
}

/* As signal() leaves them, by which NVRTC puts the host's handler back: waits
 * that the host wants to end with EINTR would go on, and a handler that wants
 * a siginfo_t would get none. */
static bool is_bare(const struct sigaction *a)
{
    return (a->sa_flags & (SA_RESTART | SA_SIGINFO | SA_ONSTACK | SA_NODEFER
                           | SA_RESETHAND)) == SA_RESTART;
}

/* Not the host's own, or no longer whole. */
static bool is_taken(int i, const struct sigaction *now)
{
    return is_nvrtc(now)
        || (host.known[i] && now->sa_handler == host.was[i].sa_handler
            && is_bare(now));
}

static sigset_t blocked(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < NSIGNALS; i++)
        sigaddset(&set, number[i]);
    return set;
}

/* Locked. A host may have others by now than when the first came. */
static void find_handlers(void)
{
    for (int i = 0; i < NSIGNALS; i++) {
        struct sigaction now;
        sigaction(number[i], NULL, &now);
        if (is_taken(i, &now))
            continue;
        host.was[i] = now;
        host.known[i] = true;
    }
}

/* Locked. */
static void put_back(void)
{
    for (int i = 0; i < NSIGNALS; i++) {
        struct sigaction now;
        sigaction(number[i], NULL, &now);
        if (host.known[i] && is_taken(i, &now))
            sigaction(number[i], &host.was[i], NULL);
    }
}

void signals_hold(sigset_t *mask, void *of)
{
    sigset_t set = blocked();
    pthread_sigmask(SIG_BLOCK, &set, mask);
    pthread_mutex_lock(&host.lock);
    if (!host.inside)
        memset(host.known, 0, sizeof host.known);
    host.inside = host.pid == getpid() ? host.inside + 1 : 1;
    host.pid = getpid();
    host.nvrtc = library_of(of);
    host.other = NULL;
    find_handlers();
    pthread_mutex_unlock(&host.lock);
}

static void restore(int leaving)
{
    pthread_mutex_lock(&host.lock);
    put_back();
    host.inside -= leaving;
    pthread_mutex_unlock(&host.lock);
}

void signals_restore(void) { restore(0); }
void signals_leave(void) { restore(1); }

void signals_pass(const sigset_t *mask)
{
    sigset_t set = blocked();
    signals_restore();
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void signals_end(const sigset_t *mask)
{
    signals_restore();
    pthread_sigmask(SIG_SETMASK, mask, NULL);
}
