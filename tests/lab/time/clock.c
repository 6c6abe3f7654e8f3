/* Clocks that a test steps or holds, by a mapped file: what is added to the wall and to CLOCK_MONOTONIC, and
 * where the latter stands still.  CLOCK_BOOTTIME and the kernel's timers stay true, as in a machine that sleeps.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *added; /* nanoseconds: wall, monotonic, and where that is held (0: it runs) */

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LAB_CLOCKS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(0, 24, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) added = map;
    if (fd >= 0) close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int done = syscall(SYS_clock_gettime, clock, at);
    int64_t more = 0;
    if (done || !added) return done;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) more = added[0];
    int monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
    int64_t sum = at->tv_sec * 1000000000LL + at->tv_nsec + more;
    if (monotonic) sum = added[2] ? added[2] : sum + added[1];
    at->tv_sec = sum / 1000000000LL;
    at->tv_nsec = sum % 1000000000LL;
    return 0;
}

time_t time(time_t *into) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (into) *into = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    at->tv_sec = exact.tv_sec;
    at->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
