/* threads.h -- whether a few more threads can be had. */
#ifndef FLIN_CUDA_THREADS_H
#define FLIN_CUDA_THREADS_H

#include <stdbool.h>

/* For libraries that end the process where they get none: asks first. Somebody
 * else may take them in between. */
bool threads_to_spare(int n);

#endif
