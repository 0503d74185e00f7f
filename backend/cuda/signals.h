/* signals.h -- the host's signals while NVRTC runs. Its front end takes SIGINT
 * and SIGTERM for half a second, and ends the process on either. */
#ifndef FLIN_CUDA_SIGNALS_H
#define FLIN_CUDA_SIGNALS_H

#include <signal.h>

/* The calling thread, and those it makes, take neither signal, `mask` being
 * what they took before; `of` is an address in NVRTC. Handlers that are there
 * now are the host's until signals_leave, which comes once nothing that was
 * begun since is in NVRTC. Any number of threads may be in between. */
void signals_hold(sigset_t *mask, void *of);
/* Handlers that NVRTC has put in the place of the host's give way to these,
 * with all that sigaction() knows of them; by any thread. */
void signals_restore(void);
/* The same, and what has come since goes to the host's. */
void signals_pass(const sigset_t *mask);
/* The same, and the thread takes signals as before. */
void signals_end(const sigset_t *mask);
/* The same but for the thread's; by any thread. */
void signals_leave(void);

#endif
