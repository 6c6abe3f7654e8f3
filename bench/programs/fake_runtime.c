/* An OCI runtime for conmon that only does what the measure needs.
 *
 * "create": fork the program named in BUNDLE/args (one argument a line), write its pid to the
 * pid file, and leave it running; its stdio is what conmon gave us.  Anything else: success. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *bundle = NULL, *pidfile = NULL;
    int create = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "create")) create = 1;
        if (!strcmp(argv[i], "--bundle") && i + 1 < argc) bundle = argv[i + 1];
        if (!strcmp(argv[i], "--pid-file") && i + 1 < argc) pidfile = argv[i + 1];
    }
    if (!create) return 0;
    if (!bundle || !pidfile) return 2;
    char path[4096];
    snprintf(path, sizeof path, "%s/args", bundle);
    FILE *file = fopen(path, "r");
    if (!file) return 3;
    char *args[64] = {0};
    size_t size = 0;
    int count = 0;
    while (count < 63 && getline(&args[count], &size, file) > 0) {
        args[count][strcspn(args[count], "\n")] = 0;
        count++;
        size = 0;
    }
    args[count] = NULL;
    fclose(file);
    pid_t child = fork();
    if (child < 0) return 4;
    if (child == 0) {
        execvp(args[0], args);
        _exit(127);
    }
    file = fopen(pidfile, "w");
    if (!file) return 5;
    fprintf(file, "%d", (int)child);
    return fclose(file) != 0;
}
