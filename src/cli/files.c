/* Reading files, and saying something useful when they are not there. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

enum { MAX_NAMES = 256 };
#define MAX_FILE_BYTES ((size_t)1 << 30)

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Where scripts/quickstart.sh keeps its model. False when there is no home. */
static bool cache_dir(char *out, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (cache && cache[0] == '/')
        n = snprintf(out, size, "%s/sennit", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.cache/sennit", home);
    else
        return false;
    return n > 0 && (size_t)n < size;
}

struct names {
    char *items[MAX_NAMES];
    size_t n;
};

static void list(struct names *names, const char *dir, const char *suffix)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    struct dirent *e;
    while ((e = readdir(d)) && names->n < MAX_NAMES)
        if (e->d_name[0] != '.' && ends_with(e->d_name, suffix))
            names->items[names->n++] = strdup(e->d_name);
    closedir(d);
}

static void release(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->items[i]);
    names->n = 0;
}

static bool hint_from(const char *dir, const char *base, bool is_model)
{
    struct names names = {0};
    list(&names, dir, "");
    const char *near = opts_nearest(base, (const char *const *)names.items, names.n);
    if (near) {
        cli_hint("did you mean '%s%s%s'?", strcmp(dir, ".") ? dir : "", strcmp(dir, ".") ? "/" : "",
                 near);
        release(&names);
        return true;
    }
    release(&names);
    if (is_model)
        list(&names, dir, ".gguf");
    bool any = names.n > 0;
    if (any)
        cli_hint("%s holds '%s'%s", strcmp(dir, ".") ? dir : "this directory", names.items[0],
                 names.n > 1 ? " and others" : "");
    release(&names);
    return any;
}

static void hint_fetch(void)
{
    char dir[4096];
    struct names names = {0};
    if (cache_dir(dir, sizeof dir))
        list(&names, dir, ".gguf");
    if (names.n > 0)
        cli_hint("there is a model at %s/%s", dir, names.items[0]);
    else
        cli_hint("scripts/quickstart.sh fetches a small model (SmolLM2-135M)");
    release(&names);
}

void cli_hint_missing(const char *path, bool is_model)
{
    if (!path) {
        hint_fetch();
        return;
    }
    char dir[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof dir)
        return;
    struct stat st;
    snprintf(dir, sizeof dir, "%.*s", (int)n, path);
    if (!slash)
        snprintf(dir, sizeof dir, ".");
    else if (n == 0)
        snprintf(dir, sizeof dir, "/");
    if (stat(dir, &st) != 0) {
        cli_hint("there is no directory '%s'", dir);
        if (is_model)
            hint_fetch();
        return;
    }
    if (!hint_from(dir, slash ? slash + 1 : path, is_model) && is_model)
        hint_fetch();
}

int cli_read_file(const char *path, const char *what, struct cli_text *out)
{
    bool standard = strcmp(path, "-") == 0;
    struct stat st;
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f) {
        int code = errno;
        cli_error("cannot open the %s '%s': %s", what, path, strerror(code));
        if (code == ENOENT)
            cli_hint_missing(path, false);
        return CLI_FILE;
    }
    if (!standard && fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
        cli_error("the %s '%s' is a directory; name a file", what, path);
        fclose(f);
        return CLI_FILE;
    }
    char block[65536];
    size_t n;
    cli_text_add(out, "", 0);
    while ((n = fread(block, 1, sizeof block, f)) > 0 && out->n_bytes <= MAX_FILE_BYTES)
        cli_text_add(out, block, n);
    bool failed = ferror(f) != 0, big = out->n_bytes > MAX_FILE_BYTES;
    if (!standard)
        fclose(f);
    if (failed || big) {
        cli_error("cannot read the %s '%s': %s", what, path,
                  big ? "it is larger than 1 GiB" : strerror(errno));
        cli_text_free(out);
        return CLI_FILE;
    }
    return CLI_OK;
}
