/* threads.c -- whether a few more threads can be had: by making them. */
#include "threads.h"

#include <pthread.h>

static void *stay(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

bool threads_to_spare(int n)
{
    enum { MOST = 16 };
    pthread_mutex_t gate;
    pthread_t thread[MOST];
    int made = 0;

    n = n < MOST ? n : MOST;
    pthread_mutex_init(&gate, NULL);
    pthread_mutex_lock(&gate);
    while (made < n && !pthread_create(&thread[made], NULL, stay, &gate))
        made++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < made; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&gate);
    return made == n;
}
