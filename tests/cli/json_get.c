/* json-get PATH...: reads one line of JSON from standard input (nothing else may be there) and
 * prints what is at each path, "rows.0.digest", one per line; "PATH#" prints the length of an
 * array. Exit 1 with a message when the input is not one line of JSON or a path leads nowhere. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_all(size_t *n)
{
    size_t cap = 1 << 16;
    char *data = malloc(cap);
    *n = 0;
    while (data) {
        size_t got = fread(data + *n, 1, cap - *n, stdin);
        *n += got;
        if (got == 0)
            return data;
        if (*n == cap)
            data = realloc(data, cap *= 2);
    }
    return NULL;
}

static const json_t *step(const json_t *v, const char *key)
{
    if (json_is_array(v)) {
        char *end;
        unsigned long i = strtoul(key, &end, 10);
        return *end ? NULL : json_array_get(v, i);
    }
    return json_object_get(v, key);
}

static int print(const json_t *root, const char *path)
{
    char copy[256];
    const json_t *v = root;
    size_t n = strlen(path);
    int length = n > 0 && path[n - 1] == '#';
    if (n >= sizeof copy)
        return 1;
    memcpy(copy, path, n + 1);
    copy[n - (size_t)length] = '\0';
    for (char *at = copy, *next; v && at && *at; at = next) {
        next = strchr(at, '.');
        if (next)
            *next++ = '\0';
        v = step(v, at);
    }
    if (!v) {
        fprintf(stderr, "json-get: nothing at %s\n", path);
        return 1;
    }
    if (length) {
        printf("%zu\n", json_is_array(v) ? json_array_size(v) : json_object_size(v));
    } else if (json_is_string(v)) {
        printf("%s\n", json_string_value(v));
    } else {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
        printf("%s\n", text ? text : "?");
        free(text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    char *data = read_all(&n);
    json_error_t err;
    int failed = 0;
    if (!data || n == 0 || memchr(data, '\n', n) != data + n - 1) {
        fprintf(stderr, "json-get: the input is not one line (%zu bytes)\n", n);
        return 1;
    }
    json_t *root = json_loadb(data, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &err);
    if (!root) {
        fprintf(stderr, "json-get: %s\n", err.text);
        return 1;
    }
    for (int i = 1; i < argc; i++)
        failed |= print(root, argv[i]);
    json_decref(root);
    free(data);
    return failed;
}
