/* LD_PRELOAD shim: every fsync and fdatasync takes SLOW_SYNC_US microseconds more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void delay(void) {
    const char *text = getenv("SLOW_SYNC_US");
    long microseconds = text ? atol(text) : 0;
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    if (microseconds > 0) nanosleep(&pause, NULL);
}

#define SLOW(name)                                      \
    int name(int fd) {                                  \
        static int (*real)(int);                        \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name); \
        delay();                                        \
        return real(fd);                                \
    }

SLOW(fsync)
SLOW(fdatasync)
