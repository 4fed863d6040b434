/* Runs a fuzz target over the files and folders (not their subfolders) named as arguments, without
 * libFuzzer: a regression test over a corpus, or a way to look at one crashing input in a debugger.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

enum { MAX_INPUT_BYTES = 64 << 20 };

static size_t n_inputs;

/* 0, or 1 when the file cannot be read. The name is printed first, so that a crash tells which
 * input it was. */
static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    uint8_t *data = malloc(MAX_INPUT_BYTES);
    size_t n = data ? fread(data, 1, MAX_INPUT_BYTES, f) : 0;
    bool failed = !data || ferror(f) || !feof(f);
    fclose(f);
    if (failed) {
        fprintf(stderr, "%s: cannot be read, or has more than %d bytes\n", path, MAX_INPUT_BYTES);
    } else {
        printf("%s (%zu bytes)\n", path, n);
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, n);
        n_inputs++;
    }
    free(data);
    return failed;
}

static int run_folder(const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort), failed = 0;
    if (n < 0) {
        perror(path);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        char file[4096];
        struct stat st;
        int len = snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (len > 0 && (size_t)len < sizeof file && stat(file, &st) == 0 && S_ISREG(st.st_mode))
            failed += run_file(file);
        free(names[i]);
    }
    free(names);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE|FOLDER...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        struct stat st;
        bool folder = stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode);
        failed += folder ? run_folder(argv[i]) : run_file(argv[i]);
    }
    printf("%zu inputs, %d unreadable\n", n_inputs, failed);
    return failed != 0 || n_inputs == 0; /* an empty corpus proves nothing */
}
