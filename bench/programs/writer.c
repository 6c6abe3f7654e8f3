/* A program that writes, and knows how long each of its writes took.
 *
 *   writer blocks SIZE COUNT REPORT [SECRETS]   COUNT writes of SIZE bytes of 80-byte lines
 *   writer stamps COUNT MICROSECONDS            a line with CLOCK_MONOTONIC every so often
 *   writer chat SECONDS                         20 lines, one write each, every millisecond
 *
 * REPORT gets "<longest write, ns> <first to last, ns>\n".  With SECRETS each block holds one
 * of that many secrets, in turn ("bench-secret-NN-0123456789").  */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void nap(long microseconds) {
    struct timespec t = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static void put(const char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(1, data, size);
        if (done < 0) exit(1);
        data += done;
        size -= (size_t)done;
    }
}

static void fill(char *data, size_t size) {
    for (size_t i = 0; i < size; i++)
        data[i] = i % 80 == 79 || i == size - 1 ? '\n' : (char)('a' + (i * 7 + i / 80) % 26);
}

static int blocks(char **argv, int secrets) {
    size_t size = strtoul(argv[2], NULL, 10);
    long count = atol(argv[3]);
    char *data = malloc(size);
    fill(data, size);
    long long longest = 0, begin = now();
    for (long i = 0; i < count; i++) {
        if (secrets) {
            char word[32];
            int length = snprintf(word, sizeof word, "bench-secret-%02ld-0123456789", i % secrets);
            memcpy(data + 80, word, (size_t)length);
        }
        long long before = now();
        put(data, size);
        long long took = now() - before;
        if (took > longest) longest = took;
    }
    FILE *report = fopen(argv[4], "w");
    if (!report) return 1;
    fprintf(report, "%lld %lld\n", longest, now() - begin);
    return fclose(report) != 0;
}

static int stamps(long count, long pause) {
    char line[64];
    for (long i = 0; i < count; i++) {
        nap(pause);
        int length = snprintf(line, sizeof line, "%lld\n", now());
        put(line, (size_t)length);
    }
    return 0;
}

static int chat(double seconds) {
    char line[80];
    fill(line, sizeof line);
    long long end = now() + (long long)(seconds * 1e9);
    while (now() < end) {
        for (int i = 0; i < 20; i++) put(line, sizeof line);
        nap(1000);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 5 && !strcmp(argv[1], "blocks")) return blocks(argv, argc > 5 ? atoi(argv[5]) : 0);
    if (argc == 4 && !strcmp(argv[1], "stamps")) return stamps(atol(argv[2]), atol(argv[3]));
    if (argc == 3 && !strcmp(argv[1], "chat")) return chat(atof(argv[2]));
    return 2;
}
