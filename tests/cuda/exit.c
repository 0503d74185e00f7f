/* exit.c -- a process ends while a thread of its compiles: NVRTC's destructors
 * wait for that, a forked child's end does not. On the driver of tests alone.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../host/host.h"

static void *run(void *ud)
{
    flin_Error e;
    flin_State *s = flin_open(NULL, &e);
    flin_Variant *v = flin_stdlib(s, "linear", &e);
    Layer *l = layer_new(v, 1, 20, 1, 16, FLIN_F32);

    (void)ud;
    l->call.backend = "cuda";
    flin_forward(v, &l->call, &e);      /* too late, or interrupted */
    return NULL;
}

int main(void)
{
    char path[] = "/tmp/flin-exit-XXXXXX";      /* there once it compiles */
    struct timespec some = { .tv_nsec = 1000000 };
    pthread_t thread;
    int status = 1;

    CHECK(close(mkstemp(path)) == 0 && unlink(path) == 0);
    setenv("FAKE_SOURCES", path, 1);
    pthread_create(&thread, NULL, run, NULL);
    for (int i = 0; i < 60000 && access(path, F_OK); i++)
        nanosleep(&some, NULL);
    CHECK(unlink(path) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        exit(7);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return report();
}
