/* A fork bomb: everybody forks for ever, half of them into sessions of their own, doubly forked.

   Nobody who lives gives up his place, nor is it taken by the dead: at a bound, all up to it are alive. */

#include "report.h"

#include <signal.h>

int main(int argc, char **argv)
{
    signal(SIGCHLD, SIG_IGN);
    report("begun", 0);
    for (unsigned i = argc > 1 ? atoi(argv[1]) : 0;; i++) {
        if (fork() == 0 && i % 2 == 0) {
            setsid();
            if (fork() > 0)
                _exit(0);
        }
        if (i > 1000)
            usleep(1000); /* nothing is to be had any more: stay, and go on trying */
    }
}
