/* What every hostile program says: one line for each attempt, "<name> <errno's name>" or "<name> done". */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((unused)) static void report(const char *name, long result)
{
    printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "done");
    fflush(stdout);
}

/* Start over as a daemon that nobody knows: two forks, a session of its own, an empty environment. */
__attribute__((unused)) static void start_over(char **argv)
{
    int done[2];
    char last;
    if (pipe2(done, 0) != 0)
        exit(3);
    if (fork() == 0) {
        char *empty[] = {NULL};
        setsid();
        if (fork() != 0)
            _exit(0);
        dup2(done[1], 0); /* the one place where it is not a descriptor too many */
        close(done[0]);
        close(done[1]);
        execve("/proc/self/exe", argv, empty);
        _exit(3);
    }
    close(done[1]);
    wait(NULL);
    while (read(done[0], &last, 1) > 0) /* ends with the daemon */
        ;
    exit(0);
}
