/* LD_PRELOAD shim: every fsync and fdatasync takes SLOW_SYNC_US microseconds more.
 * With SYNC_COUNT_FILE a process that ends by exit(3) writes there how many it made. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static atomic_long count;

static void delay(void) {
    atomic_fetch_add(&count, 1);
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

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("SYNC_COUNT_FILE");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", count);
    fclose(file);
}
