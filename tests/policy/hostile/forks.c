/* A fork bomb: everybody forks for ever, half of them into sessions of their own, doubly forked. */

#include "report.h"

int main(int argc, char **argv)
{
    report("begun", 0);
    for (unsigned i = argc > 1 ? atoi(argv[1]) : 0;; i++) {
        if (fork() == 0 && i % 2 == 0) {
            setsid();
            if (fork() != 0)
                _exit(0);
        }
        if (i > 1000)
            usleep(1000); /* nothing is to be had any more: stay, and go on trying */
    }
}
