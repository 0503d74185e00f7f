/* signals.h -- the host's signals while NVRTC runs. Its front end takes SIGINT
 * and SIGTERM for half a second, and ends the process on either. */
#ifndef FLIN_CUDA_SIGNALS_H
#define FLIN_CUDA_SIGNALS_H

#include <signal.h>

enum { NSIGNALS = 2 };
typedef struct Signals {
    void *nvrtc;                        /* where the library lies */
    sigset_t mask;
    struct sigaction was[NSIGNALS];
} Signals;

/* The calling thread, and those it makes, take neither signal; `of` is an
 * address in NVRTC. */
void signals_hold(Signals *s, void *of);
/* Handlers that NVRTC has put in the place of the host's give way to these,
 * with all that sigaction() knows of them; by any thread. Two that compile at
 * a time may each take the other's for the host's. */
void signals_restore(const Signals *s);
/* The same, and what has come since goes to the host's. */
void signals_pass(const Signals *s);
/* The same, and the thread takes signals as before. */
void signals_end(const Signals *s);

#endif
