/* Every way to use memory up: memory touch|forks|child|shared|memfd|tmpfs|spared.  Wants 512 MiB. */

#include "report.h"

#include <sys/mman.h>

#define PIECE (1UL << 20)
#define PIECES 512

static void touch(int pieces, int flags, int fd)
{
    for (int i = 0; i < pieces; i++) {
        if (fd >= 0 && ftruncate(fd, (i + 1) * PIECE) != 0)
            exit(4);
        char *piece = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, flags, fd, fd < 0 ? 0 : i * PIECE);
        if (piece == MAP_FAILED)
            exit(5);
        memset(piece, 1, PIECE);
    }
}

/* Many that are small each: whichever is killed, the next goes on. */
static void forks(void)
{
    for (int i = 0; i < 64; i++)
        if (fork() == 0) {
            touch(8, MAP_PRIVATE | MAP_ANONYMOUS, -1);
            for (;;)
                pause();
        }
    while (wait(NULL) > 0)
        ;
    for (;;)
        pause();
}

/* Its parent does not mind the loss, and leaves with success. */
static void child(void)
{
    if (fork() == 0) {
        setsid();
        touch(PIECES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        exit(0);
    }
    wait(NULL);
    for (;;)
        pause();
}

static void spared(void)
{
    FILE *file = fopen("/proc/self/oom_score_adj", "w");
    if (file) {
        fputs("-1000", file);
        fclose(file);
    }
    child();
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "touch";
    if (!strcmp(way, "touch"))
        touch(PIECES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    else if (!strcmp(way, "shared"))
        touch(PIECES, MAP_SHARED | MAP_ANONYMOUS, -1);
    else if (!strcmp(way, "memfd"))
        touch(PIECES, MAP_SHARED, memfd_create("bomb", 0));
    else if (!strcmp(way, "tmpfs"))
        touch(PIECES, MAP_SHARED, open("/dev/shm", O_TMPFILE | O_RDWR, 0600));
    else if (!strcmp(way, "forks"))
        forks();
    else if (!strcmp(way, "spared"))
        spared();
    else
        child();
    report(way, 0);
    return 0;
}
