/* How much memory there is for this process. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"

enum { MOST_PATH = 1024, MOST_LINE = 1024 };

/* Where one version of cgroups keeps what. */
struct layout {
    const char *mount, *limit, *used, *stat_inactive, *stat_active;
};
static const struct layout v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file", "total_active_file"};
static const struct layout v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"};

static FILE *open_below(const char *root, const char *dir, const char *name)
{
    char path[MOST_PATH];
    int n = snprintf(path, sizeof path, "%s%s%s", root, dir, name);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* The first number of a file; `fallback` where there is no file or no number ("max"). */
static uint64_t read_number(const char *root, const char *dir, const char *name, uint64_t fallback)
{
    char line[64], *end;
    uint64_t n = fallback;
    FILE *f = open_below(root, dir, name);
    if (!f)
        return fallback;
    if (fgets(line, sizeof line, f)) {
        unsigned long long v = strtoull(line, &end, 10);
        n = end != line ? v : fallback;
    }
    fclose(f);
    return n;
}

/* The number after `key` and blanks in a file of such lines; 0 where there is none. */
static uint64_t read_field(const char *root, const char *dir, const char *name, const char *key)
{
    char line[MOST_LINE];
    size_t n_key = strlen(key);
    uint64_t n = 0;
    FILE *f = open_below(root, dir, name);
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, n_key) == 0 && (line[n_key] == ' ' || line[n_key] == '\t')) {
            n = strtoull(line + n_key, NULL, 10);
            break;
        }
    fclose(f);
    return n;
}

static uint64_t less_by(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* What is left of the limit of the cgroup in `dir`, which ends with a slash. */
static uint64_t left_in(const char *root, const char *dir, const struct layout *l)
{
    uint64_t limit = read_number(root, dir, l->limit, UINT64_MAX);
    if (limit == UINT64_MAX)
        return UINT64_MAX;
    uint64_t cached =
        read_field(root, dir, "memory.stat", l->stat_inactive) + read_field(root, dir, "memory.stat", l->stat_active);
    return less_by(limit, less_by(read_number(root, dir, l->used, 0), cached));
}

/* The least that is left in the cgroup at `path` and all above it. A container sees its own as the top. */
static uint64_t left_up_from(const char *root, const char *path, const struct layout *l)
{
    char dir[MOST_PATH];
    size_t n_mount = strlen(l->mount);
    int n = snprintf(dir, sizeof dir - 1, "%s%s", l->mount, strstr(path, "/..") ? "" : path);
    if (n <= 0 || (size_t)n >= sizeof dir - 1)
        return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (size_t at = (size_t)n; at >= n_mount; at--) {
        if (at < (size_t)n && at > n_mount && dir[at] != '/')
            continue;
        dir[at] = '/';
        dir[at + 1] = '\0';
        uint64_t left = left_in(root, dir, l);
        least = left < least ? left : least;
    }
    return least;
}

/* Is `word` one of the words of list, which commas part? */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* Lines of /proc/self/cgroup: "4:memory,cpu:/a/b" (version 1), "0::/a/b" (version 2). */
static uint64_t left_in_cgroups(const char *root)
{
    char line[MOST_LINE];
    uint64_t least = UINT64_MAX;
    FILE *f = open_below(root, "/proc/self/", "cgroup");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        const struct layout *l = list[1] == '\0' ? &v2 : has_word(list + 1, "memory") ? &v1 : NULL;
        uint64_t left = l ? left_up_from(root, path, l) : UINT64_MAX;
        least = left < least ? left : least;
    }
    if (f)
        fclose(f);
    return least;
}

uint64_t sn_memory_available_below(const char *root)
{
    uint64_t system = read_field(root, "/proc/", "meminfo", "MemAvailable:") * 1024, left = left_in_cgroups(root);
    if (system == 0)
        return left == UINT64_MAX ? 0 : left;
    return left < system ? left : system;
}

uint64_t sn_memory_available(void)
{
    return sn_memory_available_below("");
}
